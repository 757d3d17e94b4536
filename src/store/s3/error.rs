//! What went wrong with a request, as [`StoreErrorKind`] and in words that say what to do.
//!
//! One table turns the store's codes into kinds, a short list its bare statuses; another function spells out why no answer came
//! at all. Nothing of a request is repeated here but its key: no headers, no signature, no credentials.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};

use super::dates::parse_http_date;
use super::xml::push_text;
use crate::model::ObjectKey;
use crate::store::{StoreError, StoreErrorKind as Kind};

/// Longest error body that is read; S3's are below 2 KiB, a proxy's page may be anything.
pub(super) const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Longest text of a store that is repeated to the user: S3's own messages are shorter.
const MAX_MESSAGE_CHARS: usize = 300;

/// Longest wait that a store's word is taken for: beyond, the caller's own backoff is better.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// An answer of the store that is not what was asked for.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: Option<String>,
    message: Option<String>,
    /// Where the bucket is, from a header or the body.
    pub(super) region: Option<String>,
    /// The host to ask instead.
    pub(super) host: Option<String>,
    request_id: Option<String>,
    delay: Option<Duration>,
    /// The store's clock, in seconds since 1970.
    pub(super) unix_seconds: Option<i64>,
}

/// What is known about the circumstances when a refusal is judged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Circumstances {
    /// The request was signed.
    pub(super) is_signed: bool,
    /// A 403 of this store, which has served us before, may mean "slow down".
    pub(super) may_throttle_with_403: bool,
}

impl Refusal {
    /// Reads status, headers and the (perhaps empty, perhaps foreign) body of an answer.
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
        let body = ErrorBody::parse(body);
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let location = header(LOCATION.as_str()).and_then(|location| host_of(&location));
        let request_id = header("x-amz-request-id").or_else(|| header("x-oss-request-id")).or(body.request_id);
        let seconds = header(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let millis = header("x-oss-qos-delay-time").and_then(|text| text.trim().parse().ok());
        Refusal {
            status,
            code: body.code,
            message: body.message.map(|message| clean(&message)),
            region: header("x-amz-bucket-region").or(body.region),
            host: body.endpoint.and_then(|endpoint| host_of(&endpoint)).or(location),
            request_id: request_id.map(|id| clean(&id)),
            delay: seconds.or(millis.map(Duration::from_millis)).map(|delay| delay.min(MAX_DELAY)),
            unix_seconds: header(DATE.as_str()).and_then(|date| parse_http_date(&date)),
        }
    }

    /// True when the bucket is said to be elsewhere.
    pub(super) fn is_redirect(&self) -> bool {
        let elsewhere = self.region.is_some() || self.host.is_some();
        let code = self.code.as_deref().unwrap_or_default();
        elsewhere
            && (matches!(self.status.as_u16(), 301 | 302 | 307 | 308)
                || matches!(rule_of(code), Some(Rule { meaning: Meaning::WrongRegion, .. }))
                // OSS says "must be addressed using the specified endpoint" this way.
                || (code == "AccessDenied" && self.host.is_some()))
    }

    /// The kind of this refusal and what to do about it.
    pub(super) fn judge(&self, circumstances: Circumstances) -> (Kind, &'static str) {
        let rule = self.code.as_deref().and_then(rule_of);
        if circumstances.may_throttle_with_403
            && self.status == StatusCode::FORBIDDEN
            && rule.is_none_or(|rule| rule.meaning == Meaning::AccessDenied)
        {
            return (Kind::Throttled(self.delay), "refused, perhaps to slow us down");
        }
        let (meaning, advice) = rule.map_or_else(|| by_status(self.status), |rule| (rule.meaning, rule.advice));
        let advice = match meaning {
            Meaning::AccessDenied if !circumstances.is_signed => {
                "access denied to unsigned requests; give credentials and leave --no-sign-request out"
            }
            _ => advice,
        };
        (self.kind(meaning), advice)
    }

