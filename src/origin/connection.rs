//! One accepted connection, and the things about it that HTTP code cannot reach.
//!
//! `ConnectionIo` sits between the socket and the HTTP library: it can reset instead of close, send bytes that no
//! Content-Length covers, and tell a body when what it gave has really gone to the socket. `Connection` is the body's end of it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// What surplus bytes look like.
const SURPLUS: [u8; 1024] = [b'+'; 1024];

/// State of a connection, shared by its socket and the answer that is being sent.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Times that everything written had gone to the socket.
    flushes: AtomicU64,
    flushed: AtomicWaker,
    reset: AtomicBool,
    surplus_bytes: AtomicUsize,
    paced_until: Mutex<Option<Instant>>,
}

impl Connection {
    /// From here on closing this connection resets it.
    pub(super) fn reset_on_close(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }

    /// Sends this many bytes after all that is written now.
    pub(super) fn append_surplus(&self, bytes: usize) {
        self.surplus_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How often everything written had gone to the socket.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Wakes the caller at the next flush.
    pub(super) fn wake_when_flushed(&self, context: &Context<'_>) {
        self.flushed.register(context.waker());
    }

    /// When the next bytes may go, if that is not now.
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pace().filter(|&until| until > now)
    }

    /// Lets `duration` pass before the next bytes, counted from the end of the last such wait or from now.
    pub(super) fn delay_next(&self, now: Instant, duration: Duration) {
        let begin = self.pace().map_or(now, |until| until.max(now));
        *self.paced_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin + duration);
    }

    fn pace(&self) -> Option<Instant> {
        *self.paced_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket, or a session over one.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// The socket itself.
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Transport for tokio_rustls::server::TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// The byte stream that the HTTP library reads and writes.
#[derive(Debug)]
pub(super) struct ConnectionIo<S: Transport> {
    stream: S,
    connection: Arc<Connection>,
    /// Surplus bytes still to be written.
    surplus_bytes: usize,
}

impl<S: Transport> ConnectionIo<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        ConnectionIo { stream, connection, surplus_bytes: 0 }
    }
}

impl<S: Transport> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Transport> AsyncWrite for ConnectionIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // The HTTP library flushes its stream only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.surplus_bytes += self.connection.surplus_bytes.swap(0, Ordering::Relaxed);
        while self.surplus_bytes > 0 {
            let length = self.surplus_bytes.min(SURPLUS.len());
            self.surplus_bytes -= ready!(Pin::new(&mut self.stream).poll_write(context, &SURPLUS[..length]))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.connection.flushes.fetch_add(1, Ordering::Release);
        self.connection.flushed.wake();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Transport> Drop for ConnectionIo<S> {
    fn drop(&mut self) {
        if self.connection.reset.load(Ordering::Relaxed) {
            // Should it fail, the connection is closed instead: the fault is then a milder one.
            let _ = self.stream.socket().set_zero_linger();
        }
    }
}
