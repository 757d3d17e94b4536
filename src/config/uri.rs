//! Addresses of buckets and prefixes: `s3://BUCKET[/PREFIX]`, also `oss://` and `gs://`.
//!
//! The prefix is kept byte for byte: nothing is decoded, normalised or assumed to be UTF-8.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::model::{MAX_KEY_BYTES, ObjectKey};

/// Longest bucket name: what S3 took before 2018, and other stores still take; new ones end at 63.
const MAX_BUCKET_BYTES: usize = 255;

/// Which store an address names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `s3://`: whatever the endpoint is.
    S3,
    /// `oss://`: Alibaba Cloud OSS.
    Oss,
    /// `gs://`: Google Cloud Storage.
    Gs,
}

impl Scheme {
    const ALL: [Scheme; 3] = [Scheme::S3, Scheme::Oss, Scheme::Gs];

    fn name(self) -> &'static str {
        match self {
            Scheme::S3 => "s3",
            Scheme::Oss => "oss",
            Scheme::Gs => "gs",
        }
    }
}

/// A bucket and a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUri {
    /// Which store.
    pub scheme: Scheme,
    /// The bucket's name.
    pub bucket: String,
    /// What was written after the bucket and its slash; empty for the whole bucket.
    pub prefix: ObjectKey,
}

/// A text that is no address of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// No `s3://` in front.
    #[error(
        "\"{0}\" is no bucket address: write s3://BUCKET/PREFIX, and name a server other than AWS with --endpoint-url"
    )]
    MissingScheme(String),
    /// Nothing between the scheme and the first slash.
    #[error("\"{0}\" names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")]
    EmptyBucket(String),
    /// Characters that no bucket has.
    #[error("\"{0}\" cannot be the name of a bucket: letters, digits, '-', '_' and single '.' are allowed, 255 in all")]
    BadBucket(String),
    /// A pattern where a prefix should be.
    #[error("\"{0}\" is a pattern: write the prefix alone, everything below it is shown")]
    Wildcard(String),
    /// Longer than any key.
    #[error("the prefix is {0} bytes long: with its slash it would be longer than any key (1024)")]
    LongPrefix(usize),
}

impl BucketUri {
    /// Reads an address as it was typed.
    ///
    /// # Errors
    /// See [`UriError`].
    pub fn parse(text: &OsStr) -> Result<Self, UriError> {
        let bytes = text.as_bytes();
        let shown = || ObjectKey::from(bytes).to_string();
        let (scheme, rest) = split_scheme(bytes).ok_or_else(|| UriError::MissingScheme(shown()))?;
        let slash = rest.iter().position(|&byte| byte == b'/');
        let (bucket, prefix) = match slash {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &b""[..]),
        };
        if bucket.is_empty() {
            return Err(UriError::EmptyBucket(shown()));
        }
        if bucket.contains(&b'*') || is_pattern(prefix) {
            return Err(UriError::Wildcard(shown()));
        }
        let name = bucket_name(bucket).ok_or_else(|| UriError::BadBucket(ObjectKey::from(bucket).to_string()))?;
        // The slash that mounting may add counts, too.
        if prefix.len() >= MAX_KEY_BYTES {
            return Err(UriError::LongPrefix(prefix.len()));
        }
        Ok(BucketUri { scheme, bucket: name, prefix: ObjectKey::from(prefix) })
    }

    /// The prefix as a directory: empty, or ending in a slash.
    #[must_use]
    pub fn directory_prefix(&self) -> ObjectKey {
        let bytes = self.prefix.as_bytes();
        if bytes.is_empty() || bytes.ends_with(b"/") {
            return self.prefix.clone();
        }
        ObjectKey::from([bytes, b"/"].concat())
    }
}

/// Control characters are escaped, so that an address cannot forge a line of a log or of /proc/mounts.
impl fmt::Display for BucketUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

fn split_scheme(bytes: &[u8]) -> Option<(Scheme, &[u8])> {
    let at = bytes.windows(3).position(|window| window == b"://")?;
    let scheme = Scheme::ALL.into_iter().find(|scheme| bytes[..at].eq_ignore_ascii_case(scheme.name().as_bytes()))?;
    Some((scheme, &bytes[at + 3..]))
}