    fn kind(&self, meaning: Meaning) -> Kind {
        match meaning {
            Meaning::NotFound => Kind::NotFound,
            Meaning::NoSuchBucket => Kind::NoSuchBucket,
            Meaning::Changed => Kind::Changed,
            Meaning::AccessDenied => Kind::AccessDenied,
            Meaning::Archived => Kind::Archived,
            Meaning::Credentials => Kind::Credentials,
            Meaning::Expired => Kind::ExpiredCredentials,
            Meaning::Skew => Kind::ClockSkew(self.unix_seconds),
            Meaning::WrongRegion => Kind::WrongRegion(self.region.clone()),
            Meaning::Throttled => Kind::Throttled(self.delay),
            // S3 says "reduce your request rate" under this code, too; who says when to come back is taken at the word.
            Meaning::Unavailable if self.delay.is_some() => Kind::Throttled(self.delay),
            Meaning::Unavailable => Kind::Unavailable,
            Meaning::BadResponse => Kind::BadResponse,
            Meaning::Invalid => Kind::InvalidRequest,
        }
    }

    /// The error to hand to the caller.
    pub(super) fn into_error(self, verb: &'static str, key: &ObjectKey, circumstances: Circumstances) -> StoreError {
        let (kind, advice) = self.judge(circumstances);
        let mut words = advice.to_owned();
        match &kind {
            Kind::WrongRegion(Some(region)) => words.push_str(&format!(": it is in {region}")),
            Kind::WrongRegion(None) => {
                if let Some(host) = &self.host {
                    words.push_str(&format!(": the store names {}", clean(host)));
                }
            }
            _ => {}
        }
        if let Some(message) = self.message.filter(|message| !message.is_empty()) {
            words.push_str(&format!("; the store says \"{message}\""));
        }
        let code = self.code.unwrap_or_else(|| format!("HTTP {}", self.status.as_u16()));
        let error = StoreError::new(kind, verb, key, words).with_code(code);
        match self.request_id {
            Some(id) => error.with_request_id(id),
            None => error,
        }
    }
}

/// [`Kind`] without what only the answer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    NotFound,
    NoSuchBucket,
    Changed,
    AccessDenied,
    Archived,
    Credentials,
    Expired,
    Skew,
    WrongRegion,
    Throttled,
    Unavailable,
    BadResponse,
    Invalid,
}

#[derive(Debug)]
struct Rule {
    code: &'static str,
    meaning: Meaning,
    advice: &'static str,
}

const fn rule(code: &'static str, meaning: Meaning, advice: &'static str) -> Rule {
    Rule { code, meaning, advice }
}

const DENIED: &str = "access denied; the credentials need s3:GetObject on the objects and s3:ListBucket on the bucket";
const KMS: &str = "the object's KMS key may not be used; grant kms:Decrypt to these credentials";
const CUSTOMER_KEY: &str = "the object is encrypted with a key of its owner's (SSE-C), which streamvol does not have";
const WRONG_SECRET: &str = "the store computes another signature; check the secret access key";
const UNKNOWN_KEY: &str = "the store does not know this access key; check which credentials and endpoint are used";
const EXPIRED: &str = "the credentials have expired";
const SKEWED: &str = "the clocks of this machine and the store differ too much; set this machine's clock";
const ELSEWHERE: &str = "the bucket is not at this endpoint or region; give --region or --endpoint-url";
const SLOW_DOWN: &str = "the store asks to slow down";
const FAILED: &str = "the store failed";

