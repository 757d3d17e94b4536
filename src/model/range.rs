//! A half-open range of bytes in an object.

use std::fmt;

/// Bytes `start..end` of an object, counted from 0; `end` is not in the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte; never below `start`.
    pub end: u64,
}

impl ByteRange {
    /// The range `start..end`; empty when `end` is not above `start`.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        ByteRange { start, end: end.max(start) }
    }

    /// What a read of `length_bytes` at `offset` covers of an object of `size_bytes`: cut at its end, never overflowing.
    #[must_use]
    pub fn of_read(offset: u64, length_bytes: u64, size_bytes: u64) -> Self {
        let start = offset.min(size_bytes);
        ByteRange { start, end: offset.saturating_add(length_bytes).min(size_bytes).max(start) }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True when there is no byte in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Widened to multiples of `alignment_bytes`, but not beyond `size_bytes`.
    #[must_use]
    pub fn aligned(self, alignment_bytes: u64, size_bytes: u64) -> Self {
        let start = self.start / alignment_bytes * alignment_bytes;
        let end = self.end.div_ceil(alignment_bytes).saturating_mul(alignment_bytes);
        ByteRange { start, end: end.min(size_bytes).max(self.end) }
    }

    /// True when every byte of `other` is in it.
    #[must_use]
    pub fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_cut_at_the_end_of_the_object() {
        assert_eq!(ByteRange::of_read(0, 10, 5), ByteRange::new(0, 5));
        assert_eq!(ByteRange::of_read(4, 10, 5), ByteRange::new(4, 5));
        assert_eq!(ByteRange::of_read(5, 10, 5), ByteRange::new(5, 5));
        assert_eq!(ByteRange::of_read(u64::MAX - 1, u64::MAX, 5), ByteRange::new(5, 5));
        assert_eq!(ByteRange::of_read(i64::MAX as u64, 4096, u64::MAX).len(), 4096);
    }

    #[test]
    fn alignment_widens_but_never_past_the_object() {
        assert_eq!(ByteRange::new(5000, 5001).aligned(4096, 100_000), ByteRange::new(4096, 8192));
        assert_eq!(ByteRange::new(5000, 5001).aligned(4096, 6000), ByteRange::new(4096, 6000));
        assert_eq!(ByteRange::new(4096, 8192).aligned(4096, 100_000), ByteRange::new(4096, 8192));
    }
}
