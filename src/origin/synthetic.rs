//! A bucket that exists only as arithmetic: any number of objects of any size, none of them stored.
//!
//! Always true: the key of row `n` is computed from `n` and grows with it, so a listing can start anywhere after one binary
//! search and costs no more than the rows it shows. Content depends on (key, generation) and offset alone, so whoever knows
//! those can check any range with [`synthetic_bytes`].

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::atomic::{self, AtomicU64};

use super::bucket::{Bucket, BucketError, Content, Listed, StoredObject};
use super::pattern::{hash_of_key, mix, seed_of_hash, seed_of_key};
use crate::model::{ETag, UnixMillis};

/// Largest object of S3, and of this bucket: 5 TiB.
pub const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// 2024-01-01T00:00:00Z; objects are modified within the year after it.
const FIRST_MODIFIED_MILLIS: i64 = 1_704_067_200_000;
const MILLIS_OF_A_YEAR: u64 = 365 * 24 * 3600 * 1000;

/// Number of ImageNet's first class, and a step that spreads a thousand classes over its eight digits.
const FIRST_CLASS: u64 = 1_440_764;
const CLASS_STEP: u64 = 13_007;
const LARGEST_CLASS: u64 = 99_999_999;
const CLASS_DIGITS: u32 = 8;

/// What a synthetic bucket holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyntheticKeys {
    /// A training set in the layout of ImageNet: `PREFIXnCCCCCCCC/nCCCCCCCC_IIIII.JPEG`, spread evenly over the classes.
    ImageClasses {
        /// What every key begins with, as in `train/`.
        prefix: String,
        /// Number of objects.
        objects: u64,
        /// Number of classes (directories).
        classes: u64,
        /// Mean size.
        mean_bytes: u64,
        /// How far sizes go from the mean, in per cent of it (at most 100); 0 gives all the same size.
        spread_percent: u8,
    },
    /// Exactly these keys with these sizes, at most [`MAX_OBJECT_BYTES`] each.
    Explicit(Vec<(String, u64)>),
}

/// What is wrong with a description of a synthetic bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// A key is listed twice.
    #[error("key \"{0}\" is given twice: give each key once")]
    RepeatedKey(String),
    /// An object is larger than S3 allows.
    #[error("key \"{0}\" is larger than 5 TiB, the largest object of S3")]
    TooLarge(String),
    /// The classes do not fit the key pattern.
    #[error("{objects} objects in {classes} classes: give 1 to 98,559,236 classes, at most one per object")]
    Classes {
        /// Objects asked for.
        objects: u64,
        /// Classes asked for.
        classes: u64,
    },
    /// The spread is more than the mean.
    #[error("sizes spread by {0} %: give 0 to 100")]
    Spread(u8),
}

/// A bucket whose keys, sizes, entity tags and bytes are computed.
#[derive(Debug)]
pub struct SyntheticBucket {
    rows: Rows,
    generation: AtomicU64,
}

#[derive(Debug)]
enum Rows {
    Classes(ClassRows),
    Explicit(Vec<(String, u64)>),
}

/// Objects spread over classes: the first `larger_classes` hold one more than the others.
#[derive(Debug)]
struct ClassRows {
    prefix: String,
    objects: u64,
    class_step: u64,
    objects_per_class: u64,
    larger_classes: u64,
    /// Number of a class's first image: a power of ten, so that all have the same number of digits and sort as numbers.
    first_image: u64,
    image_digits: u32,
    mean_bytes: u64,
    spread_bytes: u64,
}

impl SyntheticBucket {
    /// A bucket of these objects, in generation 0.
    ///
    /// # Errors
    /// When the description contradicts itself; the error says how.
    pub fn new(keys: SyntheticKeys) -> Result<Self, SyntheticError> {
        let rows = match keys {
            SyntheticKeys::Explicit(rows) => Rows::Explicit(checked(rows)?),
            SyntheticKeys::ImageClasses { prefix, objects, classes, mean_bytes, spread_percent } => {
                if classes == 0 || classes > objects.min(LARGEST_CLASS - FIRST_CLASS + 1) {
                    return Err(SyntheticError::Classes { objects, classes });
                }
                if spread_percent > 100 {
                    return Err(SyntheticError::Spread(spread_percent));
                }
                if mean_bytes > MAX_OBJECT_BYTES / 2 {
                    return Err(SyntheticError::TooLarge(prefix));
                }
                let first_image = first_image(objects.div_ceil(classes));
                Rows::Classes(ClassRows {
                    prefix,
                    objects,
                    class_step: CLASS_STEP.min((LARGEST_CLASS - FIRST_CLASS) / classes).max(1),
                    objects_per_class: objects / classes,
                    larger_classes: objects % classes,
                    first_image,
                    image_digits: first_image.ilog10() + 1,
                    mean_bytes,
                    spread_bytes: mean_bytes * u64::from(spread_percent) / 100,
                })
            }
        };
        Ok(SyntheticBucket { rows, generation: AtomicU64::new(0) })
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.rows {
            Rows::Classes(rows) => rows.objects,
            Rows::Explicit(rows) => rows.len() as u64,
        }
    }

