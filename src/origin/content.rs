//! An object's bytes as an HTTP body: slices of memory as they are, files and synthetic bytes in chunks.
//!
//! Always true: memory is not copied, and a chunk's buffer goes back to the pool of its thread once the socket has taken it.
//! A file that became shorter ends the body with an error, never with fewer bytes.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::bucket::Content;
use super::pattern::synthetic_bytes;
use crate::model::{ByteRange, KIB};

/// Bytes computed or read at a time: large enough to spare system calls, small enough to stay in a core's cache.
#[expect(clippy::cast_possible_truncation, reason = "fits any usize")]
const CHUNK_BYTES: usize = (256 * KIB) as usize;

/// Buffers a thread keeps for reuse: 16 MiB, as many as chunks are on their way to sockets at once.
const POOLED_BUFFERS: usize = 64;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A body of the bytes `range` of an object.
pub(super) fn body_of(content: Content, range: ByteRange) -> s3s::Body {
    let source = match content {
        #[expect(clippy::cast_possible_truncation, reason = "the range lies within bytes that are in memory")]
        Content::Bytes(bytes) => return bytes.slice(range.start as usize..range.end as usize).into(),
        Content::File(file) => Source::File(file),
        Content::Synthetic(seed) => Source::Synthetic(seed),
    };
    if range.is_empty() {
        return s3s::Body::empty();
    }
    s3s::Body::http_body(ContentBody { source, rest: range })
}

enum Source {
    File(Arc<File>),
    Synthetic(u64),
}

struct ContentBody {
    source: Source,
    rest: ByteRange,
}

impl Body for ContentBody {
    type Data = Bytes;
    type Error = io::Error;

    // Reading a file here blocks the thread; the server's threads are its own, and the page cache has most files.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = usize::try_from(self.rest.len()).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let offset = self.rest.start;
        let mut chunk = Chunk::new(length);
        match &self.source {
            Source::Synthetic(seed) => synthetic_bytes(*seed, offset, &mut chunk.0),
            Source::File(file) => {
                if let Err(error) = file.read_exact_at(&mut chunk.0, offset) {
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        self.rest.start += length as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len())
    }
}

/// A buffer on its way to the socket.
struct Chunk(Vec<u8>);

impl Chunk {
    fn new(length: usize) -> Self {
        let mut buffer = POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES));
        // Only what a longer use has not initialised yet is zeroed.
        buffer.resize(length, 0);
        Chunk(buffer)
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        // The pool is gone when its thread ends; the buffer then just goes, too.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_BUFFERS {
                pool.push(buffer);
            }
        });
    }
}
