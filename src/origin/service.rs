//! Between the HTTP library and the S3 service: counts each request, lets the conditions act on it, rewrites its answer.
//!
//! Always true: a request without faults reaches the S3 service untouched, so signatures are checked as the client made them;
//! what must be overlooked in a request (a Range, an If-Match) is said beside it, in [`Overrides`].

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response};
use s3s::service::S3Service;

use super::auth::wrong_region;
use super::body::{Break, BrokenOff, ResponseBody, Treatment};
use super::conditions::{Conditions, Quirks, Settings};
use super::connection::Connection;
use super::counters::{Counters, InFlight};
use super::error_xml::error_response;
use super::faults::Fault;
use super::request::Target;

/// The entity tag of [`Fault::OtherETag`].
const OTHER_ETAG: HeaderValue = HeaderValue::from_static("\"0123456789abcdef0123456789abcdef\"");

/// What the backend is to overlook or do oddly in one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Overrides {
    pub(super) quirks: Arc<Quirks>,
    pub(super) ignore_range: bool,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) s3: S3Service,
    pub(super) conditions: Conditions,
    pub(super) counters: Arc<Counters>,
    pub(super) domain: Option<String>,
    /// Region that signatures must be for; `None` where none are asked for.
    pub(super) signed_region: Option<String>,
}

/// The service of one connection.
#[derive(Debug)]
pub(super) struct ConnectionService {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ResponseBody>;
    type Error = s3s::StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(answer(Arc::clone(&self.shared), Arc::clone(&self.connection), request))
    }
}

/// One request from arrival to the head of its answer. An error closes the connection without one.
async fn answer(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, s3s::StdError> {
    let arrived = Instant::now();
    let settings = shared.conditions.settings();
    let target = Target::of(request.method(), request.uri(), request.headers(), shared.domain.as_deref());
    let in_flight = shared.counters.request(target.verb, || format!("{}/{}", target.bucket, target.key()));
    let wrap = |response: Response<s3s::Body>, treatment, in_flight: InFlight| {
        response.map(|body| ResponseBody::new(body, treatment, connection.clone(), in_flight))
    };
    if !shared.conditions.admits(&settings, arrived) {
        shared.counters.throttled();
        let refusal = error_response(503, "SlowDown", "Please reduce your request rate.", None);
        return Ok(wrap(refusal, Treatment::default(), in_flight));
    }
    let verb = target.verb;
    let fault = shared.conditions.fault(verb, || target.key().into_owned());
    if let Some(fault) = &fault {
        shared.counters.faulted();
        if let Some(refusal) = instead_of_answer(fault, &connection).await? {
            return Ok(wrap(refusal, Treatment::default(), in_flight));
        }
    }
    if let Some(refusal) = shared.signed_region.as_ref().and_then(|region| wrong_region(request.headers(), region)) {
        return Ok(wrap(refusal, Treatment::default(), in_flight));
    }
    let mut response = shared.s3.call(prepared(request, &settings, fault.as_ref())).await?;
    let mut latency = shared.conditions.latency(&settings, verb);
    if let Some(Fault::SlowFirstByte(extra)) = &fault {
        latency += *extra;
    }
    if !latency.is_zero() {
        tokio::time::sleep_until((arrived + latency).into()).await;
    }
    let mut treatment = Treatment { bytes_per_second: settings.bytes_per_second, ..Treatment::default() };
    if let Some(fault) = &fault {
        disfigure(&mut response, &mut treatment, fault);
    }
    Ok(wrap(response, treatment, in_flight))
}

fn prepared(request: Request<Incoming>, settings: &Settings, fault: Option<&Fault>) -> Request<s3s::Body> {
    let mut request = request.map(s3s::Body::from);
    let ignore_range = fault == Some(&Fault::Status200ForRange);
    if ignore_range || !settings.quirks.is_empty() {
        let quirks = Arc::clone(&settings.quirks);
        request.extensions_mut().insert(Overrides { quirks, ignore_range });
    }
    request
}

/// Plays the faults that come instead of an answer of the S3 service.
async fn instead_of_answer(
    fault: &Fault,
    connection: &Connection,
) -> Result<Option<Response<s3s::Body>>, s3s::StdError> {
    match fault {
        Fault::Status(status, code) => {
            Ok(Some(error_response(*status, code, "This answer is played by the script of faults.", None)))
        }
        Fault::CloseBeforeAnswer => Err(BrokenOff.into()),
        Fault::ResetConnection => {
            connection.reset_on_close();
            Err(BrokenOff.into())
        }
        Fault::NoAnswer => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
        _ => Ok(None),
    }
}

/// Plays the faults of an answer that is otherwise right.
fn disfigure(response: &mut Response<s3s::Body>, treatment: &mut Treatment, fault: &Fault) {
    match fault {
        Fault::Stall(bytes) => treatment.break_after = Some((*bytes, Break::Stall)),
        Fault::EarlyEnd(bytes) => treatment.break_after = Some((*bytes, Break::Close)),
        Fault::EarlyReset(bytes) => treatment.break_after = Some((*bytes, Break::Reset)),
        Fault::ExtraBytes(bytes) => treatment.surplus_bytes = *bytes,
        Fault::ChunkedNoLength => {
            treatment.hide_length = true;
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        Fault::OtherETag => {
            response.headers_mut().insert(ETAG, OTHER_ETAG);
        }
        Fault::NoETag => {
            response.headers_mut().remove(ETAG);
        }
        Fault::WrongContentRange => {
            if let Some(range) = response.headers_mut().get_mut(CONTENT_RANGE)
                && let Some(shifted) = shifted_content_range(range)
            {
                *range = shifted;
            }
        }
        Fault::Status(..)
        | Fault::CloseBeforeAnswer
        | Fault::ResetConnection
        | Fault::NoAnswer
        | Fault::Status200ForRange
        | Fault::SlowFirstByte(_) => {}
    }
    // A body whose break lies at or beyond its end is whole.
    if let Some((left, _)) = treatment.break_after
        && response.body().size_hint().exact().is_some_and(|size| size <= left)
    {
        treatment.break_after = None;
    }
}

/// `bytes 5-9/20` becomes `bytes 6-10/20`.
fn shifted_content_range(value: &HeaderValue) -> Option<HeaderValue> {
    let (range, size) = value.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    HeaderValue::try_from(format!("bytes {}-{}/{size}", first + 1, last + 1)).ok()
}
