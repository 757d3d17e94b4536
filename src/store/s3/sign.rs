//! AWS Signature Version 4 in request headers, for GET without a body.
//!
//! The canonical request is written here, straight into the hash; key derivation and the last step are `aws_sigv4`'s. A signing
//! key is derived once a day for each region and set of credentials. Only `Host` and `x-amz-*` headers are signed: a proxy may
//! touch the others (`Accept-Encoding`, which GCS must not find signed; `Range`), and no store asks for them.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::address::Target;
use super::auth::Credentials;

/// SHA-256 of an empty body.
pub(super) const EMPTY_PAYLOAD_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub(super) const X_AMZ_REQUEST_PAYER: HeaderName = HeaderName::from_static("x-amz-request-payer");

/// What is signed.
#[derive(Debug)]
pub(super) struct Unsigned<'a> {
    pub(super) target: &'a Target,
    /// The `Host` header as it will be sent.
    pub(super) host: &'a str,
    pub(super) region: &'a str,
    /// Seconds since 1970 by the store's clock.
    pub(super) unix_seconds: i64,
    pub(super) requester_pays: bool,
}

/// Signs requests; keeps the last signing key.
#[derive(Debug, Default)]
pub(super) struct Signer {
    cached: Mutex<Option<SigningKey>>,
}

#[derive(Clone)]
struct SigningKey {
    day: i64,
    credentials_id: u64,
    region: Arc<str>,
    key: [u8; 32],
}

/// Says nothing: whoever has the key can sign until the day ends.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

const SECONDS_PER_DAY: i64 = 86_400;

impl Signer {
    /// Adds the headers that sign `request` to `headers`.
    ///
    /// `None` when the credentials hold characters that no header can.
    pub(super) fn sign(
        &self,
        request: &Unsigned<'_>,
        credentials: &Credentials,
        headers: &mut HeaderMap,
    ) -> Option<()> {
        let date_time = format_date_time(request.unix_seconds)?;
        let date = &date_time[..8];
        let token = credentials.session_token.as_deref();
        let signed_headers = match (request.requester_pays, token.is_some()) {
            (false, false) => "host;x-amz-content-sha256;x-amz-date",
            (false, true) => "host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
            (true, false) => "host;x-amz-content-sha256;x-amz-date;x-amz-request-payer",
            (true, true) => "host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;x-amz-security-token",
        };
        let canonical_hash = hash_canonical_request(request, &date_time, token, signed_headers);

        let mut to_sign = String::with_capacity(160);
        to_sign.push_str("AWS4-HMAC-SHA256\n");
        to_sign.push_str(&date_time);
        let _ = write!(to_sign, "\n{date}/{}/s3/aws4_request\n", request.region);
        push_hex(&mut to_sign, &canonical_hash);
        let signature = calculate_signature(self.key(request, credentials), to_sign.as_bytes());

        let mut authorization = String::with_capacity(320);
        let _ = write!(
            authorization,
            "AWS4-HMAC-SHA256 Credential={}/{date}/{}/s3/aws4_request, SignedHeaders={signed_headers}, Signature={signature}",
            credentials.access_key_id, request.region
        );
        headers.insert(AUTHORIZATION, secret(&authorization)?);
        headers.insert(X_AMZ_CONTENT_SHA256, HeaderValue::from_static(EMPTY_PAYLOAD_SHA256));
        headers.insert(X_AMZ_DATE, HeaderValue::from_str(&date_time).ok()?);
        if let Some(token) = token {
            headers.insert(X_AMZ_SECURITY_TOKEN, secret(token)?);
        }
        Some(())
    }

    fn key(&self, request: &Unsigned<'_>, credentials: &Credentials) -> [u8; 32] {
        let day = request.unix_seconds.div_euclid(SECONDS_PER_DAY);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*cached
            && known.day == day
            && known.credentials_id == credentials.id
            && *known.region == *request.region
        {
            return known.key;
        }
        let derived = generate_signing_key(
            &credentials.secret_access_key,
            system_time(request.unix_seconds),
            request.region,
            "s3",
        );
        let mut key = [0; 32];
        key.copy_from_slice(derived.as_ref());
        *cached = Some(SigningKey { day, credentials_id: credentials.id, region: request.region.into(), key });
        key
    }
}

fn hash_canonical_request(
    request: &Unsigned<'_>,
    date_time: &str,
    token: Option<&str>,
    signed_headers: &str,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut put = |parts: &[&str]| parts.iter().for_each(|part| hash.update(part.as_bytes()));
    put(&["GET\n", request.target.path(), "\n", request.target.query(), "\nhost:", request.host]);
    put(&["\nx-amz-content-sha256:", EMPTY_PAYLOAD_SHA256, "\nx-amz-date:", date_time]);
    if request.requester_pays {
        put(&["\nx-amz-request-payer:requester"]);
    }
    if let Some(token) = token {
        put(&["\nx-amz-security-token:", token]);
    }
    put(&["\n\n", signed_headers, "\n", EMPTY_PAYLOAD_SHA256]);
    hash.finalize().into()
}