/// `*` is legal in a key, but as a last component somebody meant a pattern; `*/` says that it is none.
fn is_pattern(prefix: &[u8]) -> bool {
    let last = prefix.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    last == b"*" || last == b"**" || last.starts_with(b"*.")
}

fn bucket_name(bytes: &[u8]) -> Option<String> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let good = bytes.len() <= MAX_BUCKET_BYTES
        && bytes.iter().all(allowed)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && !bytes.windows(2).any(|pair| pair == b"..");
    good.then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BucketUri, UriError> {
        BucketUri::parse(OsStr::new(text))
    }

    #[test]
    fn the_prefix_is_kept_byte_for_byte() {
        for (text, bucket, prefix, directory) in [
            ("s3://bucket", "bucket", "", ""),
            ("s3://bucket/", "bucket", "", ""),
            ("s3://bucket/a", "bucket", "a", "a/"),
            ("s3://bucket/a/b/", "bucket", "a/b/", "a/b/"),
            ("s3://bucket//a", "bucket", "/a", "/a/"),
            ("s3://bucket/a//", "bucket", "a//", "a//"),
            ("s3://bucket/100%25 a+b%2F", "bucket", "100%25 a+b%2F", "100%25 a+b%2F/"),
            ("s3://bucket/?x=1#y", "bucket", "?x=1#y", "?x=1#y/"),
            ("s3://bucket/a*/b", "bucket", "a*/b", "a*/b/"),
            ("s3://bucket/*/", "bucket", "*/", "*/"),
            ("s3://b.with.dots/\u{e9}", "b.with.dots", "\u{e9}", "\u{e9}/"),
            ("s3://Old_Style/x://y", "Old_Style", "x://y", "x://y/"),
        ] {
            let uri = parse(text).unwrap();
            assert_eq!(uri.bucket, bucket, "{text}");
            assert_eq!(uri.prefix.as_bytes(), prefix.as_bytes(), "{text}");
            assert_eq!(uri.directory_prefix().as_bytes(), directory.as_bytes(), "{text}");
        }
    }

    #[test]
    fn a_prefix_need_not_be_utf8() {
        let uri = BucketUri::parse(OsStr::from_bytes(b"s3://bucket/\xff\n")).unwrap();
        assert_eq!(uri.prefix.as_bytes(), b"\xff\n");
        assert_eq!(uri.to_string(), "s3://bucket/\\xff\\n");
    }

    #[test]
    fn schemes_name_the_store() {
        for (text, scheme) in
            [("s3://b1", Scheme::S3), ("oss://b1", Scheme::Oss), ("gs://b1", Scheme::Gs), ("S3://b1", Scheme::S3)]
        {
            assert_eq!(parse(text).unwrap().scheme, scheme, "{text}");
        }
        assert_eq!(parse("oss://b1/x").unwrap().to_string(), "oss://b1/x");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        let text = |text: &str| parse(text).unwrap_err().to_string();
        for bad in ["bucket/prefix", "", "https://bucket.s3.amazonaws.com/x", "s3:/bucket", "s3:bucket", "/mnt/data"] {
            assert_eq!(
                text(bad),
                format!(
                    "\"{bad}\" is no bucket address: write s3://BUCKET/PREFIX, and name a server other than AWS with \
                     --endpoint-url"
                )
            );
        }
        assert_eq!(text("s3://"), "\"s3://\" names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX");
        assert_eq!(text("s3:///a"), "\"s3:///a\" names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX");
        for bad in ["s3://b ket", "s3://key:secret@host/x", "s3://-b", "s3://b..b", "s3://b\u{e9}", "s3://b."] {
            assert!(matches!(parse(bad), Err(UriError::BadBucket(_))), "{bad}");
        }
        for bad in ["s3://b/*", "s3://b*", "s3://b/a/**", "s3://b/a/*.jpg"] {
            assert_eq!(
                text(bad),
                format!("\"{bad}\" is a pattern: write the prefix alone, everything below it is shown")
            );
        }
        assert_eq!(
            text(&format!("s3://b/{}", "x".repeat(1024))),
            "the prefix is 1024 bytes long: with its slash it would be longer than any key (1024)"
        );
    }
}
