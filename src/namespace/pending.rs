//! What the builder keeps of the directories it is inside of: their entries so far, encoded.
//!
//! Keys arrive in byte order, names must leave in byte order, and the two differ: directory `a` arrives as `a/...`, after
//! the file `a!` that it precedes. How far after is not bounded, so a directory's entries wait until the last one is in.
//! Files arrive in order of their names and wait front-coded, in about the bytes they take in the image; only
//! subdirectories are sorted. Nothing here knows of rows or blocks.

use crate::model::UnixMillis;
use crate::namespace::format::{FileRow, Row, RowBody, shared_prefix_bytes};

/// Encoded files are kept in chunks of this size, so that growing a large directory copies and wastes little.
const CHUNK_BYTES: usize = 256 * 1024;
/// Room for the row that ends a chunk: the longest name and a tag; a longer one makes the chunk grow.
const CHUNK_SLACK_BYTES: usize = 2048;

/// A directory that keys are still arriving for.
#[derive(Debug, Default)]
pub(super) struct OpenDirectory {
    /// Length of its parent's path.
    pub(super) parent_path_bytes: usize,
    pub(super) files: PendingFiles,
    pub(super) directories: PendingDirectories,
}

/// Files of one directory in order of their names.
#[derive(Debug, Default)]
pub(super) struct PendingFiles {
    chunks: Vec<Vec<u8>>,
    last_name: Vec<u8>,
    last_shared_bytes: usize,
    last_row_at: usize,
}

impl PendingFiles {
    /// Adds a file whose name is above all before it.
    pub(super) fn push(&mut self, name: &[u8], file: FileRow<'_>) {
        debug_assert!(self.last_name.as_slice() < name, "files of a directory arrive in order");
        self.last_shared_bytes = shared_prefix_bytes(&self.last_name, name);
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        match self.chunks.last() {
            None => self.chunks.push(Vec::new()),
            Some(chunk) if chunk.len() >= CHUNK_BYTES => {
                self.chunks.push(Vec::with_capacity(CHUNK_BYTES + CHUNK_SLACK_BYTES));
            }
            Some(_) => {}
        }
        self.last_row_at = self.chunks.last().map_or(0, Vec::len);
        self.encode_last(file);
    }

    /// Puts another version in the place of the last file.
    pub(super) fn amend_last(&mut self, file: FileRow<'_>) {
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.truncate(self.last_row_at);
            self.encode_last(file);
        }
    }

    fn encode_last(&mut self, file: FileRow<'_>) {
        if let Some(chunk) = self.chunks.last_mut() {
            let suffix = &self.last_name[self.last_shared_bytes..];
            Row { shared_bytes: self.last_shared_bytes, suffix, body: RowBody::File(file) }
                .encode(UnixMillis::default(), chunk);
        }
    }

    /// Memory held, in bytes.
    #[cfg(test)]
    pub(super) fn capacity_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// The files again, from the first.
    pub(super) fn reader(&self) -> PendingReader<'_> {
        let mut reader = PendingReader { chunks: self.chunks.iter(), rest: &[], name: Vec::new(), file: None };
        reader.advance();
        reader
    }
}

/// Walks over [`PendingFiles`]; stands on a file until it is past the last.
#[derive(Debug)]
pub(super) struct PendingReader<'a> {
    chunks: std::slice::Iter<'a, Vec<u8>>,
    rest: &'a [u8],
    name: Vec<u8>,
    file: Option<FileRow<'a>>,
}

impl<'a> PendingReader<'a> {
    /// The file it stands on.
    pub(super) fn current(&self) -> Option<(&[u8], FileRow<'a>)> {
        self.file.map(|file| (self.name.as_slice(), file))
    }

    /// Goes to the next file.
    pub(super) fn advance(&mut self) {
        if self.rest.is_empty() {
            self.rest = self.chunks.next().map_or(&[], Vec::as_slice);
        }
        self.file = None;
        if let Some(Row { shared_bytes, suffix, body: RowBody::File(file) }) =
            Row::decode(UnixMillis::default(), &mut self.rest)
        {
            self.name.truncate(shared_bytes);
            self.name.extend_from_slice(suffix);
            self.file = Some(file);
        }
    }
}

/// Finished subdirectories of one directory: names and numbers.
#[derive(Debug, Default)]
pub(super) struct PendingDirectories {
    names: Vec<u8>,
    entries: Vec<PendingDirectory>,
}

#[derive(Debug)]
struct PendingDirectory {
    name_start: usize,
    name_end: usize,
    number: u64,
}

impl PendingDirectories {
    /// Adds a finished directory. Each name comes once, in any order.
    pub(super) fn push(&mut self, name: &[u8], number: u64) {
        let name_start = self.names.len();
        self.names.extend_from_slice(name);
        self.entries.push(PendingDirectory { name_start, name_end: self.names.len(), number });
    }

    /// All of them in order of their names. They are nearly so already, which the sort makes use of.
    pub(super) fn sorted(&mut self) -> impl Iterator<Item = (&[u8], u64)> {
        let names = &self.names;
        self.entries.sort_by(|a, b| names[a.name_start..a.name_end].cmp(&names[b.name_start..b.name_end]));
        self.entries.iter().map(|entry| (&names[entry.name_start..entry.name_end], entry.number))
    }
}
