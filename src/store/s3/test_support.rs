//! A server that plays back what it is told, and keys that have broken others. For tests in this folder.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Keys that must survive listing, signing and URLs byte for byte.
pub(super) const AWKWARD_KEYS: &[&[u8]] = &[
    b"plain",
    b"a b",
    b"a+b",
    b"a%20b",
    b"a%2Fb",
    b"a%252Fb",
    b"a&b<c>\"'",
    b"#?",
    b"a=b&c=d;e",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"\xf0\x9f\x90\x88/\xf0\x9f\x90\x95",
    b"line\nfeed\r\t\x7f\x01",
    b"back\\slash",
    b"a//b",
    b"/lead",
    b"//x",
    b"trail ",
    b"dot.",
    b"...",
    b"~user/!$'()*,:@[]{}|^`",
    b"not utf-8 \xff\xfe",
    b"dir/",
];

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    head: String,
    body: Vec<u8>,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    KeepAlive,
    Close,
    Stall,
}

impl Answer {
    /// `status` with a body and its true length.
    pub(super) fn new(status: u16, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref().to_vec();
        Answer { head: format!("HTTP/1.1 {status} X\r\n"), body, then: Then::KeepAlive }.with_body_length()
    }

    fn with_body_length(self) -> Answer {
        let length = self.body.len();
        self.header("content-length", &length.to_string())
    }

    /// Chunked, without a length; each piece one chunk.
    pub(super) fn chunked(status: u16, pieces: &[&[u8]]) -> Answer {
        let mut body = Vec::new();
        for piece in pieces {
            body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            body.extend_from_slice(piece);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let head = format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n");
        Answer { head, body, then: Then::KeepAlive }
    }

    /// Nothing at all, the connection closed.
    pub(super) fn hang_up() -> Answer {
        Answer { head: String::new(), body: Vec::new(), then: Then::Close }
    }

    /// Nothing at all, the connection open.
    pub(super) fn silence() -> Answer {
        Answer { then: Then::Stall, ..Answer::hang_up() }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Answer {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Only the first bytes of the body are sent, then the connection is closed.
    pub(super) fn cut_at(mut self, bytes: usize) -> Answer {
        self.body.truncate(bytes);
        self.then = Then::Close;
        self
    }

    /// Only the first bytes of the body are sent, then nothing.
    pub(super) fn stalled_at(mut self, bytes: usize) -> Answer {
        self.body.truncate(bytes);
        self.then = Then::Stall;
        self
    }

    /// Closes the connection after the answer without announcing it.
    pub(super) fn then_closed(mut self) -> Answer {
        self.then = Then::Close;
        self
    }
}

/// One request as it came in.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) connection: usize,
    /// Path and query.
    pub(super) target: String,
    headers: Vec<(String, String)>,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The server: gives its answers in the order in which requests come, and keeps the requests.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) url: String,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    answers: Mutex<VecDeque<Answer>>,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Mutex::new(answers.into_iter().collect());
        let state = Arc::new(State { answers, seen: Mutex::default() });
        let task = tokio::spawn(accept(listener, state.clone()));
        Server { url, state, task }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        connections.spawn(serve(stream, connection, state.clone()));
    }
}

async fn serve(mut stream: TcpStream, connection: usize, state: Arc<State>) {
    while let Some(head) = read_head(&mut stream).await {
        state.seen.lock().unwrap().push(parse_head(&head, connection));
        let answer = state.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or_else(|| Answer::new(599, "no answer left"));
        if !answer.head.is_empty() {
            let head = format!("{}\r\n", answer.head);
            let _ = stream.write_all(&[head.as_bytes(), &answer.body].concat()).await;
        }
        match answer.then {
            Then::KeepAlive => {}
            Then::Close => return,
            Then::Stall => std::future::pending().await,
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn parse_head(head: &str, connection: usize) -> Seen {
    let mut lines = head.lines();
    let target = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Seen { connection, target, headers }
}

/// Serves TLS with a certificate that `testdata/ca.pem` signed (both made for these tests, valid for 100 years): one `answer` to
/// each connection, for as long as the process lives. The port.
pub(super) fn serve_tls(answer: &'static [u8]) -> u16 {
    use std::io::{Read, Write};

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let certificate = CertificateDer::from_pem_slice(include_bytes!("testdata/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            // A client that does not trust us ends the handshake: that is for its test to see.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(answer);
            }
        }
    });
    port
}
