//! Conditions and faults as a client meets them.

use std::time::Instant;

use super::*;

const CONTENT: &[u8] = b"0123456789";

/// The answer to one GET of `k` under a fault that is played once, on a connection that is asked to close.
async fn under(fault: Fault, headers: &str) -> (Vec<u8>, std::io::Result<()>) {
    let (_bucket, origin) = origin_with("k", CONTENT);
    let id = origin.conditions().add_fault(FaultRule::new(fault).verb(Verb::Get).times(1));
    let answer = raw(&origin, &raw_get("k", &format!("Connection: close\r\n{headers}"))).await;
    assert_eq!((origin.conditions().fault_hits(id), origin.counters().faulted_requests), (1, 1));
    let (calm, _) = raw(&origin, &raw_get("k", "Connection: close\r\n")).await;
    assert_eq!(split(&calm).1, CONTENT, "a fault is over when it was played as often as said");
    answer
}

#[tokio::test]
async fn a_status_comes_with_its_code() {
    for (status, code) in [(503, "SlowDown"), (403, "AccessDenied"), (500, "InternalError")] {
        let (answer, _) = under(Fault::Status(status, code), "").await;
        let (head, body) = split(&answer);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        assert!(String::from_utf8_lossy(body).contains(&format!("<Code>{code}</Code>")));
    }
}

