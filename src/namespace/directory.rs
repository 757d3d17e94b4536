//! Finding and walking rows of an image: one row, one name in a directory, a directory in order.
//!
//! Always true: nothing here allocates but [`key_of`]; each access decodes at most one block before the rows it is asked
//! for; damaged bytes are an error. Which node a row is, and whether it is still current, is left to `live`.

use std::cmp::Ordering;
use std::ops::Range;

use crate::model::{MAX_NAME_BYTES, ObjectKey, UnixMillis};
use crate::namespace::format::{self, BLOCK_ROWS, Row, RowBody, shared_prefix_bytes};
use crate::namespace::snapshot_file::{Damaged, DirectoryRows, Snapshot};

fn damaged(row: u64) -> Damaged {
    Damaged { part: "row", index: row }
}

/// Decodes the rows of blocks one after the other, without their names.
struct Rows<'a> {
    snapshot: &'a Snapshot,
    block: &'a [u8],
    row: u64,
    base: UnixMillis,
}

impl<'a> Rows<'a> {
    /// Begins with the first row of the block that `row` is in.
    fn from_block_of(snapshot: &'a Snapshot, row: u64) -> Self {
        Rows { snapshot, block: &[], row: row / BLOCK_ROWS * BLOCK_ROWS, base: UnixMillis::default() }
    }

    #[inline]
    fn next(&mut self) -> Result<Row<'a>, Damaged> {
        if self.row.is_multiple_of(BLOCK_ROWS) {
            self.block = self.snapshot.block(self.row / BLOCK_ROWS)?;
            self.base = self.snapshot.listed_at();
        }
        let row = Row::decode(self.base, &mut self.block).ok_or(damaged(self.row))?;
        if let RowBody::File(file) = row.body {
            self.base = file.modified;
        }
        self.row += 1;
        Ok(row)
    }
}

/// A directory's row and the directory table must name each other; with the table's own order this rules out loops.
fn check(snapshot: &Snapshot, row: u64, body: RowBody<'_>) -> Result<(), Damaged> {
    match body {
        RowBody::Directory(number) if snapshot.directory(number)?.own_row != Some(row) => Err(damaged(row)),
        _ => Ok(()),
    }
}

/// What a row says besides its name. The row must be one of the image.
pub(super) fn row(snapshot: &Snapshot, row: u64) -> Result<RowBody<'_>, Damaged> {
    let mut rows = Rows::from_block_of(snapshot, row);
    loop {
        let Row { body, .. } = rows.next()?;
        if rows.row > row {
            check(snapshot, row, body)?;
            return Ok(body);
        }
    }
}

/// Walks over rows with their names.
pub(super) struct Cursor<'a> {
    rows: Rows<'a>,
    name: [u8; MAX_NAME_BYTES],
    name_bytes: usize,
}

impl<'a> Cursor<'a> {
    /// Stands before `row`, which must be one of the image.
    pub(super) fn before(snapshot: &'a Snapshot, row: u64) -> Result<Self, Damaged> {
        let rows = Rows::from_block_of(snapshot, row);
        let mut cursor = Cursor { rows, name: [0; MAX_NAME_BYTES], name_bytes: 0 };
        while cursor.rows.row < row {
            cursor.step()?;
        }
        Ok(cursor)
    }

    /// The row that `next` will return.
    pub(super) fn position(&self) -> u64 {
        self.rows.row
    }

    /// Name of the row returned last.
    pub(super) fn name(&self) -> &[u8] {
        &self.name[..self.name_bytes]
    }

    /// Goes over the next row, which must be one of the image.
    #[inline]
    pub(super) fn next(&mut self) -> Result<RowBody<'a>, Damaged> {
        let row = self.position();
        let body = self.step()?;
        check(self.rows.snapshot, row, body)?;
        Ok(body)
    }

    #[inline]
    fn step(&mut self) -> Result<RowBody<'a>, Damaged> {
        let position = self.position();
        let known_bytes = if position.is_multiple_of(BLOCK_ROWS) { 0 } else { self.name_bytes };
        let Row { shared_bytes, suffix, body } = self.rows.next()?;
        let name_bytes = shared_bytes + suffix.len();
        match self.name.get_mut(shared_bytes..name_bytes) {
            Some(rest) if shared_bytes <= known_bytes => rest.copy_from_slice(suffix),
            _ => return Err(damaged(position)),
        }
        self.name_bytes = name_bytes;
        Ok(body)
    }
}

