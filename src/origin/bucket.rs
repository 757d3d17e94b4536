//! What the server needs of a bucket: its keys in order from any point, and one object by key.
//!
//! A bucket answers from memory or by arithmetic, at once; it knows nothing of HTTP, pages, delimiters or ranges.
//! Always true: `scan` goes in byte order of the keys and sees each key once.

use std::fmt;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{ETag, UnixMillis};

/// A bucket that the origin can serve.
pub trait Bucket: fmt::Debug + Send + Sync {
    /// Shows `visit` the objects whose keys are at or after `from`, in byte order, until it breaks or they end.
    ///
    /// # Errors
    /// Where the bucket's own medium cannot be read.
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(Listed<'_>) -> ControlFlow<()>) -> Result<(), BucketError>;

    /// The object with this key, if there is one.
    ///
    /// # Errors
    /// Where the bucket's own medium cannot be read.
    fn find(&self, key: &str) -> Result<Option<StoredObject>, BucketError>;

    /// Stores an object, replacing what was there.
    ///
    /// # Errors
    /// `ReadOnly` in buckets that are computed or belong to somebody else.
    fn put(&self, _key: &str, _object: StoredObject) -> Result<(), BucketError> {
        Err(BucketError::ReadOnly)
    }

    /// Removes an object; no error when there is none.
    ///
    /// # Errors
    /// `ReadOnly` in buckets that are computed or belong to somebody else.
    fn delete(&self, _key: &str) -> Result<(), BucketError> {
        Err(BucketError::ReadOnly)
    }
}

/// One object as a listing shows it.
#[derive(Debug, Clone)]
pub struct Listed<'a> {
    /// Full key.
    pub key: &'a [u8],
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification.
    pub modified: UnixMillis,
    /// Entity tag.
    pub etag: ETag,
}

/// One object as a GET needs it. Cheap to clone: content is shared.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification.
    pub modified: UnixMillis,
    /// Entity tag.
    pub etag: ETag,
    /// Headers given at upload, if any.
    pub headers: Option<Arc<ObjectHeaders>>,
    /// Where the bytes are.
    pub content: Content,
}

/// What an upload said about an object beside its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectHeaders {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `x-amz-meta-*`: names without that prefix, and values.
    pub metadata: Vec<(String, String)>,
}

/// Where an object's bytes are.
#[derive(Debug, Clone)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In an open file; it stays the same file even when its name goes away.
    File(Arc<File>),
    /// Nowhere: computed by [`super::synthetic_bytes`] from this seed.
    Synthetic(u64),
}

/// Why a bucket did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The bucket does not take uploads.
    #[error("this bucket is read-only: upload to a memory bucket")]
    ReadOnly,
    /// The medium behind the bucket failed.
    #[error("read {what}: {source}")]
    Medium {
        /// What was read.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}
