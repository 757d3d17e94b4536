//! The requests of one listing: how many run at a time, and what throttling does to that.
//!
//! Every request is a task of a `JoinSet` owned here, so that answers are parsed on all cores and dropping the listing ends
//! them all. Never more than `limit` run at a time. Retrying is the store's business; only throttling that comes through all
//! the same is met here, with half the requests in flight and the same page asked for again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::store::{ListPage, ListRequest, ObjectStore, StoreError, StoreErrorKind};

/// How often one page may come back throttled before the listing gives up. Each time the store has been asked until the retry
/// deadline; with the waits below that is half a minute more.
const MOST_THROTTLED_TRIES: u32 = 6;
/// Doubles with every time, unless the store says how long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The requests of one listing; `T` says what each is for.
#[derive(Debug)]
pub(super) struct Requests<T> {
    store: Arc<dyn ObjectStore>,
    tasks: JoinSet<Answer<T>>,
    waiting: VecDeque<Job<T>>,
    /// How many may run now; between 1 and `most`.
    limit: usize,
    most: usize,
    /// Answers since `limit` last changed.
    calm: usize,
    /// Counts halvings: requests sent before the last one do not cause another.
    round: u32,
    sent: u64,
}

#[derive(Debug)]
struct Job<T> {
    purpose: T,
    request: ListRequest,
    throttled: u32,
    delay: Duration,
}

#[derive(Debug)]
struct Answer<T> {
    job: Job<T>,
    round: u32,
    result: Result<ListPage, StoreError>,
}

impl<T: Copy + Send + 'static> Requests<T> {
    /// No requests yet; at most `most` will run at a time, and counting begins at `sent`.
    pub(super) fn new(store: Arc<dyn ObjectStore>, most: usize, sent: u64) -> Self {
        let most = most.max(1);
        let waiting = VecDeque::new();
        Requests { store, tasks: JoinSet::new(), waiting, limit: most, most, calm: 0, round: 0, sent }
    }

    /// Requests sent so far, repeated ones included.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Requests sent and not answered, or waiting to be sent.
    pub(super) fn open(&self) -> usize {
        self.tasks.len() + self.waiting.len()
    }

    /// How many more requests could run now.
    pub(super) fn idle(&self) -> usize {
        self.limit.saturating_sub(self.open())
    }

    /// Sends a request, as soon as there is room.
    pub(super) fn ask(&mut self, purpose: T, request: ListRequest) {
        self.waiting.push_back(Job { purpose, request, throttled: 0, delay: Duration::ZERO });
        self.start();
    }

    /// The next answer, in whatever order they come; `None` when nothing is open.
    ///
    /// Safe to cancel: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<(T, ListRequest, Result<ListPage, StoreError>)> {
        loop {
            let answer = match self.tasks.join_next().await? {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // Only this type cancels its tasks, and it does not look at them afterwards.
                    Err(_) => continue,
                },
            };
            let Answer { job, round, result } = answer;
            let hint = match &result {
                Err(error) => match error.kind() {
                    StoreErrorKind::Throttled(hint) if job.throttled < MOST_THROTTLED_TRIES => Some(*hint),
                    _ => None,
                },
                Ok(_) => None,
            };
            match hint {
                Some(hint) => self.slow_down(job, round, hint),
                None => {
                    self.speed_up();
                    self.start();
                    return Some((job.purpose, job.request, result));
                }
            }
        }
    }

    /// Ends all requests and waits until they are gone.
    pub(super) async fn stop(&mut self) {
        self.waiting.clear();
        self.tasks.shutdown().await;
    }

    fn slow_down(&mut self, mut job: Job<T>, round: u32, hint: Option<Duration>) {
        if round == self.round {
            self.limit = (self.limit / 2).max(1);
            self.round += 1;
            tracing::debug!(in_flight = self.limit, "the store throttles the listing: halving the requests in flight");
        }
        self.calm = 0;
        job.delay = hint.unwrap_or(FIRST_WAIT * (1 << job.throttled)).min(LONGEST_WAIT);
        job.throttled += 1;
        self.waiting.push_front(job);
        self.start();
    }

    fn speed_up(&mut self) {
        self.calm += 1;
        // One more after every four answers for each that may run: slower than the halving, faster than the listing.
        if self.limit < self.most && self.calm >= 4 * self.limit {
            self.limit += 1;
            self.calm = 0;
        }
    }

    fn start(&mut self) {
        while self.tasks.len() < self.limit {
            let Some(job) = self.waiting.pop_front() else { return };
            let store = Arc::clone(&self.store);
            let round = self.round;
            self.sent += 1;
            self.tasks.spawn(async move {
                if !job.delay.is_zero() {
                    tokio::time::sleep(job.delay).await;
                }
                let result = store.list(&job.request).await;
                Answer { job, round, result }
            });
        }
    }
}
