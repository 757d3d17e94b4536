//! What a request is about: verb, bucket and key, read from its first line and Host header.
//!
//! The S3 library parses requests on its own; this is for those who look at a request from outside it: counters, faults,
//! conditions and the listing. Both styles of address are understood: path (`/BUCKET/KEY`) and virtual host (`BUCKET.DOMAIN`).

use std::borrow::Cow;

use hyper::header::HOST;
use hyper::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;
use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// A page of a listing.
    List,
    /// An object's bytes.
    Get,
    /// An object's headers.
    Head,
    /// Storing an object or a part of one.
    Put,
    /// Removing an object.
    Delete,
    /// Anything else: questions about buckets, steps of a multipart upload.
    Other,
}

/// Verb, bucket and key of a request.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) verb: Verb,
    pub(super) bucket: Cow<'a, str>,
    /// Still percent-encoded.
    raw_key: &'a str,
    query: &'a str,
}

impl<'a> Target<'a> {
    pub(super) fn of(method: &Method, uri: &'a Uri, headers: &'a HeaderMap, domain: Option<&str>) -> Self {
        let path = uri.path().strip_prefix('/').unwrap_or_default();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let (bucket, raw_key) = match host.and_then(|host| bucket_of_host(host, domain?)) {
            Some(bucket) => (Cow::Borrowed(bucket), path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (percent_decode_str(bucket).decode_utf8_lossy(), key)
            }
        };
        let query = uri.query().unwrap_or_default();
        let verb = match *method {
            Method::GET if bucket.is_empty() => Verb::Other,
            Method::GET if raw_key.is_empty() && is_list(query) => Verb::List,
            Method::GET if !raw_key.is_empty() => Verb::Get,
            Method::HEAD if !raw_key.is_empty() => Verb::Head,
            Method::PUT if !raw_key.is_empty() => Verb::Put,
            Method::DELETE if !raw_key.is_empty() => Verb::Delete,
            _ => Verb::Other,
        };
        Target { verb, bucket, raw_key, query }
    }

    /// The key, decoded; of a listing, the prefix.
    pub(super) fn key(&self) -> Cow<'a, str> {
        if self.verb == Verb::List {
            let prefix = parameters(self.query).find(|(name, _)| *name == "prefix");
            return prefix.map(|(_, value)| Cow::Owned(value)).unwrap_or_default();
        }
        percent_decode_str(self.raw_key).decode_utf8_lossy()
    }
}

/// The parameters of a query with their decoded values.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = (&str, String)> {
    query.split('&').filter(|parameter| !parameter.is_empty()).map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // In a query, unlike in a path, `+` is a space.
        let value = value.replace('+', " ");
        (name, percent_decode_str(&value).decode_utf8_lossy().into_owned())
    })
}

/// The bucket named by a Host header `BUCKET.DOMAIN[:PORT]`.
fn bucket_of_host<'a>(host: &'a str, domain: &str) -> Option<&'a str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    name.strip_suffix(domain)?.strip_suffix('.').filter(|bucket| !bucket.is_empty())
}

/// True when a question to a bucket is for a page of keys, not for one of its many properties.
fn is_list(query: &str) -> bool {
    const OF_A_LISTING: [&str; 9] = [
        "list-type",
        "prefix",
        "delimiter",
        "start-after",
        "continuation-token",
        "max-keys",
        "encoding-type",
        "fetch-owner",
        "marker",
    ];
    query.split('&').filter(|parameter| !parameter.is_empty()).all(|parameter| {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        OF_A_LISTING.contains(&name) || name == "x-id" || name.to_ascii_lowercase().starts_with("x-amz-")
    })
}

/// Tells the S3 library which bucket a Host header names.
pub(super) struct DomainHost(pub(super) String);

impl S3Host for DomainHost {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let plain = VirtualHost::new(self.0.as_str());
        Ok(match bucket_of_host(host, &self.0) {
            Some(bucket) => plain.with_bucket(bucket),
            None => plain,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: Method, uri: &str, host: &'static str) -> (Verb, String, String) {
        let uri: Uri = uri.parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        let target = Target::of(&method, &uri, &headers, Some("s3.test"));
        (target.verb, target.bucket.to_string(), target.key().into_owned())
    }

    #[test]
    fn bucket_and_key_are_found_in_both_styles_of_address() {
        let expected = (Verb::Get, "data".to_owned(), "a b/%//c".to_owned());
        assert_eq!(target(Method::GET, "/data/a%20b/%25//c", "127.0.0.1:9000"), expected);
        assert_eq!(target(Method::GET, "/a%20b/%25//c", "data.s3.test:9000"), expected);
    }

    #[test]
    fn a_listing_is_told_from_questions_about_the_bucket() {
        for list in ["/data", "/data/", "/data?list-type=2&prefix=a%2F", "/data?marker=x&X-Amz-Expires=5"] {
            assert_eq!(target(Method::GET, list, "h").0, Verb::List, "{list}");
        }
        for other in ["/", "/data?location", "/data?uploads=&prefix=a", "/data?versions"] {
            assert_eq!(target(Method::GET, other, "h").0, Verb::Other, "{other}");
        }
        assert_eq!(target(Method::HEAD, "/data", "h").0, Verb::Other);
        assert_eq!(target(Method::HEAD, "/data/k", "h").0, Verb::Head);
        assert_eq!(target(Method::GET, "/data?list-type=2&prefix=a+b%2F", "h").2, "a b/");
    }
}
