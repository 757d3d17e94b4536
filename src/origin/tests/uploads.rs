//! Signed requests and uploads, with the SDK that other programs use.

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};

use super::*;

const ACCESS_KEY: &str = "AKIATEST";
const SECRET: &str = "correct/secret";

fn signed_origin(bucket: Arc<dyn Bucket>) -> Origin {
    Origin::start(OriginConfig {
        credentials: Some((ACCESS_KEY.to_owned(), SECRET.to_owned())),
        region: "eu-central-1".to_owned(),
        buckets: vec![("data".to_owned(), bucket)],
        ..OriginConfig::default()
    })
    .unwrap()
}

fn sdk(origin: &Origin, access_key: &str, secret: &str) -> aws_sdk_s3::Client {
    sdk_in("eu-central-1", origin, access_key, secret)
}

fn sdk_in(region: &'static str, origin: &Origin, access_key: &str, secret: &str) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region))
        .endpoint_url(origin.endpoint())
        .force_path_style(true)
        .credentials_provider(Credentials::new(access_key, secret, None, None, "test"))
        .retry_config(aws_sdk_s3::config::retry::RetryConfig::disabled())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    aws_sdk_s3::Client::from_conf(config)
}

#[tokio::test]
async fn only_the_right_signature_is_answered() {
    let bucket = Arc::new(MemoryBucket::new());
    bucket.insert("a b/\u{e9}+", "content");
    let origin = signed_origin(bucket);
    let read = async |access_key: &str, secret: &str| {
        let client = sdk(&origin, access_key, secret);
        let listed = client.list_objects_v2().bucket("data").prefix("a b").send().await;
        let got = client.get_object().bucket("data").key("a b/\u{e9}+").range("bytes=1-").send().await;
        (listed.map_err(|e| e.code().unwrap().to_owned()), got.map_err(|e| e.code().unwrap().to_owned()))
    };
    let (listed, got) = read(ACCESS_KEY, SECRET).await;
    assert_eq!(listed.unwrap().contents()[0].key(), Some("a b/\u{e9}+"));
    assert_eq!(got.unwrap().body.collect().await.unwrap().to_vec(), b"ontent");
    let (listed, got) = read(ACCESS_KEY, "wrong").await;
    assert_eq!(
        (listed.unwrap_err().as_str(), got.unwrap_err().as_str()),
        ("SignatureDoesNotMatch", "SignatureDoesNotMatch")
    );
    let (listed, got) = read("AKIAOTHER", SECRET).await;
    assert_eq!((listed.unwrap_err().as_str(), got.unwrap_err().as_str()), ("InvalidAccessKeyId", "InvalidAccessKeyId"));
    for path in ["/data?list-type=2", "/data/a%20b/%C3%A9%2B", "/"] {
        let response = get(format!("{}{path}", origin.endpoint())).await;
        assert_eq!(response.status(), 403, "{path}");
        assert!(response.text().await.unwrap().contains("<Code>AccessDenied</Code>"), "{path}");
    }
}

#[tokio::test]
async fn a_signature_for_another_region_is_told_the_right_one() {
    let origin = signed_origin(Arc::new(MemoryBucket::new()));
    let client = sdk_in("us-east-1", &origin, ACCESS_KEY, SECRET);
    let error = client.list_objects_v2().bucket("data").send().await.unwrap_err();
    assert_eq!(error.code(), Some("AuthorizationHeaderMalformed"));
    assert!(error.message().unwrap().contains("expecting 'eu-central-1'"));
    let response = error.raw_response().unwrap();
    assert_eq!(response.headers().get("x-amz-bucket-region"), Some("eu-central-1"));
}

#[tokio::test]
async fn credentials_can_be_rotated_while_the_server_runs() {
    let origin = signed_origin(Arc::new(MemoryBucket::new()));
    let code = async |access_key: &str, secret: &str| {
        let listed = sdk(&origin, access_key, secret).list_objects_v2().bucket("data").send().await;
        listed.err().map(|error| error.code().unwrap().to_owned())
    };
    assert_eq!(code(ACCESS_KEY, SECRET).await, None);
    origin.set_credentials("AKIANEW", "new");
    assert_eq!(code(ACCESS_KEY, SECRET).await.as_deref(), Some("InvalidAccessKeyId"));
    assert_eq!(code("AKIANEW", "new").await, None);
}

