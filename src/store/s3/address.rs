//! Where requests go: the endpoint as typed, and the URL of a bucket or object on it.
//!
//! A key's bytes are percent-encoded exactly once, all but unreserved characters and `/`, so that the path of the URL is at the
//! same time the canonical path that is signed. Which endpoint and style a store wants is `dialect`'s business.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::Url;

use crate::model::ObjectKey;

/// How the bucket is named in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// What the store's dialect prefers.
    #[default]
    Auto,
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    VirtualHosted,
}

/// All but RFC 3986's unreserved characters: what Signature Version 4 wants encoded.
const QUERY_ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH_ENCODED: &AsciiSet = &QUERY_ENCODED.remove(b'/');

/// Appends `bytes` as part of a path: `/` stays.
pub(super) fn push_path(url: &mut String, bytes: &[u8]) {
    url.extend(percent_encode(bytes, PATH_ENCODED));
}

/// Appends `bytes` as name or value of a query.
pub(super) fn push_query(url: &mut String, bytes: &[u8]) {
    url.extend(percent_encode(bytes, QUERY_ENCODED));
}

/// A store's address without the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) https: bool,
    /// Lower case; an IPv6 address in brackets.
    pub(super) host: String,
    /// `None` for the scheme's own port.
    pub(super) port: Option<u16>,
    /// Empty, or begins with `/` and does not end with one; percent-encoded.
    pub(super) base_path: String,
}

impl Endpoint {
    /// Reads an endpoint as people type it: scheme, port, path and trailing slash are optional.
    ///
    /// Without a scheme it is https, except for loopback and for OSS' internal endpoints (whose network is private and
    /// whose default is http). The error is the reason, in a few words.
    pub(super) fn parse(text: &str) -> Result<Endpoint, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        let url = match text.split_once("://") {
            Some(_) => parse_url(text)?,
            None => {
                // Parsed with http first: only the host can tell which scheme is meant.
                let url = parse_url(&format!("http://{text}"))?;
                if is_plain_by_default(&url, text) { url } else { parse_url(&format!("https://{text}"))? }
            }
        };
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            other => return Err(format!("its scheme is {other}, not http or https")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials do not belong in it".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it must not have a query or fragment".to_owned());
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("it names no host")?;
        Ok(Endpoint {
            https,
            host: host.to_owned(),
            port: url.port(),
            base_path: url.path().trim_end_matches('/').to_owned(),
        })
    }

    /// True when the host is an IP address, which no bucket name can stand in front of.
    pub(super) fn is_ip(&self) -> bool {
        self.host.starts_with('[') || self.host.parse::<Ipv4Addr>().is_ok()
    }

    /// True for this machine itself, which no proxy can reach for us.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.base_path)
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| error.to_string())
}

fn is_plain_by_default(url: &Url, text: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    let authority = text.split('/').next().unwrap_or_default();
    is_loopback(host) || authority.ends_with(":80") || host.ends_with("-internal.aliyuncs.com")
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || bare.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || bare.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

/// A bucket on an endpoint: everything of a URL that does not change between requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// As in `https://bucket.s3.eu-west-1.amazonaws.com`, without a path.
    origin: String,
    /// The value of the `Host` header: a port only if it is not the scheme's own.
    pub(super) host: String,
    /// What stands before `/key`: the endpoint's path and, in path style, the bucket.
    prefix: String,
}

impl Address {
    pub(super) fn new(endpoint: &Endpoint, bucket: &str, virtual_hosted: bool) -> Address {
        let mut host = String::new();
        let mut prefix = endpoint.base_path.clone();
        if virtual_hosted {
            host.push_str(bucket);
            host.push('.');
        } else {
            prefix.push('/');
            push_path(&mut prefix, bucket.as_bytes());
        }
        host.push_str(&endpoint.host);
        if let Some(port) = endpoint.port {
            host.push_str(&format!(":{port}"));
        }
        let scheme = if endpoint.https { "https" } else { "http" };
        Address { origin: format!("{scheme}://{host}"), host, prefix }
    }

    /// The URL of an object.
    pub(super) fn object(&self, key: &ObjectKey) -> Target {
        // Room for every byte escaped would be three times the key; most keys need none.
        let mut url = String::with_capacity(self.origin.len() + self.prefix.len() + key.as_bytes().len() + 32);
        url.push_str(&self.origin);
        url.push_str(&self.prefix);
        url.push('/');
        push_path(&mut url, key.as_bytes());
        Target { path_end: url.len(), path_start: self.origin.len(), url }
    }

