//! Time as an argument: what waits or compares moments in `store` asks a `Clock`.
//!
//! `SystemClock` is the machine's. `ManualClock` is test support: it stands still until told, so that hours of backoff take no
//! time and a test never sleeps. `RateLimit` keeps a repeating warning to one line per interval.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;

/// Where the time comes from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// A moment that never goes backwards, for measuring.
    fn now(&self) -> Instant;

    /// The date, for comparing with what others wrote down.
    fn date(&self) -> SystemTime;

    /// Resolves once `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock, on tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

/// Test support: a clock that moves when it is told to, or from one sleeper to the next in [`ManualClock::run`].
#[derive(Debug)]
pub struct ManualClock {
    start: Instant,
    start_date: SystemTime,
    state: Mutex<ManualState>,
}

#[derive(Debug, Default)]
struct ManualState {
    elapsed: Duration,
    /// Who sleeps until when; the number tells sleepers of the same moment apart.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    next_number: u64,
}

impl ManualClock {
    /// Rounds in which tasks may answer one another before the clock moves on; a chain of more is not seen to the end.
    const ROUNDS_PER_STEP: u32 = 64;

    /// A clock that stands at `start_date`.
    #[must_use]
    pub fn new(start_date: SystemTime) -> Self {
        ManualClock { start: Instant::now(), start_date, state: Mutex::default() }
    }

    /// Moves the clock and wakes who slept until then.
    pub fn advance(&self, duration: Duration) {
        let mut state = self.state();
        let until = state.elapsed + duration;
        state.elapsed = until;
        while let Some(sleeper) = state.sleepers.first_entry().filter(|sleeper| sleeper.key().0 <= until) {
            // A sleeper that was dropped no longer listens.
            let _ = sleeper.remove().send(());
        }
    }

    /// How far the clock has moved.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.state().elapsed
    }

    /// Drives `future` to its end; whenever nothing else can happen, the clock jumps to the next sleeper's moment.
    ///
    /// For a runtime with one thread, so that "nothing else can happen" can be seen.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            for _ in 0..Self::ROUNDS_PER_STEP {
                if let Poll::Ready(output) = futures::poll!(&mut future) {
                    return output;
                }
                tokio::task::yield_now().await;
            }
            self.advance_to_next_sleeper();
        }
    }

    fn advance_to_next_sleeper(&self) {
        let step = {
            let mut state = self.state();
            state.sleepers.retain(|_, sleeper| !sleeper.is_canceled());
            let elapsed = state.elapsed;
            state.sleepers.keys().next().map(|(until, _)| until.saturating_sub(elapsed))
        };
        if let Some(step) = step {
            self.advance(step);
        }
    }

    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.start + self.elapsed()
    }

    fn date(&self) -> SystemTime {
        self.start_date + self.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            return futures::future::ready(()).boxed();
        }
        let (wake, woken) = oneshot::channel();
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        let until = state.elapsed + duration;
        state.sleepers.insert((until, number), wake);
        woken.map(|_| ()).boxed()
    }
}

/// Lets a repeating message through once per interval, and counts what it held back.
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    state: Mutex<RateState>,
}

#[derive(Debug, Default)]
struct RateState {
    last: Option<Instant>,
    held_back: u64,
}

impl RateLimit {
    /// One message per `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        RateLimit { interval, state: Mutex::default() }
    }

    /// `Some` when the message may go out at `now`, with the number held back since the last one.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_manual_clock_jumps_from_sleeper_to_sleeper_in_order() {
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let dropped = clock.sleep(Duration::from_secs(1));
        drop(dropped);
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = [30, 10, 20].map(|seconds| {
            let (clock, order) = (Arc::clone(&clock), Arc::clone(&order));
            tokio::spawn(async move {
                clock.sleep(Duration::from_secs(seconds)).await;
                order.lock().unwrap().push((seconds, clock.elapsed().as_secs()));
            })
        });
        clock.run(futures::future::join_all(tasks)).await;
        assert_eq!(*order.lock().unwrap(), [(10, 10), (20, 20), (30, 30)]);
    }

    #[test]
    fn a_repeating_message_goes_out_once_per_interval_with_the_count_of_the_others() {
        let limit = RateLimit::new(Duration::from_secs(30));
        let now = Instant::now();
        assert_eq!(limit.allow(now), Some(0));
        assert_eq!(limit.allow(now + Duration::from_secs(1)), None);
        assert_eq!(limit.allow(now + Duration::from_secs(29)), None);
        assert_eq!(limit.allow(now + Duration::from_secs(30)), Some(2));
        assert_eq!(limit.allow(now + Duration::from_secs(31)), None);
    }
}
