//! What stat(2) shows for a node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::model::{MIB, NodeId, UnixMillis};
use crate::namespace::{Node, NodeKind};

/// `st_blksize`: CPython, cp and stdio take their buffer size from it, and a small file should be one read.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const BLOCK_SIZE_BYTES: u32 = MIB as u32;

/// `st_blocks` counts in these, whatever the block size.
const STAT_BLOCK_BYTES: u64 = 512;

/// Owner and permissions that all files and directories show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeConfig {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub dir_mode: u16,
}

impl AttributeConfig {
    /// The attributes of `node`.
    pub(super) fn of(&self, node: &Node) -> FileAttr {
        let modified = system_time(node.modified);
        let (kind, size, perm, nlink) = match node.kind {
            NodeKind::File { size_bytes } => (FileType::RegularFile, size_bytes, self.file_mode, 1),
            NodeKind::Directory => (FileType::Directory, 0, self.dir_mode, 2),
        };
        FileAttr {
            ino: INodeNo(node.id.0),
            size,
            blocks: size.div_ceil(STAT_BLOCK_BYTES),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK_SIZE_BYTES,
            flags: 0,
        }
    }

    /// The reply that lets the kernel remember that a name does not exist: an entry without a node.
    pub(super) fn of_missing(&self) -> FileAttr {
        self.of(&Node { id: NodeId(0), kind: NodeKind::File { size_bytes: 0 }, modified: UnixMillis(0) })
    }
}

fn system_time(at: UnixMillis) -> SystemTime {
    let distance = Duration::from_millis(at.0.unsigned_abs());
    let time = if at.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: AttributeConfig = AttributeConfig { uid: 7, gid: 8, file_mode: 0o644, dir_mode: 0o755 };

    #[test]
    fn a_file_shows_its_size_in_blocks_of_512_and_asks_for_reads_of_one_mib() {
        let node = Node { id: NodeId(16), kind: NodeKind::File { size_bytes: 513 }, modified: UnixMillis(1500) };
        let attributes = CONFIG.of(&node);
        assert_eq!((attributes.size, attributes.blocks, attributes.blksize), (513, 2, 1 << 20));
        assert_eq!(attributes.mtime, UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!((attributes.uid, attributes.gid, attributes.perm), (7, 8, 0o644));
    }

    #[test]
    fn dates_before_1970_and_far_away_do_not_fail() {
        assert_eq!(system_time(UnixMillis(-1000)), UNIX_EPOCH - Duration::from_secs(1));
        for extreme in [i64::MIN, i64::MAX] {
            let _no_panic = system_time(UnixMillis(extreme));
        }
    }
}
