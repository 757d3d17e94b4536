//! Tries again: full-jitter backoff under a deadline, around any other store.
//!
//! Always true: what `StoreError::is_retryable` denies is never asked twice; a body that broke off goes on after its last good
//! byte, in the same version, and the caller's sink never sees a byte twice; an operation that gets no further for the deadline
//! ends with an error. Which errors deserve it is `error`'s to say; slowing down the whole mount is not done here.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use rand::Rng;
use rand::rngs::SmallRng;

use super::clock::{Clock, RateLimit};
use super::{BodySink, GetRequest, ListPage, ListRequest, ObjectStore, StoreError, StoreErrorKind};
use crate::model::{ByteRange, ObjectKey};

/// Attempts from which on an operation is worth a warning: fewer happen on every healthy store.
const ATTEMPTS_BEFORE_WARNING: u32 = 3;

/// Least time between two such warnings: in an outage every operation would write one.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// How long and how often to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    /// Longest time an operation may go without getting further. A GET gets further with every byte, a listing only by its answer.
    pub deadline: Duration,
    /// Upper bound of the first wait; doubles with every failure in a row.
    pub first_backoff: Duration,
    /// Upper bound of every wait, unless the store asks for a longer one.
    pub max_backoff: Duration,
}

impl Default for RetryConfig {
    /// 5 min: longer than the outages that stores have every day, shorter than a training job's patience. The waits are those
    /// of the AWS SDKs' standard mode, begun earlier since a first 503 is usually over at once.
    fn default() -> Self {
        RetryConfig {
            deadline: Duration::from_secs(300),
            first_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(20),
        }
    }
}

impl RetryConfig {
    /// Upper bound of the wait after `failures` (1 or more) in a row.
    fn backoff_limit(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_backoff.saturating_mul(factor).min(self.max_backoff)
    }
}

/// Why something was asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// The store asked to slow down.
    Throttled,
    /// No answer, or a failure of the store.
    Unavailable,
    /// A body broke off.
    Interrupted,
    /// An answer against the protocol.
    BadResponse,
    /// Credentials had expired.
    ExpiredCredentials,
    /// The clocks differed.
    ClockSkew,
}

impl RetryReason {
    /// All of them, in the order of their counters.
    pub const ALL: [RetryReason; 6] = [
        RetryReason::Throttled,
        RetryReason::Unavailable,
        RetryReason::Interrupted,
        RetryReason::BadResponse,
        RetryReason::ExpiredCredentials,
        RetryReason::ClockSkew,
    ];

    /// Name for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RetryReason::Throttled => "throttled",
            RetryReason::Unavailable => "unavailable",
            RetryReason::Interrupted => "interrupted",
            RetryReason::BadResponse => "bad_response",
            RetryReason::ExpiredCredentials => "expired_credentials",
            RetryReason::ClockSkew => "clock_skew",
        }
    }

    fn of(kind: &StoreErrorKind) -> RetryReason {
        match kind {
            StoreErrorKind::Throttled(_) => RetryReason::Throttled,
            StoreErrorKind::Interrupted => RetryReason::Interrupted,
            StoreErrorKind::BadResponse => RetryReason::BadResponse,
            StoreErrorKind::ExpiredCredentials => RetryReason::ExpiredCredentials,
            StoreErrorKind::ClockSkew(_) => RetryReason::ClockSkew,
            _ => RetryReason::Unavailable,
        }
    }
}

/// What was tried again, and how often that did not help.
#[derive(Debug, Default)]
pub struct RetryCounters {
    retries: [AtomicU64; RetryReason::ALL.len()],
    exhausted: AtomicU64,
}

impl RetryCounters {
    /// Further attempts made for `reason`.
    #[must_use]
    pub fn retries(&self, reason: RetryReason) -> u64 {
        self.retries[reason as usize].load(Ordering::Relaxed)
    }

    /// Further attempts made in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        RetryReason::ALL.into_iter().map(|reason| self.retries(reason)).sum()
    }

    /// Operations that failed although they could have been tried again: their deadline had passed.
    #[must_use]
    pub fn exhausted(&self) -> u64 {
        self.exhausted.load(Ordering::Relaxed)
    }
}

/// A store that asks another one again until it answers.
pub struct RetryStore {
    inner: Arc<dyn ObjectStore>,
    config: RetryConfig,
    clock: Arc<dyn Clock>,
    rng: Mutex<SmallRng>,
    counters: Arc<RetryCounters>,
    warnings: RateLimit,
}

impl RetryStore {
    /// Around `inner`; `rng` draws the waits.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, config: RetryConfig, clock: Arc<dyn Clock>, rng: SmallRng) -> Self {
        RetryStore {
            inner,
            config,
            clock,
            rng: Mutex::new(rng),
            counters: Arc::default(),
            warnings: RateLimit::new(WARNING_INTERVAL),
        }
    }

    /// Counters that live on after the store.
    #[must_use]
    pub fn counters(&self) -> Arc<RetryCounters> {
        Arc::clone(&self.counters)
    }

    async fn list_until_answered(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let progress = Progress::default();
        let mut run = Run::start(self, "list", &request.prefix, &progress);
        loop {
            match run.attempt(self.inner.list(request)).await {
                Ok(page) => return Ok(page),
                Err(error) => run.wait_or_give_up(error).await?,
            }
        }
    }

    async fn get_until_complete(&self, request: &GetRequest, body: &mut dyn BodySink) -> Result<(), StoreError> {
        let progress = Progress::default();
        let mut run = Run::start(self, "get", &request.key, &progress);
        let mut rest = None;
        loop {
            let mut sink = CountingSink { body, run: &run };
            let result = run.attempt(self.inner.get(rest.as_ref().unwrap_or(request), &mut sink)).await;
            let Err(error) = result else { return Ok(()) };
            let filled = progress.filled_bytes();
            if filled >= request.range.len() && error.is_retryable() {
                // Every byte arrived, and what arrives is right; the failure came after them.
                return Ok(());
            }
            run.wait_or_give_up(error).await?;
            if filled > 0 {
                let range = ByteRange::new(request.range.start + filled, request.range.end);
                rest = Some(GetRequest { range, ..request.clone() });
            }
        }
    }

    fn draw(&self, limit: Duration) -> Duration {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.random_range(Duration::ZERO..=limit)
    }
}

