//! LIST: the query of one page, and a lenient reader of the answer.
//!
//! Keys are decoded exactly once, and only when the answer says that they are encoded: stores that ignore `encoding-type` send
//! them as plain XML text. All keys of a page share one allocation. What cannot be guessed is an error: half a document, an
//! object without a key's size, "more follows" without a way to go on.

use std::ops::Range;

use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::address::push_query;
use super::dates::parse_iso8601;
use super::error::ErrorBody;
use super::xml::push_text;
use crate::model::{ETag, ObjectKey, UnixMillis};
use crate::store::{ListPage, ListRequest, ListedObject};

/// Largest page that is read: 10,000 keys of 1,024 bytes, every byte escaped. A store that sends more is broken.
pub(super) const MAX_PAGE_BYTES: usize = 64 << 20;

/// Sorts after every key that begins with the same bytes: the last code point there is, in UTF-8.
const AFTER_EVERYTHING: &[u8] = "\u{10FFFF}".as_bytes();

/// How to go on after a page, as text for `ListPage::next`.
#[derive(Debug, PartialEq, Eq)]
enum Continuation {
    /// The store's own token.
    Token(String),
    /// The store gave none: everything after this key.
    After(Vec<u8>),
}

impl Continuation {
    fn into_text(self) -> String {
        match self {
            Continuation::Token(token) => format!("t:{token}"),
            Continuation::After(key) => {
                let mut text = "a:".to_owned();
                push_query(&mut text, &key);
                text
            }
        }
    }

    fn parse(text: &str) -> Option<Continuation> {
        match text.split_once(':')? {
            ("t", token) => Some(Continuation::Token(token.to_owned())),
            ("a", key) => Some(Continuation::After(percent_encoding::percent_decode_str(key).collect())),
            _ => None,
        }
    }
}

/// The query for one page, encoded and in the order that is signed.
///
/// `None` when the request continues from something that this store did not hand out.
pub(super) fn query(request: &ListRequest) -> Option<String> {
    let continuation = match &request.continuation {
        Some(text) => Some(Continuation::parse(text)?),
        None => None,
    };
    let (token, after) = match &continuation {
        Some(Continuation::Token(token)) => (Some(token.as_bytes()), None),
        Some(Continuation::After(key)) => (None, Some(&key[..])),
        None => (None, request.start_after.as_ref().map(ObjectKey::as_bytes)),
    };
    // A store that hands out no token may know the first version of the call only, where it is named `marker`.
    let marker = after.filter(|_| continuation.is_some());
    let max_keys = request.max_keys.map(|count| count.to_string());
    let parameters: [(&str, Option<&[u8]>); 8] = [
        ("continuation-token", token),
        ("delimiter", request.fold_directories.then_some(b"/")),
        ("encoding-type", Some(b"url")),
        ("list-type", Some(b"2")),
        ("marker", marker),
        ("max-keys", max_keys.as_deref().map(str::as_bytes)),
        ("prefix", Some(request.prefix.as_bytes())),
        ("start-after", after),
    ];
    let mut query = String::with_capacity(128 + request.prefix.as_bytes().len());
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(name);
        query.push('=');
        push_query(&mut query, value);
    }
    Some(query)
}

/// Reads one page. The error says what is wrong with it.
pub(super) fn parse(xml: &[u8], request: &ListRequest) -> Result<ListPage, String> {
    let page = RawPage::read(xml)?.finish()?;
    // A store that goes round in circles would be asked for ever.
    if page.next.is_some() && page.next == request.continuation {
        return Err("the listing does not advance".to_owned());
    }
    Ok(page)
}

/// A page as it was sent: keys are ranges of `text`, not decoded yet, since `EncodingType` may come last.
#[derive(Debug, Default)]
struct RawPage {
    text: Vec<u8>,
    objects: Vec<RawObject>,
    prefixes: Vec<Range<usize>>,
    next_marker: Option<Range<usize>>,
    token: Option<String>,
    is_truncated: Option<bool>,
    is_url_encoded: bool,
}

#[derive(Debug, Default)]
struct RawObject {
    key: Range<usize>,
    size_bytes: Option<u64>,
    modified: Option<UnixMillis>,
    etag: Option<ETag>,
}

