//! Everything that speaks S3, behind `ObjectStore`: LIST and GET over HTTP/1.1.
//!
//! One call makes one attempt; trying again is `store::retry`'s business. Three answers that tell how to ask better are
//! followed at once, each at most once a call, and remembered: the bucket is in another region, the clocks differ, the
//! credentials have expired. A request that went out on a connection the store was just closing is sent again, too.
//!
//! Parts: `dialect` (which store, where) -> `address` (URL) -> `sign` -> this file's `exchange` (send, follow) -> `list` and
//! `get` (read the answer) with `etag_forms`; `error` turns refusals into kinds and words.

mod address;
pub mod auth;
mod client;
mod dates;
mod dialect;
mod error;
mod etag_forms;
mod get;
mod list;
mod sign;
mod xml;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;

pub use address::Addressing;
pub use dialect::{Dialect, ParseDialectError, S3ConfigError};

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use reqwest::header::{ACCEPT_ENCODING, HeaderValue, RANGE};
use reqwest::{Client, Method, Request, Response, StatusCode};

use self::auth::{Credentials, CredentialsError, CredentialsSource};
use self::dialect::Site;
use self::error::{Circumstances, MAX_ERROR_BODY_BYTES, NoAnswer, Refusal, explain, last_cause};
use self::etag_forms::EtagForms;
use self::sign::{Signer, Unsigned, X_AMZ_REQUEST_PAYER};
use crate::model::{ByteRange, ETag, ObjectKey};
use crate::store::{BodySink, GetRequest, ListPage, ListRequest, ObjectStore, StoreError, StoreErrorKind as Kind};

/// How long to wait for the store before a request counts as failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection: name, TCP and TLS.
    pub connect: Duration,
    /// From sending a request to the head of the answer.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub inactivity: Duration,
}

/// A connection takes a few round trips: more than 5 s means a lost packet twice over, or a host that is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Stores under load answer late rather than not at all (LIST over many deleted keys takes seconds); half a minute is
/// what the providers' own clients wait at least.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Once a body flows, silence is a broken path: TCP recovers from ordinary loss well within 10 s.
const INACTIVITY_TIMEOUT: Duration = Duration::from_secs(10);

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect: CONNECT_TIMEOUT, first_byte: FIRST_BYTE_TIMEOUT, inactivity: INACTIVITY_TIMEOUT }
    }
}

/// Which bucket, where, and how to talk to it.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// Address of the store, with or without scheme; `None` for AWS.
    pub endpoint: Option<String>,
    /// The bucket.
    pub bucket: String,
    /// Region to sign for; `None` takes it from the endpoint, or learns it from the store.
    pub region: Option<String>,
    /// How the bucket is named in requests.
    pub addressing: Addressing,
    /// Kind of store; `None` tells it from the endpoint.
    pub dialect: Option<Dialect>,
    /// Agree to pay for requests to a bucket that wants it.
    pub requester_pays: bool,
    /// A PEM file of root certificates to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Limits on waiting.
    pub timeouts: Timeouts,
}

impl S3Config {
    /// A bucket of AWS, everything by default.
    #[must_use]
    pub fn new(bucket: impl Into<String>) -> Self {
        S3Config {
            endpoint: None,
            bucket: bucket.into(),
            region: None,
            addressing: Addressing::Auto,
            dialect: None,
            requester_pays: false,
            ca_bundle: None,
            timeouts: Timeouts::default(),
        }
    }
}

/// A bucket of an S3 store.
#[derive(Debug)]
pub struct S3Store {
    client: Client,
    credentials: Arc<dyn CredentialsSource>,
    /// Where requests go; replaced when the store says that the bucket is elsewhere.
    site: RwLock<Arc<Site>>,
    signer: Signer,
    /// The store's clock minus ours, in seconds.
    skew_seconds: AtomicI64,
    /// The store has answered a request at least once.
    has_served: AtomicBool,
    etag_forms: EtagForms,
    requester_pays: bool,
    timeouts: Timeouts,
}

