//! A proxy on loopback that hands bytes through and keeps the heads of requests, to see what really goes over the wire.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::servers::{Address, Server};

/// The proxy. Its threads end with the connections that go through it.
#[derive(Debug)]
pub struct Recorder {
    behind: Address,
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// A proxy before this server.
    pub fn before(server: &impl Server) -> Self {
        let behind = server.address();
        let target = behind.endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let heads = Arc::clone(&kept);
                thread::spawn(move || pass(client, server, |bytes, pending| keep_heads(bytes, pending, &heads)));
                thread::spawn(move || pass(from_server, to_client, |_, _| {}));
            }
        });
        Recorder { behind, address, heads }
    }

    /// The heads of the GETs of objects so far: first line and headers.
    pub fn object_gets(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let first_line = |head: &str| head.lines().next().unwrap_or_default().to_owned();
        heads
            .iter()
            .filter(|head| first_line(head).starts_with("GET ") && !first_line(head).contains('?'))
            .cloned()
            .collect()
    }
}

impl Server for Recorder {
    fn address(&self) -> Address {
        Address { endpoint: format!("http://{}", self.address), ..self.behind.clone() }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8], &mut Vec<u8>)) {
    let mut pending = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        look(&buffer[..count], &mut pending);
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Requests of a reader have no body, so what the client sends is heads alone.
fn keep_heads(bytes: &[u8], pending: &mut Vec<u8>, heads: &Mutex<Vec<String>>) {
    pending.extend_from_slice(bytes);
    while let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
        let head: Vec<u8> = pending.drain(..end + 4).collect();
        heads.lock().unwrap_or_else(PoisonError::into_inner).push(String::from_utf8_lossy(&head).into_owned());
    }
}
