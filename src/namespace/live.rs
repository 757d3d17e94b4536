//! The namespace as it is now: the snapshot, and what is known to have changed since.
//!
//! Always true: a question is answered from the mapped image, without a request and without allocating per entry; while
//! nothing has been replaced no lock is taken. A file whose object was found changed or gone keeps its id, which is from
//! then on stale; the name gets a new id, or none. Finding that out, by a read refused and the key listed again, is left to
//! the caller of [`Namespace::replace`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::model::{ETag, NodeId, ObjectKey, ObjectVersion, UnixMillis};
use crate::namespace::directory::{self, Cursor};
use crate::namespace::format::{FileRow, RowBody};
use crate::namespace::node_ids::{FIRST_ENTRY_ID, FIRST_REPLACEMENT_ID, NodeIds};
use crate::namespace::snapshot_file::DirectoryRows;
use crate::namespace::{Damaged, DirectoryEntry, Node, NodeKind, ObjectRef, Snapshot, Statistics, Warning};

/// Cookie of `.`, the first entry of every directory.
const COOKIE_SELF: u64 = 1;
/// Cookie of `..`, the second.
const COOKIE_PARENT: u64 = 2;

/// Why a node has no object to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A directory.
    #[error("it is a directory")]
    NotAFile,
    /// No node ever had this id.
    #[error("no node has this id")]
    Unknown,
    /// Its object has been overwritten or deleted since it was listed.
    #[error("its object has been overwritten or deleted: open the path again")]
    Stale,
    /// The snapshot cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// Why a directory cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadDirError {
    /// The id is that of a file, or of nothing.
    #[error("it is not a directory")]
    NotADirectory,
    /// The snapshot cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// The tree of a mount. Shared by all threads.
#[derive(Debug)]
pub struct Namespace {
    snapshot: Snapshot,
    ids: NodeIds,
    replacements: Replacements,
    damage: OnceLock<Damaged>,
}