/// `20130524T000000Z`; `None` beyond the years that have four digits.
fn format_date_time(unix_seconds: i64) -> Option<String> {
    let moment = OffsetDateTime::from_unix_timestamp(unix_seconds).ok()?;
    let mut text = String::with_capacity(16);
    let _ = write!(
        text,
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        moment.year(),
        u8::from(moment.month()),
        moment.day(),
        moment.hour(),
        moment.minute(),
        moment.second()
    );
    (text.len() == 16).then_some(text)
}

fn system_time(unix_seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(unix_seconds.unsigned_abs());
    let moment = if unix_seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    moment.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use aws_sigv4::http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    };
    use aws_sigv4::sign::v4;

    use super::super::address::{Address, Endpoint, push_query};
    use super::super::test_support::AWKWARD_KEYS;
    use super::*;

    const NOON: i64 = 1_369_353_600;

    fn ours(signer: &Signer, request: &Unsigned<'_>, credentials: &Credentials) -> HeaderMap {
        let mut headers = HeaderMap::new();
        signer.sign(request, credentials, &mut headers).unwrap();
        headers
    }

    /// The same request signed by `aws_sigv4` from start to end.
    fn theirs(request: &Unsigned<'_>, credentials: &Credentials) -> Vec<(String, String)> {
        let identity = aws_credential_types::Credentials::new(
            &credentials.access_key_id,
            &credentials.secret_access_key,
            credentials.session_token.clone(),
            None,
            "test",
        )
        .into();
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(request.region)
            .name("s3")
            .time(system_time(request.unix_seconds))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let mut headers = vec![("host", request.host)];
        if request.requester_pays {
            headers.push(("x-amz-request-payer", "requester"));
        }
        let uri = request.target.to_url().unwrap().to_string();
        let signable = SignableRequest::new("GET", &uri, headers.into_iter(), SignableBody::Bytes(&[])).unwrap();
        let (instructions, _) = sign(signable, &params).unwrap().into_parts();
        instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn assert_signed_alike(target: &Target, host: &str, credentials: &Credentials, requester_pays: bool) {
        let request = Unsigned { target, host, region: "eu-west-1", unix_seconds: NOON, requester_pays };
        let headers = ours(&Signer::default(), &request, credentials);
        let expected = theirs(&request, credentials);
        assert!(expected.iter().any(|(name, _)| name == "authorization"));
        for (name, value) in expected {
            assert_eq!(headers.get(&name).map(|v| v.to_str().unwrap()), Some(value.as_str()), "{name} of {target:?}");
        }
    }

    #[test]
    fn awkward_keys_and_queries_are_signed_as_the_sdk_signs_them() {
        let plain = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
        let with_token = Credentials::new("AKIDEXAMPLE", "secret", Some("token/with+signs==".into()));
        let endpoint = Endpoint::parse("http://store.example.com:9000").unwrap();
        for address in [Address::new(&endpoint, "bucket", false), Address::new(&endpoint, "bucket", true)] {
            for key in AWKWARD_KEYS {
                let target = address.object(&(*key).into());
                assert_signed_alike(&target, &address.host, &plain, false);
                assert_signed_alike(&target, &address.host, &with_token, true);
                // The SDK takes its queries as text and would sign another one.
                if std::str::from_utf8(key).is_err() {
                    continue;
                }
                let mut query = "list-type=2&prefix=".to_owned();
                push_query(&mut query, key);
                assert_signed_alike(&address.bucket(&query), &address.host, &with_token, false);
            }
        }
    }

    #[test]
    fn a_new_day_region_or_set_of_credentials_has_a_new_signing_key() {
        let signer = Signer::default();
        let address = Address::new(&Endpoint::parse("http://localhost:1").unwrap(), "b", false);
        let target = address.object(&"k".into());
        let first = Credentials::new("A", "one", None);
        let second = Credentials::new("A", "two", None);
        let base = |region, unix_seconds| Unsigned {
            target: &target,
            host: "localhost:1",
            region,
            unix_seconds,
            requester_pays: false,
        };
        for (region, at, credentials) in [
            ("r1", NOON, &first),
            ("r1", NOON + 60, &first),
            ("r2", NOON, &first),
            ("r2", NOON, &second),
            ("r2", NOON + SECONDS_PER_DAY, &second),
            ("r1", NOON, &first),
        ] {
            let request = base(region, at);
            let fresh = ours(&Signer::default(), &request, credentials);
            assert_eq!(ours(&signer, &request, credentials)["authorization"], fresh["authorization"]);
        }
    }

    #[test]
    fn a_signer_shows_no_key() {
        let signer = Signer::default();
        let address = Address::new(&Endpoint::parse("http://localhost:1").unwrap(), "b", false);
        let target = address.object(&"k".into());
        let request = Unsigned { target: &target, host: "h", region: "r", unix_seconds: NOON, requester_pays: false };
        let headers = ours(&signer, &request, &Credentials::new("A", "s", Some("tok3n".into())));
        let shown = format!("{signer:?} {headers:?}");
        assert!(!shown.contains("tok3n") && !shown.contains("Signature=") && !shown.contains("key: ["), "{shown}");
    }
}
