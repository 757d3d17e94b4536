//! From an ordered stream of objects to a snapshot image.
//!
//! Always true: only the directories on the path of the last key are kept in memory, encoded, and 16 bytes for each
//! directory already written; everything else is in the image. A directory's rows are written when the first key beyond
//! it arrives, so children stand before their parents. A directory wins over a file of its name. Time is linear in the
//! number of keys, whatever the shape of the tree.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::model::{ETag, EntryName, ObjectKey, UnixMillis};
use crate::namespace::format::{ETagRef, FileRow, Header, MAX_PREFIX_BYTES, MAX_SUFFIX_BYTES};
use crate::namespace::pending::{OpenDirectory, PendingReader};
use crate::namespace::row_writer::RowWriter;
use crate::namespace::rules::{self, Placement, Rejected, WarningCause, Warnings};
use crate::namespace::snapshot_file::NewImage;
use crate::namespace::{ObjectEntry, Snapshot, SnapshotError};

/// Where an image is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Anonymous memory, sealed when finished: nobody can change it, and its descriptor can outlive this process.
    Memory,
    /// A file; it appears (or replaces an older one) only when the image is complete.
    File(PathBuf),
}

/// How to build a snapshot.
#[derive(Debug, Clone)]
pub struct BuilderConfig {
    /// Where the image goes.
    pub destination: Destination,
    /// When the listing began: the modification time of all directories.
    pub listed_at: UnixMillis,
    /// Shows a file whose name a directory has taken as its name and this suffix (an entry really named so comes first).
    /// `None` leaves such files out.
    pub show_shadowed: Option<String>,
}

/// Why a snapshot cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A key below the one before it. It is left out, and the builder goes on if the caller does.
    #[error(
        "the listing is not in byte order: key \"{key}\" came after \"{previous}\"; sort the keys before building from them"
    )]
    UnsortedKey {
        /// The key.
        key: ObjectKey,
        /// The key before it.
        previous: ObjectKey,
    },
    /// A key that does not begin with the prefix. It is left out, and the builder goes on if the caller does.
    #[error("key \"{key}\" is not under the prefix \"{prefix}\": list with this prefix, its trailing slash included")]
    OutsidePrefix {
        /// The key.
        key: ObjectKey,
        /// The prefix, with its trailing slash.
        prefix: ObjectKey,
    },
    /// No object can have a key this long.
    #[error("the prefix is {0} bytes long, more than any key: mount a shorter one")]
    PrefixTooLong(usize),
    /// What was to mark shadowed files cannot be part of a name.
    #[error("\"{0}\" cannot end a file name: take 1 to {MAX_SUFFIX_BYTES} bytes without \"/\" and NUL")]
    BadSuffix(String),
    /// The image could not be written.
    #[error("cannot write the snapshot image: {0}; is there space left?")]
    Write(#[from] io::Error),
    /// The image could not be opened after it was written.
    #[error(transparent)]
    Open(#[from] SnapshotError),
}

/// Builds a snapshot from objects pushed in byte order of their keys.
#[derive(Debug)]
pub struct SnapshotBuilder {
    header: Header,
    rows: RowWriter,
    warnings: Warnings,
    /// The root and the directories on the path of the last key, outermost first.
    open: Vec<OpenDirectory>,
    /// Names of the open directories, each followed by `/`.
    path: Vec<u8>,
    /// The last key, without the prefix; empty before the first.
    last_key: Vec<u8>,
    last: LastKey,
}

/// What the last key was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastKey {
    NoneYet,
    File,
    /// A marker, or a key that cannot be a path.
    Other,
}