impl Namespace {
    /// The tree of a snapshot; names are relative to the snapshot's prefix.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Namespace {
        let ids = NodeIds::new(FIRST_ENTRY_ID, snapshot.rows());
        Namespace { snapshot, ids, replacements: Replacements::default(), damage: OnceLock::new() }
    }

    /// What the listing held.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.snapshot.statistics()
    }

    /// Full key of the root: the mount's prefix, empty or ending in `/`.
    #[must_use]
    pub fn key_prefix(&self) -> ObjectKey {
        self.snapshot.prefix()
    }

    /// The first damage that made an answer `None`, if any did. Only an image opened from a file can be damaged; whoever
    /// turns `None` into "no such file" looks here first.
    #[must_use]
    pub fn damage(&self) -> Option<Damaged> {
        self.damage.get().copied()
    }

    /// The node that `name` has in `parent`; `None` when there is none, or `parent` is no directory.
    #[must_use]
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Option<Node> {
        let rows = self.noted(self.directory_rows(parent))??;
        let (row, body) = self.noted(directory::find(&self.snapshot, &rows, name))??;
        self.current_node(row, body)
    }

    /// A node by its id, stale ones too; `None` for an id that was never given out.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<Node> {
        if id == NodeId::ROOT {
            return Some(self.directory_node(id));
        }
        match self.ids.row(id) {
            Some(row) => Some(self.listed_node(row, self.noted(directory::row(&self.snapshot, row))?)),
            None => self.replacements.get(id).map(|replacement| replacement.node(id)),
        }
    }

    /// The object whose bytes a file has.
    ///
    /// # Errors
    /// `NotAFile` for a directory, `Stale` when the object is known to have changed, `Unknown` for a strange id.
    pub fn object(&self, id: NodeId) -> Result<ObjectRef, ObjectError> {
        if id == NodeId::ROOT {
            return Err(ObjectError::NotAFile);
        }
        let Some(row) = self.ids.row(id) else {
            let replacement = self.replacements.get(id).ok_or(ObjectError::Unknown)?;
            if self.replacements.current(replacement.row) != Current::Replaced(id) {
                return Err(ObjectError::Stale);
            }
            return Ok(ObjectRef { key: self.key_of(replacement.row)?, version: replacement.version });
        };
        match self.noting(directory::row(&self.snapshot, row))? {
            RowBody::Directory(_) => Err(ObjectError::NotAFile),
            RowBody::File(_) if self.replacements.current(row) != Current::Listed => Err(ObjectError::Stale),
            RowBody::File(file) => Ok(ObjectRef { key: self.key_of(row)?, version: version_of(file) }),
        }
    }

    /// The directory a node stands in; the root stands in itself.
    #[must_use]
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        let Some(row) = self.row_of(id) else { return (id == NodeId::ROOT).then_some(id) };
        let parent = self.noted(self.snapshot.directory_of_row(row))?;
        Some(self.directory_id(&parent))
    }

    /// The name of a node in its directory; `None` for the root and for strange ids.
    #[must_use]
    pub fn name_of(&self, id: NodeId) -> Option<Vec<u8>> {
        let mut cursor = self.noted(Cursor::before(&self.snapshot, self.row_of(id)?))?;
        self.noted(cursor.next())?;
        Some(cursor.name().to_vec())
    }

    /// What about the listing a person should hear, when it was built just now.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        self.snapshot.warnings()
    }

    /// The full key of a node; a directory's ends in `/`, unless it is the root of a whole bucket, which is empty.
    #[must_use]
    pub fn path_of(&self, id: NodeId) -> Option<ObjectKey> {
        match self.row_of(id) {
            Some(row) => self.noted(directory::key_of(&self.snapshot, row)),
            None => (id == NodeId::ROOT).then(|| self.key_prefix()),
        }
    }

    /// Shows the entries of a directory after a cookie, in order of their names, until `visit` breaks.
    ///
    /// `.` and `..` come first (cookies 1 and 2); 0 begins at the start. Every cookie ever shown goes on behind its entry,
    /// also when that entry has been replaced or deleted since; a cookie that never was of this directory is its end.
    ///
    /// # Errors
    /// `NotADirectory`, or `Damaged` after the entries that could be read.
    pub fn read_dir(
        &self,
        directory: NodeId,
        after_cookie: u64,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadDirError> {
        let rows = self.noting(self.directory_rows(directory))?.ok_or(ReadDirError::NotADirectory)?;
        let parent = match rows.own_row {
            Some(row) => self.directory_id(&self.noting(self.snapshot.directory_of_row(row))?),
            None => NodeId::ROOT,
        };
        for (cookie, name, id) in [(COOKIE_SELF, &b"."[..], directory), (COOKIE_PARENT, b"..", parent)] {
            if after_cookie < cookie && visit(DirectoryEntry { name, node: self.directory_node(id), cookie }).is_break()
            {
                return Ok(());
            }
        }
        let first = match after_cookie {
            0..=COOKIE_PARENT => rows.rows.start,
            cookie => match self.row_of(NodeId(cookie)).filter(|row| rows.rows.contains(row)) {
                Some(row) => row + 1,
                None => return Ok(()),
            },
        };
        self.noting(self.visit_rows(first..rows.rows.end, visit))?;
        Ok(())
    }

    fn visit_rows(
        &self,
        rows: std::ops::Range<u64>,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut cursor = Cursor::before(&self.snapshot, rows.start)?;
        while cursor.position() < rows.end {
            let row = cursor.position();
            let body = cursor.next()?;
            let Some(node) = self.current_node(row, body) else { continue };
            if visit(DirectoryEntry { name: cursor.name(), node, cookie: node.id.0 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Records what listing a file's key again has shown: its version and modification time, or `None` when it is gone.
    ///
    /// Returns the node that the name has from now on: a new one, unless the version is the current one after all, or
    /// somebody else has replaced `id` before. Directories are not replaced, and an unknown id has no node.
    pub fn replace(&self, id: NodeId, current: Option<(ObjectVersion, UnixMillis)>) -> Option<Node> {
        let Some(row) = self.row_of(id) else { return self.node(id) };
        let file = match self.noted(directory::row(&self.snapshot, row))? {
            RowBody::Directory(_) => return self.node(id),
            RowBody::File(file) => file,
        };
        let id = self.replacements.replace(row, id, self.ids.id(row), current, &version_of(file))?;
        self.node(id)
    }

    /// The row that an id's name has in the image, whether or not the id is stale.
    fn row_of(&self, id: NodeId) -> Option<u64> {
        self.ids.row(id).or_else(|| self.replacements.get(id).map(|replacement| replacement.row))
    }

    fn directory_rows(&self, id: NodeId) -> Result<Option<DirectoryRows>, Damaged> {
        if id == NodeId::ROOT {
            return self.snapshot.directory(self.snapshot.root()).map(Some);
        }
        let Some(row) = self.ids.row(id) else { return Ok(None) };
        match directory::row(&self.snapshot, row)? {
            RowBody::Directory(number) => self.snapshot.directory(number).map(Some),
            RowBody::File(_) => Ok(None),
        }
    }

    fn directory_id(&self, directory: &DirectoryRows) -> NodeId {
        directory.own_row.map_or(NodeId::ROOT, |row| self.ids.id(row))
    }

    fn directory_node(&self, id: NodeId) -> Node {
        Node { id, kind: NodeKind::Directory, modified: self.snapshot.listed_at() }
    }

    fn listed_node(&self, row: u64, body: RowBody<'_>) -> Node {
        let id = self.ids.id(row);
        match body {
            RowBody::Directory(_) => self.directory_node(id),
            RowBody::File(FileRow { size_bytes, modified, .. }) => {
                Node { id, kind: NodeKind::File { size_bytes }, modified }
            }
        }
    }

    /// The node that a row's name has now; `None` when its object is gone.
    fn current_node(&self, row: u64, body: RowBody<'_>) -> Option<Node> {
        match self.replacements.current(row) {
            Current::Listed => Some(self.listed_node(row, body)),
            Current::Replaced(id) => self.node(id),
            Current::Gone => None,
        }
    }

    fn key_of(&self, row: u64) -> Result<ObjectKey, Damaged> {
        self.noting(directory::key_of(&self.snapshot, row))
    }

    fn noting<T>(&self, result: Result<T, Damaged>) -> Result<T, Damaged> {
        result.inspect_err(|damaged| {
            let _ = self.damage.set(*damaged); // the first is kept
        })
    }

    fn noted<T>(&self, result: Result<T, Damaged>) -> Option<T> {
        self.noting(result).ok()
    }
}

fn version_of(file: FileRow<'_>) -> ObjectVersion {
    ObjectVersion { etag: file.etag.map(ETag::from), size_bytes: file.size_bytes }
}

/// What a row's name stands for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// The object that was listed.
    Listed,
    /// Another version, by the id of its node.
    Replaced(NodeId),
    /// Nothing.
    Gone,
}

/// A version found during the mount.
#[derive(Debug, Clone)]
struct Replacement {
    row: u64,
    version: ObjectVersion,
    modified: UnixMillis,
}

impl Replacement {
    fn node(&self, id: NodeId) -> Node {
        Node { id, kind: NodeKind::File { size_bytes: self.version.size_bytes }, modified: self.modified }
    }
}

/// Objects found changed or gone since the listing.
#[derive(Debug, Default)]
struct Replacements {
    /// False while there are none: then nobody needs the lock.
    any: AtomicBool,
    table: RwLock<ReplacementTable>,
}

#[derive(Debug, Default)]
struct ReplacementTable {
    /// Rows whose object is not the one listed. No entry is ever removed.
    current: HashMap<u64, Current>,
    /// Every version ever found; its place is its id. Only appended to.
    versions: Vec<Replacement>,
}

impl Replacements {
    fn current(&self, row: u64) -> Current {
        if !self.any.load(Ordering::Acquire) {
            return Current::Listed;
        }
        self.read().current(row)
    }

    fn get(&self, id: NodeId) -> Option<Replacement> {
        let place = usize::try_from(id.0.checked_sub(FIRST_REPLACEMENT_ID)?).ok()?;
        self.read().versions.get(place).cloned()
    }

    /// Makes `found` the version of the row's name and returns its id; `None` when the object is gone.
    ///
    /// `suspect` is the node whose read was refused, `listed` the row's own id and version.
    fn replace(
        &self,
        row: u64,
        suspect: NodeId,
        listed: NodeId,
        found: Option<(ObjectVersion, UnixMillis)>,
        listed_version: &ObjectVersion,
    ) -> Option<NodeId> {
        let mut table = self.write();
        let (current_id, current_version) = match table.current(row) {
            Current::Listed => (Some(listed), Some(listed_version)),
            Current::Replaced(id) => (Some(id), table.version(id)),
            Current::Gone => (None, None),
        };
        // Two readers may be refused at once, and the slower one's finding may be the older.
        let replaced_before = current_id.is_some() && current_id != Some(suspect);
        if replaced_before || current_version == found.as_ref().map(|(version, _)| version) {
            return current_id;
        }
        let new = match found {
            None => Current::Gone,
            Some((version, modified)) => {
                let id = NodeId(FIRST_REPLACEMENT_ID + table.versions.len() as u64);
                table.versions.push(Replacement { row, version, modified });
                Current::Replaced(id)
            }
        };
        table.current.insert(row, new);
        self.any.store(true, Ordering::Release);
        match new {
            Current::Replaced(id) => Some(id),
            Current::Listed | Current::Gone => None,
        }
    }

    // The table is consistent between any two of its changes, so a thread that panicked has left nothing half done.
    fn read(&self) -> RwLockReadGuard<'_, ReplacementTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ReplacementTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplacementTable {
    fn current(&self, row: u64) -> Current {
        self.current.get(&row).copied().unwrap_or(Current::Listed)
    }

    fn version(&self, id: NodeId) -> Option<&ObjectVersion> {
        let place = usize::try_from(id.0.checked_sub(FIRST_REPLACEMENT_ID)?).ok()?;
        self.versions.get(place).map(|replacement| &replacement.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::{Listing, names_of};

    fn version(tag: &str, size_bytes: u64) -> ObjectVersion {
        ObjectVersion { etag: ETag::parse(tag), size_bytes }
    }

    fn three_files() -> (Namespace, Node) {
        let namespace = Listing::new("p/").keys(["p/d/a", "p/d/b", "p/d/c"]).namespace();
        let directory = namespace.lookup(NodeId::ROOT, b"d").unwrap();
        (namespace, directory)
    }

    #[test]
    fn a_changed_object_gets_a_new_node_and_the_old_one_is_stale() {
        let (namespace, directory) = three_files();
        let old = namespace.lookup(directory.id, b"b").unwrap();
        let new = namespace.replace(old.id, Some((version("v2", 77), UnixMillis(5)))).unwrap();
        assert_ne!(new.id, old.id);
        assert_eq!(new.kind, NodeKind::File { size_bytes: 77 });
        assert_eq!(new.modified, UnixMillis(5));
        assert_eq!(namespace.lookup(directory.id, b"b"), Some(new));
        assert_eq!(namespace.node(new.id), Some(new));
        assert_eq!(namespace.parent(new.id), Some(directory.id));
        let object = namespace.object(new.id).unwrap();
        assert_eq!(object, ObjectRef { key: ObjectKey::from("p/d/b"), version: version("v2", 77) });

        assert_eq!(namespace.node(old.id), Some(old));
        assert_eq!(namespace.object(old.id), Err(ObjectError::Stale));
        assert_eq!(namespace.path_of(old.id), Some(ObjectKey::from("p/d/b")));

        let newest = namespace.replace(new.id, Some((version("v3", 78), UnixMillis(6)))).unwrap();
        assert_eq!(namespace.object(new.id), Err(ObjectError::Stale));
        assert_eq!(namespace.object(newest.id).unwrap().version, version("v3", 78));
        assert_eq!(names_of(&namespace, directory.id), ["a", "b", "c"]);
    }

    #[test]
    fn a_deleted_object_disappears_and_may_come_back_as_another_node() {
        let (namespace, directory) = three_files();
        let old = namespace.lookup(directory.id, b"b").unwrap();
        assert_eq!(namespace.replace(old.id, None), None);
        assert_eq!(namespace.lookup(directory.id, b"b"), None);
        assert_eq!(namespace.object(old.id), Err(ObjectError::Stale));
        assert_eq!(names_of(&namespace, directory.id), ["a", "c"]);
        assert_eq!(namespace.replace(old.id, None), None, "gone is gone");
        let back = namespace.replace(old.id, Some((version("v2", 1), UnixMillis(0)))).unwrap();
        assert_ne!(back.id, old.id);
        assert_eq!(names_of(&namespace, directory.id), ["a", "b", "c"]);
    }

    #[test]
    fn readers_refused_at_the_same_time_end_with_one_new_node() {
        let (namespace, directory) = three_files();
        let old = namespace.lookup(directory.id, b"b").unwrap();
        let found = Some((version("v2", 77), UnixMillis(5)));
        let new = namespace.replace(old.id, found.clone()).unwrap();
        assert_eq!(namespace.replace(old.id, found.clone()), Some(new));
        assert_eq!(namespace.replace(new.id, found), Some(new));
        let older_finding = Some((version("v1.5", 76), UnixMillis(4)));
        assert_eq!(namespace.replace(old.id, older_finding), Some(new));
        assert_eq!(namespace.object(new.id).unwrap().version, version("v2", 77));
    }

    #[test]
    fn an_object_that_did_not_change_keeps_its_node() {
        let (namespace, directory) = three_files();
        let node = namespace.lookup(directory.id, b"b").unwrap();
        let listed = namespace.object(node.id).unwrap().version;
        assert_eq!(namespace.replace(node.id, Some((listed, UnixMillis(99)))), Some(node));
        assert!(namespace.object(node.id).is_ok());
        assert!(!namespace.replacements.any.load(Ordering::Relaxed));
    }

    #[test]
    fn directories_and_unknown_ids_are_not_replaced() {
        let (namespace, directory) = three_files();
        assert_eq!(namespace.replace(directory.id, None), Some(directory));
        assert_eq!(namespace.replace(NodeId::ROOT, None), namespace.node(NodeId::ROOT));
        for stranger in [0, 2, 15, 20, FIRST_REPLACEMENT_ID, u64::MAX] {
            assert_eq!(namespace.replace(NodeId(stranger), Some((version("x", 1), UnixMillis(0)))), None);
            assert_eq!(namespace.object(NodeId(stranger)), Err(ObjectError::Unknown));
            assert_eq!(namespace.node(NodeId(stranger)), None);
        }
        assert_eq!(namespace.object(directory.id), Err(ObjectError::NotAFile));
        assert_eq!(namespace.object(NodeId::ROOT), Err(ObjectError::NotAFile));
    }

    #[test]
    fn a_cookie_goes_on_behind_an_entry_that_was_replaced_or_deleted() {
        let (namespace, directory) = three_files();
        let old = namespace.lookup(directory.id, b"b").unwrap();
        let rest = |cookie: u64| {
            let mut names = Vec::new();
            namespace
                .read_dir(directory.id, cookie, &mut |entry| {
                    names.push(entry.name.to_vec());
                    ControlFlow::Continue(())
                })
                .unwrap();
            names
        };
        let new = namespace.replace(old.id, Some((version("v2", 1), UnixMillis(0)))).unwrap();
        assert_eq!(rest(old.id.0), [b"c"]);
        assert_eq!(rest(new.id.0), [b"c"]);
        namespace.replace(new.id, None);
        assert_eq!(rest(old.id.0), [b"c"]);
        assert_eq!(rest(new.id.0), [b"c"]);
    }
}