/// Codes of S3 and its relatives, by what can be done.
const RULES: &[Rule] = &[
    rule("NoSuchKey", Meaning::NotFound, "no such object"),
    rule("NoSuchVersion", Meaning::NotFound, "no such object version"),
    rule("NoSuchBucket", Meaning::NoSuchBucket, "no such bucket; check its name, the endpoint and the region"),
    rule("InvalidBucketName", Meaning::NoSuchBucket, "the store takes this for no bucket name"),
    rule("PreconditionFailed", Meaning::Changed, "the object is another version now"),
    rule("InvalidRange", Meaning::Changed, "the object is shorter now"),
    rule("AccessDenied", Meaning::AccessDenied, DENIED),
    rule("AllAccessDisabled", Meaning::AccessDenied, DENIED),
    rule("AccountProblem", Meaning::AccessDenied, "the account has a problem; see the provider's console"),
    rule("UserDisable", Meaning::AccessDenied, "the account is disabled; see the provider's console"),
    rule("KMS.DisabledException", Meaning::AccessDenied, KMS),
    rule("KMS.KMSInvalidStateException", Meaning::AccessDenied, KMS),
    rule("KMS.NotFoundException", Meaning::AccessDenied, KMS),
    rule("KMSAccessDenied", Meaning::AccessDenied, KMS),
    rule("ServerSideEncryptionConfigurationNotFoundError", Meaning::AccessDenied, KMS),
    rule("SSECustomerKeyRequired", Meaning::AccessDenied, CUSTOMER_KEY),
    rule("InvalidEncryptionAlgorithmError", Meaning::AccessDenied, CUSTOMER_KEY),
    rule("InvalidObjectState", Meaning::Archived, "the object is archived; restore it first"),
    rule("SignatureDoesNotMatch", Meaning::Credentials, WRONG_SECRET),
    rule("InvalidAccessKeyId", Meaning::Credentials, UNKNOWN_KEY),
    rule("InvalidAccessKey", Meaning::Credentials, UNKNOWN_KEY),
    rule("NotSignedUp", Meaning::Credentials, UNKNOWN_KEY),
    rule("InvalidToken", Meaning::Credentials, "the store does not accept this session token; get new credentials"),
    rule(
        "InvalidSecurityToken",
        Meaning::Credentials,
        "the store does not accept this session token; get new credentials",
    ),
    rule("InvalidSecurity", Meaning::Credentials, UNKNOWN_KEY),
    rule("CredentialsNotSupported", Meaning::Credentials, "the store takes no credentials; use --no-sign-request"),
    rule("ExpiredToken", Meaning::Expired, EXPIRED),
    rule("TokenRefreshRequired", Meaning::Expired, EXPIRED),
    rule("SecurityTokenExpired", Meaning::Expired, EXPIRED),
    rule("RequestTimeTooSkewed", Meaning::Skew, SKEWED),
    rule("RequestExpired", Meaning::Skew, SKEWED),
    rule("PermanentRedirect", Meaning::WrongRegion, ELSEWHERE),
    rule("TemporaryRedirect", Meaning::WrongRegion, ELSEWHERE),
    rule("Redirect", Meaning::WrongRegion, ELSEWHERE),
    rule("AuthorizationHeaderMalformed", Meaning::WrongRegion, ELSEWHERE),
    rule("IllegalLocationConstraintException", Meaning::WrongRegion, ELSEWHERE),
    rule("InvalidRegion", Meaning::WrongRegion, ELSEWHERE),
    rule(
        "SecondLevelDomainForbidden",
        Meaning::Invalid,
        "the store wants virtual-hosted requests; use --virtual-hosted",
    ),
    rule("SlowDown", Meaning::Throttled, SLOW_DOWN),
    rule("SlowDownRead", Meaning::Throttled, SLOW_DOWN),
    rule("Throttling", Meaning::Throttled, SLOW_DOWN),
    rule("ThrottlingException", Meaning::Throttled, SLOW_DOWN),
    rule("TooManyRequests", Meaning::Throttled, SLOW_DOWN),
    rule("RequestLimitExceeded", Meaning::Throttled, SLOW_DOWN),
    rule("BandwidthLimitExceeded", Meaning::Throttled, SLOW_DOWN),
    rule("QpsLimitExceeded", Meaning::Throttled, SLOW_DOWN),
    rule("DownloadTrafficRateLimitExceeded", Meaning::Throttled, SLOW_DOWN),
    rule("UploadTrafficRateLimitExceeded", Meaning::Throttled, SLOW_DOWN),
    rule("ServerBusy", Meaning::Throttled, SLOW_DOWN),
    rule("KMS.ThrottlingException", Meaning::Throttled, SLOW_DOWN),
    rule("InternalError", Meaning::Unavailable, FAILED),
    rule("ServiceUnavailable", Meaning::Unavailable, "the store is not available"),
    rule("RequestTimeout", Meaning::Unavailable, "the store did not get the request in time"),
    rule("OperationAborted", Meaning::Unavailable, FAILED),
];