/// Looks a name up in a directory: binary search over the first names of its blocks, then at most one block row by row.
pub(super) fn find<'a>(
    snapshot: &'a Snapshot,
    directory: &DirectoryRows,
    name: &[u8],
) -> Result<Option<(u64, RowBody<'a>)>, Damaged> {
    let rows = &directory.rows;
    if rows.is_empty() {
        return Ok(None);
    }
    // Blocks whose first row is one of the directory's; `low` of them are known to begin at or below the name.
    let first_block = rows.start.div_ceil(BLOCK_ROWS);
    let (mut low, mut high) = (0, rows.end.div_ceil(BLOCK_ROWS).saturating_sub(first_block));
    while low < high {
        let middle = low + (high - low) / 2;
        let block = first_block + middle;
        let head = format::whole_name(snapshot.block(block)?).ok_or(damaged(block * BLOCK_ROWS))?;
        if head <= name {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let start = if low == 0 { rows.start } else { (first_block + low - 1) * BLOCK_ROWS };
    let end = rows.end.min((first_block + low) * BLOCK_ROWS);
    find_between(snapshot, start..end, name)
}

/// Looks a name up in rows of one block and one directory, the first of which shares nothing with the row before.
///
/// No name is put together: as rows are in order and share all they have in common, the length of what the name has in
/// common with the row before decides most comparisons.
fn find_between<'a>(
    snapshot: &'a Snapshot,
    range: Range<u64>,
    name: &[u8],
) -> Result<Option<(u64, RowBody<'a>)>, Damaged> {
    if range.is_empty() {
        return Ok(None);
    }
    let mut rows = Rows::from_block_of(snapshot, range.start);
    while rows.row < range.start {
        rows.next()?;
    }
    let mut matched_bytes = 0;
    for position in range {
        let Row { shared_bytes, suffix, body } = rows.next()?;
        match shared_bytes.cmp(&matched_bytes) {
            // It begins like the row before beyond the byte that puts that one below the name.
            Ordering::Greater => continue,
            // It is above the row before in a byte that this one has in common with the name.
            Ordering::Less => break,
            Ordering::Equal => {}
        }
        let wanted = name.get(matched_bytes..).ok_or(damaged(position))?;
        let common_bytes = shared_prefix_bytes(wanted, suffix);
        match (wanted.get(common_bytes), suffix.get(common_bytes)) {
            (None, None) => {
                check(snapshot, position, body)?;
                return Ok(Some((position, body)));
            }
            (Some(wanted), Some(found)) if found > wanted => break,
            (None, Some(_)) => break,
            _ => matched_bytes += common_bytes,
        }
    }
    Ok(None)
}

/// The full key of a row: of a directory with its trailing slash, of a shadowed file without the suffix it is shown with.
pub(super) fn key_of(snapshot: &Snapshot, row: u64) -> Result<ObjectKey, Damaged> {
    // Built back to front, from the row up to the root, and turned round at the end.
    let mut reversed = Vec::with_capacity(128);
    let mut next = Some(row);
    while let Some(row) = next {
        let mut cursor = Cursor::before(snapshot, row)?;
        let mut name = match cursor.next()? {
            RowBody::Directory(_) => {
                reversed.push(b'/');
                cursor.name()
            }
            RowBody::File(file) if file.shadowed => {
                cursor.name().strip_suffix(snapshot.shadow_suffix()).ok_or(damaged(row))?
            }
            RowBody::File(_) => cursor.name(),
        };
        while let [rest @ .., last] = name {
            reversed.push(*last);
            name = rest;
        }
        next = snapshot.directory_of_row(row)?.own_row;
    }
    reversed.extend(snapshot.prefix_bytes().iter().rev());
    reversed.reverse();
    Ok(ObjectKey::from(reversed))
}
