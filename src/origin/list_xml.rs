//! A page of a listing as XML: byte for byte what S3 sends, and on request what odder stores send instead.
//!
//! Written by hand rather than by the S3 library's serialiser: a page of 1,000 keys is the server's most expensive answer, and
//! the oddities of other stores (see [`Quirk`]) are choices of spelling that a serialiser cannot make.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use time::OffsetDateTime;

use super::conditions::{Quirk, Quirks};
use super::listing::{ListQuery, ListVersion, MAX_PAGE_KEYS, Page, PageObject, encode_token};
use super::pattern::mix;
use crate::model::{ETag, UnixMillis};

/// What S3 leaves as it is under `encoding-type=url`: Java's URLEncoder set, and the slash. Space becomes `+`.
const URL_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/');

/// Bytes of XML per object, generously.
const BYTES_PER_OBJECT: usize = 320;

/// Writes the answer to a list request.
pub(super) fn write_page(bucket: &str, query: &ListQuery, page: &Page, quirks: &Quirks) -> String {
    let mut xml = String::with_capacity(1024 + BYTES_PER_OBJECT * (page.objects.len() + page.common_prefixes.len()));
    let mut writer = PageWriter { xml: &mut xml, query, quirks };
    writer.head(bucket, page);
    if quirks.has(Quirk::Unordered) {
        page.objects.iter().rev().for_each(|object| writer.object(object));
    } else {
        page.objects.iter().for_each(|object| writer.object(object));
    }
    for prefix in &page.common_prefixes {
        let times = if quirks.has(Quirk::RepeatedPrefixes) { 2 } else { 1 };
        for _ in 0..times {
            writer.xml.push_str("<CommonPrefixes>");
            writer.key_element("Prefix", prefix);
            writer.xml.push_str("</CommonPrefixes>");
        }
    }
    xml.push_str("</ListBucketResult>");
    xml
}

struct PageWriter<'a> {
    xml: &'a mut String,
    query: &'a ListQuery,
    quirks: &'a Quirks,
}

