//! Entity tags, kept so that the exact text can be given back, and the version of an object they name.

use std::fmt;

/// The entity tag of one object version, without its quotes.
///
/// The usual forms take 16 bytes and a count, so that an index of millions stays small; every form can be turned
/// back into the store's text for `If-Match`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ETag {
    /// 32 lower-case hex digits: an object put in one request.
    Digest([u8; 16]),
    /// 32 lower-case hex digits, `-` and a part count: a multipart upload.
    Multipart([u8; 16], u32),
    /// Any other text, as the store sent it.
    Verbatim(Box<str>),
}

impl ETag {
    /// Reads an entity tag from a list or a header: quotes and the weak mark `W/` do not belong to it.
    ///
    /// `None` for an empty one.
    #[must_use]
    pub fn parse(text: &str) -> Option<ETag> {
        let text = text.trim();
        let text = text.strip_prefix("W/").unwrap_or(text);
        let text = text.strip_prefix('"').unwrap_or(text);
        let text = text.strip_suffix('"').unwrap_or(text);
        if text.is_empty() {
            return None;
        }
        Some(Self::compact(text).unwrap_or_else(|| ETag::Verbatim(text.into())))
    }

    fn compact(text: &str) -> Option<ETag> {
        let (hex, parts) = match text.split_once('-') {
            Some((hex, parts)) => (hex, Some(parts)),
            None => (text, None),
        };
        let digest = decode_digest(hex)?;
        match parts {
            None => Some(ETag::Digest(digest)),
            Some(parts) => {
                let count: u32 = parts.parse().ok()?;
                // Only the canonical spelling can be given back exactly ("-007" and "-+7" parse, too).
                (count.to_string() == parts).then_some(ETag::Multipart(digest, count))
            }
        }
    }
}

fn decode_digest(hex: &str) -> Option<[u8; 16]> {
    let hex: &[u8; 32] = hex.as_bytes().try_into().ok()?;
    let mut digest = [0; 16];
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = (lower_hex_digit(pair[0])? << 4) | lower_hex_digit(pair[1])?;
    }
    Some(digest)
}

fn lower_hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex =
            |f: &mut fmt::Formatter<'_>, digest: &[u8; 16]| digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        match self {
            ETag::Digest(digest) => hex(f, digest),
            ETag::Multipart(digest, parts) => {
                hex(f, digest)?;
                write!(f, "-{parts}")
            }
            ETag::Verbatim(text) => f.write_str(text),
        }
    }
}

/// What an object was when it was listed: the bytes of one read come from exactly one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectVersion {
    /// Entity tag; `None` where the store lists none, and then only the size tells versions apart.
    pub etag: Option<ETag>,
    /// Length of the object in bytes.
    pub size_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_given_back_exactly() {
        for text in [
            "d41d8cd98f00b204e9800998ecf8427e",
            "d41d8cd98f00b204e9800998ecf8427e-1",
            "d41d8cd98f00b204e9800998ecf8427e-10000",
            "D41D8CD98F00B204E9800998ECF8427E",
            "d41d8cd98f00b204e9800998ecf8427e-007",
            "d41d8cd98f00b204e9800998ecf8427e-99999999999",
            "d41d8cd98f00b204e9800998ecf8427",
            "0x8D4BCC2E4835CD0",
            "with \"inner\" quotes",
        ] {
            let tag = ETag::parse(&format!("\"{text}\"")).unwrap();
            assert_eq!(tag.to_string(), text);
        }
    }

    #[test]
    fn quoting_and_weakness_do_not_make_another_version() {
        let plain = ETag::parse("abc").unwrap();
        for text in ["\"abc\"", "W/\"abc\"", " \"abc\" ", "abc"] {
            assert_eq!(ETag::parse(text).unwrap(), plain);
        }
        assert_eq!(ETag::parse("\"\""), None);
    }

    #[test]
    fn usual_forms_take_no_allocation() {
        let tag = |text: &str| ETag::parse(text).unwrap();
        assert!(matches!(tag("d41d8cd98f00b204e9800998ecf8427e"), ETag::Digest(_)));
        assert!(matches!(tag("d41d8cd98f00b204e9800998ecf8427e-12"), ETag::Multipart(_, 12)));
    }
}
