//! The bucket, reduced to two questions: "list this key range" and "get this byte range of this version".
//!
//! `ObjectStore` is the only door. Implementations: `s3` (everything that speaks S3) and `memory` (the reference the
//! conformance suite is written against). Wrappers of the same trait add behaviour: `retry` (backoff under a deadline) and
//! `faulty` (scripted faults, for tests). `credentials` finds what requests are signed with, `diagnose` says what a failed first
//! request means. Nothing here knows files, nodes or caches.

pub mod clock;
pub mod conformance;
pub mod credentials;
pub mod diagnose;
mod error;
pub mod faulty;
pub mod memory;
pub mod retry;
pub mod s3;

pub use error::{StoreError, StoreErrorKind};

use std::fmt;

use futures::future::BoxFuture;

use crate::model::{ByteRange, ETag, ObjectKey, ObjectVersion, UnixMillis};

/// A bucket that can be listed and read. Object-safe; every implementation passes `store::conformance`.
pub trait ObjectStore: fmt::Debug + Send + Sync {
    /// One page of the listing that `request` asks for.
    ///
    /// Keys arrive exactly as stored. Nothing is promised about page size, and a page may be empty although more follow;
    /// `ListPage::next` alone tells whether there are more.
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>>;

    /// The bytes that `request` asks for, written to `body` in order and exactly as many.
    ///
    /// Entity tag and length of the answer are compared with the request's version before the first byte is handed over, so
    /// bytes of another version never reach `body`. On error `body` may hold a correct prefix (see [`BodySink`]).
    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A question for one page of keys.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only keys that begin with this.
    pub prefix: ObjectKey,
    /// Only keys after this one, in byte order. Stores that ignore it exist: the caller checks what it gets.
    pub start_after: Option<ObjectKey>,
    /// Continues a listing: the `next` of its last page.
    pub continuation: Option<String>,
    /// Fold keys that have a `/` after the prefix into common prefixes.
    pub fold_directories: bool,
    /// Most keys on the page; `None` leaves it to the store (usually 1,000).
    pub max_keys: Option<u16>,
}

/// One page of a listing.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// Objects, in the order the store sent them (byte order, except in directory buckets).
    pub objects: Vec<ListedObject>,
    /// Common prefixes, each ending in `/`; only when directories are folded.
    pub common_prefixes: Vec<ObjectKey>,
    /// Token for the next page; `None` on the last.
    pub next: Option<String>,
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Full key.
    pub key: ObjectKey,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification; 1970-01-01 when the store sends none or none that can be read.
    pub modified: UnixMillis,
    /// Entity tag, when the store lists one.
    pub etag: Option<ETag>,
}

impl ListedObject {
    /// The version that was listed.
    #[must_use]
    pub fn version(&self) -> ObjectVersion {
        ObjectVersion { etag: self.etag.clone(), size_bytes: self.size_bytes }
    }
}

/// A question for bytes of one object version.
#[derive(Debug, Clone)]
pub struct GetRequest {
    /// Full key.
    pub key: ObjectKey,
    /// The version whose bytes are wanted; any other is refused with `StoreErrorKind::Changed`.
    pub version: ObjectVersion,
    /// Which bytes; within the version's size and not empty. The whole object is asked for without a Range header.
    pub range: ByteRange,
}

/// Where the bytes of one GET go: memory its owner has reserved before the request was sent.
///
/// The owner sizes it for the whole request; a store fills `spare` from the front and says so with `advance`.
pub trait BodySink: Send {
    /// Free memory for the next bytes, contiguous; empty only when the request is filled.
    fn spare(&mut self) -> &mut [u8];

    /// The first `filled_bytes` of `spare` now hold the next bytes of the object.
    fn advance(&mut self, filled_bytes: usize);
}

/// A sink over one slice.
#[derive(Debug)]
pub struct SliceSink<'a> {
    slice: &'a mut [u8],
    filled_bytes: usize,
}

impl<'a> SliceSink<'a> {
    /// A sink that fills `slice` from its start.
    pub fn new(slice: &'a mut [u8]) -> Self {
        SliceSink { slice, filled_bytes: 0 }
    }

    /// How much of the slice is filled.
    #[must_use]
    pub fn filled_bytes(&self) -> usize {
        self.filled_bytes
    }
}

impl BodySink for SliceSink<'_> {
    fn spare(&mut self) -> &mut [u8] {
        &mut self.slice[self.filled_bytes..]
    }

    fn advance(&mut self, filled_bytes: usize) {
        self.filled_bytes += filled_bytes;
        assert!(self.filled_bytes <= self.slice.len(), "a store filled more than it was asked for");
    }
}