/// Where a store's requests go at the moment, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Address without the bucket.
    pub endpoint: String,
    /// Region that is signed for.
    pub region: String,
    /// Kind of store.
    pub dialect: Dialect,
    /// `path` or `virtual-hosted`.
    pub style: &'static str,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { endpoint, region, dialect, style } = self;
        write!(f, "{endpoint} ({dialect}, region {region}, {style})")
    }
}

/// What is asked of the store, apart from where and by whom.
#[derive(Debug)]
struct Ask<'a> {
    verb: &'static str,
    /// The object, or the prefix that is listed: what an error names.
    key: &'a ObjectKey,
    resource: Resource<'a>,
    range: Option<ByteRange>,
    if_match: Option<&'a ETag>,
}

#[derive(Debug)]
enum Resource<'a> {
    Object,
    /// The bucket, with a query.
    Bucket(&'a str),
}

/// The circumstances one request was made under.
#[derive(Debug)]
struct Attempt {
    site: Arc<Site>,
    credentials: Option<Arc<Credentials>>,
    /// The store's time as we knew it.
    unix_seconds: i64,
}

/// Answers that are followed at once, each at most once a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cure {
    Connection,
    Region,
    Clock,
    Credentials,
}

impl S3Store {
    /// A store for the bucket of `config`, with requests signed by what `credentials` gives.
    ///
    /// Nothing is sent.
    ///
    /// # Errors
    /// When the configuration cannot work, whatever the store says.
    pub fn new(config: S3Config, credentials: Arc<dyn CredentialsSource>) -> Result<S3Store, S3ConfigError> {
        let site = Site::resolve(&config)?;
        let client = client::build(&config, &site.endpoint)?;
        let etag_forms = if site.dialect.has_one_etag_form() { EtagForms::one_form() } else { EtagForms::default() };
        Ok(S3Store {
            client,
            credentials,
            site: RwLock::new(Arc::new(site)),
            signer: Signer::default(),
            skew_seconds: AtomicI64::new(0),
            has_served: AtomicBool::new(false),
            etag_forms,
            requester_pays: config.requester_pays,
            timeouts: config.timeouts,
        })
    }

    /// Where requests go at the moment.
    #[must_use]
    pub fn describe(&self) -> Description {
        let site = self.site();
        Description {
            endpoint: site.endpoint.to_string(),
            region: site.region.clone(),
            dialect: site.dialect,
            style: if site.virtual_hosted { "virtual-hosted" } else { "path" },
        }
    }