fn rule_of(code: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

/// For answers without a code that the table has: from proxies, gateways, or stores that say little.
fn by_status(status: StatusCode) -> (Meaning, &'static str) {
    match status.as_u16() {
        300..=399 => (Meaning::WrongRegion, ELSEWHERE),
        401 => (Meaning::Credentials, "the store wants other credentials"),
        403 => (Meaning::AccessDenied, DENIED),
        404 | 410 => (Meaning::NotFound, "no such object"),
        407 => (Meaning::Invalid, "the proxy wants credentials; put them into HTTPS_PROXY or HTTP_PROXY"),
        412 => (Meaning::Changed, "the object is another version now"),
        416 => (Meaning::Changed, "the object is shorter now"),
        408 => (Meaning::Unavailable, "the store did not get the request in time"),
        429 | 503 => (Meaning::Throttled, SLOW_DOWN),
        400..=499 => (Meaning::Invalid, "the store refuses the request"),
        500..=599 => (Meaning::Unavailable, FAILED),
        _ => (Meaning::BadResponse, "the store sent an answer of no use"),
    }
}

/// The fields of S3's error document that are used; everything else in it (a signature's parts among them) is left alone.
#[derive(Debug, Default)]
pub(super) struct ErrorBody {
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    request_id: Option<String>,
}

impl ErrorBody {
    /// Takes what it can from any body: half a document, HTML, nothing.
    pub(super) fn parse(body: &[u8]) -> ErrorBody {
        let mut fields = ErrorBody::default();
        let mut reader = Reader::from_reader(body);
        let mut depth = 0_usize;
        let mut is_error = false;
        let mut text = Vec::new();
        loop {
            match reader.read_event() {
                Ok(Event::Start(start)) => {
                    depth += 1;
                    is_error |= depth <= 2 && start.local_name().as_ref() == b"Error";
                    text.clear();
                }
                Ok(Event::End(end)) => {
                    if is_error && depth <= 3 {
                        fields.set(end.local_name().as_ref(), &text);
                    }
                    text.clear();
                    depth = depth.saturating_sub(1);
                }
                Ok(Event::Eof) | Err(_) => return fields,
                Ok(event) => {
                    push_text(&event, &mut text);
                }
            }
        }
    }

    fn set(&mut self, name: &[u8], text: &[u8]) {
        let field = match name {
            b"Code" => &mut self.code,
            b"Message" => &mut self.message,
            b"Region" => &mut self.region,
            b"Endpoint" => &mut self.endpoint,
            b"RequestId" => &mut self.request_id,
            _ => return,
        };
        let text = String::from_utf8_lossy(text.trim_ascii());
        if field.is_none() && !text.is_empty() {
            *field = Some(text.into_owned());
        }
    }
}

/// The host of a `Location` or of an endpoint without scheme.
fn host_of(address: &str) -> Option<String> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// One line of bounded length, so that a store cannot forge a log line or flood it.
fn clean(text: &str) -> String {
    let mut line: String = text.chars().take(MAX_MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        line.push_str("...");
    }
    line
}

/// Why a request got no answer.
#[derive(Debug)]
pub(super) struct NoAnswer {
    pub(super) words: String,
    pub(super) kind: Kind,
    /// The connection had been idle and was closed by the other side as the request went out: nothing is wrong.
    pub(super) is_stale_connection: bool,
}

/// Reads the chain of causes of a failed request.
pub(super) fn explain(error: &reqwest::Error, connect_timeout: Duration) -> NoAnswer {
    let plain = |words: String| NoAnswer { words, kind: Kind::Unavailable, is_stale_connection: false };
    if error.is_builder() {
        return NoAnswer {
            words: "the request cannot be written as HTTP".to_owned(),
            kind: Kind::InvalidRequest,
            is_stale_connection: false,
        };
    }
    if error.is_connect() {
        return NoAnswer { kind: Kind::NoConnection, ..plain(explain_connect(error, connect_timeout)) };
    }
    let stale = causes(error).any(|cause| {
        let closed = cause.downcast_ref::<hyper::Error>();
        let broken = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        closed.is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
            || matches!(
                broken,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted)
            )
    });
    if causes(error).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)) {
        let words = format!("the answer is no HTTP: {}", last_cause(error));
        return NoAnswer { words, kind: Kind::BadResponse, is_stale_connection: false };
    }
    let words = format!("the connection broke before the answer: {}", last_cause(error));
    NoAnswer { is_stale_connection: stale, ..plain(words) }
}

