//! Writes rows and tables of an image, front to back, in large writes; the header goes last, in front of them.
//!
//! Always true: an image without a valid header is one whose writing was not finished. Order and content of the rows are
//! the builder's.

use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use crate::model::UnixMillis;
use crate::namespace::format::{
    BLOCK_ROWS, DIRECTORY_RECORD_BYTES, FileRow, HEADER_BYTES, Header, NO_ROW, Row, RowBody, Section,
    shared_prefix_bytes,
};
use crate::namespace::snapshot_file::NewImage;

/// Size of one write: large enough that system calls cost nothing beside encoding.
const WRITE_BUFFER_BYTES: usize = 256 * 1024;

/// Writes one image.
#[derive(Debug)]
pub(super) struct RowWriter {
    out: BufWriter<NewImage>,
    listed_at: UnixMillis,
    rows: u64,
    rows_bytes: u64,
    block: Vec<u8>,
    block_table: Vec<u8>,
    directories: Vec<DirectoryRecord>,
    previous_name: Vec<u8>,
    previous_modified: UnixMillis,
}

#[derive(Debug)]
struct DirectoryRecord {
    first_row: u64,
    own_row: u64,
}

impl RowWriter {
    pub(super) fn new(image: NewImage, listed_at: UnixMillis) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(WRITE_BUFFER_BYTES, image);
        out.write_all(&[0; HEADER_BYTES])?;
        Ok(RowWriter {
            out,
            listed_at,
            rows: 0,
            rows_bytes: 0,
            block: Vec::new(),
            block_table: Vec::new(),
            directories: Vec::new(),
            previous_name: Vec::new(),
            previous_modified: listed_at,
        })
    }

    /// Begins the rows of a directory; all its subdirectories are written. Returns its number.
    pub(super) fn begin_directory(&mut self) -> u64 {
        self.previous_name.clear();
        self.directories.push(DirectoryRecord { first_row: self.rows, own_row: NO_ROW });
        self.directories.len() as u64 - 1
    }

    /// Adds a subdirectory to the directory begun last.
    pub(super) fn push_directory(&mut self, name: &[u8], number: u64) -> io::Result<()> {
        self.push(name, RowBody::Directory(number))?;
        let own_row = self.rows - 1;
        if let Some(record) = usize::try_from(number).ok().and_then(|index| self.directories.get_mut(index)) {
            record.own_row = own_row;
        }
        Ok(())
    }

    /// Adds a file to the directory begun last.
    pub(super) fn push_file(&mut self, name: &[u8], file: FileRow<'_>) -> io::Result<()> {
        self.push(name, RowBody::File(file))?;
        self.previous_modified = file.modified;
        Ok(())
    }

    fn push(&mut self, name: &[u8], body: RowBody<'_>) -> io::Result<()> {
        if self.rows.is_multiple_of(BLOCK_ROWS) {
            self.end_block()?;
        }
        let shared_bytes = shared_prefix_bytes(&self.previous_name, name);
        Row { shared_bytes, suffix: &name[shared_bytes..], body }.encode(self.previous_modified, &mut self.block);
        self.previous_name.truncate(shared_bytes);
        self.previous_name.extend_from_slice(&name[shared_bytes..]);
        self.rows += 1;
        Ok(())
    }

    /// Writes the block and its record; the next row refers to none before it.
    fn end_block(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            self.block_table.extend_from_slice(&self.rows_bytes.to_le_bytes());
            self.block_table.extend_from_slice(&crc32c::crc32c(&self.block).to_le_bytes());
            self.out.write_all(&self.block)?;
            self.rows_bytes += self.block.len() as u64;
            self.block.clear();
        }
        self.previous_name.clear();
        self.previous_modified = self.listed_at;
        Ok(())
    }

    /// Writes tables and header. Of `header`, the builder fills in what only it knows.
    pub(super) fn finish(mut self, mut header: Header) -> io::Result<NewImage> {
        self.end_block()?;
        let mut directory_table = Vec::with_capacity(self.directories.len() * DIRECTORY_RECORD_BYTES);
        for record in &self.directories {
            directory_table.extend_from_slice(&record.first_row.to_le_bytes());
            directory_table.extend_from_slice(&record.own_row.to_le_bytes());
        }
        self.out.write_all(&self.block_table)?;
        self.out.write_all(&directory_table)?;

        let section = |after: Section, length: u64| Section { offset: after.offset + after.length, length };
        header.row_section = Section { offset: HEADER_BYTES as u64, length: self.rows_bytes };
        header.block_table = section(header.row_section, self.block_table.len() as u64);
        header.directory_table = section(header.block_table, directory_table.len() as u64);
        header.block_table_crc = crc32c::crc32c(&self.block_table);
        header.directory_table_crc = crc32c::crc32c(&directory_table);
        header.rows = self.rows;
        header.listed_at = self.listed_at;
        header.statistics.directories = self.directories.len() as u64;
        header.statistics.image_bytes = section(header.directory_table, 0).offset;

        let image = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        image.file().write_all_at(&header.encode(), 0)?;
        Ok(image)
    }
}
