//! The bytes of a snapshot image: header, rows, tables. `docs/snapshot-format.md` is the contract and changes with this file.
//!
//! Always true here: every number is little-endian whatever the machine; reading never trusts a length or an offset, so
//! damaged bytes end in `None`, not in a panic. Where bytes come from and whether their checksum holds is left to
//! `snapshot_file`; what order rows stand in to `builder` and `directory`.

use crate::model::{ETag, MAX_NAME_BYTES, UnixMillis};
use crate::namespace::{RejectReason, Statistics};

/// First bytes of every image.
pub(super) const MAGIC: [u8; 8] = *b"SVOLSNAP";
/// Changes with every change of the format; no version reads another's.
pub(super) const VERSION: u32 = 1;
/// Size of the header: one page, so that the rows begin on one.
pub(super) const HEADER_BYTES: usize = 4096;
/// Rows in a block. A block is what one access decodes (8 rows on average) and what one checksum guards; larger blocks save
/// half a byte a row and cost 0.1 us an access.
pub(super) const BLOCK_ROWS: u64 = 16;
/// Bytes of a record in the block table: offset and CRC32C.
pub(super) const BLOCK_RECORD_BYTES: usize = 12;
/// Bytes of a record in the directory table: first row and own row.
pub(super) const DIRECTORY_RECORD_BYTES: usize = 16;
/// Own row of the root, which stands in no directory.
pub(super) const NO_ROW: u64 = u64::MAX;
/// Longest prefix of a mount that fits the header: twice the longest key.
pub(super) const MAX_PREFIX_BYTES: usize = 2048;
/// Longest suffix for shadowed files.
pub(super) const MAX_SUFFIX_BYTES: usize = 255;

const CHECKSUM_AT: usize = 12;
const REJECTED_SLOTS: usize = 8;
const TEXTS_AT: usize = 204;

const FLAG_DIRECTORY: u8 = 1;
const FLAG_SHADOWED: u8 = 1 << 1;
const ETAG_SHIFT: u32 = 2;
const ETAG_NONE: u8 = 0;
const ETAG_DIGEST: u8 = 1;
const ETAG_MULTIPART: u8 = 2;
const ETAG_VERBATIM: u8 = 3;
const FLAGS_KNOWN: u8 = FLAG_DIRECTORY | FLAG_SHADOWED | (3 << ETAG_SHIFT);

/// A part of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The header, decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Header {
    /// Counts; `image_bytes` is the length the whole image must have.
    pub(super) statistics: Statistics,
    pub(super) rows: u64,
    /// Time of the listing, the modification time of all directories.
    pub(super) listed_at: UnixMillis,
    pub(super) row_section: Section,
    pub(super) block_table: Section,
    pub(super) directory_table: Section,
    pub(super) block_table_crc: u32,
    pub(super) directory_table_crc: u32,
    /// The mount's prefix: empty, or ending in `/`.
    pub(super) prefix: Vec<u8>,
    /// What shadowed files bear after their name; empty when they are not shown.
    pub(super) shadow_suffix: Vec<u8>,
}

impl Header {
    /// The header's bytes. Prefix and suffix must be within their limits.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Statistics { objects, directories, total_bytes, image_bytes, shadowed, markers_with_bytes, .. } =
            self.statistics;
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        for number in [image_bytes, self.rows, directories, objects, total_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.listed_at.0.to_le_bytes());
        for section in [self.row_section, self.block_table, self.directory_table] {
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.length.to_le_bytes());
        }
        out.extend_from_slice(&self.block_table_crc.to_le_bytes());
        out.extend_from_slice(&self.directory_table_crc.to_le_bytes());
        out.extend_from_slice(&shadowed.to_le_bytes());
        out.extend_from_slice(&markers_with_bytes.to_le_bytes());
        for slot in 0..REJECTED_SLOTS {
            let count = RejectReason::ALL.get(slot).map_or(0, |&reason| self.statistics.rejected.count(reason));
            out.extend_from_slice(&count.to_le_bytes());
        }
        for text in [&self.prefix, &self.shadow_suffix] {
            out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        }
        debug_assert_eq!(out.len(), TEXTS_AT);
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(&self.shadow_suffix);
        out.resize(HEADER_BYTES, 0);
        let crc = crc32c::crc32c(&out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header whose magic and version are known to fit; `None` when it is damaged.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let mut input = &bytes[CHECKSUM_AT..];
        let crc = take_u32(&mut input)?;
        let zeroed = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &[0; 4]);
        if crc32c::crc32c_append(zeroed, input) != crc {
            return None;
        }
        let mut header = Header::default();
        let statistics = &mut header.statistics;
        statistics.image_bytes = take_u64(&mut input)?;
        header.rows = take_u64(&mut input)?;
        statistics.directories = take_u64(&mut input)?;
        statistics.objects = take_u64(&mut input)?;
        statistics.total_bytes = take_u64(&mut input)?;
        header.listed_at = UnixMillis(take_u64(&mut input)?.cast_signed());
        for section in [&mut header.row_section, &mut header.block_table, &mut header.directory_table] {
            *section = Section { offset: take_u64(&mut input)?, length: take_u64(&mut input)? };
        }
        header.block_table_crc = take_u32(&mut input)?;
        header.directory_table_crc = take_u32(&mut input)?;
        statistics.shadowed = take_u64(&mut input)?;
        statistics.markers_with_bytes = take_u64(&mut input)?;
        for slot in 0..REJECTED_SLOTS {
            let count = take_u64(&mut input)?;
            if let Some(&reason) = RejectReason::ALL.get(slot) {
                statistics.rejected.add(reason, count);
            }
        }
        let [prefix_low, prefix_high, suffix_low, suffix_high] = take_array::<4>(&mut input)?;
        let prefix_bytes = usize::from(u16::from_le_bytes([prefix_low, prefix_high]));
        let suffix_bytes = usize::from(u16::from_le_bytes([suffix_low, suffix_high]));
        header.prefix = take_bytes(&mut input, prefix_bytes)?.to_vec();
        header.shadow_suffix = take_bytes(&mut input, suffix_bytes)?.to_vec();
        Some(header)
    }
}

