//! Names to nodes: what the bucket's listing looks like as a tree of files and directories.
//!
//! Built once: `listing` asks the store for all objects, `rules` decides which keys can be paths, `builder` turns an ordered stream of objects into a snapshot image
//! (`format`, `snapshot_file`), `directory` searches it, `node_ids` numbers its nodes, and [`Namespace`] (`live`) is the one
//! door for everybody else: it answers from memory, without a request, a lock that waits for I/O or an allocation per entry.
//!
//! Always true: an id means one object version for the life of the mount. Names, keys and cookies are bytes, never text.
//! Left to others: bytes of objects (`read`), attributes programs see (`fuse`), logging of what is odd about a bucket.

mod builder;
mod directory;
mod format;
pub mod listing;
mod live;
mod node_ids;
mod pending;
mod row_writer;
mod rules;
mod snapshot_file;

#[cfg(test)]
mod tests;

pub use builder::{BuildError, BuilderConfig, Destination, SnapshotBuilder};
pub use live::{Namespace, ObjectError, ReadDirError};
pub use node_ids::FIRST_ENTRY_ID;
pub use rules::{MAX_WARNINGS, RejectReason, Rejections, Warning, WarningCause};
pub use snapshot_file::{Damaged, Snapshot, SnapshotError};

use crate::model::{ETag, NodeId, ObjectKey, ObjectVersion, UnixMillis};

/// One object of a listing, borrowed; keys are full keys.
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

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A file: one object.
    File {
        /// Length in bytes.
        size_bytes: u64,
    },
}

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its identity for the life of the mount.
    pub id: NodeId,
    /// File or directory.
    pub kind: NodeKind,
    /// Last modification of the object. A directory has none of its own: it bears the time of the listing, so that it
    /// neither changes between two looks nor depends on what lies deep below it.
    pub modified: UnixMillis,
}

/// The object behind a file, as a read needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// Full key.
    pub key: ObjectKey,
    /// The version whose bytes the file has.
    pub version: ObjectVersion,
}

/// One entry of a directory, as [`Namespace::read_dir`] shows it.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryEntry<'a> {
    /// Name, without slashes.
    pub name: &'a [u8],
    /// The node it names.
    pub node: Node,
    /// Continues after this entry; stays good for the life of the mount.
    pub cookie: u64,
}

/// What a snapshot holds, and what it leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Files shown.
    pub objects: u64,
    /// Directories, the root among them.
    pub directories: u64,
    /// Sum of the files' sizes.
    pub total_bytes: u64,
    /// Size of the snapshot image.
    pub image_bytes: u64,
    /// Objects whose keys cannot be paths.
    pub rejected: Rejections,
    /// Objects whose name a directory has taken, whether or not they are shown under another name.
    pub shadowed: u64,
    /// Directory markers that have bytes.
    pub markers_with_bytes: u64,
}
