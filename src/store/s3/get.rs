//! GET: everything about an answer is checked before the first byte goes to the sink.
//!
//! Version first (entity tag, size), then the range, then the body as it arrives: exactly as many bytes as were asked for, without
//! a pause longer than the inactivity limit. Bytes that were handed over are right whatever happens afterwards.

use bytes::Bytes;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use reqwest::{Response, StatusCode};

use super::dates::parse_http_date;
use super::error::last_cause;
use super::etag_forms::{Verdict, same_but_for_form};
use super::{Ask, Resource, S3Store};
use crate::model::{ByteRange, ETag};
use crate::store::{BodySink, GetRequest, ListRequest, StoreError, StoreErrorKind as Kind};

const VERB: &str = "get";

impl S3Store {
    pub(super) async fn get_object(&self, request: &GetRequest, body: &mut dyn BodySink) -> Result<(), StoreError> {
        let fail = |kind, words: String| StoreError::new(kind, VERB, &request.key, words);
        let size_bytes = request.version.size_bytes;
        if request.range.is_empty() || request.range.end > size_bytes {
            let words = format!("bytes {} of an object of {size_bytes} bytes cannot be asked for", request.range);
            return Err(fail(Kind::InvalidRequest, words));
        }
        let mut response = self.request_version(request).await?;
        check_range(&response, request).map_err(|(kind, words)| fail(kind, words))?;
        if is_packed_on_the_way(response.headers()) && !self.site().dialect.asks_for_stored_encoding() {
            let words = "something between here and the store compresses its answers; let it leave this host alone";
            return Err(fail(Kind::BadResponse, words.to_owned()));
        }
        let mut left = request.range.len();
        loop {
            let chunk = match tokio::time::timeout(self.timeouts.inactivity, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                // The last bytes are here; what fails after them does not matter.
                Ok(Ok(None) | Err(_)) | Err(_) if left == 0 => return Ok(()),
                Ok(Ok(None)) => return Err(fail(Kind::Interrupted, format!("the body ended {left} bytes early"))),
                Ok(Err(error)) => {
                    let words = format!("the body broke off {left} bytes early: {}", last_cause(&error));
                    return Err(fail(Kind::Interrupted, words));
                }
                Err(_) => {
                    let seconds = self.timeouts.inactivity.as_secs_f32();
                    return Err(fail(Kind::Interrupted, format!("nothing came for {seconds} s, {left} bytes early")));
                }
            };
            if chunk.len() as u64 > left {
                // Without tag and length, only here a larger object shows.
                let kind = if request.version.etag.is_none() { Kind::Changed } else { Kind::BadResponse };
                return Err(fail(kind, "the body is longer than asked for".to_owned()));
            }
            left -= chunk.len() as u64;
            hand_over(&chunk, body);
        }
    }

    /// The answer to a GET, its entity tag checked.
    async fn request_version(&self, request: &GetRequest) -> Result<Response, StoreError> {
        let changed = || StoreError::new(Kind::Changed, VERB, &request.key, "the object is another version now");
        let Some(listed) = &request.version.etag else { return self.request_range(request, None).await };
        let condition = self.etag_forms.sends_if_match().then_some(listed);
        let mut response = self.request_range(request, condition).await?;
        let was_refused = response.status() == StatusCode::PRECONDITION_FAILED;
        if was_refused {
            if !self.etag_forms.may_be_refused_by_form(listed) {
                return Err(self.refusal(response).await.into_error(VERB, &request.key, self.circumstances(true)));
            }
            response = self.request_range(request, None).await?;
        }
        let answered = response.headers().get(ETAG).and_then(header_text).and_then(|text| ETag::parse(&text));
        match self.etag_forms.judge(&request.key, listed, answered.as_ref()) {
            Verdict::Same => {}
            Verdict::Other => return Err(changed()),
            Verdict::Ask => {
                if !self.is_still_listed(request, listed, response.headers()).await? {
                    return Err(changed());
                }
                self.etag_forms.learn(&request.key, listed, answered.as_ref());
            }
        }
        if was_refused {
            self.etag_forms.distrust_if_match();
        }
        Ok(response)
    }

    async fn request_range(&self, request: &GetRequest, condition: Option<&ETag>) -> Result<Response, StoreError> {
        let is_whole = request.range.start == 0 && request.range.end == request.version.size_bytes;
        let ask = Ask {
            verb: VERB,
            key: &request.key,
            resource: Resource::Object,
            range: (!is_whole).then_some(request.range),
            if_match: condition,
        };
        self.exchange(&ask).await
    }

