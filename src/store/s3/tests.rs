//! The whole store against a server on loopback that plays back answers.

use std::sync::Mutex;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::auth::{Anonymous, StaticCredentials};
use super::test_support::{AWKWARD_KEYS, Answer, Server};
use super::*;
use crate::model::ObjectVersion;
use crate::store::SliceSink;

const TAG: &str = "d41d8cd98f00b204e9800998ecf8427e";
const OTHER_TAG: &str = "098f6bcd4621d373cade4e832627b4f6";
const DATE: &str = "Mon, 12 Oct 2009 17:50:30 GMT";

fn config(server: &Server) -> S3Config {
    let timeouts = Timeouts { inactivity: Duration::from_millis(200), ..Timeouts::default() };
    S3Config { endpoint: Some(server.url.clone()), timeouts, ..S3Config::new("bkt") }
}

fn test_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/store/s3/testdata/ca.pem")
}

fn signed() -> Arc<dyn CredentialsSource> {
    Arc::new(StaticCredentials::new(Credentials::new("AKID", "secret", None)))
}

fn store(server: &Server) -> S3Store {
    S3Store::new(config(server), signed()).unwrap()
}

fn get(key: &str, range: (u64, u64), size_bytes: u64, etag: Option<&str>) -> GetRequest {
    let version = ObjectVersion { etag: etag.and_then(ETag::parse), size_bytes };
    GetRequest { key: key.into(), version, range: ByteRange::new(range.0, range.1) }
}

/// A GET's result, and the bytes that reached the sink.
async fn fetch(store: &S3Store, request: &GetRequest) -> (Result<(), StoreError>, Vec<u8>) {
    let mut buffer = vec![0; usize::try_from(request.range.len()).unwrap()];
    let mut sink = SliceSink::new(&mut buffer);
    let result = store.get(request, &mut sink).await;
    let filled = sink.filled_bytes();
    buffer.truncate(filled);
    (result, buffer)
}

fn whole(body: &str) -> Answer {
    Answer::new(200, body).header("etag", &format!("\"{TAG}\""))
}

fn part(body: &str, content_range: &str) -> Answer {
    Answer::new(206, body).header("etag", &format!("\"{TAG}\"")).header("content-range", content_range)
}

fn refused(status: u16, code: &str) -> Answer {
    Answer::new(status, format!("<Error><Code>{code}</Code><Message>as told</Message></Error>"))
}

fn listed(key: &str, size: u64, etag: &str) -> Answer {
    Answer::new(
        200,
        format!(
            "<ListBucketResult><Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"{etag}\"</ETag>\
             <LastModified>2009-10-12T17:50:30.123Z</LastModified></Contents></ListBucketResult>"
        ),
    )
}

