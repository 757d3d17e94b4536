//! Runs: objects in strict byte order of their keys, packed as they arrive.
//!
//! A key is stored as what differs from the key before it, a date as the difference to the date before it, so that an object
//! of an image data set takes about 40 bytes. A run is a sequence of chunks that can be decoded each by itself: none is ever
//! moved or copied to grow, and a full one never changes again, so it could as well lie in a file.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::model::{ETag, UnixMillis};
use crate::namespace::ObjectEntry;
use crate::namespace::format::{put_varint, shared_prefix_bytes, take_varint, unzigzag, zigzag};

/// A chunk that has reached this is full. Large enough that restarting the coding costs nothing, small enough that the
/// unfilled chunks of some hundred runs do not add up.
const CHUNK_BYTES: usize = 62 * 1024;

const NO_ETAG: u8 = 0;
const DIGEST: u8 = 1;
const MULTIPART: u8 = 2;
const VERBATIM: u8 = 3;

/// Objects in strict byte order of their keys.
#[derive(Debug, Default)]
pub(super) struct Run {
    chunks: Vec<Vec<u8>>,
    objects: u64,
    last_key: Vec<u8>,
    last_modified: i64,
}

impl Run {
    /// Number of objects.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// True without objects.
    pub(super) fn is_empty(&self) -> bool {
        self.objects == 0
    }

    /// The greatest key; empty in an empty run.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The smallest key.
    pub(super) fn first_key(&self) -> Option<&[u8]> {
        let mut bytes = self.chunks.first()?.as_slice();
        take_length(&mut bytes);
        let length = take_length(&mut bytes);
        Some(&bytes[..length])
    }

    /// Bytes of memory it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() + size_of::<Vec<u8>>()).sum::<usize>()
            + self.last_key.capacity()
    }

    /// Appends an object, whose key must come after the last one.
    pub(super) fn push(&mut self, entry: ObjectEntry<'_>) {
        debug_assert!(self.is_empty() || entry.key > &self.last_key[..]);
        let shared = match self.chunks.last() {
            Some(chunk) if chunk.len() < CHUNK_BYTES => shared_prefix_bytes(&self.last_key, entry.key),
            _ => {
                // Doubles to just what a full chunk needs.
                self.chunks.push(Vec::with_capacity(1024));
                self.last_modified = 0;
                0
            }
        };
        let Some(chunk) = self.chunks.last_mut() else { return };
        let suffix = &entry.key[shared..];
        put_varint(shared as u64, chunk);
        put_varint(suffix.len() as u64, chunk);
        chunk.extend_from_slice(suffix);
        put_varint(entry.size_bytes, chunk);
        put_varint(zigzag(entry.modified.0.wrapping_sub(self.last_modified)), chunk);
        put_etag(chunk, entry.etag);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
        self.last_modified = entry.modified.0;
        self.objects += 1;
    }

    /// Gives back memory that only growing needs.
    pub(super) fn seal(&mut self) {
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.shrink_to_fit();
        }
        self.chunks.shrink_to_fit();
    }

    /// A cursor before the first object.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { chunks: self.chunks.iter(), rest: &[], key: Vec::new(), size_bytes: 0, modified: 0, etag: None }
    }
}

/// Walks a run from its start.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    chunks: std::slice::Iter<'a, Vec<u8>>,
    rest: &'a [u8],
    key: Vec<u8>,
    size_bytes: u64,
    modified: i64,
    etag: Option<ETag>,
}

impl Cursor<'_> {
    /// Moves on to the next object; false after the last one.
    pub(super) fn advance(&mut self) -> bool {
        if self.rest.is_empty() {
            let Some(chunk) = self.chunks.next() else { return false };
            self.rest = chunk;
            self.modified = 0;
        }
        let shared = take_length(&mut self.rest);
        let length = take_length(&mut self.rest);
        let (suffix, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.size_bytes = take_number(&mut self.rest);
        self.modified = self.modified.wrapping_add(unzigzag(take_number(&mut self.rest)));
        self.etag = take_etag(&mut self.rest);
        true
    }

    /// The object the cursor stands on.
    pub(super) fn entry(&self) -> ObjectEntry<'_> {
        ObjectEntry {
            key: &self.key,
            size_bytes: self.size_bytes,
            modified: UnixMillis(self.modified),
            etag: self.etag.as_ref(),
        }
    }
}

/// One run of all objects in `runs`, which may overlap; also how many were there more than once (the first run's stays).
pub(super) fn merge(runs: &[Run]) -> (Run, u64) {
    let mut merged = Run::default();
    let mut repeated = 0;
    let mut heads: BinaryHeap<Head<'_>> = runs
        .iter()
        .enumerate()
        .filter_map(|(rank, run)| {
            let mut cursor = run.cursor();
            cursor.advance().then_some(Head { cursor, rank })
        })
        .collect();
    while let Some(mut head) = heads.peek_mut() {
        let entry = head.cursor.entry();
        if !merged.is_empty() && entry.key == merged.last_key() {
            repeated += 1;
        } else {
            merged.push(entry);
        }
        if !head.cursor.advance() {
            PeekMut::pop(head);
        }
    }
    merged.seal();
    (merged, repeated)
}

/// The next object of one run in a merge; the smallest key is the greatest head, as the heap wants it.
struct Head<'a> {
    cursor: Cursor<'a>,
    rank: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cursor.key.cmp(&self.cursor.key).then(other.rank.cmp(&self.rank))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