impl fmt::Debug for RetryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryStore").field("inner", &self.inner).field("config", &self.config).finish_non_exhaustive()
    }
}

impl ObjectStore for RetryStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        self.list_until_answered(request).boxed()
    }

    fn get<'a>(
        &'a self,
        request: &'a GetRequest,
        body: &'a mut dyn BodySink,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.get_until_complete(request, body).boxed()
    }
}

/// How far one operation has come; atomic because the attempt that writes it is raced against the one that reads it.
#[derive(Debug, Default)]
struct Progress {
    filled_bytes: AtomicU64,
    /// When the last byte came, in nanoseconds since the operation began.
    at_nanos: AtomicU64,
}

impl Progress {
    fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }

    fn at(&self) -> Duration {
        Duration::from_nanos(self.at_nanos.load(Ordering::Relaxed))
    }
}

/// One operation from its first attempt to its end.
struct Run<'a> {
    store: &'a RetryStore,
    verb: &'static str,
    key: &'a ObjectKey,
    progress: &'a Progress,
    started: Instant,
    attempts: u32,
    failures_in_a_row: u32,
    filled_at_last_failure: u64,
}

impl<'a> Run<'a> {
    fn start(store: &'a RetryStore, verb: &'static str, key: &'a ObjectKey, progress: &'a Progress) -> Self {
        let started = store.clock.now();
        Run { store, verb, key, progress, started, attempts: 1, failures_in_a_row: 0, filled_at_last_failure: 0 }
    }

    fn elapsed(&self) -> Duration {
        self.store.clock.now().saturating_duration_since(self.started)
    }

    fn remaining(&self) -> Duration {
        (self.progress.at() + self.store.config.deadline).saturating_sub(self.elapsed())
    }

    /// The answer of one attempt; an error when it gets no further until the deadline.
    async fn attempt<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut answer = pin!(answer);
        loop {
            match select(answer, self.store.clock.sleep(self.remaining())).await {
                Either::Left((result, _)) => return result,
                Either::Right(((), unfinished)) => answer = unfinished,
            }
            if self.remaining().is_zero() {
                let message = format!("nothing came for {:.0} s", self.store.config.deadline.as_secs_f64());
                return Err(StoreError::new(StoreErrorKind::Unavailable, self.verb, self.key, message));
            }
        }
    }

    /// Returns when it is time for the next attempt, or with the error when there is to be none.
    async fn wait_or_give_up(&mut self, error: StoreError) -> Result<(), StoreError> {
        let filled = self.progress.filled_bytes();
        if filled > self.filled_at_last_failure {
            self.filled_at_last_failure = filled;
            self.failures_in_a_row = 0;
        }
        self.failures_in_a_row += 1;
        if !error.is_retryable() {
            return Err(error.with_attempts(self.attempts, self.elapsed()));
        }
        let remaining = self.remaining();
        if remaining.is_zero() {
            self.store.counters.exhausted.fetch_add(1, Ordering::Relaxed);
            return Err(error.with_attempts(self.attempts, self.elapsed()));
        }
        let backoff = self.store.draw(self.store.config.backoff_limit(self.failures_in_a_row));
        let wait = match error.kind() {
            // What the store asks for, and the jitter on top, or all who were told the same come back together.
            StoreErrorKind::Throttled(Some(asked)) => asked.saturating_add(backoff),
            _ => backoff,
        };
        let wait = wait.min(remaining);
        self.report(&error, wait);
        self.store.clock.sleep(wait).await;
        self.store.counters.retries[RetryReason::of(error.kind()) as usize].fetch_add(1, Ordering::Relaxed);
        self.attempts += 1;
        Ok(())
    }

    fn report(&self, error: &StoreError, wait: Duration) {
        let wait_ms = wait.as_millis();
        let attempt = self.attempts;
        tracing::debug!(attempt, wait_ms, %error, "trying again");
        if attempt == ATTEMPTS_BEFORE_WARNING
            && let Some(held_back) = self.store.warnings.allow(self.store.clock.now())
        {
            tracing::warn!(attempt, wait_ms, %error, other_operations = held_back, "the store keeps failing, trying on");
        }
    }
}

/// Passes bytes on and writes down how many there were, and when.
struct CountingSink<'a> {
    body: &'a mut dyn BodySink,
    run: &'a Run<'a>,
}

impl BodySink for CountingSink<'_> {
    fn spare(&mut self) -> &mut [u8] {
        self.body.spare()
    }

    fn advance(&mut self, filled_bytes: usize) {
        self.body.advance(filled_bytes);
        let nanos = u64::try_from(self.run.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.run.progress.at_nanos.store(nanos, Ordering::Relaxed);
        self.run.progress.filled_bytes.fetch_add(filled_bytes as u64, Ordering::Relaxed);
    }
}