#[tokio::test]
async fn a_whole_object_is_asked_for_without_a_range_and_a_part_with_one() {
    let server = Server::start([whole("hello"), part("ell", "bytes 1-3/5")]).await;
    let store = store(&server);
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    let (result, bytes) = fetch(&store, &get("a", (1, 4), 5, Some(TAG))).await;
    result.unwrap();
    assert_eq!(bytes, b"ell");
    let seen = server.seen();
    assert_eq!((seen[0].target.as_str(), seen[0].header("range")), ("/bkt/a", None));
    assert_eq!(seen[1].header("range"), Some("bytes=1-3"));
    assert_eq!(seen[1].header("if-match"), Some(format!("\"{TAG}\"").as_str()));
    assert_eq!(seen[1].header("host"), server.url.strip_prefix("http://"));
    assert_eq!(seen[1].header("accept-encoding"), None);
    assert!(seen[1].header("authorization").unwrap().starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
    assert_eq!(seen[0].connection, seen[1].connection, "the connection is used again");
}

#[tokio::test]
async fn an_answer_of_other_bytes_reaches_no_sink() {
    let etag = format!("\"{OTHER_TAG}\"");
    let other_tag = |answer: Answer| answer.header("last-modified", DATE);
    for (name, answer, kind) in [
        ("the whole object for a range", whole("hello"), Kind::BadResponse),
        ("another range under 200", whole("hel").header("content-range", "bytes 0-2/5"), Kind::BadResponse),
        ("a range named wrongly", part("ell", "bytes one to three"), Kind::BadResponse),
        ("another range", part("hel", "bytes 0-2/5"), Kind::BadResponse),
        ("a range of another length", part("el", "bytes 1-2/5"), Kind::BadResponse),
        ("a range of an object of another size", part("ell", "bytes 1-3/6"), Kind::BadResponse),
        ("no range named", Answer::new(206, "ell").header("etag", TAG), Kind::BadResponse),
        ("a length that is not the range's", part("ello", "bytes 1-3/5"), Kind::BadResponse),
        ("a longer object under the same tag", part("ell", "bytes 1-3/50"), Kind::BadResponse),
        ("no content", Answer::new(204, "").header("etag", TAG), Kind::BadResponse),
        (
            "another tag",
            other_tag(Answer::new(206, "ell").header("etag", &etag).header("content-range", "bytes 1-3/5")),
            Kind::Changed,
        ),
        ("a refused condition", refused(412, "PreconditionFailed"), Kind::Changed),
        ("a shorter object", refused(416, "InvalidRange"), Kind::Changed),
    ] {
        // The first answer teaches that this store forms its tags alike.
        let server = Server::start([whole("hello"), answer]).await;
        let store = store(&server);
        fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.0.unwrap();
        let (result, bytes) = fetch(&store, &get("a", (1, 4), 5, Some(TAG))).await;
        assert_eq!((result.unwrap_err().kind(), bytes.len()), (&kind, 0), "{name}");
        assert_eq!(server.seen().len(), 2, "{name}");
    }
}

#[tokio::test]
async fn a_range_that_is_named_is_taken_under_200_too() {
    let server = Server::start([whole("ell").header("content-range", "bytes 1-3/5")]).await;
    let (result, bytes) = fetch(&store(&server), &get("a", (1, 4), 5, Some(TAG))).await;
    result.unwrap();
    assert_eq!(bytes, b"ell");
}

#[tokio::test]
async fn without_a_tag_the_size_tells_versions_apart() {
    for answer in [Answer::new(200, "hello!"), Answer::new(206, "hello").header("content-range", "bytes 0-4/6")] {
        let server = Server::start([answer, Answer::new(200, "hello")]).await;
        let store = store(&server);
        let (result, bytes) = fetch(&store, &get("a", (0, 5), 5, None)).await;
        assert_eq!((result.unwrap_err().kind(), bytes.len()), (&Kind::Changed, 0));
        assert_eq!(fetch(&store, &get("a", (0, 5), 5, None)).await.1, b"hello");
        assert_eq!(server.seen()[1].header("if-match"), None);
    }
}

#[tokio::test]
async fn without_a_tag_and_a_length_a_longer_body_is_another_version() {
    // All bytes had been handed over by then, and the error counted as one after the last byte: the object seemed whole.
    let server = Server::start([Answer::chunked(200, &[b"hello", b"!"])]).await;
    let (result, _) = fetch(&store(&server), &get("a", (0, 5), 5, None)).await;
    assert_eq!(*result.unwrap_err().kind(), Kind::Changed);
}

#[tokio::test]
async fn bytes_that_were_compressed_on_the_way_reach_no_sink() {
    let packed = |answer: Answer| answer.header("etag", &format!("W/\"{TAG}\"")).header("content-encoding", "gzip");
    let server = Server::start([packed(Answer::chunked(200, &[b"pac"])), packed(Answer::new(200, "hello"))]).await;
    let store = store(&server);
    let (result, bytes) = fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await;
    assert_eq!((result.unwrap_err().kind(), bytes.len()), (&Kind::BadResponse, 0));
    // An object that was stored compressed has its length.
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
}

#[tokio::test]
async fn a_body_that_fails_leaves_a_correct_prefix() {
    let chunked = |pieces: &[&[u8]]| Answer::chunked(200, pieces).header("etag", TAG);
    for (name, answer, kind, prefix) in [
        ("ends early", whole("hello").cut_at(3), Some(Kind::Interrupted), &b"hel"[..]),
        ("stalls", whole("hello").stalled_at(3), Some(Kind::Interrupted), b"hel"),
        ("chunked and short", chunked(&[b"he", b"l"]), Some(Kind::Interrupted), b"hel"),
        ("chunked and longer", chunked(&[b"hel", b"lo", b"!"]), Some(Kind::BadResponse), b"hello"),
        ("chunked and right", chunked(&[b"he", b"llo"]), None, b"hello"),
        ("chunked without an end", chunked(&[b"hello"]).stalled_at(10), None, b"hello"),
    ] {
        let server = Server::start([answer]).await;
        let (result, bytes) = fetch(&store(&server), &get("a", (0, 5), 5, Some(TAG))).await;
        assert_eq!(result.err().map(|error| error.kind().clone()), kind, "{name}");
        assert_eq!(bytes, prefix, "{name}");
    }
}

#[tokio::test]
async fn tags_that_differ_in_form_only_are_one_version() {
    for etag in [format!("W/\"{TAG}\""), TAG.to_owned(), format!("\"{}\"", TAG.to_ascii_uppercase())] {
        let server = Server::start([Answer::new(200, "hello").header("etag", &etag)]).await;
        fetch(&store(&server), &get("a", (0, 5), 5, Some(TAG))).await.0.unwrap();
        assert_eq!(server.seen().len(), 1, "{etag}");
    }
}

fn formed_otherwise(tag: &str) -> Answer {
    Answer::new(200, "hello").header("etag", &format!("\"{tag}-gw\"")).header("last-modified", DATE)
}

#[tokio::test]
async fn a_store_that_forms_tags_differently_in_get_is_asked_once() {
    let server = Server::start([
        formed_otherwise(TAG),
        listed("a", 5, TAG),
        formed_otherwise(TAG),
        formed_otherwise(OTHER_TAG),
        formed_otherwise(TAG),
        listed("c", 5, OTHER_TAG),
    ])
    .await;
    let store = store(&server);
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    assert_eq!(fetch(&store, &get("b", (0, 5), 5, Some(OTHER_TAG))).await.1, b"hello");
    let targets: Vec<String> = server.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/bkt/a", "/bkt?encoding-type=url&list-type=2&max-keys=1&prefix=a", "/bkt/a", "/bkt/b"]);
}

#[tokio::test]
async fn a_changed_object_is_never_taken_for_a_difference_of_form() {
    let other = || Answer::new(200, "jello").header("etag", OTHER_TAG);
    for (name, answer, listing) in [
        ("the listing has the new version", other().header("last-modified", DATE), listed("a", 5, OTHER_TAG)),
        ("it is gone", other().header("last-modified", DATE), listed("ab", 5, TAG)),
        ("another size", other().header("last-modified", DATE), listed("a", 6, TAG)),
        ("a listing that lags", other().header("last-modified", "Mon, 12 Oct 2009 17:50:31 GMT"), listed("a", 5, TAG)),
        ("no date", other(), listed("a", 5, TAG)),
        ("a listing that is denied", other().header("last-modified", DATE), refused(403, "AccessDenied")),
    ] {
        let server = Server::start([answer, listing]).await;
        let (result, bytes) = fetch(&store(&server), &get("a", (0, 5), 5, Some(TAG))).await;
        assert_eq!((result.unwrap_err().kind(), bytes.len()), (&Kind::Changed, 0), "{name}");
    }
}

#[tokio::test]
async fn a_condition_refused_over_the_form_of_a_tag_is_left_out_from_then_on() {
    let server = Server::start([
        refused(412, "PreconditionFailed"),
        formed_otherwise(TAG),
        listed("a", 5, TAG),
        formed_otherwise(TAG),
    ])
    .await;
    let store = store(&server);
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    let conditions: Vec<bool> = server.seen().iter().map(|seen| seen.header("if-match").is_some()).collect();
    assert_eq!(conditions, [true, false, false, false]);
}

#[tokio::test]
async fn awkward_keys_are_asked_for_byte_for_byte() {
    let answers = (0..AWKWARD_KEYS.len()).map(|_| whole("x"));
    let server = Server::start(answers).await;
    let store = store(&server);
    for key in AWKWARD_KEYS {
        let request = GetRequest { key: (*key).into(), ..get("", (0, 1), 1, Some(TAG)) };
        fetch(&store, &request).await.0.unwrap();
    }
    for (seen, key) in server.seen().iter().zip(AWKWARD_KEYS) {
        let path = seen.target.strip_prefix("/bkt/").unwrap();
        assert_eq!(percent_encoding::percent_decode_str(path).collect::<Vec<u8>>(), *key, "{path}");
    }
}

#[tokio::test]
async fn a_key_that_no_url_can_name_is_refused_without_a_request() {
    let server = Server::start([]).await;
    let (result, _) = fetch(&store(&server), &get("a/../b", (0, 1), 1, None)).await;
    assert_eq!(result.unwrap_err().kind(), &Kind::InvalidRequest);
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_range_outside_the_object_is_refused_without_a_request() {
    let server = Server::start([]).await;
    let store = store(&server);
    for range in [(0, 0), (5, 5), (3, 6)] {
        let request = get("a", range, 5, None);
        let error = store.get(&request, &mut SliceSink::new(&mut [0; 8])).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::InvalidRequest);
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn anonymous_requests_carry_no_signature() {
    let server = Server::start([whole("hello"), refused(403, "AccessDenied")]).await;
    let store = S3Store::new(config(&server), Arc::new(Anonymous)).unwrap();
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert!(error.to_string().contains("--no-sign-request"), "{error}");
    for seen in server.seen() {
        assert_eq!((seen.header("authorization"), seen.header("x-amz-date")), (None, None));
    }
}

#[tokio::test]
async fn requester_pays_is_said_and_signed() {
    let server = Server::start([whole("hello")]).await;
    let config = S3Config { requester_pays: true, ..config(&server) };
    fetch(&S3Store::new(config, signed()).unwrap(), &get("a", (0, 5), 5, None)).await.0.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.header("x-amz-request-payer"), Some("requester"));
    assert!(seen.header("authorization").unwrap().contains(";x-amz-request-payer,"));
}

#[tokio::test]
async fn gcs_is_asked_for_the_bytes_as_stored_and_the_header_is_not_signed() {
    let server = Server::start([whole("hello").header("content-encoding", "gzip")]).await;
    let config = S3Config { dialect: Some(Dialect::Gcs), ..config(&server) };
    let (result, bytes) = fetch(&S3Store::new(config, signed()).unwrap(), &get("a", (0, 5), 5, None)).await;
    result.unwrap();
    assert_eq!(bytes, b"hello", "raw bytes, whatever their encoding");
    let seen = &server.seen()[0];
    assert_eq!(seen.header("accept-encoding"), Some("gzip"));
    assert!(!seen.header("authorization").unwrap().contains("accept-encoding"));
}

#[tokio::test]
async fn another_region_is_followed_once_and_remembered() {
    let server = Server::start([
        refused(301, "PermanentRedirect").header("x-amz-bucket-region", "eu-west-1"),
        whole("hello"),
        whole("hello"),
    ])
    .await;
    let store = store(&server);
    assert_eq!(store.describe().region, "us-east-1");
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    assert_eq!(store.describe().region, "eu-west-1");
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    for (seen, region) in seen.iter().zip(["us-east-1", "eu-west-1", "eu-west-1"]) {
        assert!(seen.header("authorization").unwrap().contains(region));
    }
}

#[tokio::test]
async fn a_listing_follows_the_bucket_to_its_region_too() {
    let moved = Answer::new(400, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>");
    let server = Server::start([moved, listed("a", 5, TAG), whole("hello")]).await;
    let store = store(&server);
    assert_eq!(store.list(&ListRequest::default()).await.unwrap().objects.len(), 1);
    fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.0.unwrap();
    assert_eq!((store.describe().region.as_str(), server.seen().len()), ("eu-west-1", 3));
}

#[tokio::test]
async fn a_store_that_sends_us_back_and_forth_is_not_followed_for_ever() {
    let to = |region: &str| {
        let body = format!("<Error><Code>AuthorizationHeaderMalformed</Code><Region>{region}</Region></Error>");
        Answer::new(400, body)
    };
    let server = Server::start([to("eu-west-1"), to("eu-west-2"), to("eu-west-1")]).await;
    let error = fetch(&store(&server), &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::WrongRegion(Some("eu-west-2".into())));
    assert!(error.to_string().contains("--region"), "{error}");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_foreign_redirect_is_reported_and_not_followed() {
    let server = Server::start([Answer::new(307, "").header("location", "http://elsewhere.example/bkt/a")]).await;
    let error = fetch(&store(&server), &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::WrongRegion(None));
    assert!(error.to_string().contains("elsewhere.example"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn the_clock_of_the_store_is_adopted() {
    let server = Server::start([
        refused(403, "RequestTimeTooSkewed").header("date", "Fri, 01 Jan 2038 12:00:00 GMT"),
        whole("hello"),
        whole("hello"),
    ])
    .await;
    let store = store(&server);
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    let seen = server.seen();
    assert!(!seen[0].header("x-amz-date").unwrap().starts_with("20380101T12"));
    assert!(seen[1].header("x-amz-date").unwrap().starts_with("20380101T12"));
    assert!(seen[2].header("x-amz-date").unwrap().starts_with("20380101T12"));
}

#[tokio::test]
async fn a_skew_that_is_none_is_an_error_at_once() {
    let skewed = || refused(403, "RequestTimeTooSkewed");
    let server = Server::start([skewed().header("date", "Fri, 01 Jan 2038 12:00:00 GMT"), skewed()]).await;
    let error = fetch(&store(&server), &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::ClockSkew(None));
    assert_eq!(server.seen().len(), 2);
}

/// Hands out the next set at every refresh, as long as there are any.
#[derive(Debug)]
struct Rotating {
    current: Mutex<Arc<Credentials>>,
    later: Mutex<Vec<Credentials>>,
    refreshes: AtomicI64,
}

impl Rotating {
    fn new(later: Vec<Credentials>) -> Arc<Rotating> {
        let current = Mutex::new(Arc::new(Credentials::new("OLD", "s", Some("old-token".into()))));
        Arc::new(Rotating { current, later: Mutex::new(later), refreshes: AtomicI64::new(0) })
    }
}

impl CredentialsSource for Rotating {
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>> {
        let current = self.current.lock().unwrap().clone();
        Box::pin(async move { Ok(Some(current)) })
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        if let Some(next) = self.later.lock().unwrap().pop() {
            *self.current.lock().unwrap() = Arc::new(next);
        }
        Box::pin(async {})
    }
}

#[tokio::test]
async fn expired_credentials_are_refreshed_once_and_the_request_replayed() {
    let server = Server::start([refused(400, "ExpiredToken"), whole("hello")]).await;
    let source = Rotating::new(vec![Credentials::new("NEW", "s", Some("new-token".into()))]);
    let store = S3Store::new(config(&server), source.clone()).unwrap();
    fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("x-amz-security-token"), Some("old-token"));
    assert_eq!(seen[1].header("x-amz-security-token"), Some("new-token"));
    assert!(seen[1].header("authorization").unwrap().contains("Credential=NEW/"));
    assert_eq!(source.refreshes.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn credentials_that_stay_expired_are_an_error_and_no_replay() {
    let server = Server::start([refused(400, "ExpiredToken")]).await;
    let store = S3Store::new(config(&server), Rotating::new(Vec::new())).unwrap();
    let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::ExpiredCredentials);
    assert_eq!(server.seen().len(), 1);
}

#[derive(Debug)]
struct Without(CredentialsError);

impl CredentialsSource for Without {
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>> {
        let error = self.0.clone();
        Box::pin(async { Err(error) })
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let server = Server::start([]).await;
    for (why, kind) in [
        (CredentialsError::Unavailable("no provider has any".into()), Kind::Credentials),
        (CredentialsError::NotRenewed("no provider has any".into()), Kind::ExpiredCredentials),
    ] {
        let store = S3Store::new(config(&server), Arc::new(Without(why))).unwrap();
        let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
        assert_eq!(error.kind(), &kind);
        assert!(error.to_string().contains("no provider has any"), "{error}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_throttle_carries_the_delay_and_is_not_tried_again_here() {
    let server = Server::start([refused(503, "SlowDown").header("retry-after", "2")]).await;
    let error = fetch(&store(&server), &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::Throttled(Some(Duration::from_secs(2))));
    assert_eq!((error.code(), server.seen().len()), (Some("SlowDown"), 1));
}

#[tokio::test]
async fn a_403_of_r2_is_a_throttle_once_it_has_served() {
    let server = Server::start([refused(403, "AccessDenied"), whole("hello"), refused(403, "AccessDenied")]).await;
    let config = S3Config { dialect: Some(Dialect::R2), ..config(&server) };
    let store = S3Store::new(config, signed()).unwrap();
    let request = get("a", (0, 5), 5, None);
    assert_eq!(fetch(&store, &request).await.0.unwrap_err().kind(), &Kind::AccessDenied);
    fetch(&store, &request).await.0.unwrap();
    assert_eq!(fetch(&store, &request).await.0.unwrap_err().kind(), &Kind::Throttled(None));
}

#[tokio::test]
async fn a_connection_closed_between_requests_is_not_noticed() {
    let server = Server::start([whole("hello").then_closed(), whole("hello"), Answer::hang_up(), whole("hello")]).await;
    let store = store(&server);
    for _ in 0..3 {
        assert_eq!(fetch(&store, &get("a", (0, 5), 5, Some(TAG))).await.1, b"hello");
    }
    assert_eq!(server.seen().len(), 4, "the third was hung up on, and asked again");
}

#[tokio::test]
async fn a_store_that_always_hangs_up_is_unavailable() {
    let server = Server::start([Answer::hang_up(), Answer::hang_up(), Answer::hang_up()]).await;
    let error = fetch(&store(&server), &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unavailable);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn silence_is_unavailable() {
    let server = Server::start([Answer::silence()]).await;
    let mut config = config(&server);
    config.timeouts.first_byte = Duration::from_millis(100);
    let store = S3Store::new(config, signed()).unwrap();
    let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unavailable);
    assert!(error.to_string().contains("no answer within 0.1 s"), "{error}");
}

#[tokio::test]
async fn why_there_is_no_connection_is_spelled_out() {
    let free_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let no_tls = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let no_tls_port = no_tls.local_addr().unwrap();
    let plain = tokio::spawn(async move {
        let (mut stream, _) = no_tls.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let server = Server::start([]).await;
    for (endpoint, words) in [
        (format!("http://{free_port}"), "connection refused"),
        // Too long for a name: refused by the resolver without asking anybody.
        (format!("http://{}.example", "x".repeat(64)), "cannot be resolved"),
        (format!("https://{no_tls_port}"), "does not speak TLS"),
    ] {
        let config = S3Config { endpoint: Some(endpoint.clone()), ca_bundle: Some(test_root()), ..config(&server) };
        let store = S3Store::new(config, signed()).unwrap();
        let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
        assert_eq!(error.kind(), &Kind::NoConnection, "{error}");
        assert!(error.to_string().contains(words), "{endpoint}: {error}");
    }
    plain.await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_trusted_with_its_root_only() {
    let port = test_support::serve_tls(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    let endpoint = Some(format!("https://127.0.0.1:{port}"));
    let without = S3Config { endpoint: endpoint.clone(), ..S3Config::new("bkt") };
    let request = get("a", (0, 5), 5, None);
    let said = match S3Store::new(without.clone(), signed()) {
        Ok(store) => fetch(&store, &request).await.0.unwrap_err().to_string(),
        // A machine without any root certificates is told so at once.
        Err(error) => error.to_string(),
    };
    assert!(said.contains("--ca-bundle"), "{said}");
    let with = S3Config { ca_bundle: Some(test_root()), ..without };
    assert_eq!(fetch(&S3Store::new(with, signed()).unwrap(), &request).await.1, b"hello");
}

#[tokio::test]
async fn no_error_and_no_description_shows_a_secret() {
    let server = Server::start([refused(403, "SignatureDoesNotMatch")]).await;
    let credentials = Credentials::new("AKID", "hunter2", Some("tok3n".into()));
    let store = S3Store::new(config(&server), Arc::new(StaticCredentials::new(credentials))).unwrap();
    let error = fetch(&store, &get("a", (0, 5), 5, None)).await.0.unwrap_err();
    let signature = server.seen()[0].header("authorization").unwrap().rsplit('=').next().unwrap().to_owned();
    let shown = format!("{error} {error:?} {store:?} {}", store.describe());
    for secret in ["hunter2", "tok3n", signature.as_str()] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn pages_are_listed_with_the_token_of_the_last() {
    let page = |key: &str, more: &str| {
        let body =
            format!("<ListBucketResult><Contents><Key>{key}</Key><Size>1</Size></Contents>{more}</ListBucketResult>");
        Answer::new(200, body)
    };
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>to/ken</NextContinuationToken>";
    let server = Server::start([page("p/a", more), page("p/b", "<IsTruncated>false</IsTruncated>")]).await;
    let store = store(&server);
    let mut request = ListRequest { prefix: "p/".into(), ..ListRequest::default() };
    let first = store.list(&request).await.unwrap();
    request.continuation = first.next;
    let second = store.list(&request).await.unwrap();
    assert_eq!((first.objects[0].key.clone(), second.objects[0].key.clone()), ("p/a".into(), "p/b".into()));
    assert_eq!(second.next, None);
    let seen = server.seen();
    assert_eq!(seen[0].target, "/bkt?encoding-type=url&list-type=2&prefix=p%2F");
    assert_eq!(seen[1].target, "/bkt?continuation-token=to%2Fken&encoding-type=url&list-type=2&prefix=p%2F");
}

#[tokio::test]
async fn a_listing_that_breaks_off_is_no_page() {
    let body = "<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>";
    for (answer, kind) in [
        (Answer::new(200, body).cut_at(60), Kind::Interrupted),
        (Answer::new(200, body).stalled_at(60), Kind::Interrupted),
        (Answer::new(200, &body[..60]), Kind::BadResponse),
        (refused(404, "NoSuchBucket"), Kind::NoSuchBucket),
    ] {
        let server = Server::start([answer]).await;
        let error = store(&server).list(&ListRequest::default()).await.unwrap_err();
        assert_eq!(error.kind(), &kind, "{error}");
    }
}

#[tokio::test]
async fn a_ca_bundle_is_read_at_once_and_refused_when_it_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("roots.pem");
    let server = Server::start([]).await;
    let config = S3Config { ca_bundle: Some(path.clone()), ..config(&server) };
    let refused = |config: S3Config| S3Store::new(config, signed()).unwrap_err().to_string();
    assert!(refused(config.clone()).contains("No such file"));
    std::fs::write(&path, "not a certificate").unwrap();
    assert!(refused(config).contains("no certificate in PEM form"));
}