    /// Asks the listing whether the object is still what was listed, when GET answered with a tag that is formed otherwise.
    ///
    /// The listing must show the same tag and size, and the date that came with the answer: so even a listing that lags behind
    /// cannot pass a changed object off as the old one.
    async fn is_still_listed(
        &self,
        request: &GetRequest,
        listed: &ETag,
        headers: &HeaderMap,
    ) -> Result<bool, StoreError> {
        let Some(modified) = headers.get(LAST_MODIFIED).and_then(header_text).and_then(|text| parse_http_date(&text))
        else {
            return Ok(false);
        };
        let question = ListRequest { prefix: request.key.clone(), max_keys: Some(1), ..ListRequest::default() };
        let page = match self.list_page(&question).await {
            Ok(page) => page,
            Err(error) if error.is_retryable() => return Err(error),
            // Who may not list cannot be told.
            Err(_) => return Ok(false),
        };
        let found = page.objects.first().filter(|object| object.key == request.key);
        Ok(found.is_some_and(|object| {
            object.size_bytes == request.version.size_bytes
                && object.etag.as_ref().is_some_and(|now| same_but_for_form(now, listed))
                && object.modified.0.div_euclid(1000) == modified
        }))
    }
}

fn hand_over(chunk: &Bytes, body: &mut dyn BodySink) {
    let mut rest = &chunk[..];
    while !rest.is_empty() {
        let spare = body.spare();
        let count = spare.len().min(rest.len());
        assert!(count > 0, "the sink is smaller than the range asked for");
        spare[..count].copy_from_slice(&rest[..count]);
        body.advance(count);
        rest = &rest[count..];
    }
}

/// Checks that the answer holds the bytes asked for, of an object of the right size.
fn check_range(response: &Response, request: &GetRequest) -> Result<(), (Kind, String)> {
    let range = request.range;
    let size_bytes = request.version.size_bytes;
    // With the tag compared, another size is nonsense; without one, the size is what tells versions apart.
    let wrong_size = |total: u64| match request.version.etag {
        Some(_) => {
            (Kind::BadResponse, format!("the answer is of {total} bytes, not {size_bytes}, though the tag is the same"))
        }
        None => (Kind::Changed, format!("the object has {total} bytes now, not {size_bytes}")),
    };
    let is_whole = range.start == 0 && range.end == size_bytes;
    let named = response.headers().get(CONTENT_RANGE).and_then(header_text);
    match (response.status(), named) {
        // rclone's server says 200 to ranges, too, but names the range and sends that.
        (StatusCode::PARTIAL_CONTENT | StatusCode::OK, Some(named)) => {
            let Some((answered, total)) = parse_content_range(&named) else {
                return Err((
                    Kind::BadResponse,
                    format!("the answer does not say which bytes it holds, but \"{named}\""),
                ));
            };
            if let Some(total) = total.filter(|total| *total != size_bytes) {
                return Err(wrong_size(total));
            }
            if answered != range {
                return Err((Kind::BadResponse, format!("asked for bytes {range}, the answer holds {answered}")));
            }
        }
        (StatusCode::OK, None) if is_whole => {}
        (StatusCode::OK, None) => {
            return Err((Kind::BadResponse, format!("asked for bytes {range}, the answer is the whole object")));
        }
        (StatusCode::PARTIAL_CONTENT, None) => {
            return Err((Kind::BadResponse, "the answer does not say which bytes it holds".to_owned()));
        }
        (status, _) => {
            return Err((Kind::BadResponse, format!("the store answers a GET with HTTP {}", status.as_u16())));
        }
    }
    match content_length(response.headers()) {
        Some(length) if length != range.len() && is_whole => Err(wrong_size(length)),
        Some(length) if length != range.len() => {
            Err((Kind::BadResponse, format!("asked for {} bytes, the answer has {length}", range.len())))
        }
        _ => Ok(()),
    }
}

/// A proxy that compresses does not know the length beforehand; the store knows that of an object it was given compressed.
fn is_packed_on_the_way(headers: &HeaderMap) -> bool {
    let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let is_packed = encoding.is_some_and(|encoding| !matches!(encoding, b"" | b"identity" | b"aws-chunked"));
    is_packed && content_length(headers).is_none()
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok())
}

/// Reads `bytes 0-99/1234`, or `bytes 0-99/*` where the store does not say how large the object is.
fn parse_content_range(text: &str) -> Option<(ByteRange, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let total = match total.trim() {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    (first <= last).then_some((ByteRange::new(first, last.checked_add(1)?), total))
}

/// Header values are bytes; entity tags outside ASCII exist.
fn header_text(value: &HeaderValue) -> Option<String> {
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// `Range` for bytes that are not the whole object.
pub(super) fn range_header(range: ByteRange) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("bytes={}-{}", range.start, range.end - 1)).ok()
}

/// `If-Match` with the tag in quotes, as the store sent it.
pub(super) fn if_match_header(tag: &ETag) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_bytes(format!("\"{tag}\"").as_bytes()).ok()?;
    Some((reqwest::header::IF_MATCH, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read() {
        let range = |start, end| ByteRange::new(start, end);
        for (text, expected) in [
            ("bytes 0-0/1", Some((range(0, 1), Some(1)))),
            ("bytes 10-19/100", Some((range(10, 20), Some(100)))),
            ("bytes 10-19/*", Some((range(10, 20), None))),
            ("bytes */100", None),
            ("bytes 5-4/100", None),
            ("bytes 0-18446744073709551615/1", None),
            ("items 0-1/2", None),
            ("", None),
        ] {
            assert_eq!(parse_content_range(text), expected, "{text}");
        }
    }
}