/// The elements that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    IsTruncated,
    Token,
    NextMarker,
    EncodingType,
    Key,
    Size,
    LastModified,
    ETag,
    Prefix,
}

impl Field {
    /// Its text goes to the page's shared allocation.
    fn is_key(self) -> bool {
        matches!(self, Field::Key | Field::Prefix | Field::NextMarker)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Other,
    Contents,
    CommonPrefixes,
}

impl RawPage {
    fn read(xml: &[u8]) -> Result<RawPage, String> {
        let mut reader = Reader::from_reader(xml);
        let mut page = RawPage { text: Vec::with_capacity(xml.len() / 4), ..RawPage::default() };
        let (mut depth, mut section, mut field) = (0_usize, Section::Other, None::<Field>);
        let mut start = 0;
        let mut scratch = Vec::new();
        loop {
            match reader.read_event().map_err(|error| format!("the listing is no XML: {error}"))? {
                Event::Start(element) => {
                    depth += 1;
                    let name = element.local_name();
                    match depth {
                        1 => check_root(name.as_ref(), xml)?,
                        2 => section = page.enter(name.as_ref()),
                        _ => {}
                    }
                    field = field_of(depth, section, name.as_ref());
                    start = page.text.len();
                    scratch.clear();
                }
                Event::End(_) => {
                    if let Some(field) = field.take() {
                        page.set(field, start, &scratch)?;
                    }
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(page);
                    }
                }
                Event::Eof => return Err("the listing ends in the middle".to_owned()),
                event => {
                    if let Some(field) = field {
                        push_text(&event, if field.is_key() { &mut page.text } else { &mut scratch });
                    }
                }
            }
        }
    }

    fn enter(&mut self, name: &[u8]) -> Section {
        match name {
            b"Contents" => {
                self.objects.push(RawObject::default());
                Section::Contents
            }
            b"CommonPrefixes" => Section::CommonPrefixes,
            _ => Section::Other,
        }
    }