#[tokio::test]
async fn a_connection_can_be_closed_or_reset_before_the_answer() {
    let (answer, end) = under(Fault::CloseBeforeAnswer, "").await;
    assert!(answer.is_empty() && end.is_ok());
    let (answer, end) = under(Fault::ResetConnection, "").await;
    assert!(answer.is_empty());
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_body_can_end_early_after_exactly_so_many_bytes() {
    for bytes in [0, 1, 9] {
        let (answer, end) = under(Fault::EarlyEnd(bytes), "").await;
        let (head, body) = split(&answer);
        assert!(head.contains("content-length: 10"), "{head}");
        assert_eq!(body.len() as u64, bytes);
        assert!(end.is_ok());
    }
    let (answer, _) = under(Fault::EarlyEnd(10), "").await;
    assert_eq!(split(&answer).1, CONTENT);
    let (_, end) = under(Fault::EarlyReset(4), "").await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_large_body_that_ends_early_has_sent_every_byte_before() {
    let size_bytes = 20_000_000;
    let keys = SyntheticKeys::Explicit(vec![("k".to_owned(), size_bytes)]);
    let origin = origin_of(Arc::new(SyntheticBucket::new(keys).unwrap()));
    origin.conditions().add_fault(FaultRule::new(Fault::EarlyEnd(size_bytes - 1)));
    let (answer, _) = raw(&origin, &raw_get("k", "")).await;
    assert_eq!(split(&answer).1.len() as u64, size_bytes - 1);
    assert_eq!(origin.counters().body_bytes_sent, size_bytes - 1);
}

#[tokio::test]
async fn a_body_can_be_longer_than_its_length_says() {
    let (answer, _) = under(Fault::ExtraBytes(3000), "").await;
    let (head, body) = split(&answer);
    assert!(head.contains("content-length: 10"), "{head}");
    assert_eq!((&body[..10], body.len()), (CONTENT, 3010));
}

#[tokio::test]
async fn an_answer_can_stall_before_or_within() {
    for (fault, expected) in [(Fault::NoAnswer, None), (Fault::Stall(0), Some(0)), (Fault::Stall(4), Some(4))] {
        let (_bucket, origin) = origin_with("k", CONTENT);
        let id = origin.conditions().add_fault(FaultRule::new(fault));
        let mut stream = TcpStream::connect(origin.address()).await.unwrap();
        stream.write_all(raw_get("k", "").as_bytes()).await.unwrap();
        let mut received = Vec::new();
        if let Some(expected) = expected {
            let complete = |received: &[u8]| {
                let head = received.windows(4).position(|window| window == b"\r\n\r\n");
                head.is_some_and(|end| received.len() - end - 4 == expected)
            };
            while !complete(&received) {
                let read = tokio::time::timeout(DEADLINE, stream.read_buf(&mut received)).await;
                assert_ne!(read.unwrap().unwrap(), 0);
            }
        }
        // That nothing more ever comes cannot be waited for; half a second tells a stall from a slow answer.
        let more = tokio::time::timeout(Duration::from_millis(500), stream.read_buf(&mut received)).await;
        assert!(more.is_err(), "the connection stays open and silent");
        assert_eq!(origin.conditions().fault_hits(id), 1);
    }
}

#[tokio::test]
async fn headers_can_contradict_the_bytes() {
    let range = "Range: bytes=2-4\r\n";
    let (answer, _) = under(Fault::Status200ForRange, range).await;
    let (head, body) = split(&answer);
    assert!(head.starts_with("http/1.1 200") && !head.contains("content-range"), "{head}");
    assert_eq!(body, CONTENT);
    let (answer, _) = under(Fault::WrongContentRange, range).await;
    let (head, body) = split(&answer);
    assert!(head.contains("content-range: bytes 3-5/10"), "{head}");
    assert_eq!(body, b"234");
    let (answer, _) = under(Fault::OtherETag, "").await;
    assert!(split(&answer).0.contains("etag: \"0123456789abcdef0123456789abcdef\""));
    let (answer, _) = under(Fault::NoETag, "").await;
    assert!(!split(&answer).0.contains("etag"));
    let (answer, _) = under(Fault::ChunkedNoLength, "").await;
    let (head, body) = split(&answer);
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
    assert_eq!(body, b"A\r\n0123456789\r\n0\r\n\r\n");
}

#[tokio::test]
async fn latency_is_added_to_gets_and_lists_apart() {
    let (_bucket, origin) = origin_with("k", CONTENT);
    let ms = Duration::from_millis;
    let timed = async |path: &str| {
        let begin = Instant::now();
        let response = get(format!("{}/data{path}", origin.endpoint())).await;
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap();
        begin.elapsed()
    };
    origin.conditions().set_get_latency(Latency { fixed: ms(500), ..Latency::default() });
    origin.conditions().set_list_latency(Latency { tail_probability: 1.0, tail_extra: ms(700), ..Latency::default() });
    assert!(timed("/k").await >= ms(500));
    assert!(timed("?list-type=2").await >= ms(700));
    origin.conditions().reset();
    assert!(timed("/k").await < ms(500));
    origin.conditions().add_fault(FaultRule::new(Fault::SlowFirstByte(ms(600))).key(KeyPattern::Exact("k".into())));
    assert!(timed("/k").await >= ms(600));
    assert!(timed("?list-type=2").await < ms(600));
}

#[tokio::test]
async fn bandwidth_is_shared_by_the_answers_of_a_connection() {
    let keys = SyntheticKeys::Explicit(vec![("k".to_owned(), 100_000)]);
    let origin = origin_of(Arc::new(SyntheticBucket::new(keys).unwrap()));
    origin.conditions().set_bandwidth(Some(1_000_000));
    let client = client();
    let begin = Instant::now();
    for _ in 0..4 {
        let body = client.get(format!("{}/data/k", origin.endpoint())).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(body.len(), 100_000);
    }
    let took = begin.elapsed();
    // 400 KB at 1 MB/s, of which the last portion need not be waited for.
    assert!(took >= Duration::from_millis(380) && took < Duration::from_secs(4), "{took:?}");
    assert_eq!(origin.counters().connections_accepted, 1);
}

#[tokio::test]
async fn requests_beyond_the_rate_are_told_to_slow_down() {
    let (_bucket, origin) = origin_with("k", CONTENT);
    origin.conditions().set_request_rate(Some(0.001));
    let url = format!("{}/data/k", origin.endpoint());
    assert_eq!(get(url.clone()).await.status(), 200);
    let refused = get(url.clone()).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.text().await.unwrap().contains("<Code>SlowDown</Code>"));
    assert_eq!((origin.counters().get_requests, origin.counters().throttled_requests), (2, 1));
    origin.conditions().set_request_rate(None);
    assert_eq!(get(url).await.status(), 200);
}