/// An entity tag whose bytes are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ETagRef<'a> {
    Digest(&'a [u8; 16]),
    Multipart(&'a [u8; 16], u32),
    Verbatim(&'a str),
}

impl<'a> From<&'a ETag> for ETagRef<'a> {
    fn from(etag: &'a ETag) -> Self {
        match etag {
            ETag::Digest(digest) => ETagRef::Digest(digest),
            ETag::Multipart(digest, parts) => ETagRef::Multipart(digest, *parts),
            ETag::Verbatim(text) => ETagRef::Verbatim(text),
        }
    }
}

impl From<ETagRef<'_>> for ETag {
    fn from(etag: ETagRef<'_>) -> Self {
        match etag {
            ETagRef::Digest(digest) => ETag::Digest(*digest),
            ETagRef::Multipart(digest, parts) => ETag::Multipart(*digest, parts),
            ETagRef::Verbatim(text) => ETag::Verbatim(text.into()),
        }
    }
}

/// What a file's row says besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileRow<'a> {
    pub(super) size_bytes: u64,
    pub(super) modified: UnixMillis,
    pub(super) etag: Option<ETagRef<'a>>,
    /// A directory has its name: it is shown with the suffix, which does not belong to its key.
    pub(super) shadowed: bool,
}

/// What a row says besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowBody<'a> {
    /// A directory, by its number in the directory table.
    Directory(u64),
    File(FileRow<'a>),
}

/// A row as it stands in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// How many bytes of the name are those of the row before: all that they have in common, or 0 where a block or a
    /// directory begins.
    pub(super) shared_bytes: usize,
    /// The rest of the name.
    pub(super) suffix: &'a [u8],
    pub(super) body: RowBody<'a>,
}

impl<'a> Row<'a> {
    /// Appends the row. Times are written as the difference to `base`.
    pub(super) fn encode(&self, base: UnixMillis, out: &mut Vec<u8>) {
        #[cfg(test)]
        work::count(1, 0);
        let flags = match self.body {
            RowBody::Directory(_) => FLAG_DIRECTORY,
            RowBody::File(file) => {
                let form = match file.etag {
                    None => ETAG_NONE,
                    Some(ETagRef::Digest(_)) => ETAG_DIGEST,
                    Some(ETagRef::Multipart(..)) => ETAG_MULTIPART,
                    Some(ETagRef::Verbatim(_)) => ETAG_VERBATIM,
                };
                (form << ETAG_SHIFT) | if file.shadowed { FLAG_SHADOWED } else { 0 }
            }
        };
        out.push(flags);
        put_varint(self.shared_bytes as u64, out);
        put_varint(self.suffix.len() as u64, out);
        out.extend_from_slice(self.suffix);
        match self.body {
            RowBody::Directory(number) => put_varint(number, out),
            RowBody::File(file) => {
                put_varint(file.size_bytes, out);
                put_varint(zigzag(file.modified.0.wrapping_sub(base.0)), out);
                match file.etag {
                    None => {}
                    Some(ETagRef::Digest(digest)) => out.extend_from_slice(digest),
                    Some(ETagRef::Multipart(digest, parts)) => {
                        out.extend_from_slice(digest);
                        put_varint(u64::from(parts), out);
                    }
                    Some(ETagRef::Verbatim(text)) => {
                        put_varint(text.len() as u64, out);
                        out.extend_from_slice(text.as_bytes());
                    }
                }
            }
        }
    }