fn explain_connect(error: &reqwest::Error, connect_timeout: Duration) -> String {
    if error.is_timeout() {
        return format!(
            "no connection within {} s; is the endpoint right, and reachable from here?",
            connect_timeout.as_secs_f32()
        );
    }
    if let Some(tls) = causes(error).find_map(tls_error) {
        return explain_tls(tls);
    }
    let refused = |cause: &(dyn StdError + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused)
    };
    if causes(error).any(refused) {
        return "connection refused: nothing listens at the endpoint".to_owned();
    }
    if causes(error).any(|cause| cause.to_string().starts_with("dns error")) {
        return format!("the endpoint's name cannot be resolved ({}); check --endpoint-url", last_cause(error));
    }
    format!("cannot connect: {}", last_cause(error))
}

fn explain_tls(error: &rustls::Error) -> String {
    use rustls::{CertificateError as C, Error as E};
    match error {
        E::InvalidCertificate(C::UnknownIssuer) => {
            "the store's certificate is signed by an authority that is not trusted here; give its root with --ca-bundle"
                .to_owned()
        }
        E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "the store's certificate has expired".to_owned()
        }
        E::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            "the store's certificate is for another name; buckets with dots need --path-style".to_owned()
        }
        E::InvalidMessage(_) => "the endpoint does not speak TLS; is it http:// rather than https://?".to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

