//! Pages of a listing as S3 defines them: prefix, delimiter, start, size, truncation.
//!
//! Always true: a page costs what is on it, since every skip (a start, a folded directory) is a new scan from the right key.
//! How a page is written is the business of `list_xml`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use s3s::{S3Error, S3ErrorCode, S3Result};

use super::bucket::{Bucket, BucketError};
use super::request::parameters;
use crate::model::{ETag, UnixMillis};

/// Most keys on a page of S3, whatever is asked for.
pub(super) const MAX_PAGE_KEYS: usize = 1000;

/// The two ways to ask for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ListVersion {
    /// ListObjects: pages follow a marker.
    First,
    /// ListObjectsV2 (`list-type=2`): pages follow a token.
    #[default]
    Second,
}

/// A question for a page, as read from the query of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct ListQuery {
    pub(super) version: ListVersion,
    pub(super) prefix: String,
    /// Empty: none.
    pub(super) delimiter: String,
    /// `start-after`, or `marker` in the first version.
    pub(super) start_after: Option<String>,
    pub(super) continuation: Option<String>,
    pub(super) max_keys: usize,
    pub(super) url_encoding: bool,
    pub(super) fetch_owner: bool,
}

/// A page of keys, before it is written down.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<PageObject>,
    pub(super) common_prefixes: Vec<Vec<u8>>,
    /// Where the next page begins (inclusive); `None` on the last.
    pub(super) next: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct PageObject {
    pub(super) key: Vec<u8>,
    pub(super) size_bytes: u64,
    pub(super) modified: UnixMillis,
    pub(super) etag: ETag,
}

impl ListQuery {
    /// Reads the query string of a list request.
    ///
    /// # Errors
    /// `InvalidArgument`, as S3, for numbers, encodings or tokens that cannot be.
    pub(super) fn parse(query: &str) -> S3Result<Self> {
        let parameters: HashMap<&str, String> = parameters(query).collect();
        let text = |name: &str| parameters.get(name).filter(|value| !value.is_empty()).cloned();
        let second = text("list-type").is_some_and(|version| version == "2");
        let max_keys = match text("max-keys") {
            None => MAX_PAGE_KEYS,
            Some(number) => {
                let number: u32 = number.parse().map_err(|_| invalid("max-keys is not a number of keys"))?;
                usize::try_from(number).unwrap_or(usize::MAX)
            }
        };
        let url_encoding = match text("encoding-type").as_deref() {
            None => false,
            Some("url") => true,
            Some(_) => return Err(invalid("encoding-type must be url")),
        };
        Ok(ListQuery {
            version: if second { ListVersion::Second } else { ListVersion::First },
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter").unwrap_or_default(),
            start_after: text(if second { "start-after" } else { "marker" }),
            continuation: text("continuation-token").filter(|_| second),
            max_keys: max_keys.min(MAX_PAGE_KEYS),
            url_encoding,
            fetch_owner: text("fetch-owner").is_some_and(|value| value == "true"),
        })
    }

    /// First key that may be on the page. A token counts, not the start that the listing began with.
    fn from(&self) -> S3Result<Vec<u8>> {
        if let Some(token) = &self.continuation {
            return decode_token(token).ok_or_else(|| invalid("The continuation token provided is incorrect"));
        }
        let Some(start) = self.start_after.as_deref().map(str::as_bytes) else { return Ok(Vec::new()) };
        // A start that is itself a common prefix stands for all that is folded into it: the marker of a first-version
        // listing is such a prefix, and the next page must not show it again.
        match self.common_prefix(start) {
            Some(folded) if folded == start => Ok(after_all(folded).unwrap_or_else(|| after(start))),
            _ => Ok(after(start)),
        }
    }

    /// The common prefix that `key` is folded into, if it is.
    fn common_prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        let delimiter = self.delimiter.as_bytes();
        if delimiter.is_empty() {
            return None;
        }
        let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        Some(&key[..self.prefix.len() + at + delimiter.len()])
    }

    /// The page of `bucket` that this query asks for.
    ///
    /// # Errors
    /// A token that was not ours, or a bucket that cannot be read.
    pub(super) fn page(&self, bucket: &dyn Bucket) -> S3Result<Page> {
        let mut page = Page::default();
        if self.max_keys == 0 {
            return Ok(page);
        }
        let mut from = Some(self.from()?.max(self.prefix.clone().into_bytes()));
        // Where to go on after the last thing on the page, when that is a common prefix.
        let mut after_prefix = None;
        while let Some(start) = from.take() {
            let scanned = bucket.scan(&start, &mut |entry| {
                if !entry.key.starts_with(self.prefix.as_bytes()) {
                    return ControlFlow::Break(());
                }
                if page.objects.len() + page.common_prefixes.len() == self.max_keys {
                    let after_object = || page.objects.last().map(|object| after(&object.key));
                    page.next = after_prefix.take().or_else(after_object);
                    return ControlFlow::Break(());
                }
                if let Some(folded) = self.common_prefix(entry.key) {
                    page.common_prefixes.push(folded.to_vec());
                    from = after_all(folded);
                    after_prefix.clone_from(&from);
                    return ControlFlow::Break(());
                }
                after_prefix = None;
                page.objects.push(PageObject {
                    key: entry.key.to_vec(),
                    size_bytes: entry.size_bytes,
                    modified: entry.modified,
                    etag: entry.etag,
                });
                ControlFlow::Continue(())
            });
            scanned.map_err(internal)?;
        }
        Ok(page)
    }
}

impl Page {
    /// A page without keys that the first real page of this query follows.
    pub(super) fn empty_before(query: &ListQuery) -> S3Result<Page> {
        let from = query.from()?;
        // An empty token would read as none; no key is before a NUL.
        let next = if from.is_empty() { vec![0] } else { from };
        Ok(Page { next: Some(next), ..Page::default() })
    }

    /// What the first version of the API calls NextMarker: the last key or common prefix on the page.
    pub(super) fn last(&self) -> Option<&[u8]> {
        let object = self.objects.last().map(|object| object.key.as_slice());
        object.max(self.common_prefixes.last().map(Vec::as_slice))
    }
}

/// The first key after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key after all keys that begin with `prefix`; `None` when there can be none.
fn after_all(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// A continuation token: where the next page begins, in hexadecimal. Clients must not look inside.
pub(super) fn encode_token(from: &[u8]) -> String {
    from.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_token(token: &str) -> Option<Vec<u8>> {
    if !token.len().is_multiple_of(2) || !token.is_ascii() {
        return None;
    }
    (0..token.len()).step_by(2).map(|at| u8::from_str_radix(&token[at..at + 2], 16).ok()).collect()
}

fn invalid(message: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, message)
}

/// A bucket's failure as S3 would tell it.
pub(super) fn internal(error: BucketError) -> S3Error {
    match error {
        BucketError::ReadOnly => S3Error::with_message(S3ErrorCode::AccessDenied, error.to_string()),
        BucketError::Medium { .. } => S3Error::internal_error(error),
    }
}