    /// Takes a row off the front of `input`; `None` when the bytes are no row.
    #[inline]
    pub(super) fn decode(base: UnixMillis, input: &mut &'a [u8]) -> Option<Row<'a>> {
        #[cfg(test)]
        work::count(0, 1);
        let [flags] = take_array::<1>(input)?;
        let shared_bytes = usize::try_from(take_varint(input)?).ok()?;
        let suffix_bytes = usize::try_from(take_varint(input)?).ok()?;
        let name_bytes = shared_bytes.checked_add(suffix_bytes)?;
        if flags & !FLAGS_KNOWN != 0 || suffix_bytes == 0 || name_bytes > MAX_NAME_BYTES {
            return None;
        }
        let suffix = take_bytes(input, suffix_bytes)?;
        let body = if flags & FLAG_DIRECTORY == 0 {
            RowBody::File(FileRow {
                size_bytes: take_varint(input)?,
                modified: UnixMillis(base.0.wrapping_add(unzigzag(take_varint(input)?))),
                etag: take_etag(flags >> ETAG_SHIFT, input)?,
                shadowed: flags & FLAG_SHADOWED != 0,
            })
        } else {
            RowBody::Directory(take_varint(input)?)
        };
        Some(Row { shared_bytes, suffix, body })
    }
}

/// The name of the row that `input` begins with, which must be one that shares nothing with the row before.
#[inline]
pub(super) fn whole_name(mut input: &[u8]) -> Option<&[u8]> {
    let [_flags] = take_array::<1>(&mut input)?;
    let shared_bytes = take_varint(&mut input)?;
    let suffix_bytes = usize::try_from(take_varint(&mut input)?).ok()?;
    if shared_bytes == 0 { take_bytes(&mut input, suffix_bytes) } else { None }
}

#[inline]
#[expect(clippy::option_option, reason = "no tag is a value, a damaged one is none")]
fn take_etag<'a>(form: u8, input: &mut &'a [u8]) -> Option<Option<ETagRef<'a>>> {
    Some(match form {
        ETAG_NONE => None,
        ETAG_DIGEST => Some(ETagRef::Digest(take_digest(input)?)),
        ETAG_MULTIPART => Some(ETagRef::Multipart(take_digest(input)?, u32::try_from(take_varint(input)?).ok()?)),
        _ => {
            let text_bytes = usize::try_from(take_varint(input)?).ok()?;
            Some(ETagRef::Verbatim(std::str::from_utf8(take_bytes(input, text_bytes)?).ok()?))
        }
    })
}

#[inline]
fn take_digest<'a>(input: &mut &'a [u8]) -> Option<&'a [u8; 16]> {
    let (digest, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(digest)
}

#[inline]
fn take_bytes<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(taken)
}

#[inline]
fn take_array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*taken)
}

/// Takes four bytes as a number.
#[inline]
pub(super) fn take_u32(input: &mut &[u8]) -> Option<u32> {
    take_array(input).map(u32::from_le_bytes)
}

/// Takes eight bytes as a number.
#[inline]
pub(super) fn take_u64(input: &mut &[u8]) -> Option<u64> {
    take_array(input).map(u64::from_le_bytes)
}

/// Appends a number in groups of seven bits, lowest first; all but the last have the top bit set (LEB128).
pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes such a number.
#[inline]
pub(super) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    match input {
        [byte @ 0..0x80, rest @ ..] => {
            let value = u64::from(*byte);
            *input = rest;
            Some(value)
        }
        _ => take_long_varint(input),
    }
}

#[inline]
fn take_long_varint(input: &mut &[u8]) -> Option<u64> {
    /// Ten groups of seven bits hold 64, the last of them a single one.
    const LAST: usize = 9;
    let mut value = 0;
    for (group, &byte) in input.iter().enumerate().take(LAST + 1) {
        if group == LAST && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * group);
        if byte & 0x80 == 0 {
            *input = &input[group + 1..];
            return Some(value);
        }
    }
    None
}