    fn site(&self) -> Arc<Site> {
        self.site.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn circumstances(&self, is_signed: bool) -> Circumstances {
        let may_throttle_with_403 = self.site().dialect.throttles_with_403() && self.has_served.load(Ordering::Relaxed);
        Circumstances { is_signed, may_throttle_with_403 }
    }

    /// One question, one answer: success, or 412 where a condition was set. Everything else is an error.
    async fn exchange(&self, ask: &Ask<'_>) -> Result<Response, StoreError> {
        let mut used: [Option<Cure>; 4] = [None; 4];
        loop {
            let attempt = self.attempt(ask).await?;
            let request = self.request(ask, &attempt)?;
            let cure = match self.send(request).await {
                Ok(response) => {
                    let status = response.status();
                    if status.is_success() || (status == StatusCode::PRECONDITION_FAILED && ask.if_match.is_some()) {
                        self.has_served.store(true, Ordering::Relaxed);
                        return Ok(response);
                    }
                    let refusal = self.refusal(response).await;
                    let Some(cure) = self.cure_of(&refusal).filter(|cure| !used.contains(&Some(*cure))) else {
                        return Err(self.give_up(ask, refusal, &attempt));
                    };
                    if !self.apply(cure, &refusal, &attempt).await {
                        return Err(self.give_up(ask, refusal, &attempt));
                    }
                    cure
                }
                Err(failure) if failure.is_stale_connection && !used.contains(&Some(Cure::Connection)) => {
                    Cure::Connection
                }
                Err(failure) => return Err(StoreError::new(failure.kind, ask.verb, ask.key, failure.words)),
            };
            tracing::debug!(verb = ask.verb, key = %ask.key, ?cure, "ask again at once");
            if let Some(free) = used.iter_mut().find(|cure| cure.is_none()) {
                *free = Some(cure);
            }
        }
    }

    fn give_up(&self, ask: &Ask<'_>, refusal: Refusal, attempt: &Attempt) -> StoreError {
        refusal.into_error(ask.verb, ask.key, self.circumstances(attempt.credentials.is_some()))
    }

    async fn attempt(&self, ask: &Ask<'_>) -> Result<Attempt, StoreError> {
        let credentials = self.credentials.current().await;
        let credentials = credentials.map_err(|error| {
            let kind = match error {
                CredentialsError::Unavailable(_) => Kind::Credentials,
                CredentialsError::NotRenewed(_) => Kind::ExpiredCredentials,
            };
            StoreError::new(kind, ask.verb, ask.key, error.to_string())
        })?;
        let unix_seconds = our_unix_seconds().saturating_add(self.skew_seconds.load(Ordering::Relaxed));
        Ok(Attempt { site: self.site(), credentials, unix_seconds })
    }

    fn request(&self, ask: &Ask<'_>, attempt: &Attempt) -> Result<Request, StoreError> {
        let site = &attempt.site;
        let refuse = |words: &str| StoreError::new(Kind::InvalidRequest, ask.verb, ask.key, words);
        let target = match ask.resource {
            Resource::Object => site.address.object(ask.key),
            Resource::Bucket(query) => site.address.bucket(query),
        };
        let url = target.to_url().ok_or_else(|| {
            refuse("a key with a component \".\" or \"..\" cannot be asked for over HTTP; rename the object")
        })?;
        let mut request = Request::new(Method::GET, url);
        let headers = request.headers_mut();
        if let Some(range) = ask.range.and_then(get::range_header) {
            headers.insert(RANGE, range);
        }
        if let Some((name, value)) = ask.if_match.and_then(get::if_match_header) {
            headers.insert(name, value);
        }
        if site.dialect.asks_for_stored_encoding() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if self.requester_pays {
            headers.insert(X_AMZ_REQUEST_PAYER, HeaderValue::from_static("requester"));
        }
        if let Some(credentials) = &attempt.credentials {
            let unsigned = Unsigned {
                target: &target,
                host: &site.address.host,
                region: &site.region,
                unix_seconds: attempt.unix_seconds,
                requester_pays: self.requester_pays,
            };
            self.signer.sign(&unsigned, credentials, headers).ok_or_else(|| {
                StoreError::new(
                    Kind::Credentials,
                    ask.verb,
                    ask.key,
                    "the credentials hold characters that cannot be sent",
                )
            })?;
        }
        Ok(request)
    }

    async fn send(&self, request: Request) -> Result<Response, NoAnswer> {
        match tokio::time::timeout(self.timeouts.first_byte, self.client.execute(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(explain(&error, self.timeouts.connect)),
            Err(_) => Err(NoAnswer {
                words: format!("no answer within {} s", self.timeouts.first_byte.as_secs_f32()),
                kind: Kind::Unavailable,
                is_stale_connection: false,
            }),
        }
    }

    async fn refusal(&self, response: Response) -> Refusal {
        let (status, headers) = (response.status(), response.headers().clone());
        // Whatever of the body arrives is better than nothing.
        let body = match self.read_body(response, MAX_ERROR_BODY_BYTES).await {
            Ok(body) | Err((body, _, _)) => body,
        };
        Refusal::new(status, &headers, &body)
    }

    /// The whole body, at most `limit_bytes` of it; on failure what has come so far, the kind and the words.
    async fn read_body(&self, mut response: Response, limit_bytes: usize) -> Result<Vec<u8>, (Vec<u8>, Kind, String)> {
        let expected = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut body = Vec::with_capacity(expected.min(limit_bytes));
        loop {
            match tokio::time::timeout(self.timeouts.inactivity, response.chunk()).await {
                Ok(Ok(Some(chunk))) if body.len() + chunk.len() > limit_bytes => {
                    body.extend_from_slice(&chunk[..limit_bytes - body.len()]);
                    return Err((body, Kind::BadResponse, format!("the answer is longer than {limit_bytes} bytes")));
                }
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
                Ok(Ok(None)) => return Ok(body),
                Ok(Err(error)) => {
                    return Err((body, Kind::Interrupted, format!("the answer broke off: {}", last_cause(&error))));
                }
                Err(_) => {
                    let seconds = self.timeouts.inactivity.as_secs_f32();
                    return Err((body, Kind::Interrupted, format!("the answer stopped for {seconds} s")));
                }
            }
        }
    }

    /// How a refusal says to ask better.
    fn cure_of(&self, refusal: &Refusal) -> Option<Cure> {
        if refusal.is_redirect() {
            return Some(Cure::Region);
        }
        match refusal.judge(self.circumstances(true)).0 {
            Kind::ClockSkew(Some(_)) => Some(Cure::Clock),
            // A key the store does not know may be one that has been rotated.
            Kind::ExpiredCredentials | Kind::Credentials => Some(Cure::Credentials),
            _ => None,
        }
    }

    /// Takes up what the store said; false when that changes nothing, so that the same answer would come again.
    async fn apply(&self, cure: Cure, refusal: &Refusal, attempt: &Attempt) -> bool {
        match cure {
            Cure::Connection => true,
            Cure::Region => self.move_site(refusal, attempt),
            Cure::Clock => self.adopt_clock(refusal, attempt),
            Cure::Credentials => self.renew_credentials(attempt).await,
        }
    }

    fn move_site(&self, refusal: &Refusal, attempt: &Attempt) -> bool {
        if self.site() != attempt.site {
            // Another request was told the same and has moved us already.
            return true;
        }
        let Some(moved) = attempt.site.moved(refusal.region.as_deref(), refusal.host.as_deref()) else { return false };
        tracing::info!(endpoint = %moved.endpoint, region = %moved.region, "the bucket is in another region");
        *self.site.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(moved);
        true
    }

    fn adopt_clock(&self, refusal: &Refusal, attempt: &Attempt) -> bool {
        /// Below this the clocks agree, and the store means something else.
        const TOLERANCE_SECONDS: i64 = 5;
        let Some(theirs) = refusal.unix_seconds else { return false };
        if theirs.abs_diff(attempt.unix_seconds) < TOLERANCE_SECONDS.unsigned_abs() {
            return false;
        }
        let skew_seconds = theirs.saturating_sub(our_unix_seconds());
        let known_seconds = self.skew_seconds.swap(skew_seconds, Ordering::Relaxed);
        // Hundreds of requests under way are told the same.
        if known_seconds.abs_diff(skew_seconds) >= TOLERANCE_SECONDS.unsigned_abs() {
            tracing::warn!(
                skew_seconds,
                "this machine's clock differs from the store's; requests are dated by the store's"
            );
        }
        true
    }

    async fn renew_credentials(&self, attempt: &Attempt) -> bool {
        let Some(used) = attempt.credentials.as_ref().map(|credentials| credentials.id) else { return false };
        let is_new = |credentials: Option<Arc<Credentials>>| credentials.is_some_and(|now| now.id != used);
        // Another request may have renewed them while this one was under way.
        if is_new(self.credentials.current().await.ok().flatten()) {
            return true;
        }
        self.credentials.refresh().await;
        is_new(self.credentials.current().await.ok().flatten())
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        const VERB: &str = "list";
        let fail = |kind, words: String| StoreError::new(kind, VERB, &request.prefix, words);
        let query = list::query(request)
            .ok_or_else(|| fail(Kind::InvalidRequest, "the continuation is not one of this store's".to_owned()))?;
        let ask =
            Ask { verb: VERB, key: &request.prefix, resource: Resource::Bucket(&query), range: None, if_match: None };
        let response = self.exchange(&ask).await?;
        let body = self.read_body(response, list::MAX_PAGE_BYTES).await;
        let body = body.map_err(|(_, kind, words)| fail(kind, words))?;
        list::parse(&body, request).map_err(|words| fail(Kind::BadResponse, words))
    }
}

impl ObjectStore for S3Store {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Box::pin(self.list_page(request))
    }

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.get_object(request, body))
    }
}

fn our_unix_seconds() -> i64 {
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}