    fn set(&mut self, field: Field, start: usize, scratch: &[u8]) -> Result<(), String> {
        let range = start..self.text.len();
        let text = scratch.trim_ascii();
        match field {
            Field::IsTruncated => self.is_truncated = Some(text.eq_ignore_ascii_case(b"true")),
            Field::Token => {
                self.token = Some(String::from_utf8_lossy(text).into_owned()).filter(|token| !token.is_empty())
            }
            Field::EncodingType => self.is_url_encoded = text.eq_ignore_ascii_case(b"url"),
            Field::NextMarker => self.next_marker = Some(range),
            Field::Prefix => self.prefixes.push(range),
            Field::Key | Field::Size | Field::LastModified | Field::ETag => {
                let Some(object) = self.objects.last_mut() else { return Ok(()) };
                match field {
                    Field::Key => object.key = range,
                    Field::Size => object.size_bytes = Some(parse_size(text)?),
                    Field::LastModified => object.modified = parse_iso8601(text),
                    _ => object.etag = ETag::parse(&String::from_utf8_lossy(text)),
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ListPage, String> {
        if self.is_url_encoded {
            self.decode();
        }
        let next_marker = self.next_marker.take().map(|range| self.text[range].to_vec());
        let text = Bytes::from(self.text);
        let key = |range: &Range<usize>| ObjectKey::from(text.slice(range.clone()));
        let common_prefixes: Vec<ObjectKey> = self.prefixes.iter().filter(|range| !range.is_empty()).map(key).collect();
        let mut objects = Vec::with_capacity(self.objects.len());
        for object in self.objects {
            // Some stores list the prefix itself without a name; nothing can be asked about it.
            if object.key.is_empty() {
                continue;
            }
            let key = key(&object.key);
            let Some(size_bytes) = object.size_bytes else {
                return Err(format!("the listing has no size for \"{key}\""));
            };
            let modified = object.modified.unwrap_or_default();
            objects.push(ListedObject { key, size_bytes, modified, etag: object.etag });
        }
        let mut page = ListPage { objects, common_prefixes, next: None };
        page.next = match (self.is_truncated, self.token) {
            (Some(false), _) | (None, None) => None,
            (_, Some(token)) => Some(Continuation::Token(token).into_text()),
            (Some(true), None) => Some(Continuation::After(last_of(&page, next_marker)?).into_text()),
        };
        Ok(page)
    }

    /// Decodes every key in place: what is decoded is never longer.
    fn decode(&mut self) {
        let plus_is_space = plus_is_space(&self.text);
        let RawPage { text, objects, prefixes, next_marker, .. } = self;
        let mut ranges: Vec<&mut Range<usize>> = objects.iter_mut().map(|object| &mut object.key).collect();
        ranges.extend(prefixes.iter_mut());
        ranges.extend(next_marker.iter_mut());
        for range in ranges {
            let length = decode_in_place(&mut text[range.clone()], plus_is_space);
            range.end = range.start + length;
        }
    }
}

fn check_root(name: &[u8], xml: &[u8]) -> Result<(), String> {
    match name {
        b"ListBucketResult" => Ok(()),
        // S3 may begin an answer with 200 and find out later that it cannot go on.
        b"Error" => {
            let error = ErrorBody::parse(xml);
            let part = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
            Err(format!(
                "the store failed after it had begun to answer: {} ({})",
                part(error.message),
                part(error.code)
            ))
        }
        other => Err(format!(
            "the answer is a <{}>, not an S3 listing; is the endpoint right?",
            String::from_utf8_lossy(&other[..other.len().min(40)])
        )),
    }
}

fn field_of(depth: usize, section: Section, name: &[u8]) -> Option<Field> {
    let field = match (depth, section, name) {
        (2, _, b"IsTruncated") => Field::IsTruncated,
        (2, _, b"NextContinuationToken") => Field::Token,
        (2, _, b"NextMarker") => Field::NextMarker,
        (2, _, b"EncodingType") => Field::EncodingType,
        (3, Section::Contents, b"Key") => Field::Key,
        (3, Section::Contents, b"Size") => Field::Size,
        (3, Section::Contents, b"LastModified") => Field::LastModified,
        (3, Section::Contents, b"ETag") => Field::ETag,
        (3, Section::CommonPrefixes, b"Prefix") => Field::Prefix,
        _ => return None,
    };
    Some(field)
}

fn parse_size(text: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("the listing has a size \"{}\"", String::from_utf8_lossy(&text[..text.len().min(40)])))
}

/// Where to go on when the store does not say: after the last of what it sent.
fn last_of(page: &ListPage, next_marker: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
    let listed = || {
        let key = page.objects.iter().map(|object| object.key.as_bytes()).max();
        key.max(page.common_prefixes.iter().map(ObjectKey::as_bytes).max()).map(<[u8]>::to_vec)
    };
    let last = next_marker.filter(|marker| !marker.is_empty()).or_else(listed);
    let mut last = last.ok_or("the listing says that more follows, but not how to go on")?;
    if page.common_prefixes.iter().any(|prefix| prefix.as_bytes() == last) {
        // Everything below it has been told already.
        last.extend_from_slice(AFTER_EVERYTHING);
    }
    Ok(last)
}

/// Whether `+` stands for a space.
///
/// In S3 it does (a plus is `%2B`), as in forms. Stores that write a space as `%20` and leave a plus alone exist: whoever writes
/// `%20` anywhere does not need `+` for it. S3 itself never writes `%20`: `%20` in a key becomes `%2520`.
fn plus_is_space(text: &[u8]) -> bool {
    !text.contains(&b'+') || !text.windows(3).any(|three| three == b"%20")
}

/// Undoes percent-encoding; a `%` that begins no escape stays. Answers with the new length.
fn decode_in_place(text: &mut [u8], plus_is_space: bool) -> usize {
    let Some(first) = text.iter().position(|byte| matches!(byte, b'%' | b'+')) else { return text.len() };
    let (mut from, mut to) = (first, first);
    while from < text.len() {
        let mut taken = 1;
        text[to] = match text[from] {
            b'+' if plus_is_space => b' ',
            b'%' => match (hex_digit(text.get(from + 1)), hex_digit(text.get(from + 2))) {
                (Some(high), Some(low)) => {
                    taken = 3;
                    high << 4 | low
                }
                _ => b'%',
            },
            other => other,
        };
        from += taken;
        to += 1;
    }
    to
}

fn hex_digit(byte: Option<&u8>) -> Option<u8> {
    match byte? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        digit @ b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