impl SnapshotBuilder {
    /// A builder for the keys under `prefix`, which gets a trailing slash if it has none.
    ///
    /// # Errors
    /// `PrefixTooLong`, `BadSuffix`, or `Write` when the destination cannot be created.
    pub fn new(prefix: &ObjectKey, config: BuilderConfig) -> Result<Self, BuildError> {
        let mut prefix = prefix.as_bytes().to_vec();
        if !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        if prefix.len() > MAX_PREFIX_BYTES {
            return Err(BuildError::PrefixTooLong(prefix.len()));
        }
        let shadow_suffix = match config.show_shadowed {
            None => Vec::new(),
            Some(suffix) => {
                let bytes = suffix.as_bytes();
                if bytes.is_empty() || bytes.len() > MAX_SUFFIX_BYTES || bytes.iter().any(|&b| b == b'/' || b == 0) {
                    return Err(BuildError::BadSuffix(suffix));
                }
                suffix.into_bytes()
            }
        };
        Ok(SnapshotBuilder {
            header: Header { prefix, shadow_suffix, ..Header::default() },
            rows: RowWriter::new(NewImage::create(&config.destination)?, config.listed_at)?,
            warnings: Warnings::default(),
            open: vec![OpenDirectory::default()],
            path: Vec::new(),
            last_key: Vec::new(),
            last: LastKey::NoneYet,
        })
    }

