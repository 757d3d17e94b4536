//! Objects: ranges, conditions, signatures, counters.

use super::*;
use crate::model::{ETag, UnixMillis};

#[tokio::test]
async fn ranges_are_those_of_s3() {
    let (_bucket, origin) = origin_with("k", b"0123456789");
    let url = format!("{}/data/k", origin.endpoint());
    for (range, expected, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=3-5", "345", "bytes 3-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=7-99", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
        ("bytes=0-9", "0123456789", "bytes 0-9/10"),
    ] {
        let response = client().get(&url).header("range", range).send().await.unwrap();
        assert_eq!(response.status(), 206, "{range}");
        assert_eq!(header(&response, "content-range"), Some(content_range), "{range}");
        assert_eq!(header(&response, "content-length"), Some(expected.len().to_string().as_str()), "{range}");
        assert_eq!(response.text().await.unwrap(), expected, "{range}");
    }
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let response = client().get(&url).header("range", range).send().await.unwrap();
        assert_eq!(response.status(), 416, "{range}");
        assert_eq!(header(&response, "content-range"), Some("bytes */10"), "{range}");
        assert!(response.text().await.unwrap().contains("<Code>InvalidRange</Code>"), "{range}");
    }
}

#[tokio::test]
async fn an_object_has_the_headers_of_s3_and_head_has_the_same() {
    let bucket = Arc::new(MemoryBucket::new());
    bucket.insert_modified("a//b \u{e9}", "0123456789", UnixMillis(1_700_000_000_999));
    bucket.insert("empty", "");
    let origin = origin_of(bucket);
    let url = format!("{}/data/a//b%20%C3%A9", origin.endpoint());
    let head = client().head(&url).send().await.unwrap();
    for response in [&get(url).await, &head] {
        assert_eq!(response.status(), 200);
        assert_eq!(header(response, "content-length"), Some("10"));
        assert_eq!(header(response, "etag"), Some("\"781e5e245d69b566979b86e28d23f2c7\""));
        assert_eq!(header(response, "last-modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
        assert_eq!(header(response, "accept-ranges"), Some("bytes"));
    }
    let empty = get(format!("{}/data/empty", origin.endpoint())).await;
    assert_eq!((empty.status().as_u16(), header(&empty, "content-length")), (200, Some("0")));
    let absent = get(format!("{}/data/a/b", origin.endpoint())).await;
    assert_eq!(absent.status(), 404);
    assert!(absent.text().await.unwrap().contains("<Code>NoSuchKey</Code>"));
}

#[tokio::test]
async fn conditions_hold_for_the_version_that_is_there_now() {
    let (bucket, origin) = origin_with("k", b"one");
    let url = format!("{}/data/k", origin.endpoint());
    let etag = format!("\"{}\"", bucket.get("k").unwrap().etag);
    let status = async |name: &str, value: &str| {
        let response = client().get(&url).header(name, value).send().await.unwrap();
        let status = response.status().as_u16();
        if status == 304 {
            assert_eq!(header(&response, "etag"), Some(etag.as_str()));
        }
        (status, response.text().await.unwrap())
    };
    assert_eq!(status("if-match", &etag).await, (200, "one".to_owned()));
    assert_eq!(status("if-match", "*").await.0, 200);
    assert_eq!(status("if-none-match", &etag).await, (304, String::new()));
    bucket.insert("k", "two");
    let (code, text) = status("if-match", &etag).await;
    assert_eq!(code, 412);
    assert!(text.contains("<Code>PreconditionFailed</Code>"));
    assert_eq!(status("if-none-match", &etag).await, (200, "two".to_owned()));
    origin.conditions().set_quirks([Quirk::IgnoreIfMatch]);
    assert_eq!(status("if-match", &etag).await, (200, "two".to_owned()));
    assert!(bucket.remove("k"));
    assert_eq!(status("if-match", &etag).await.0, 404);
}

#[tokio::test]
async fn synthetic_bytes_can_be_recomputed_at_any_offset_of_a_huge_object() {
    let keys = SyntheticKeys::Explicit(vec![("huge".to_owned(), MAX_OBJECT_BYTES), ("small".to_owned(), 1_000_003)]);
    let bucket = Arc::new(SyntheticBucket::new(keys).unwrap());
    let origin = origin_of(bucket.clone());
    let fetch = async |key: &str, offset: u64, length: usize| {
        let range = format!("bytes={offset}-{}", offset + length as u64 - 1);
        let url = format!("{}/data/{key}", origin.endpoint());
        let response = client().get(url).header("range", range).send().await.unwrap();
        assert_eq!(response.status(), 206);
        let etag = header(&response, "etag").unwrap().to_owned();
        let body = response.bytes().await.unwrap();
        let mut expected = vec![0; length];
        synthetic_bytes(bucket.seed(key), offset, &mut expected);
        assert!(body == expected, "{key} at {offset}");
        etag
    };
    let etag = fetch("huge", 0, 700_001).await;
    assert_eq!(fetch("huge", MAX_OBJECT_BYTES - 5, 5).await, etag);
    assert_eq!(fetch("huge", (1 << 40) + 3, 300_000).await, etag);
    assert!(matches!(ETag::parse(&etag), Some(ETag::Digest(_))));
    fetch("small", 1, 1_000_002).await;
    bucket.set_generation(1);
    assert_ne!(fetch("huge", 0, 100).await, etag);
}

#[tokio::test]
async fn counters_are_exact() {
    let bucket = Arc::new(MemoryBucket::new());
    bucket.insert("a", "12345");
    bucket.insert("b", "123");
    let origin = Origin::start(OriginConfig {
        buckets: vec![("data".to_owned(), bucket)],
        count_by_key: true,
        ..OriginConfig::default()
    })
    .unwrap();
    let client = client();
    let url = |path: &str| format!("{}/data{path}", origin.endpoint());
    let mut list_bytes = 0;
    for path in ["/a", "/a", "/b", "?list-type=2", "/a"] {
        let response = client.get(url(path)).send().await.unwrap();
        let length = response.bytes().await.unwrap().len();
        if path.starts_with('?') {
            list_bytes += length as u64;
        }
    }
    client.head(url("/a")).send().await.unwrap();
    let expected = CounterSnapshot {
        list_requests: 1,
        get_requests: 4,
        head_requests: 1,
        body_bytes_sent: 5 + 5 + 3 + 5 + list_bytes,
        connections_accepted: 1,
        in_flight_max: 1,
        ..CounterSnapshot::default()
    };
    assert_eq!(origin.counters(), expected);
    assert_eq!(origin.gets_by_key(), [("data/a".to_owned(), 3), ("data/b".to_owned(), 1)].into());
    origin.reset_counters();
    assert_eq!(origin.counters(), CounterSnapshot::default());
    assert!(origin.gets_by_key().is_empty());
}

#[tokio::test]
async fn requests_in_flight_are_counted_while_they_last() {
    let (_bucket, origin) = origin_with("k", b"0123456789");
    let hold = origin.conditions().add_fault(FaultRule::new(Fault::NoAnswer));
    let tasks: Vec<_> = (0..7).map(|_| tokio::spawn(get(format!("{}/data/k", origin.endpoint())))).collect();
    tokio::time::timeout(DEADLINE, async {
        while origin.conditions().fault_hits(hold) < 7 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!((origin.counters().in_flight_max, origin.counters().connections_accepted), (7, 7));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn stopping_ends_connections_where_they_stand() {
    let (_bucket, origin) = origin_with("k", b"0123456789");
    origin.conditions().add_fault(FaultRule::new(Fault::Stall(5)));
    let mut stream = TcpStream::connect(origin.address()).await.unwrap();
    stream.write_all(raw_get("k", "").as_bytes()).await.unwrap();
    let mut received = vec![0; 1];
    stream.read_exact(&mut received).await.unwrap();
    origin.stop();
    let rest = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut received)).await.unwrap();
    assert!(rest.is_err() || received.ends_with(b"01234"));
    assert!(TcpStream::connect(origin.address()).await.is_err());
    origin.stop();
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it() {
    let (_bucket, origin) = origin_with("k", b"");
    let error = Origin::start(OriginConfig { listen: origin.address(), ..OriginConfig::default() }).unwrap_err();
    assert!(error.to_string().contains(&origin.address().to_string()), "{error}");
}

#[tokio::test]
async fn tls_and_host_names_of_buckets_work_together() {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/src/origin/tests");
    let tls =
        TlsFiles { certificates: format!("{files}/certificate.pem").into(), key: format!("{files}/key.pem").into() };
    let bucket = Arc::new(MemoryBucket::new());
    bucket.insert("k", "secret");
    let config = OriginConfig {
        buckets: vec![("data".to_owned(), bucket)],
        domain: Some("localhost".to_owned()),
        tls: Some(tls.clone()),
        worker_threads: 2,
        ..OriginConfig::default()
    };
    let origin = Origin::start(config.clone()).unwrap();
    client();
    let pem = std::fs::read(&tls.certificates).unwrap();
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&pem).unwrap()])
        .build()
        .unwrap();
    let url = format!("{}/k", origin.endpoint());
    assert!(url.starts_with("https://127.0.0.1:"));
    let response = trusting.get(&url).header("host", "data.localhost").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "secret");
    let response = trusting.get(url.replace("/k", "/data/k")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "secret");
    assert!(client().get(&url).send().await.is_err(), "nobody else trusts this certificate");
    let swapped = TlsFiles { certificates: tls.key.clone(), key: tls.certificates };
    let error = Origin::start(OriginConfig { tls: Some(swapped), ..config }).unwrap_err();
    assert!(error.to_string().contains("PEM"), "{error}");
}