    /// The URL of the bucket itself with a query, whose names and values are encoded and in order.
    pub(super) fn bucket(&self, query: &str) -> Target {
        let mut url = format!("{}{}", self.origin, if self.prefix.is_empty() { "/" } else { &self.prefix });
        let path_end = url.len();
        url.push('?');
        url.push_str(query);
        Target { path_end, path_start: self.origin.len(), url }
    }
}

/// A URL whose parts can be signed as they are.
#[derive(Debug)]
pub(super) struct Target {
    url: String,
    path_start: usize,
    path_end: usize,
}

impl Target {
    /// The encoded path.
    pub(super) fn path(&self) -> &str {
        &self.url[self.path_start..self.path_end]
    }

    /// The encoded query without its `?`; empty if there is none.
    pub(super) fn query(&self) -> &str {
        self.url.get(self.path_end + 1..).unwrap_or_default()
    }

    /// The URL to request; `None` when a URL cannot say it. Path components `.` and `..` cannot be sent: they would be resolved
    /// on the way, and another object be asked for.
    pub(super) fn to_url(&self) -> Option<Url> {
        Url::parse(&self.url).ok().filter(|url| url.path() == self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_people_type_it() {
        for (typed, meant) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
            ("127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("localhost:8333", "http://localhost:8333"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("https://[fd00::1]:9000/s3/", "https://[fd00::1]:9000/s3"),
            ("s3.example.com", "https://s3.example.com"),
            ("s3.example.com:8443", "https://s3.example.com:8443"),
            ("s3.example.com:80", "http://s3.example.com"),
            ("https://s3.example.com:443/a/b//", "https://s3.example.com/a/b"),
            ("  https://S3.Example.com ", "https://s3.example.com"),
            ("oss-cn-beijing-internal.aliyuncs.com", "http://oss-cn-beijing-internal.aliyuncs.com"),
            ("https://oss-cn-beijing-internal.aliyuncs.com", "https://oss-cn-beijing-internal.aliyuncs.com"),
            ("oss-cn-beijing.aliyuncs.com", "https://oss-cn-beijing.aliyuncs.com"),
        ] {
            assert_eq!(Endpoint::parse(typed).unwrap().to_string(), meant, "{typed}");
        }
        for bad in ["", "ftp://host", "https://", "https://user:pw@host", "https://host?x=1", "https://host#x", "a b"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_styles_build_urls_whose_path_is_sent_as_written() {
        let endpoint = Endpoint::parse("https://store.example.com:8443/s3").unwrap();
        let path = Address::new(&endpoint, "my.bucket", false);
        let target = path.object(&"a b/c".into());
        assert_eq!(target.to_url().unwrap().as_str(), "https://store.example.com:8443/s3/my.bucket/a%20b/c");
        assert_eq!((path.host.as_str(), target.query()), ("store.example.com:8443", ""));
        let hosted = Address::new(&endpoint, "bucket", true);
        let target = hosted.bucket("list-type=2&prefix=a%2Fb");
        assert_eq!(
            target.to_url().unwrap().as_str(),
            "https://bucket.store.example.com:8443/s3?list-type=2&prefix=a%2Fb"
        );
        assert_eq!((target.path(), target.query()), ("/s3", "list-type=2&prefix=a%2Fb"));
        let plain = Address::new(&Endpoint::parse("https://h.example").unwrap(), "bucket", true);
        assert_eq!(plain.bucket("x=").path(), "/");
    }

    #[test]
    fn awkward_keys_survive_the_url_byte_for_byte() {
        let address = Address::new(&Endpoint::parse("http://localhost:1").unwrap(), "b", false);
        for key in super::super::test_support::AWKWARD_KEYS {
            let key = ObjectKey::from(*key);
            let url = address.object(&key).to_url().unwrap_or_else(|| panic!("{key} has no URL"));
            let sent = url.path().strip_prefix("/b/").unwrap();
            assert_eq!(percent_encoding::percent_decode_str(sent).collect::<Vec<u8>>(), key.as_bytes(), "{sent}");
            assert_eq!((url.query(), url.fragment()), (None, None), "{key}");
        }
    }

    #[test]
    fn a_key_that_a_url_would_resolve_to_another_is_refused() {
        let address = Address::new(&Endpoint::parse("http://localhost:1").unwrap(), "b", false);
        for key in ["..", ".", "a/../c", "a/./c", "../x", "a/.."] {
            assert!(address.object(&key.into()).to_url().is_none(), "{key}");
        }
        assert!(address.object(&"a/.../c".into()).to_url().is_some());
    }
}
