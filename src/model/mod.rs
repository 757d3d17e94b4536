//! Nouns that every module shares: keys, names, node ids, object versions, byte ranges, sizes.
//!
//! Nothing here does I/O, allocates per call on a hot path, or knows another module.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod etag;
mod key;
mod range;
mod size;

pub use etag::{ETag, ObjectVersion};
pub use key::{EntryName, MAX_KEY_BYTES, MAX_NAME_BYTES, ObjectKey};
pub use range::ByteRange;
pub use size::{ByteSize, GIB, KIB, MIB, ParseByteSizeError, TIB};

/// Identity of a node (file or directory) for the life of a mount; the inode number that programs see.
///
/// One id means one object version and is never reused, across index sealing and refreshes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The mount's root directory (the kernel's FUSE_ROOT_ID).
    pub const ROOT: NodeId = NodeId(1);
}

/// A moment, in milliseconds since 1970-01-01T00:00:00Z: the resolution that object stores list.
///
/// Negative before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub i64);

impl From<SystemTime> for UnixMillis {
    fn from(time: SystemTime) -> Self {
        let millis = |distance: Duration| i64::try_from(distance.as_millis()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => UnixMillis(millis(since)),
            Err(before) => UnixMillis(-millis(before.duration())),
        }
    }
}