    /// True when there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key and size of an object by its place in key order; `None` past the end.
    #[must_use]
    pub fn row(&self, row: u64) -> Option<(String, u64)> {
        if row >= self.len() {
            return None;
        }
        let mut key = Vec::new();
        self.write_key(row, &mut key);
        let size_bytes = self.size_bytes(row, hash_of_key(&key));
        Some((String::from_utf8_lossy(&key).into_owned(), size_bytes))
    }

    /// The seed of a key's bytes in the present generation, for [`super::synthetic_bytes`].
    #[must_use]
    pub fn seed(&self, key: &str) -> u64 {
        seed_of_key(key.as_bytes(), self.generation.load(atomic::Ordering::Relaxed))
    }

    /// Overwrites every object at once: entity tags and bytes become those of this generation; sizes stay.
    pub fn set_generation(&self, generation: u64) {
        self.generation.store(generation, atomic::Ordering::Relaxed);
    }

    fn write_key(&self, row: u64, key: &mut Vec<u8>) {
        key.clear();
        match &self.rows {
            Rows::Classes(rows) => rows.write_key(row, key),
            Rows::Explicit(rows) => key.extend_from_slice(rows[as_index(row)].0.as_bytes()),
        }
    }

    fn size_bytes(&self, row: u64, key_hash: u64) -> u64 {
        match &self.rows {
            Rows::Classes(rows) => rows.size_bytes(key_hash),
            Rows::Explicit(rows) => rows[as_index(row)].1,
        }
    }

    /// First row whose key is at or after `key`.
    fn row_at(&self, key: &[u8]) -> u64 {
        let mut buffer = Vec::with_capacity(64);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            self.write_key(middle, &mut buffer);
            match buffer.as_slice().cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal | Ordering::Greater => high = middle,
            }
        }
        low
    }
}

impl ClassRows {
    fn write_key(&self, row: u64, key: &mut Vec<u8>) {
        let in_larger = self.larger_classes * (self.objects_per_class + 1);
        let (class, image) = if row < in_larger {
            (row / (self.objects_per_class + 1), row % (self.objects_per_class + 1))
        } else {
            let rest = row - in_larger;
            (self.larger_classes + rest / self.objects_per_class, rest % self.objects_per_class)
        };
        let class = FIRST_CLASS + class * self.class_step;
        let image = self.first_image + image;
        key.extend_from_slice(self.prefix.as_bytes());
        for end in ["/", "_"] {
            key.push(b'n');
            push_digits(key, class, CLASS_DIGITS);
            key.extend_from_slice(end.as_bytes());
        }
        push_digits(key, image, self.image_digits);
        key.extend_from_slice(b".JPEG");
    }

    fn size_bytes(&self, key_hash: u64) -> u64 {
        let low = self.mean_bytes - self.spread_bytes;
        low + mix(!key_hash) % (2 * self.spread_bytes + 1)
    }
}

/// The last `count` decimal digits of a number; formatting them takes most of a page's time otherwise.
fn push_digits(key: &mut Vec<u8>, mut number: u64, count: u32) {
    let start = key.len();
    for _ in 0..count {
        key.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    key[start..].reverse();
}

/// Number of the first image of a class of this size, such that the last one has as many digits.
fn first_image(objects: u64) -> u64 {
    let mut first: u64 = 10_000;
    while first.saturating_mul(9) < objects {
        first = first.saturating_mul(10);
    }
    first
}

fn checked(mut rows: Vec<(String, u64)>) -> Result<Vec<(String, u64)>, SyntheticError> {
    rows.sort_unstable();
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(SyntheticError::RepeatedKey(pair[0].0.clone()));
    }
    match rows.iter().find(|(_, size_bytes)| *size_bytes > MAX_OBJECT_BYTES) {
        Some((key, _)) => Err(SyntheticError::TooLarge(key.clone())),
        None => Ok(rows),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "explicit rows sit in a vector, so their numbers are usize")]
fn as_index(row: u64) -> usize {
    row as usize
}

/// Time of modification and entity tag of an object with this seed.
fn identity(seed: u64) -> (UnixMillis, ETag) {
    let (low, high) = (mix(seed), mix(!seed));
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&low.to_le_bytes());
    digest[8..].copy_from_slice(&high.to_le_bytes());
    let since_first = i64::try_from(low % MILLIS_OF_A_YEAR).unwrap_or_default();
    (UnixMillis(FIRST_MODIFIED_MILLIS + since_first), ETag::Digest(digest))
}

impl Bucket for SyntheticBucket {
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(Listed<'_>) -> ControlFlow<()>) -> Result<(), BucketError> {
        let generation = self.generation.load(atomic::Ordering::Relaxed);
        let mut key = Vec::with_capacity(64);
        for row in self.row_at(from)..self.len() {
            self.write_key(row, &mut key);
            let hash = hash_of_key(&key);
            let (modified, etag) = identity(seed_of_hash(hash, generation));
            let size_bytes = self.size_bytes(row, hash);
            if visit(Listed { key: &key, size_bytes, modified, etag }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, key: &str) -> Result<Option<StoredObject>, BucketError> {
        let row = self.row_at(key.as_bytes());
        let found = self.row(row).filter(|(found, _)| found == key);
        Ok(found.map(|(_, size_bytes)| {
            let seed = self.seed(key);
            let (modified, etag) = identity(seed);
            StoredObject { size_bytes, modified, etag, headers: None, content: Content::Synthetic(seed) }
        }))
    }
}
