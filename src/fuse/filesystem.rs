//! One short method per kernel operation; the decisions are made in `namespace` and `read`.
//!
//! Every answer that needs no network is given on the calling thread. A panic answers EIO: the reply is dropped unsent, and the
//! crate sends EIO for it. OPEN and OPENDIR answer ENOSYS once, after which the kernel never asks again.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, FileType, Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle;

use crate::model::{MAX_NAME_BYTES, NodeId};
use crate::namespace::{DirectoryEntry, Namespace, NodeKind};
use crate::read::{Read, ReadBytes, ReadError, Reader};
use crate::store::clock::RateLimit;

use super::attributes::AttributeConfig;
use super::errno;
use super::session::negotiate;

/// How long the kernel may keep names and attributes: they hold for the life of the snapshot, and what changes is invalidated.
const TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Node ids are never reused, so one generation is enough.
const GENERATION: Generation = Generation(0);

/// Unit of the sizes that statfs(2) reports.
const STATFS_BLOCK_BYTES: u32 = 4096;

/// A program that reads a failing file over and over must not flood the log: one line in this time, with a count of the others.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Full key of the object behind a file, or the prefix behind a directory.
const XATTR_KEY: &[u8] = b"user.streamvol.key";

/// Entity tag of the object version behind a file.
const XATTR_ETAG: &[u8] = b"user.streamvol.etag";

pub(super) struct Filesystem {
    namespace: Arc<Namespace>,
    reader: Reader,
    attributes: AttributeConfig,
    runtime: Handle,
    failed_reads: Arc<RateLimit>,
}

impl Filesystem {
    pub(super) fn new(namespace: Arc<Namespace>, reader: Reader, attributes: AttributeConfig, runtime: Handle) -> Self {
        let failed_reads = Arc::new(RateLimit::new(WARNING_INTERVAL));
        Filesystem { namespace, reader, attributes, runtime, failed_reads }
    }

    fn xattr(&self, id: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            XATTR_KEY => Some(self.namespace.path_of(id)?.as_bytes().to_vec()),
            XATTR_ETAG => Some(self.namespace.object(id).ok()?.version.etag?.to_string().into_bytes()),
            _ => None,
        }
    }

    fn xattr_names(&self, id: NodeId) -> Option<Vec<u8>> {
        let node = self.namespace.node(id)?;
        let mut names = [XATTR_KEY, b"\0"].concat();
        if matches!(node.kind, NodeKind::File { .. }) && self.xattr(id, XATTR_ETAG).is_some() {
            names.extend_from_slice(XATTR_ETAG);
            names.push(0);
        }
        Some(names)
    }
}

/// Runs one operation; a panic in it costs that operation alone.
fn guarded(operation: &'static str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!(operation, "operation panicked; it answered EIO");
    }
}

fn answer_read(reply: ReplyData, outcome: &Result<ReadBytes, ReadError>, node: NodeId, failed_reads: &RateLimit) {
    match outcome {
        Ok(bytes) => reply.data(bytes.as_slice()),
        Err(error) => {
            if let Some(held_back) = failed_reads.allow(Instant::now()) {
                tracing::warn!(node = node.0, %error, held_back, "read failed");
            }
            reply.error(errno::of_read(error));
        }
    }
}

fn answer_xattr(reply: ReplyXattr, value: Option<Vec<u8>>, size: u32) {
    match value {
        None => reply.error(Errno::ENODATA),
        Some(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Directory => FileType::Directory,
        NodeKind::File { .. } => FileType::RegularFile,
    }
}

fn flow(full: bool) -> ControlFlow<()> {
    if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guarded("lookup", || {
            let attributes = match self.namespace.lookup(NodeId(parent.0), name.as_bytes()) {
                Some(node) => self.attributes.of(&node),
                None => self.attributes.of_missing(),
            };
            reply.entry(&TTL, &attributes, GENERATION);
        });
    }

    // Nothing is kept per node on behalf of the kernel, so there is nothing to forget.
    fn forget(&self, _request: &Request, _ino: INodeNo, _lookups: u64) {}

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        guarded("getattr", || match self.namespace.node(NodeId(ino.0)) {
            Some(node) => reply.attr(&TTL, &self.attributes.of(&node)),
            None => reply.error(Errno::ESTALE),
        });
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        guarded("read", || {
            let node = NodeId(ino.0);
            match self.reader.read(node, offset, u64::from(size)) {
                Read::Ready(outcome) => answer_read(reply, &outcome, node, &self.failed_reads),
                Read::Pending(pending) => {
                    // Should the task panic or be dropped, the reply goes with it and answers EIO.
                    let failed_reads = Arc::clone(&self.failed_reads);
                    self.runtime.spawn(async move { answer_read(reply, &pending.await, node, &failed_reads) });
                }
            }
        });
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        guarded("readdir", || {
            let mut add = |entry: DirectoryEntry<'_>| {
                let kind = file_type(entry.node.kind);
                flow(reply.add(INodeNo(entry.node.id.0), entry.cookie, kind, OsStr::from_bytes(entry.name)))
            };
            match self.namespace.read_dir(NodeId(ino.0), offset, &mut add) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_read_dir(&error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guarded("readdirplus", || {
            let mut add = |entry: DirectoryEntry<'_>| {
                let attributes = self.attributes.of(&entry.node);
                let name = OsStr::from_bytes(entry.name);
                flow(reply.add(attributes.ino, entry.cookie, name, &TTL, &attributes, GENERATION))
            };
            match self.namespace.read_dir(NodeId(ino.0), offset, &mut add) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_read_dir(&error)),
            }
        });
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", || {
            let statistics = self.namespace.statistics();
            let blocks = statistics.total_bytes.div_ceil(u64::from(STATFS_BLOCK_BYTES)).max(1);
            let files = statistics.objects + statistics.directories;
            let name_bytes = u32::try_from(MAX_NAME_BYTES).unwrap_or(u32::MAX);
            reply.statfs(blocks, 0, 0, files, 0, STATFS_BLOCK_BYTES, name_bytes, STATFS_BLOCK_BYTES);
        });
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        guarded("getxattr", || answer_xattr(reply, self.xattr(NodeId(ino.0), name.as_bytes()), size));
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        guarded("listxattr", || answer_xattr(reply, self.xattr_names(NodeId(ino.0)), size));
    }

    /// CPython's `open` sends TCGETS at every open of a file: it is no terminal.
    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    /// The kernel checks permissions itself (`default_permissions`) and stops asking after ENOSYS.
    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// Files have no holes: after ENOSYS the kernel answers SEEK_DATA and SEEK_HOLE by the size.
    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: fuser::ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    // What writes is refused by the kernel, since the mount is read-only; these answer should somebody mount it otherwise.

    fn setattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _target: &std::path::Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _request: &Request, _ino: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }
}
