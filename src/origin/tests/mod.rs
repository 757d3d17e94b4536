//! Tests of the server from its clients' side: over TCP, with HTTP clients or bare sockets.

mod listing;
mod objects;
mod uploads;
mod weather;

use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Against hanging only.
const DEADLINE: Duration = Duration::from_secs(30);

/// An unsigned server of one bucket, `data`.
fn origin_of(bucket: Arc<dyn Bucket>) -> Origin {
    Origin::start(OriginConfig { buckets: vec![("data".to_owned(), bucket)], ..OriginConfig::default() }).unwrap()
}

/// An unsigned server whose bucket holds one object.
fn origin_with(key: &str, content: &'static [u8]) -> (Arc<MemoryBucket>, Origin) {
    let bucket = Arc::new(MemoryBucket::new());
    bucket.insert(key, content);
    let origin = origin_of(bucket.clone());
    (bucket, origin)
}

fn client() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap()
}

async fn get(url: String) -> reqwest::Response {
    client().get(url).send().await.unwrap()
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// What a bare socket receives until the server closes it, and how it was closed.
async fn raw(origin: &Origin, request: &str) -> (Vec<u8>, std::io::Result<()>) {
    let mut stream = TcpStream::connect(origin.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let end = tokio::time::timeout(DEADLINE, async {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(error) => return Err(error),
            }
        }
    });
    let end = end.await.expect("the server closes the connection");
    (received, end)
}

/// The request for `/data/KEY` with further header lines.
fn raw_get(key: &str, headers: &str) -> String {
    format!("GET /data/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n")
}

/// Splits an answer into head and body.
fn split(answer: &[u8]) -> (String, &[u8]) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    (String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase(), &answer[end + 4..])
}
