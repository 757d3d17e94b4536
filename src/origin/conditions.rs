//! The weather between client and store, changed while the server runs: latency, bandwidth, a cap, faults, oddities.
//!
//! Always true: a request sees one consistent set of conditions, the one in force when it arrived. Randomness comes from one
//! generator with a given seed. Calm weather costs a request one uncontended lock.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::faults::{Fault, FaultId, FaultRule, Script};
use super::request::Verb;

/// Time added before the first byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latency {
    /// Added to every request.
    pub fixed: Duration,
    /// Up to this much more, evenly distributed.
    pub jitter: Duration,
    /// Share of requests (0 to 1) that belong to the tail.
    pub tail_probability: f64,
    /// Added to requests of the tail on top.
    pub tail_extra: Duration,
}

impl Latency {
    /// The same for every request.
    #[must_use]
    pub fn fixed(fixed: Duration) -> Self {
        Latency { fixed, ..Latency::default() }
    }

    fn draw(&self, rng: &mut SmallRng) -> Duration {
        let mut total = self.fixed;
        if !self.jitter.is_zero() {
            total += self.jitter.mul_f64(rng.random::<f64>());
        }
        if self.tail_probability > 0.0 && rng.random::<f64>() < self.tail_probability {
            total += self.tail_extra;
        }
        total
    }
}

/// A way in which some store differs from S3 on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quirk {
    /// `start-after` (or `marker`) is not looked at.
    IgnoreStartAfter,
    /// `max-keys` is not looked at.
    IgnoreMaxKeys,
    /// `delimiter` is not looked at.
    IgnoreDelimiter,
    /// Keys come as plain XML text although `encoding-type=url` was asked for.
    IgnoreEncodingType,
    /// GET answers although `If-Match` does not hold.
    IgnoreIfMatch,
    /// Every listing begins with a page without keys that says there are more.
    EmptyFirstPage,
    /// The keys of a page come in falling order.
    Unordered,
    /// Every common prefix is listed twice.
    RepeatedPrefixes,
    /// No `ETag` in a listing.
    NoListEtag,
    /// `ETag` in a listing without quotes.
    UnquotedListEtag,
    /// `ETag` in a listing with the mark of a weak one.
    WeakListEtag,
    /// Another `ETag` in a listing than GET will answer.
    OtherListEtag,
    /// No `LastModified` in a listing.
    NoLastModified,
    /// `LastModified` in a listing without milliseconds.
    WholeSeconds,
    /// Listings without the XML namespace of S3.
    NoNamespace,
}

/// The oddities in force.
#[derive(Debug, Clone, Default)]
pub(super) struct Quirks(HashSet<Quirk>);

impl Quirks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        !self.0.is_empty() && self.0.contains(&quirk)
    }
}

/// Everything a request needs to know, as it was when the request arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    get_latency: Latency,
    list_latency: Latency,
    pub(super) bytes_per_second: Option<u64>,
    requests_per_second: Option<f64>,
    pub(super) quirks: Arc<Quirks>,
}

#[derive(Debug)]
struct Shared {
    settings: RwLock<Arc<Settings>>,
    script: Script,
    rng: Mutex<SmallRng>,
    bucket: Mutex<TokenBucket>,
}

/// Handle to change the conditions of a running server. All clones are the same handle.
#[derive(Debug, Clone)]
pub struct Conditions(Arc<Shared>);

impl Conditions {
    pub(super) fn new(seed: u64) -> Self {
        Conditions(Arc::new(Shared {
            settings: RwLock::default(),
            script: Script::default(),
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            bucket: Mutex::default(),
        }))
    }

    /// Latency of GET and HEAD of objects.
    pub fn set_get_latency(&self, latency: Latency) {
        self.change(|settings| settings.get_latency = latency);
    }

    /// Latency of list requests.
    pub fn set_list_latency(&self, latency: Latency) {
        self.change(|settings| settings.list_latency = latency);
    }

    /// Most bytes per second on each connection; `None` for no limit.
    pub fn set_bandwidth(&self, bytes_per_second: Option<u64>) {
        self.change(|settings| settings.bytes_per_second = bytes_per_second.map(|rate| rate.max(1)));
    }

