//! Names to nodes: what the mount shows, made from one listing of the prefix.

pub mod listing;

use crate::model::{ETag, UnixMillis};

/// One object on its way from the listing into the snapshot.
#[derive(Debug, Clone, Copy)]
pub struct ObjectEntry<'a> {
    /// Full key.
    pub key: &'a [u8],
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification.
    pub modified: UnixMillis,
    /// Entity tag, when the store lists one.
    pub etag: Option<&'a ETag>,
}