#[tokio::test]
async fn objects_can_be_put_read_and_deleted_with_their_headers() {
    let bucket = Arc::new(MemoryBucket::new());
    let origin = signed_origin(bucket.clone());
    let client = sdk(&origin, ACCESS_KEY, SECRET);
    let put = client.put_object().bucket("data").key("k").content_type("text/plain").metadata("mtime", "7");
    let put = put.body(ByteStream::from_static(b"0123456789")).send().await.unwrap();
    assert_eq!(put.e_tag(), Some("\"781e5e245d69b566979b86e28d23f2c7\""));
    assert_eq!(bucket.get("k").unwrap().size_bytes, 10);
    let head = client.head_object().bucket("data").key("k").send().await.unwrap();
    assert_eq!((head.content_type(), head.content_length()), (Some("text/plain"), Some(10)));
    assert_eq!(head.metadata().unwrap()["mtime"], "7");
    let again = client.put_object().bucket("data").key("k").if_none_match("*").send().await.unwrap_err();
    assert_eq!(again.code(), Some("PreconditionFailed"));
    client.delete_object().bucket("data").key("k").send().await.unwrap();
    assert!(bucket.is_empty());
    client.delete_object().bucket("data").key("k").send().await.unwrap();
}

#[tokio::test]
async fn an_upload_in_parts_becomes_one_object_with_the_tag_of_its_parts() {
    let bucket = Arc::new(MemoryBucket::new());
    let origin = signed_origin(bucket.clone());
    let client = sdk(&origin, ACCESS_KEY, SECRET);
    let created = client.create_multipart_upload().bucket("data").key("k").send().await.unwrap();
    let id = created.upload_id().unwrap();
    let mut parts = Vec::new();
    for number in [2, 1, 3] {
        let body = ByteStream::from(vec![b'0' + u8::try_from(number).unwrap(); 1000]);
        let part = client.upload_part().bucket("data").key("k").upload_id(id).part_number(number).body(body);
        let etag = part.send().await.unwrap().e_tag().unwrap().to_owned();
        parts.push(CompletedPart::builder().part_number(number).e_tag(etag).build());
    }
    let complete = async |parts: &[CompletedPart]| {
        let upload = CompletedMultipartUpload::builder().set_parts(Some(parts.to_vec())).build();
        let request = client.complete_multipart_upload().bucket("data").key("k").upload_id(id);
        request.multipart_upload(upload).send().await.map_err(|e| e.code().unwrap().to_owned())
    };
    assert_eq!(complete(&parts).await.unwrap_err(), "InvalidPartOrder");
    parts.pop();
    parts.sort_by_key(|part| part.part_number);
    let done = complete(&parts).await.unwrap();
    assert!(done.e_tag().unwrap().ends_with("-2\""));
    assert_eq!(complete(&parts).await.unwrap_err(), "NoSuchUpload");
    let read = client.get_object().bucket("data").key("k").send().await.unwrap();
    let expected = [[b'1'; 1000], [b'2'; 1000]].concat();
    assert_eq!(read.body.collect().await.unwrap().to_vec(), expected);
}

#[tokio::test]
async fn buckets_answer_what_clients_ask_before_they_begin() {
    let keys = SyntheticKeys::Explicit(Vec::new());
    let origin = signed_origin(Arc::new(SyntheticBucket::new(keys).unwrap()));
    let client = sdk(&origin, ACCESS_KEY, SECRET);
    client.head_bucket().bucket("data").send().await.unwrap();
    assert!(client.head_bucket().bucket("none").send().await.is_err());
    let location = client.get_bucket_location().bucket("data").send().await.unwrap();
    assert_eq!(location.location_constraint().unwrap().as_str(), "eu-central-1");
    let buckets = client.list_buckets().send().await.unwrap();
    assert_eq!(buckets.buckets()[0].name(), Some("data"));
    let created = client.create_bucket().bucket("data").send().await.unwrap_err();
    assert_eq!(created.code(), Some("BucketAlreadyOwnedByYou"));
    let put = client.put_object().bucket("data").key("k").send().await.unwrap_err();
    assert_eq!(put.code(), Some("AccessDenied"));
}