impl PageWriter<'_> {
    fn head(&mut self, bucket: &str, page: &Page) {
        let query = self.query;
        self.xml.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult");
        if !self.quirks.has(Quirk::NoNamespace) {
            self.xml.push_str(" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
        }
        self.xml.push('>');
        self.element("Name", bucket);
        self.key_element("Prefix", query.prefix.as_bytes());
        if query.version == ListVersion::Second {
            self.second_version(page);
        } else {
            self.key_element("Marker", query.start_after.as_deref().unwrap_or_default().as_bytes());
            // S3 gives the next marker only where the client cannot know it: after folded keys.
            if page.next.is_some() && !query.delimiter.is_empty() {
                self.key_element("NextMarker", page.last().unwrap_or_default());
            }
        }
        self.element("MaxKeys", &query.max_keys.min(MAX_PAGE_KEYS).to_string());
        if !query.delimiter.is_empty() {
            self.key_element("Delimiter", query.delimiter.as_bytes());
        }
        if self.encodes() {
            self.element("EncodingType", "url");
        }
        self.element("IsTruncated", if page.next.is_some() { "true" } else { "false" });
    }

    fn second_version(&mut self, page: &Page) {
        if let Some(start) = &self.query.start_after {
            self.key_element("StartAfter", start.as_bytes());
        }
        if let Some(token) = &self.query.continuation {
            self.element("ContinuationToken", token);
        }
        if let Some(next) = &page.next {
            self.element("NextContinuationToken", &encode_token(next));
        }
        self.element("KeyCount", &(page.objects.len() + page.common_prefixes.len()).to_string());
    }

    fn object(&mut self, object: &PageObject) {
        self.xml.push_str("<Contents>");
        self.key_element("Key", &object.key);
        if !self.quirks.has(Quirk::NoLastModified) {
            self.xml.push_str("<LastModified>");
            write_time(self.xml, object.modified, !self.quirks.has(Quirk::WholeSeconds));
            self.xml.push_str("</LastModified>");
        }
        self.etag(&object.etag);
        // Writing to a string cannot fail.
        let _ = write!(self.xml, "<Size>{}</Size>", object.size_bytes);
        if self.query.fetch_owner || self.query.version == ListVersion::First {
            self.xml.push_str("<Owner><ID>origin</ID><DisplayName>origin</DisplayName></Owner>");
        }
        self.xml.push_str("<StorageClass>STANDARD</StorageClass></Contents>");
    }

    fn etag(&mut self, etag: &ETag) {
        if self.quirks.has(Quirk::NoListEtag) {
            return;
        }
        let (before, after) = match () {
            () if self.quirks.has(Quirk::UnquotedListEtag) => ("", ""),
            () if self.quirks.has(Quirk::WeakListEtag) => ("W/&quot;", "&quot;"),
            () => ("&quot;", "&quot;"),
        };
        self.xml.push_str("<ETag>");
        self.xml.push_str(before);
        match etag {
            ETag::Digest(digest) if self.quirks.has(Quirk::OtherListEtag) => write_hex(self.xml, &other_digest(digest)),
            ETag::Digest(digest) => write_hex(self.xml, digest),
            ETag::Multipart(..) | ETag::Verbatim(_) => escape_xml(self.xml, &etag.to_string()),
        }
        self.xml.push_str(after);
        self.xml.push_str("</ETag>");
    }

    fn encodes(&self) -> bool {
        self.query.url_encoding && !self.quirks.has(Quirk::IgnoreEncodingType)
    }

    /// An element whose text is subject to `encoding-type`.
    fn key_element(&mut self, name: &str, key: &[u8]) {
        self.open(name);
        let text = String::from_utf8_lossy(key);
        if self.encodes() {
            if key.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.*/".contains(byte)) {
                self.xml.push_str(&text);
            } else {
                for part in percent_encoding::percent_encode(key, URL_ESCAPED) {
                    // The only part that ends in a blank's code is that code itself.
                    self.xml.push_str(if part == "%20" { "+" } else { part });
                }
            }
        } else {
            escape_xml(self.xml, &text);
        }
        self.close(name);
    }

    fn element(&mut self, name: &str, text: &str) {
        self.open(name);
        escape_xml(self.xml, text);
        self.close(name);
    }

    fn open(&mut self, name: &str) {
        self.xml.push('<');
        self.xml.push_str(name);
        self.xml.push('>');
    }

    fn close(&mut self, name: &str) {
        self.xml.push_str("</");
        self.xml.push_str(name);
        self.xml.push('>');
    }
}

/// A digest that no GET will ever answer: what a store lists that tags parts, encrypted or migrated objects otherwise.
fn other_digest(digest: &[u8; 16]) -> [u8; 16] {
    let mut half = [0; 8];
    half.copy_from_slice(&digest[..8]);
    let mut other = *digest;
    other[..8].copy_from_slice(&mix(!u64::from_le_bytes(half)).to_le_bytes());
    other
}

/// Digests, dates and names are written digit by digit: formatting them took most of a page's time.
fn write_hex(xml: &mut String, digest: &[u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in digest {
        xml.push(char::from(DIGITS[usize::from(byte >> 4)]));
        xml.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Escapes text for XML. Control characters become references, as S3 writes them, although XML 1.0 knows no such characters.
pub(super) fn escape_xml(xml: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            c if c.is_ascii_control() => {
                let _ = write!(xml, "&#x{:x};", u32::from(c));
            }
            c => xml.push(c),
        }
    }
}

/// `2024-01-02T03:04:05.678Z`, with or without the fraction.
fn write_time(xml: &mut String, moment: UnixMillis, with_millis: bool) {
    let seconds = moment.0.div_euclid(1000);
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else { return };
    write_digits(xml, time.year().unsigned_abs(), 4);
    for (before, number) in [
        ('-', u8::from(time.month())),
        ('-', time.day()),
        ('T', time.hour()),
        (':', time.minute()),
        (':', time.second()),
    ] {
        xml.push(before);
        write_digits(xml, u32::from(number), 2);
    }
    if with_millis {
        xml.push('.');
        write_digits(xml, u32::try_from(moment.0.rem_euclid(1000)).unwrap_or_default(), 3);
    }
    xml.push('Z');
}

/// The last `count` decimal digits of a number.
fn write_digits(xml: &mut String, number: u32, count: u32) {
    for place in (0..count).rev() {
        let digit = number / 10u32.pow(place) % 10;
        xml.push(char::from_digit(digit, 10).unwrap_or('0'));
    }
}
