//! The image as a file or sealed memory, and its mapping.
//!
//! Always true: header and tables are checked when an image is opened, a block of rows when it is first touched; what has
//! not passed its checksum is never interpreted. The only unsafe code of the namespace is the call that maps. The meaning of
//! rows is left to `directory`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Mmap, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::model::{ObjectKey, UnixMillis};
use crate::namespace::format::{
    BLOCK_RECORD_BYTES, BLOCK_ROWS, DIRECTORY_RECORD_BYTES, HEADER_BYTES, Header, MAGIC, NO_ROW, Section, VERSION,
    take_u32, take_u64,
};
use crate::namespace::{Destination, Statistics, Warning};

/// An image whose bytes are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot image is damaged ({part}, number {index}): delete it, it is made anew from a listing")]
pub struct Damaged {
    pub(super) part: &'static str,
    pub(super) index: u64,
}

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or mapped.
    #[error("cannot open the snapshot image: {0}")]
    Open(#[from] io::Error),
    /// The file is something else, or its writing was not finished.
    #[error("this is not a finished snapshot image: name another file, or delete it and let it be made anew")]
    NotASnapshot,
    /// Written by another version of the program.
    #[error("the snapshot image has format {found}, this program reads {VERSION}: delete it, it is made anew")]
    Version {
        /// The format of the image.
        found: u32,
    },
    /// Its bytes are not what was written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// An image being written.
#[derive(Debug)]
pub(super) struct NewImage {
    file: File,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory,
    /// Written beside its place, and moved there when complete.
    Partial {
        partial: PathBuf,
        path: PathBuf,
    },
    Published,
}

impl NewImage {
    pub(super) fn create(destination: &Destination) -> io::Result<Self> {
        match destination {
            Destination::Memory => {
                let memory = memfd_create("streamvol-snapshot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
                Ok(NewImage { file: File::from(memory), place: Place::Memory })
            }
            Destination::File(path) => {
                let mut partial = OsString::from(path);
                partial.push(format!(".{}.partial", std::process::id()));
                let partial = PathBuf::from(partial);
                // A leftover of an earlier process is removed, not opened: it could be a link to somewhere else.
                match std::fs::remove_file(&partial) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let file = File::options().read(true).write(true).create_new(true).open(&partial)?;
                Ok(NewImage { file, place: Place::Partial { partial, path: path.clone() } })
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes a complete image final: memory can no longer be changed, a file gets its name.
    ///
    /// A file is not synchronised with the disk: one that a power failure tore is found out by its checksums.
    pub(super) fn publish(mut self) -> io::Result<File> {
        match &self.place {
            Place::Memory => {
                let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
                fcntl_add_seals(&self.file, seals)?;
            }
            Place::Partial { partial, path } => std::fs::rename(partial, path)?,
            Place::Published => {}
        }
        self.place = Place::Published;
        self.file.try_clone()
    }
}

impl io::Write for NewImage {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if let Place::Partial { partial, .. } = &self.place {
            // Nothing else can be done about a leftover, and the next image of this process replaces it.
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// Rows of one directory, and its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectoryRows {
    /// Its entries, in order of their names.
    pub(super) rows: Range<u64>,
    /// Its own row in its parent; `None` for the root.
    pub(super) own_row: Option<u64>,
}

/// An immutable image of a listing, mapped.
#[derive(Debug)]
pub struct Snapshot {
    map: Mmap,
    header: Header,
    /// A bit for each block whose checksum has been compared.
    verified: Box<[AtomicU64]>,
    warnings: Vec<Warning>,
}

impl Snapshot {
    /// Opens the image in a file, which must from now on be replaced, not changed: a file cut short under a mapping ends
    /// the process that reads it.
    ///
    /// # Errors
    /// When it cannot be read or is no complete image of this format.
    pub fn open(path: &Path) -> Result<Snapshot, SnapshotError> {
        Self::of_file(&File::open(path)?)
    }

    /// Opens an image just built, with what its builder wants to be said about it.
    pub(super) fn of_new_image(image: File, warnings: Vec<Warning>) -> Result<Snapshot, SnapshotError> {
        let mut image = image;
        image.rewind()?;
        Ok(Snapshot { warnings, ..Self::of_file(&image)? })
    }

    fn of_file(mut file: &File) -> Result<Snapshot, SnapshotError> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::NotASnapshot,
            _ => SnapshotError::Open(error),
        })?;
        let Some(mut rest) = bytes.strip_prefix(&MAGIC) else { return Err(SnapshotError::NotASnapshot) };
        let found = take_u32(&mut rest).unwrap_or_default();
        if found != VERSION {
            return Err(SnapshotError::Version { found });
        }
        let header = Header::decode(&bytes).ok_or(Damaged { part: "header", index: 0 })?;
        let image_bytes = file.metadata()?.len();
        if image_bytes != header.statistics.image_bytes {
            return Err(Damaged { part: "length", index: image_bytes }.into());
        }
        let map = map_private(file)?;
        let words = usize::try_from(header.rows.div_ceil(BLOCK_ROWS).div_ceil(64)).unwrap_or(usize::MAX);
        let snapshot = Snapshot { map, header, verified: Box::default(), warnings: Vec::new() };
        snapshot.check_sections()?;
        snapshot.check_block_table()?;
        snapshot.check_directory_table()?;
        // Only now is the number of rows known to fit the file, and so the memory to be bounded.
        Ok(Snapshot { verified: std::iter::repeat_with(AtomicU64::default).take(words).collect(), ..snapshot })
    }

    /// Counts of what it holds.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.header.statistics
    }

    /// The prefix all its keys begin with: empty, or ending in `/`.
    #[must_use]
    pub fn prefix(&self) -> ObjectKey {
        ObjectKey::from(self.header.prefix.as_slice())
    }

    /// When its listing began.
    #[must_use]
    pub fn listed_at(&self) -> UnixMillis {
        self.header.listed_at
    }

    /// What a person should hear about the listing. Of an image opened from a file only the counts are known.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub(super) fn prefix_bytes(&self) -> &[u8] {
        &self.header.prefix
    }

    pub(super) fn shadow_suffix(&self) -> &[u8] {
        &self.header.shadow_suffix
    }

    pub(super) fn rows(&self) -> u64 {
        self.header.rows
    }

    fn blocks(&self) -> u64 {
        self.header.rows.div_ceil(BLOCK_ROWS)
    }

    fn directories(&self) -> u64 {
        self.header.statistics.directories
    }

    fn section(&self, section: Section) -> Option<&[u8]> {
        let start = usize::try_from(section.offset).ok()?;
        let length = usize::try_from(section.length).ok()?;
        self.map.get(start..)?.get(..length)
    }

    /// Sections lie one after the other and fill the file; tables have a record for each block and directory.
    fn check_sections(&self) -> Result<(), Damaged> {
        let Header { row_section, block_table, directory_table, .. } = self.header;
        let mut end = HEADER_BYTES as u64;
        for (index, section) in (0..).zip([row_section, block_table, directory_table]) {
            let damaged = Damaged { part: "section", index };
            if section.offset != end {
                return Err(damaged);
            }
            end = end.checked_add(section.length).ok_or(damaged)?;
        }
        let records = |count: u64, record_bytes: usize| count.checked_mul(record_bytes as u64);
        let fits = end == self.header.statistics.image_bytes
            && records(self.blocks(), BLOCK_RECORD_BYTES) == Some(block_table.length)
            && records(self.directories(), DIRECTORY_RECORD_BYTES) == Some(directory_table.length)
            && self.directories() > 0;
        if fits { Ok(()) } else { Err(Damaged { part: "section", index: 3 }) }
    }

    fn check_block_table(&self) -> Result<(), Damaged> {
        let damaged = |index| Damaged { part: "block table", index };
        let table = self.section(self.header.block_table).ok_or(damaged(0))?;
        if crc32c::crc32c(table) != self.header.block_table_crc {
            return Err(damaged(0));
        }
        let mut end = 0;
        for block in 0..self.blocks() {
            let range = self.block_range(block).ok_or(damaged(block))?;
            if range.start != end || range.is_empty() {
                return Err(damaged(block));
            }
            end = range.end;
        }
        if end == self.header.row_section.length { Ok(()) } else { Err(damaged(self.blocks())) }
    }

    /// Directories share out the rows in order, and each stands in a row beyond its own entries: no walk can loop.
    fn check_directory_table(&self) -> Result<(), Damaged> {
        let damaged = |index| Damaged { part: "directory table", index };
        let table = self.section(self.header.directory_table).ok_or(damaged(0))?;
        if crc32c::crc32c(table) != self.header.directory_table_crc {
            return Err(damaged(0));
        }
        let mut end = 0;
        for number in 0..self.directories() {
            let DirectoryRows { rows, own_row } = self.directory(number)?;
            let is_root = number + 1 == self.directories();
            let stands = own_row.map_or(is_root, |own_row| !is_root && own_row >= rows.end && own_row < self.rows());
            if rows.start != end || rows.end < rows.start || !stands {
                return Err(damaged(number));
            }
            end = rows.end;
        }
        if end == self.rows() { Ok(()) } else { Err(damaged(self.directories())) }
    }

    /// Number of the root directory: the last one written.
    pub(super) fn root(&self) -> u64 {
        self.directories().saturating_sub(1)
    }

    /// Where a directory's rows are.
    pub(super) fn directory(&self, number: u64) -> Result<DirectoryRows, Damaged> {
        let (start, own_row) = self.directory_record(number)?;
        let end = if number >= self.root() { self.rows() } else { self.directory_record(number + 1)?.0 };
        Ok(DirectoryRows { rows: start..end, own_row: (own_row != NO_ROW).then_some(own_row) })
    }

    fn directory_record(&self, number: u64) -> Result<(u64, u64), Damaged> {
        let table = self.section(self.header.directory_table).unwrap_or_default();
        record::<DIRECTORY_RECORD_BYTES>(table, number)
            .and_then(|mut record| Some((take_u64(&mut record)?, take_u64(&mut record)?)))
            .ok_or(Damaged { part: "directory", index: number })
    }

    /// The directory that a row stands in.
    pub(super) fn directory_of_row(&self, row: u64) -> Result<DirectoryRows, Damaged> {
        // The last directory that begins at or before the row: empty ones begin where the next begins.
        let (mut low, mut high) = (0, self.directories());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.directory_record(middle)?.0 <= row {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.directory(low)
    }

    fn block_range(&self, block: u64) -> Option<Range<u64>> {
        let table = self.section(self.header.block_table)?;
        let offset = |block| record::<BLOCK_RECORD_BYTES>(table, block).and_then(|mut record| take_u64(&mut record));
        let end = if block + 1 == self.blocks() { self.header.row_section.length } else { offset(block + 1)? };
        Some(offset(block)?..end)
    }

    /// The bytes of a block, known to be as they were written.
    #[inline]
    pub(super) fn block(&self, block: u64) -> Result<&[u8], Damaged> {
        let damaged = Damaged { part: "block", index: block };
        let range = self.block_range(block).ok_or(damaged)?;
        let length = range.end.checked_sub(range.start).ok_or(damaged)?;
        let offset = self.header.row_section.offset.checked_add(range.start).ok_or(damaged)?;
        let bytes = self.section(Section { offset, length }).ok_or(damaged)?;
        let bit = 1 << (block % 64);
        let word = usize::try_from(block / 64).ok().and_then(|word| self.verified.get(word)).ok_or(damaged)?;
        // Relaxed: the bit speaks of bytes that never change, and publishes nothing.
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.verify(block, bytes).ok_or(damaged)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(bytes)
    }

    #[cold]
    fn verify(&self, block: u64, bytes: &[u8]) -> Option<()> {
        let mut record = record::<BLOCK_RECORD_BYTES>(self.section(self.header.block_table)?, block)?;
        take_u64(&mut record)?;
        (take_u32(&mut record)? == crc32c::crc32c(bytes)).then_some(())
    }
}

/// A record of a table.
fn record<const BYTES: usize>(table: &[u8], index: u64) -> Option<&[u8]> {
    let start = usize::try_from(index).ok()?.checked_mul(BYTES)?;
    table.get(start..)?.get(..BYTES)
}

/// Maps a whole file for reading.
///
/// Private, not shared: before Linux 6.7 memory sealed against writing cannot be mapped shared through a descriptor that was
/// opened for writing. Pages that are only read are the same in both.
#[expect(unsafe_code, reason = "a mapping is what makes an image cheap to open and to hand to another process")]
fn map_private(file: &File) -> io::Result<Mmap> {
    // SAFETY: the bytes must not change while they are mapped. Memory is sealed against it. A file is written under another
    // name and never again after it got its own (`NewImage`); `Snapshot::open` tells callers to keep to that.
    unsafe { MmapOptions::new().map_copy_read_only(file) }
}