/// Length of what two names have in common at their start.
#[inline]
pub(super) fn shared_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Maps small differences of either sign to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
pub(super) fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// Undoes [`zigzag`].
#[inline]
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Counts rows encoded and decoded by a test's thread: what an operation costs, without a clock.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static ROWS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn count(encoded: u64, decoded: u64) {
        ROWS.set((ROWS.get().0 + encoded, ROWS.get().1 + decoded));
    }

    /// Rows encoded and decoded by `operation`.
    pub(in crate::namespace) fn of<T>(operation: impl FnOnce() -> T) -> (T, u64, u64) {
        let before = ROWS.get();
        let result = operation();
        (result, ROWS.get().0 - before.0, ROWS.get().1 - before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_etag() -> impl Strategy<Value = Option<ETag>> {
        prop_oneof![
            Just(None),
            any::<[u8; 16]>().prop_map(|digest| Some(ETag::Digest(digest))),
            any::<([u8; 16], u32)>().prop_map(|(digest, parts)| Some(ETag::Multipart(digest, parts))),
            ".{1,40}".prop_map(|text| Some(ETag::Verbatim(text.into()))),
        ]
    }

    proptest! {
        #[test]
        fn a_row_reads_as_it_was_written(
            shared_bytes in 0..100usize,
            suffix in proptest::collection::vec(any::<u8>(), 1..300),
            (size_bytes, modified, base, shadowed) in any::<(u64, i64, i64, bool)>(),
            etag in any_etag(),
            directory in proptest::option::of(any::<u64>()),
        ) {
            let file = FileRow {
                size_bytes,
                modified: UnixMillis(modified),
                etag: etag.as_ref().map(ETagRef::from),
                shadowed,
            };
            let body = directory.map_or(RowBody::File(file), RowBody::Directory);
            let row = Row { shared_bytes, suffix: &suffix, body };
            let mut bytes = Vec::new();
            row.encode(UnixMillis(base), &mut bytes);
            bytes.push(7);
            let mut input = &bytes[..];
            prop_assert_eq!(Row::decode(UnixMillis(base), &mut input), Some(row));
            prop_assert_eq!(input, &[7][..]);
            for length in 0..bytes.len() - 1 {
                prop_assert_eq!(Row::decode(UnixMillis(base), &mut &bytes[..length]), None, "cut to {}", length);
            }
        }

        #[test]
        fn arbitrary_bytes_are_a_row_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = &bytes[..];
            while Row::decode(UnixMillis(0), &mut input).is_some() {}
        }
    }

    #[test]
    fn a_header_reads_as_it_was_written_and_every_changed_bit_shows() {
        let mut header = Header {
            rows: 7,
            listed_at: UnixMillis(-1),
            row_section: Section { offset: 4096, length: 1 },
            block_table: Section { offset: 4097, length: 2 },
            directory_table: Section { offset: 4099, length: 3 },
            block_table_crc: 8,
            directory_table_crc: 9,
            prefix: b"p/".repeat(MAX_PREFIX_BYTES / 2),
            shadow_suffix: vec![b's'; MAX_SUFFIX_BYTES],
            statistics: Statistics {
                objects: 1,
                directories: 2,
                total_bytes: 3,
                image_bytes: 4,
                shadowed: 5,
                markers_with_bytes: 6,
                ..Statistics::default()
            },
        };
        for (keys, reason) in (10..).zip(RejectReason::ALL) {
            header.statistics.rejected.add(reason, keys);
        }
        let mut bytes: [u8; HEADER_BYTES] = header.encode().try_into().unwrap();
        assert_eq!(Header::decode(&bytes), Some(header));
        for bit in (CHECKSUM_AT * 8)..(HEADER_BYTES * 8) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_document_names_the_constants_of_the_code() {
        let document = include_str!("../../docs/snapshot-format.md");
        for (name, value) in [
            ("MAGIC", format!("`{}`", String::from_utf8_lossy(&MAGIC))),
            ("VERSION", VERSION.to_string()),
            ("HEADER_BYTES", HEADER_BYTES.to_string()),
            ("BLOCK_ROWS", BLOCK_ROWS.to_string()),
            ("BLOCK_RECORD_BYTES", BLOCK_RECORD_BYTES.to_string()),
            ("DIRECTORY_RECORD_BYTES", DIRECTORY_RECORD_BYTES.to_string()),
            ("MAX_PREFIX_BYTES", MAX_PREFIX_BYTES.to_string()),
            ("MAX_SUFFIX_BYTES", MAX_SUFFIX_BYTES.to_string()),
            ("MAX_NAME_BYTES", MAX_NAME_BYTES.to_string()),
        ] {
            assert!(document.contains(&format!("| `{name}` | {value} |")), "{name} is {value}");
        }
        for row in [
            format!("| {CHECKSUM_AT} | 4 | checksum"),
            format!("| {} | {} | objects left out", TEXTS_AT - 4 - 8 * REJECTED_SLOTS, 8 * REJECTED_SLOTS),
            format!("| {TEXTS_AT} | | prefix"),
        ] {
            assert!(document.contains(&row), "{row}");
        }
    }

    #[test]
    fn numbers_at_the_edges_survive() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(take_varint(&mut &bytes[..]), Some(value));
        }
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None, "more than 64 bits");
        for difference in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }
}
