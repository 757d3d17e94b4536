//! Object keys as the store has them, and the names a key's components may become.
//!
//! A key is kept byte for byte: never normalised, never assumed to be UTF-8. Whether a key can be
//! a path is decided in `namespace::rules`; here is only what a single component must be.

use std::fmt;

use bytes::Bytes;

/// Longest key, in bytes, that S3 and its relatives accept.
pub const MAX_KEY_BYTES: usize = 1024;

/// Longest name of a directory entry, in bytes: the kernel's FUSE_NAME_MAX, which is also the longest key.
pub const MAX_NAME_BYTES: usize = 1024;

/// The full key of an object (or a key prefix), byte for byte. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectKey(Bytes);

impl ObjectKey {
    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the empty prefix (the whole bucket).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Bytes> for ObjectKey {
    fn from(bytes: Bytes) -> Self {
        ObjectKey(bytes)
    }
}

impl From<Vec<u8>> for ObjectKey {
    fn from(bytes: Vec<u8>) -> Self {
        ObjectKey(bytes.into())
    }
}

impl From<&[u8]> for ObjectKey {
    fn from(bytes: &[u8]) -> Self {
        ObjectKey(Bytes::copy_from_slice(bytes))
    }
}

impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        ObjectKey::from(text.as_bytes())
    }
}

impl AsRef<[u8]> for ObjectKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Shown with control characters and invalid UTF-8 escaped, so that a key cannot forge a log line.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// One component of a key that can be a directory entry's name: not empty, not `.` or `..`, without `/` and NUL,
/// at most [`MAX_NAME_BYTES`] long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName<'a>(&'a [u8]);

impl<'a> EntryName<'a> {
    /// The name, if these bytes can be one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let plain = !bytes.is_empty()
            && bytes.len() <= MAX_NAME_BYTES
            && bytes != b"."
            && bytes != b".."
            && !bytes.iter().any(|&b| b == b'/' || b == 0);
        plain.then_some(EntryName(bytes))
    }

    /// The name's bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_without_control_characters() {
        let key = ObjectKey::from(&b"a\nb\xff\x1b[1m\xc3\xa9"[..]);
        assert_eq!(key.to_string(), "a\\nb\\xff\\u{1b}[1m\u{e9}");
    }

    #[test]
    fn names_that_a_directory_cannot_hold_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; MAX_NAME_BYTES + 1]] {
            assert!(EntryName::new(bad).is_none(), "{bad:?}");
        }
        for good in [&b"a"[..], b"...", b" ", b"a.", b"\\", b"\xff", &[b'x'; MAX_NAME_BYTES]] {
            assert!(EntryName::new(good).is_some(), "{good:?}");
        }
    }
}
