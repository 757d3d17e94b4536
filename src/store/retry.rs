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
    /// Longest such time while there is not even a connection; `None` is as long as the deadline.
    pub no_connection_deadline: Option<Duration>,
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
            no_connection_deadline: None,
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

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
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
    /// Why the last attempt failed: what the last error says when its own only says that time is up.
    last_error: Option<StoreError>,
}

impl<'a> Run<'a> {
    fn start(store: &'a RetryStore, verb: &'static str, key: &'a ObjectKey, progress: &'a Progress) -> Self {
        let started = store.clock.now();
        Run {
            store,
            verb,
            key,
            progress,
            started,
            attempts: 1,
            failures_in_a_row: 0,
            filled_at_last_failure: 0,
            last_error: None,
        }
    }

    fn elapsed(&self) -> Duration {
        self.store.clock.now().saturating_duration_since(self.started)
    }

    fn remaining(&self) -> Duration {
        self.remaining_of(self.store.config.deadline)
    }

    fn remaining_of(&self, deadline: Duration) -> Duration {
        (self.progress.at() + deadline).saturating_sub(self.elapsed())
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
                return Err(self.cut_off());
            }
        }
    }

    /// The error when the deadline ends an attempt: what stood in the way until then is still what stands in the way.
    fn cut_off(&self) -> StoreError {
        let seconds = self.store.config.deadline.as_secs_f64();
        let (kind, before) = match &self.last_error {
            Some(error) => (error.kind().clone(), format!(" (before that: {error})")),
            None => (StoreErrorKind::Unavailable, String::new()),
        };
        StoreError::new(kind, self.verb, self.key, format!("nothing came for {seconds:.0} s{before}"))
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
        let remaining = match (error.kind(), self.store.config.no_connection_deadline) {
            (StoreErrorKind::NoConnection, Some(deadline)) => self.remaining_of(deadline),
            _ => self.remaining(),
        };
        if remaining.is_zero() {
            return Err(self.exhausted(error));
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
        if self.remaining().is_zero() {
            // An attempt now would be cut off before its answer, and its failure would hide this one.
            return Err(self.exhausted(error));
        }
        self.store.counters.retries[RetryReason::of(error.kind()) as usize].fetch_add(1, Ordering::Relaxed);
        self.attempts += 1;
        self.last_error = Some(error);
        Ok(())
    }

    fn exhausted(&self, error: StoreError) -> StoreError {
        self.store.counters.exhausted.fetch_add(1, Ordering::Relaxed);
        error.with_attempts(self.attempts, self.elapsed())
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rand::SeedableRng;

    use super::*;
    use crate::model::{ETag, ObjectVersion};
    use crate::store::SliceSink;
    use crate::store::clock::ManualClock;
    use crate::store::faulty::{Call, Fault, FaultyStore, STALL, Verb};
    use crate::store::memory::{MemoryStore, synthetic_pattern};

    struct World {
        clock: Arc<ManualClock>,
        memory: Arc<MemoryStore>,
        faulty: Arc<FaultyStore>,
        retry: RetryStore,
    }

    fn world() -> World {
        world_with(RetryConfig::default())
    }

    fn world_with(config: RetryConfig) -> World {
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let memory = Arc::new(MemoryStore::new());
        let faulty = Arc::new(FaultyStore::new(memory.clone(), clock.clone()));
        let rng = SmallRng::seed_from_u64(1);
        let retry = RetryStore::new(faulty.clone(), config, clock.clone(), rng);
        World { clock, memory, faulty, retry }
    }

    impl World {
        /// The answer to a GET of everything, and the bytes that came.
        async fn get(&self, key: &str, version: &ObjectVersion) -> (Result<(), StoreError>, Vec<u8>) {
            self.get_range(key, version, ByteRange::new(0, version.size_bytes)).await
        }

        async fn get_range(
            &self,
            key: &str,
            version: &ObjectVersion,
            range: ByteRange,
        ) -> (Result<(), StoreError>, Vec<u8>) {
            let request = GetRequest { key: key.into(), version: version.clone(), range };
            let mut memory = vec![0; usize::try_from(request.range.len()).unwrap()];
            let mut sink = SliceSink::new(&mut memory);
            let result = self.clock.run(self.retry.get(&request, &mut sink)).await;
            let filled = sink.filled_bytes();
            memory.truncate(filled);
            (result, memory)
        }

        async fn list(&self) -> Result<ListPage, StoreError> {
            self.clock.run(self.retry.list(&ListRequest::default())).await
        }
    }

    const UNAVAILABLE: Fault = Fault::Error(StoreErrorKind::Unavailable);

    fn always(fault: Fault) -> impl FnMut(&Call) -> Option<Fault> + Send + 'static {
        move |_| Some(fault.clone())
    }

    #[tokio::test]
    async fn what_can_be_tried_again_is_until_it_succeeds() {
        let world = world();
        world.memory.put("a", "hello");
        let faults = [
            StoreErrorKind::Unavailable,
            StoreErrorKind::Throttled(None),
            StoreErrorKind::BadResponse,
            StoreErrorKind::ExpiredCredentials,
            StoreErrorKind::ClockSkew(None),
        ];
        world.faulty.set_queue(faults.map(|kind| Some(Fault::Error(kind))));
        assert_eq!(world.list().await.unwrap().objects.len(), 1);
        assert_eq!(world.faulty.calls(), 6);
        for reason in RetryReason::ALL {
            let expected = u64::from(reason != RetryReason::Interrupted);
            assert_eq!(world.retry.counters().retries(reason), expected, "{}", reason.name());
        }
    }

    #[tokio::test]
    async fn what_cannot_succeed_is_asked_once() {
        use StoreErrorKind as K;
        let world = world();
        let version = world.memory.put("a", "hello");
        let hopeless = [
            K::NotFound,
            K::NoSuchBucket,
            K::Changed,
            K::AccessDenied,
            K::Archived,
            K::Credentials,
            K::WrongRegion(None),
            K::InvalidRequest,
        ];
        for (asked, kind) in (1..).zip(hopeless) {
            world.faulty.set_queue([Some(Fault::Error(kind.clone()))]);
            let (result, bytes) = world.get("a", &version).await;
            assert_eq!(*result.unwrap_err().kind(), kind);
            assert!(bytes.is_empty());
            assert_eq!(world.faulty.calls(), asked);
        }
        assert_eq!(world.clock.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn an_interrupted_body_goes_on_after_its_last_good_byte() {
        let world = world();
        let version = world.memory.put("a", "0123456789");
        world.faulty.set_queue([Some(Fault::InterruptAfter(4)), Some(UNAVAILABLE), Some(Fault::InterruptAfter(3))]);
        let (result, bytes) = world.get_range("a", &version, ByteRange::new(1, 10)).await;
        result.unwrap();
        assert_eq!(bytes, b"123456789");
        let ranges = &world.memory.counters().by_key[&"a".into()].ranges;
        assert_eq!(*ranges, [ByteRange::new(1, 5), ByteRange::new(5, 8), ByteRange::new(8, 10)]);
    }

    #[tokio::test]
    async fn a_failure_after_the_last_byte_is_none() {
        let world = world();
        let version = world.memory.put("a", "0123456789");
        world.faulty.set_queue([Some(Fault::InterruptAfter(10)), Some(UNAVAILABLE)]);
        let (result, bytes) = world.get("a", &version).await;
        result.unwrap();
        assert_eq!((bytes.as_slice(), world.faulty.calls()), (&b"0123456789"[..], 1));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_finished_from_another_version() {
        let world = world();
        let version = world.memory.put("a", "old old old");
        let memory = world.memory.clone();
        world.faulty.set_script(move |call| {
            if call.attempt == 1 {
                return Some(Fault::InterruptAfter(4));
            }
            memory.put("a", "new new new");
            None
        });
        let (result, bytes) = world.get("a", &version).await;
        assert_eq!(*result.unwrap_err().kind(), StoreErrorKind::Changed);
        assert_eq!(bytes, b"old ");
        assert_eq!(world.faulty.calls(), 2);
    }

    #[tokio::test]
    async fn the_deadline_ends_an_outage_with_attempts_and_time() {
        let world = world();
        world.faulty.set_script(always(UNAVAILABLE));
        let error = world.list().await.unwrap_err();
        assert_eq!(world.clock.elapsed(), Duration::from_secs(300));
        assert!(error.to_string().contains(&format!("after {} attempts in 300.0 s", world.faulty.calls())), "{error}");
        // 8 waits until they reach 20 s, then one per 10 s on average.
        assert!((20..70).contains(&world.faulty.calls()), "{} attempts", world.faulty.calls());
        assert_eq!(world.retry.counters().exhausted(), 1);
    }

    #[tokio::test]
    async fn an_outage_shorter_than_the_deadline_is_waited_out() {
        let world = world();
        world.memory.put("a", "");
        let clock = world.clock.clone();
        world.faulty.set_script(move |_| (clock.elapsed() < Duration::from_secs(30)).then_some(UNAVAILABLE));
        assert_eq!(world.list().await.unwrap().objects.len(), 1);
        assert!(world.clock.elapsed() < Duration::from_secs(51), "{:?}", world.clock.elapsed());
    }

    #[tokio::test]
    async fn without_a_connection_it_may_be_given_up_sooner_than_with_a_store_that_fails() {
        let seconds = Duration::from_secs;
        let config = RetryConfig { no_connection_deadline: Some(seconds(15)), ..RetryConfig::default() };
        for (kind, deadline) in [(StoreErrorKind::NoConnection, 15), (StoreErrorKind::Unavailable, 300)] {
            let world = world_with(config.clone());
            world.faulty.set_script(always(Fault::Error(kind.clone())));
            assert_eq!(*world.list().await.unwrap_err().kind(), kind);
            assert_eq!(world.clock.elapsed(), seconds(deadline), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_never_comes_ends_at_the_deadline() {
        let world = world();
        let version = world.memory.put("a", "0123456789");
        world.faulty.set_script(always(STALL));
        assert_eq!(*world.list().await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert_eq!(world.clock.elapsed(), Duration::from_secs(300));
        let (result, bytes) = world.get("a", &version).await;
        assert_eq!(*result.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert!(bytes.is_empty());
        assert_eq!((world.clock.elapsed(), world.faulty.stalled()), (Duration::from_secs(600), 0));
        let mut first = true;
        world.faulty.set_script(move |_| Some(if std::mem::take(&mut first) { UNAVAILABLE } else { STALL }));
        let error = world.list().await.unwrap_err().to_string();
        assert!(error.contains("nothing came for 300 s (before that: list \"\": scripted fault)"), "{error}");
    }

    #[tokio::test]
    async fn a_deadline_that_passes_while_throttled_says_throttled() {
        // A store answers after some time, and so would the attempt at the very end: it was cut off, and the listing took the
        // store for unreachable instead of slowing down.
        let world = world();
        let slow_down = StoreErrorKind::Throttled(Some(Duration::from_secs(60)));
        world.faulty.set_script(always(Fault::DelayedError(Duration::from_millis(30), slow_down.clone())));
        let error = world.list().await.unwrap_err();
        assert_eq!((error.kind(), world.clock.elapsed()), (&slow_down, Duration::from_secs(300)), "{error}");
        assert!(!error.to_string().contains("nothing came"), "{error}");
        let mut first = true;
        world.faulty.set_script(move |_| {
            Some(if std::mem::take(&mut first) { Fault::Error(StoreErrorKind::Throttled(None)) } else { STALL })
        });
        assert_eq!(*world.list().await.unwrap_err().kind(), StoreErrorKind::Throttled(None));
    }

    #[tokio::test]
    async fn a_body_that_gets_further_is_given_time_anew() {
        let world = world();
        let version = world.memory.put_synthetic("a", 1000, synthetic_pattern());
        let clock = world.clock.clone();
        let mut last = Duration::ZERO;
        // 4 min of outage after every 100 bytes: 40 min in all.
        world.faulty.set_script(move |_| {
            if clock.elapsed() - last < Duration::from_secs(240) {
                return Some(UNAVAILABLE);
            }
            last = clock.elapsed();
            Some(Fault::InterruptAfter(100))
        });
        let (result, bytes) = world.get("a", &version).await;
        result.unwrap();
        let mut expected = vec![0; 1000];
        synthetic_pattern()(&"a".into(), 0, &mut expected);
        assert_eq!(bytes, expected);
        assert!(world.clock.elapsed() > Duration::from_secs(2400));
    }

    #[tokio::test]
    async fn the_wait_is_as_long_as_the_store_asks_and_spread_beyond() {
        let world = world();
        let asked = Duration::from_secs(7);
        world.faulty.set_queue([Some(Fault::Error(StoreErrorKind::Throttled(Some(asked))))]);
        world.list().await.unwrap();
        let waited = world.clock.elapsed();
        assert!(waited > asked && waited <= asked + Duration::from_millis(100), "{waited:?}");
    }

    #[test]
    fn waits_double_up_to_the_limit_and_are_spread_over_all_of_it() {
        let world = world();
        let config = RetryConfig::default();
        let limits: Vec<u128> = (1..=10).map(|failures| config.backoff_limit(failures).as_millis()).collect();
        assert_eq!(limits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000]);
        assert_eq!(config.backoff_limit(u32::MAX), config.max_backoff);
        let draws: Vec<_> = (0..1000).map(|_| world.retry.draw(Duration::from_millis(1000)).as_millis()).collect();
        for tenth in 0..10 {
            let hits = draws.iter().filter(|&&draw| draw / 100 == tenth).count();
            assert!((50..=150).contains(&hits), "{hits} of 1000 draws in tenth {tenth}");
        }
    }

    #[tokio::test]
    async fn progress_makes_the_next_wait_short_again() {
        let world = world();
        let version = world.memory.put("a", "0123456789");
        let clock = world.clock.clone();
        let mut waits_after_progress = Vec::new();
        let (report, waits) = std::sync::mpsc::channel();
        let mut calls = 0;
        let mut broke_off_at = None;
        // Nine failures (the tenth wait could be 20 s), one byte, and so on until all ten bytes are there.
        world.faulty.set_script(move |_| {
            if let Some(at) = broke_off_at.take() {
                report.send(clock.elapsed() - at).unwrap();
            }
            calls += 1;
            if calls % 10 != 0 {
                return Some(UNAVAILABLE);
            }
            broke_off_at = Some(clock.elapsed());
            Some(Fault::InterruptAfter(1))
        });
        world.get("a", &version).await.0.unwrap();
        waits_after_progress.extend(waits.try_iter());
        assert_eq!(waits_after_progress.len(), 9);
        assert!(
            waits_after_progress.iter().all(|wait| *wait <= Duration::from_millis(100)),
            "{waits_after_progress:?}"
        );
    }

    #[tokio::test]
    async fn ten_thousand_failures_later_everything_still_works() {
        let world = world();
        let version = world.memory.put_synthetic("a", 5000, synthetic_pattern());
        let mut expected = vec![0; 5000];
        synthetic_pattern()(&"a".into(), 0, &mut expected);
        let mut random = SmallRng::seed_from_u64(3);
        world.faulty.set_script(move |call| match random.random_range(0..10) {
            0..=3 => None,
            4 => Some(UNAVAILABLE),
            5 => Some(Fault::Error(StoreErrorKind::Throttled(Some(Duration::from_millis(5))))),
            6 => Some(Fault::DelayedError(Duration::from_millis(3), StoreErrorKind::BadResponse)),
            7 => Some(Fault::Delay(Duration::from_secs(1))),
            _ => match call.verb {
                Verb::List => Some(Fault::Error(StoreErrorKind::ExpiredCredentials)),
                Verb::Get => Some(Fault::InterruptAfter(random.random_range(0..2000))),
            },
        });
        while world.retry.counters().total() < 10_000 {
            assert_eq!(world.list().await.unwrap().objects.len(), 1);
            let (result, bytes) = world.get("a", &version).await;
            result.unwrap();
            assert!(bytes == expected);
        }
        assert_eq!(world.retry.counters().exhausted(), 0);
        world.faulty.set_script(|_| None);
        let calls = world.faulty.calls();
        world.get("a", &version).await.0.unwrap();
        assert_eq!(world.faulty.calls(), calls + 1);
    }

    #[tokio::test]
    async fn an_object_without_entity_tag_is_read_by_its_size() {
        let world = world();
        let size_bytes = world.memory.put("a", "hello").size_bytes;
        assert!(world.get("a", &ObjectVersion { etag: None, size_bytes }).await.0.is_ok());
        let other = ObjectVersion { etag: ETag::parse("x"), size_bytes };
        assert_eq!(*world.get("a", &other).await.0.unwrap_err().kind(), StoreErrorKind::Changed);
    }
}