/// An `io::Error` hides the error it carries from `source()`, and may carry another `io::Error`.
fn tls_error<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = cause;
    while let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        cause = inner;
    }
    cause.downcast_ref()
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// The innermost cause: the only one that says something.
pub(super) fn last_cause(error: &reqwest::Error) -> String {
    causes(error).last().map_or_else(|| "unknown".to_owned(), |cause| clean(&cause.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, headers: &[(&'static str, &str)], body: &str) -> Refusal {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Refusal::new(StatusCode::from_u16(status).unwrap(), &map, body.as_bytes())
    }

    fn coded(status: u16, code: &str) -> Refusal {
        refusal(status, &[], &format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"))
    }

    const SIGNED: Circumstances = Circumstances { is_signed: true, may_throttle_with_403: false };

    #[test]
    fn codes_and_statuses_become_kinds() {
        for (status, code, kind) in [
            (404, "NoSuchKey", Kind::NotFound),
            (404, "", Kind::NotFound),
            (404, "NoSuchBucket", Kind::NoSuchBucket),
            (412, "PreconditionFailed", Kind::Changed),
            (412, "", Kind::Changed),
            (416, "InvalidRange", Kind::Changed),
            (403, "AccessDenied", Kind::AccessDenied),
            (403, "SomethingNew", Kind::AccessDenied),
            (403, "InvalidObjectState", Kind::Archived),
            (403, "SignatureDoesNotMatch", Kind::Credentials),
            (403, "InvalidAccessKeyId", Kind::Credentials),
            (400, "ExpiredToken", Kind::ExpiredCredentials),
            (403, "SecurityTokenExpired", Kind::ExpiredCredentials),
            (400, "KMS.DisabledException", Kind::AccessDenied),
            (403, "RequestTimeTooSkewed", Kind::ClockSkew(None)),
            (301, "PermanentRedirect", Kind::WrongRegion(None)),
            (503, "SlowDown", Kind::Throttled(None)),
            (503, "", Kind::Throttled(None)),
            (429, "", Kind::Throttled(None)),
            (503, "ServiceUnavailable", Kind::Unavailable),
            (400, "RequestTimeout", Kind::Unavailable),
            (500, "InternalError", Kind::Unavailable),
            (502, "", Kind::Unavailable),
            (400, "InvalidArgument", Kind::InvalidRequest),
            (204, "", Kind::BadResponse),
        ] {
            assert_eq!(coded(status, code).judge(SIGNED).0, kind, "{status} {code}");
        }
    }

    #[test]
    fn each_code_has_one_rule() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(RULES[index + 1..].iter().all(|other| other.code != rule.code), "{}", rule.code);
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_what_the_store_said_and_under_which_request() {
        let refusal = refusal(
            403,
            &[("x-amz-request-id", "4442587FB7D0A2F9")],
            "<Error><Code>SignatureDoesNotMatch</Code><Message>The request\nsignature &lt;no&gt;</Message>\
             <StringToSign>AWS4-HMAC</StringToSign><SignatureProvided>c0ffee</SignatureProvided></Error>",
        );
        let said = refusal.into_error("get", &"a".into(), SIGNED).to_string();
        for part in
            ["check the secret access key", "The request signature <no>", "(SignatureDoesNotMatch)", "4442587FB7D0A2F9"]
        {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("c0ffee") && !said.contains("AWS4-HMAC"), "{said}");
    }

    #[test]
    fn delays_are_read_from_both_headers_and_bounded() {
        let delay = |headers| refusal(503, headers, "").judge(SIGNED).0;
        assert_eq!(delay(&[("retry-after", "3")]), Kind::Throttled(Some(Duration::from_secs(3))));
        assert_eq!(delay(&[("x-oss-qos-delay-time", "250")]), Kind::Throttled(Some(Duration::from_millis(250))));
        assert_eq!(delay(&[("retry-after", "86400")]), Kind::Throttled(Some(MAX_DELAY)));
        assert_eq!(delay(&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")]), Kind::Throttled(None));
        for (status, code) in [(503, "ServiceUnavailable"), (500, "InternalError"), (502, "")] {
            let body = format!("<Error><Code>{code}</Code></Error>");
            let kind = refusal(status, &[("retry-after", "3")], &body).judge(SIGNED).0;
            assert_eq!(kind, Kind::Throttled(Some(Duration::from_secs(3))), "{status} {code}");
        }
    }

    #[test]
    fn request_ids_are_found_in_either_header_or_the_body() {
        let body = "<Error><Code>X</Code><RequestId>body</RequestId></Error>";
        assert_eq!(refusal(400, &[("x-oss-request-id", "oss")], body).request_id.as_deref(), Some("oss"));
        assert_eq!(refusal(400, &[], body).request_id.as_deref(), Some("body"));
    }

    #[test]
    fn a_403_of_a_store_that_throttles_so_is_no_denial() {
        let maybe = Circumstances { is_signed: true, may_throttle_with_403: true };
        assert_eq!(coded(403, "AccessDenied").judge(maybe).0, Kind::Throttled(None));
        assert_eq!(refusal(403, &[], "<html>").judge(maybe).0, Kind::Throttled(None));
        assert_eq!(coded(403, "InvalidAccessKeyId").judge(maybe).0, Kind::Credentials);
    }

    #[test]
    fn an_unsigned_request_that_is_denied_is_told_about_credentials() {
        let (kind, advice) = coded(403, "AccessDenied").judge(Circumstances::default());
        assert_eq!(kind, Kind::AccessDenied);
        assert!(advice.contains("--no-sign-request"));
    }

    #[test]
    fn redirects_name_a_region_or_a_host() {
        let by_header = refusal(301, &[("x-amz-bucket-region", "eu-west-1")], "");
        assert!(by_header.is_redirect() && by_header.region.as_deref() == Some("eu-west-1"));
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
        assert!(refusal(400, &[], body).is_redirect());
        let oss = "<Error><Code>AccessDenied</Code><Endpoint>oss-cn-shanghai.aliyuncs.com</Endpoint></Error>";
        assert_eq!(refusal(403, &[], oss).host.as_deref(), Some("oss-cn-shanghai.aliyuncs.com"));
        assert!(refusal(403, &[], oss).is_redirect());
        assert!(!coded(403, "AccessDenied").is_redirect() && !coded(400, "AuthorizationHeaderMalformed").is_redirect());
        let location = refusal(307, &[("location", "https://bkt.s3.eu-west-1.amazonaws.com:443/k?x")], "");
        assert_eq!(location.host.as_deref(), Some("bkt.s3.eu-west-1.amazonaws.com"));
    }

    #[test]
    fn a_long_or_foreign_message_is_cut_to_one_line() {
        let said = clean(&format!("a\r\nb\u{1b}[1m{}", "x".repeat(1000)));
        assert!(said.starts_with("a  b [1m") && said.ends_with("...") && said.len() < 400, "{said}");
    }
}