    /// Most requests per second; those beyond are answered `503 SlowDown`. Bursts of a tenth of a second pass. `None` for
    /// no limit.
    pub fn set_request_rate(&self, requests_per_second: Option<f64>) {
        *lock(&self.0.bucket) = TokenBucket::default();
        self.change(|settings| settings.requests_per_second = requests_per_second);
    }

    /// The oddities of the store that is imitated, in place of those before.
    pub fn set_quirks(&self, quirks: impl IntoIterator<Item = Quirk>) {
        let quirks = Arc::new(Quirks(quirks.into_iter().collect()));
        self.change(|settings| settings.quirks = quirks);
    }

    /// Adds a fault after those already scripted; the first that applies to a request is played.
    pub fn add_fault(&self, rule: FaultRule) -> FaultId {
        self.0.script.add(rule)
    }

    /// How often a fault was played.
    #[must_use]
    pub fn fault_hits(&self, id: FaultId) -> u64 {
        self.0.script.hits(id)
    }

    /// Forgets all faults.
    pub fn clear_faults(&self) {
        self.0.script.clear();
    }

    /// Calm weather: no latency, limit, oddity or fault.
    pub fn reset(&self) {
        self.clear_faults();
        self.change(|settings| *settings = Settings::default());
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.0.settings.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut settings));
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.0.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fault to play for this request, if any.
    pub(super) fn fault(&self, verb: Verb, key: impl FnOnce() -> String) -> Option<Fault> {
        self.0.script.pick(verb, key, || lock(&self.0.rng).random::<f64>())
    }

    /// True when the rate allows one more request now.
    pub(super) fn admits(&self, settings: &Settings, now: Instant) -> bool {
        settings.requests_per_second.is_none_or(|rate| lock(&self.0.bucket).take(rate, now))
    }

    /// Time to add to this request.
    pub(super) fn latency(&self, settings: &Settings, verb: Verb) -> Duration {
        let latency = match verb {
            Verb::Get | Verb::Head => &settings.get_latency,
            Verb::List => &settings.list_latency,
            Verb::Put | Verb::Delete | Verb::Other => return Duration::ZERO,
        };
        if *latency == Latency::default() { Duration::ZERO } else { latency.draw(&mut lock(&self.0.rng)) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Admits a steady rate and bursts of a tenth of a second.
#[derive(Debug, Default)]
struct TokenBucket {
    tokens: f64,
    filled_at: Option<Instant>,
}

impl TokenBucket {
    fn take(&mut self, rate: f64, now: Instant) -> bool {
        let burst = (rate / 10.0).max(1.0);
        self.tokens = match self.filled_at {
            None => burst,
            Some(before) => (self.tokens + now.saturating_duration_since(before).as_secs_f64() * rate).min(burst),
        };
        self.filled_at = Some(now);
        let admitted = self.tokens >= 1.0;
        if admitted {
            self.tokens -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_over_time_and_bursts_are_short() {
        let mut bucket = TokenBucket::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let admitted = (0..100).filter(|_| bucket.take(100.0, at(0))).count();
        assert_eq!(admitted, 10);
        let admitted = (1..=10_000).filter(|&millis| bucket.take(100.0, at(millis))).count();
        assert!((995..=1001).contains(&admitted), "{admitted} in 10 s");
    }

    #[test]
    fn latency_is_fixed_plus_jitter_plus_tail() {
        let mut rng = SmallRng::seed_from_u64(7);
        let ms = Duration::from_millis;
        let latency = Latency { fixed: ms(30), jitter: ms(10), tail_probability: 0.1, tail_extra: ms(500) };
        let drawn: Vec<_> = (0..1000).map(|_| latency.draw(&mut rng)).collect();
        let (tail, body): (Vec<_>, Vec<_>) = drawn.into_iter().partition(|&time| time >= ms(500));
        assert!((70..130).contains(&tail.len()), "{} in the tail", tail.len());
        assert!(body.iter().all(|&time| time >= ms(30) && time <= ms(40)));
        assert!(tail.iter().all(|&time| time >= ms(530) && time <= ms(540)));
        assert_eq!(Latency::fixed(ms(30)).draw(&mut rng), ms(30));
    }
}
