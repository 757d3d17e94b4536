//! A bucket that is a directory of this machine: every regular file below it is an object, its path the key.
//!
//! Always true: nothing is hashed or indexed; a page of the listing reads only the directories it passes through. Symbolic
//! links are neither listed nor served, so a tree cannot loop or lead out of itself. Names that are not UTF-8 are left out.

use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use md5::{Digest, Md5};

use super::bucket::{Bucket, BucketError, Content, Listed, StoredObject};
use crate::model::{ETag, EntryName, UnixMillis};

/// A local directory tree, served read-only.
#[derive(Debug)]
pub struct DirectoryBucket {
    root: PathBuf,
}

impl DirectoryBucket {
    /// Serves the tree below `root`.
    ///
    /// # Errors
    /// When `root` is no readable directory.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, BucketError> {
        let root = root.into();
        fs::read_dir(&root).map_err(|source| medium(&root, source))?;
        Ok(DirectoryBucket { root })
    }

    /// Visits what is below `directory`, whose key prefix is `prefix`, at or after `from`.
    fn scan_directory(
        directory: &Path,
        prefix: &str,
        from: &[u8],
        visit: &mut dyn FnMut(Listed<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BucketError> {
        for (key, entry) in sorted_keys(directory, prefix)? {
            // A directory's key ends in `/`, so it stands where its first child would; it is passed over only when no
            // key that begins with it can be at or after `from`.
            let is_directory = key.ends_with('/');
            if key.as_bytes() < from && !(is_directory && from.starts_with(key.as_bytes())) {
                continue;
            }
            let flow = if is_directory {
                Self::scan_directory(&entry.path(), &key, from, visit)?
            } else {
                // Gone since the directory was read: a listing need not show it.
                let Ok(metadata) = entry.metadata() else { continue };
                visit(Listed {
                    key: key.as_bytes(),
                    size_bytes: metadata.len(),
                    modified: modified(&metadata),
                    etag: etag(&metadata),
                })
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The entries of one directory as keys, in key order; directories end in `/`.
fn sorted_keys(directory: &Path, prefix: &str) -> Result<Vec<(String, DirEntry)>, BucketError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(medium(directory, error)),
    };
    let mut keys = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| medium(directory, source))?;
        let kind = entry.file_type().map_err(|source| medium(directory, source))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if kind.is_dir() {
            keys.push((format!("{prefix}{name}/"), entry));
        } else if kind.is_file() {
            keys.push((format!("{prefix}{name}"), entry));
        }
    }
    keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(keys)
}

fn modified(metadata: &Metadata) -> UnixMillis {
    UnixMillis(metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000)
}

/// Changes whenever the file is replaced or written to, without reading it.
fn etag(metadata: &Metadata) -> ETag {
    let mut hash = Md5::new();
    for number in [metadata.len(), metadata.ino()] {
        hash.update(number.to_le_bytes());
    }
    for number in [metadata.mtime(), metadata.mtime_nsec()] {
        hash.update(number.to_le_bytes());
    }
    ETag::Digest(hash.finalize().into())
}

fn medium(path: &Path, source: io::Error) -> BucketError {
    BucketError::Medium { what: path.display().to_string(), source }
}

impl Bucket for DirectoryBucket {
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(Listed<'_>) -> ControlFlow<()>) -> Result<(), BucketError> {
        Self::scan_directory(&self.root, "", from, visit).map(drop)
    }

    fn find(&self, key: &str) -> Result<Option<StoredObject>, BucketError> {
        // `..`, empty components and a leading slash are no names, so a key cannot point outside the tree.
        if !key.split('/').all(|name| EntryName::new(name.as_bytes()).is_some()) {
            return Ok(None);
        }
        let path = self.root.join(key);
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let opened = options.open(&path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let (file, metadata) = match opened {
            Ok((_, metadata)) if !metadata.is_file() => return Ok(None),
            Ok(opened) => opened,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(medium(&path, error)),
        };
        Ok(Some(StoredObject {
            size_bytes: metadata.len(),
            modified: modified(&metadata),
            etag: etag(&metadata),
            headers: None,
            content: Content::File(Arc::new(file)),
        }))
    }
}

/// The errors of a path that leads to no regular file of the tree.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG | libc::ENXIO))
}