    /// Adds an object. The same key again replaces what was pushed for it.
    ///
    /// # Errors
    /// `UnsortedKey` and `OutsidePrefix` leave the builder as it was; after `Write` it is of no more use.
    pub fn push(&mut self, entry: ObjectEntry<'_>) -> Result<(), BuildError> {
        let Some(key) = entry.key.strip_prefix(self.header.prefix.as_slice()) else {
            let prefix = ObjectKey::from(self.header.prefix.as_slice());
            return Err(BuildError::OutsidePrefix { key: ObjectKey::from(entry.key), prefix });
        };
        let file = FileRow {
            size_bytes: entry.size_bytes,
            modified: entry.modified,
            etag: entry.etag.map(ETagRef::from),
            shadowed: false,
        };
        match (key.cmp(&self.last_key), self.last) {
            // Nothing is below the empty key, that of the root's marker.
            (_, LastKey::NoneYet) | (Ordering::Greater, _) => {}
            (Ordering::Equal, LastKey::Other) => return Ok(()),
            (Ordering::Equal, LastKey::File) => {
                if let Some(directory) = self.open.last_mut() {
                    directory.files.amend_last(file);
                }
                return Ok(());
            }
            (Ordering::Less, _) => {
                let previous = ObjectKey::from([&self.header.prefix[..], &self.last_key].concat());
                return Err(BuildError::UnsortedKey { key: ObjectKey::from(entry.key), previous });
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last = LastKey::Other;
        match rules::classify(key) {
            Ok(Placement { directories, name }) => self.place(key, directories, name, file),
            Err(Rejected { reason, directory }) => {
                self.header.statistics.rejected.add(reason, 1);
                self.warnings.note(&self.header.prefix, directory, key, WarningCause::Rejected(reason));
                Ok(())
            }
        }
    }

    fn place(
        &mut self,
        key: &[u8],
        directories: &[u8],
        name: Option<EntryName<'_>>,
        file: FileRow<'_>,
    ) -> Result<(), BuildError> {
        self.enter(directories)?;
        match (name, self.open.last_mut()) {
            (Some(name), Some(directory)) => {
                directory.files.push(name.as_bytes(), file);
                self.last = LastKey::File;
            }
            _ if file.size_bytes > 0 => {
                self.header.statistics.markers_with_bytes += 1;
                self.warnings.note(&self.header.prefix, directories, key, WarningCause::MarkerWithBytes);
            }
            _ => {}
        }
        Ok(())
    }

    /// Closes the open directories that `directories` is not in and opens those it has more.
    fn enter(&mut self, directories: &[u8]) -> Result<(), BuildError> {
        while !directories.starts_with(&self.path) {
            self.close()?;
        }
        while let Some(name_bytes) = directories[self.path.len()..].iter().position(|&byte| byte == b'/') {
            let parent_path_bytes = self.path.len();
            self.path.extend_from_slice(&directories[parent_path_bytes..=parent_path_bytes + name_bytes]);
            self.open.push(OpenDirectory { parent_path_bytes, ..OpenDirectory::default() });
        }
        Ok(())
    }

    /// Writes the innermost open directory and enters it in its parent.
    fn close(&mut self) -> Result<(), BuildError> {
        if let Some(mut directory) = self.open.pop() {
            let number = self.write_rows(&mut directory)?;
            if let Some(parent) = self.open.last_mut() {
                let name = &self.path[directory.parent_path_bytes..self.path.len() - 1];
                parent.directories.push(name, number);
            }
            self.path.truncate(directory.parent_path_bytes);
        }
        Ok(())
    }

    /// Merges files and subdirectories in order of their names. Returns the directory's number.
    fn write_rows(&mut self, directory: &mut OpenDirectory) -> io::Result<u64> {
        let number = self.rows.begin_directory();
        let mut files = directory.files.reader();
        let mut directories = directory.directories.sorted().peekable();
        let mut shadowed = Shadowed::default();
        loop {
            let file = files.current();
            let order = match (file, directories.peek()) {
                (None, None) => break,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some((file, _)), Some((directory, _))) => file.cmp(directory),
            };
            if order == Ordering::Less {
                if let Some((name, file)) = file {
                    self.write_shadowed(&mut shadowed, Some(name))?;
                    self.write_file(name, file)?;
                }
                files.advance();
                continue;
            }
            if order == Ordering::Equal {
                self.shadow(&mut shadowed, &mut files);
            }
            if let Some((name, number)) = directories.next() {
                self.write_shadowed(&mut shadowed, Some(name))?;
                self.rows.push_directory(name, number)?;
            }
        }
        self.write_shadowed(&mut shadowed, None)?;
        Ok(number)
    }

    fn write_file(&mut self, name: &[u8], file: FileRow<'_>) -> io::Result<()> {
        self.header.statistics.objects += 1;
        self.header.statistics.total_bytes = self.header.statistics.total_bytes.saturating_add(file.size_bytes);
        self.rows.push_file(name, file)
    }

    /// Takes out the file whose name a directory has, to be shown under another name if that is wanted.
    fn shadow(&mut self, shadowed: &mut Shadowed, files: &mut PendingReader<'_>) {
        if let Some((name, file)) = files.current() {
            self.header.statistics.shadowed += 1;
            let key = [&self.path[..], name].concat();
            self.warnings.note(&self.header.prefix, &self.path, &key, WarningCause::ShadowedFile);
            let shown_as = [name, &self.header.shadow_suffix].concat();
            if !self.header.shadow_suffix.is_empty() && EntryName::new(&shown_as).is_some() {
                shadowed.insert(shown_as, ShadowedFile::new(file));
            }
        }
        files.advance();
    }

    /// Writes the shadowed files whose names are below `next`, the name of a real entry, which takes precedence.
    fn write_shadowed(&mut self, shadowed: &mut Shadowed, next: Option<&[u8]>) -> io::Result<()> {
        while let Some(first) = shadowed.first_entry() {
            match next.map_or(Ordering::Less, |next| first.key().as_slice().cmp(next)) {
                Ordering::Greater => break,
                Ordering::Equal => drop(first.remove()),
                Ordering::Less => {
                    let (name, file) = first.remove_entry();
                    self.write_file(&name, file.row())?;
                }
            }
        }
        Ok(())
    }

    /// Memory held for files of open directories.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.open.iter().map(|directory| directory.files.capacity_bytes()).sum()
    }

    /// Writes what is still open and opens the image.
    ///
    /// # Errors
    /// `Write`, or `Open` when what was written cannot be mapped.
    pub fn finish(mut self) -> Result<Snapshot, BuildError> {
        while !self.open.is_empty() {
            self.close()?;
        }
        let image = self.rows.finish(self.header)?.publish()?;
        Ok(Snapshot::of_new_image(image, self.warnings.into_vec())?)
    }
}

/// Shadowed files by the name they are to be shown under; each waits at most until the directory ends.
type Shadowed = BTreeMap<Vec<u8>, ShadowedFile>;

#[derive(Debug)]
struct ShadowedFile {
    size_bytes: u64,
    modified: UnixMillis,
    etag: Option<ETag>,
}

impl ShadowedFile {
    fn new(file: FileRow<'_>) -> Self {
        ShadowedFile { size_bytes: file.size_bytes, modified: file.modified, etag: file.etag.map(ETag::from) }
    }

    fn row(&self) -> FileRow<'_> {
        let etag = self.etag.as_ref().map(ETagRef::from);
        FileRow { size_bytes: self.size_bytes, modified: self.modified, etag, shadowed: true }
    }
}
