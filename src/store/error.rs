//! What can go wrong with a request to the store, by what the caller can do about it.
//!
//! Each error carries verb, key, the store's own words and its request id. `fuse::errno` is the one place that turns kinds into
//! errno values, `store::retry` the one place that tries again.

use std::fmt;
use std::time::Duration;

use crate::model::ObjectKey;

/// A request to the store that failed.
///
/// Boxed inside, so that a `Result` stays one pointer wide.
#[derive(Debug)]
pub struct StoreError(Box<Details>);

#[derive(Debug)]
struct Details {
    kind: StoreErrorKind,
    verb: &'static str,
    key: ObjectKey,
    code: Option<String>,
    message: String,
    request_id: Option<String>,
    attempts: u32,
    elapsed: Duration,
}

/// Why a request failed, by what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// No such key.
    NotFound,
    /// No such bucket.
    NoSuchBucket,
    /// The object is another version now.
    Changed,
    /// The credentials may not do this.
    AccessDenied,
    /// The object's bytes are archived and must be restored first.
    Archived,
    /// No usable credentials, or the store does not know them.
    Credentials,
    /// The credentials have expired; new ones may work.
    ExpiredCredentials,
    /// The clock differs too much from the store's; carries the store's time in seconds since 1970.
    ClockSkew(Option<i64>),
    /// The bucket lives in another region, when the store names it.
    WrongRegion(Option<String>),
    /// The store asks to slow down, and how long to wait if it says so.
    Throttled(Option<Duration>),
    /// No connection: an address where nobody listens, an unknown name, a certificate that is not trusted. A store that restarts
    /// looks the same.
    NoConnection,
    /// No answer, or a failure of the store itself: broken connection, time-out, 5xx.
    Unavailable,
    /// The body ended early, stalled, or broke off; what was handed over so far is right.
    Interrupted,
    /// The answer breaks the protocol: wrong length, range or XML.
    BadResponse,
    /// The store refuses the request as such.
    InvalidRequest,
}

impl StoreError {
    /// An error of `kind` in answer to `verb` (as "list" or "get") on `key`; `message` says what happened, in a few words.
    #[must_use]
    pub fn new(kind: StoreErrorKind, verb: &'static str, key: &ObjectKey, message: impl Into<String>) -> Self {
        StoreError(Box::new(Details {
            kind,
            verb,
            key: key.clone(),
            code: None,
            message: message.into(),
            request_id: None,
            attempts: 1,
            elapsed: Duration::ZERO,
        }))
    }

    /// With the store's own error code, as `NoSuchKey`.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// With the id under which the store logged the request.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.0.request_id = Some(id.into());
        self
    }

    /// With the number of attempts made and the time they took in all.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32, elapsed: Duration) -> Self {
        self.0.attempts = attempts;
        self.0.elapsed = elapsed;
        self
    }

    /// Why it failed.
    #[must_use]
    pub fn kind(&self) -> &StoreErrorKind {
        &self.0.kind
    }

    /// The store's own error code, if it sent one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// True when the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use StoreErrorKind as K;
        match self.0.kind {
            K::Throttled(_)
            | K::NoConnection
            | K::Unavailable
            | K::Interrupted
            | K::BadResponse
            | K::ExpiredCredentials
            | K::ClockSkew(_) => true,
            K::NotFound
            | K::NoSuchBucket
            | K::Changed
            | K::AccessDenied
            | K::Archived
            | K::Credentials
            | K::WrongRegion(_)
            | K::InvalidRequest => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { verb, key, code, message, request_id, attempts, elapsed, .. } = &*self.0;
        write!(f, "{verb} \"{key}\": {message}")?;
        if let Some(code) = code {
            write!(f, " ({code})")?;
        }
        if *attempts > 1 {
            write!(f, ", after {attempts} attempts in {:.1} s", elapsed.as_secs_f64())?;
        }
        if let Some(id) = request_id {
            write!(f, ", request {id}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_verb_key_code_attempts_and_request() {
        let error = StoreError::new(StoreErrorKind::Throttled(None), "get", &"a/b".into(), "slow down")
            .with_code("SlowDown")
            .with_attempts(3, Duration::from_millis(1500))
            .with_request_id("42");
        assert_eq!(error.to_string(), "get \"a/b\": slow down (SlowDown), after 3 attempts in 1.5 s, request 42");
    }

    #[test]
    fn results_stay_small() {
        assert_eq!(size_of::<Result<(), StoreError>>(), size_of::<usize>());
    }
}