fn take_number(bytes: &mut &[u8]) -> u64 {
    take_varint(bytes).expect("it was a number when it was written")
}

fn take_length(bytes: &mut &[u8]) -> usize {
    usize::try_from(take_number(bytes)).expect("it was a length when it was written")
}

fn put_etag(chunk: &mut Vec<u8>, etag: Option<&ETag>) {
    match etag {
        None => chunk.push(NO_ETAG),
        Some(ETag::Digest(digest)) => {
            chunk.push(DIGEST);
            chunk.extend_from_slice(digest);
        }
        Some(ETag::Multipart(digest, parts)) => {
            chunk.push(MULTIPART);
            chunk.extend_from_slice(digest);
            put_varint(u64::from(*parts), chunk);
        }
        Some(ETag::Verbatim(text)) => {
            chunk.push(VERBATIM);
            put_varint(text.len() as u64, chunk);
            chunk.extend_from_slice(text.as_bytes());
        }
    }
}

fn take_etag(bytes: &mut &[u8]) -> Option<ETag> {
    let (&form, rest) = bytes.split_first()?;
    *bytes = rest;
    match form {
        DIGEST => Some(ETag::Digest(take_digest(bytes)?)),
        MULTIPART => {
            let digest = take_digest(bytes)?;
            Some(ETag::Multipart(digest, u32::try_from(take_number(bytes)).ok()?))
        }
        VERBATIM => {
            let length = take_length(bytes);
            let (text, rest) = bytes.split_at(length);
            *bytes = rest;
            Some(ETag::Verbatim(String::from_utf8_lossy(text).into()))
        }
        _ => None,
    }
}

fn take_digest(bytes: &mut &[u8]) -> Option<[u8; 16]> {
    let (digest, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (Vec<u8>, u64, i64, Option<ETag>);

    fn pack(objects: &[Owned]) -> Run {
        let mut run = Run::default();
        for (key, size_bytes, modified, etag) in objects {
            run.push(ObjectEntry {
                key,
                size_bytes: *size_bytes,
                modified: UnixMillis(*modified),
                etag: etag.as_ref(),
            });
        }
        run.seal();
        run
    }

    fn unpack(run: &Run) -> Vec<Owned> {
        let mut cursor = run.cursor();
        let mut objects = Vec::new();
        while cursor.advance() {
            let entry = cursor.entry();
            objects.push((entry.key.to_vec(), entry.size_bytes, entry.modified.0, entry.etag.cloned()));
        }
        objects
    }

    fn objects() -> impl Strategy<Value = Vec<Owned>> {
        let etag = prop_oneof![
            Just(None),
            any::<[u8; 16]>().prop_map(|digest| Some(ETag::Digest(digest))),
            (any::<[u8; 16]>(), any::<u32>()).prop_map(|(digest, parts)| Some(ETag::Multipart(digest, parts))),
            "[a-z\"]{1,40}".prop_map(|text| Some(ETag::Verbatim(text.into()))),
        ];
        let rest = (any::<u64>(), any::<i64>(), etag);
        proptest::collection::btree_map(proptest::collection::vec(any::<u8>(), 0..40), rest, 0..200).prop_map(|map| {
            map.into_iter().map(|(key, (size_bytes, modified, etag))| (key, size_bytes, modified, etag)).collect()
        })
    }

    proptest! {
        #[test]
        fn a_run_gives_back_what_was_put_in(objects in objects()) {
            let run = pack(&objects);
            prop_assert_eq!(unpack(&run), objects.clone());
            prop_assert_eq!(run.first_key(), objects.first().map(|object| &object.0[..]));
        }

        #[test]
        fn merging_gives_every_key_once_in_order(all in objects(), picks in proptest::collection::vec(0usize..7, 200)) {
            // Each object goes to one or two of four runs.
            let mut parts = vec![Vec::new(); 4];
            let mut copies = 0;
            for (object, pick) in all.iter().zip(&picks) {
                parts[pick % 4].push(object.clone());
                if *pick >= 4 {
                    parts[3].push(object.clone());
                    copies += 1;
                }
            }
            let runs: Vec<Run> = parts.iter().map(|part| pack(part)).collect();
            let (merged, repeated) = merge(&runs);
            prop_assert_eq!(unpack(&merged), all);
            prop_assert_eq!(repeated, copies);
        }
    }

    #[test]
    fn objects_of_an_image_data_set_take_about_40_bytes() {
        let objects: Vec<Owned> = (0..100_000u64)
            .map(|i| {
                let class = i / 1300;
                let key = format!(
                    "train/n{:08}/n{:08}_{}.JPEG",
                    1_440_764 + class * 977,
                    1_440_764 + class * 977,
                    10_000 + i % 1300 * 9
                );
                let digest = (u128::from(i) * 0x9e37_79b9_7f4a_7c15_f39c_0ac7).to_le_bytes();
                (
                    key.into_bytes(),
                    60_000 + i * 7919 % 100_000,
                    1_600_000_000_000 + (i.cast_signed() * 31 % 4_000) * 1000,
                    Some(ETag::Digest(digest)),
                )
            })
            .collect();
        let run = pack(&objects);
        assert_eq!(unpack(&run), objects);
        let per_object = run.memory_bytes() as f64 / 100_000.0;
        assert!(per_object < 45.0, "{per_object} bytes an object");
    }
}
