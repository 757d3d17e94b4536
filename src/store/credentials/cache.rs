//! Keeps one set of credentials and fetches the next in time.
//!
//! Every request asks, so the usual answer comes from memory. Nothing runs while nobody asks: a refresh begins with the first
//! request after it is due, and that request does not wait for it. One fetch runs at a time, in a task of its own, so that a
//! reader who goes away does not break it off for the others; the task ends with the cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, Either, select};
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::sync::watch;

use super::provider::{Chain, Fetched};
use crate::store::clock::{Clock, RateLimit};
use crate::store::s3::auth::{Credentials, CredentialsError};

/// How long before their end credentials are replaced: time for many failing attempts. The SDKs of AWS use the same.
const EXPIRY_MARGIN: Duration = Duration::from_secs(300);

/// Up to so much earlier still, drawn at random: a thousand pods started together must not ask together.
const EXPIRY_JITTER: Duration = Duration::from_secs(60);

/// How often credentials without an end are looked up again: a file may have been rotated. Reading it costs microseconds.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);

/// After a failed refresh, the next one waits so long, and at most as long again.
const FAILED_REFRESH_PAUSE: Duration = Duration::from_secs(15);

/// For so long a failure is the answer to everybody, when there is nothing to fall back on.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// A store that calls credentials expired starts a fetch at most once in this time: hundreds of requests hear it at once.
const FORCED_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time for one fetch through the whole chain; providers have shorter ones of their own.
const FETCH_DEADLINE: Duration = Duration::from_secs(60);

/// One warning about failing refreshes in this time.
const WARNING_INTERVAL: Duration = Duration::from_secs(300);

type FetchResult = Result<(Fetched, &'static str), CredentialsError>;

/// The current credentials of one chain.
#[derive(Debug)]
pub(super) struct CredentialsCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: Chain,
    clock: Arc<dyn Clock>,
    rng: Mutex<SmallRng>,
    state: Mutex<State>,
    /// Changes whenever a fetch has ended.
    ended: watch::Sender<()>,
    warnings: RateLimit,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    failure: Option<(Instant, CredentialsError)>,
    /// The running fetch.
    fetch: Option<AbortHandle>,
    last_start: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    credentials: Arc<Credentials>,
    provider: &'static str,
    expires: Option<SystemTime>,
    refresh_at: SystemTime,
}

impl State {
    fn has_failed_since(&self, now: Instant, pause: Duration) -> bool {
        self.failure.as_ref().is_some_and(|(at, _)| now.saturating_duration_since(*at) < pause)
    }

    /// What those hear who need other credentials than the ones that are held.
    fn failure(&self) -> Option<CredentialsError> {
        let (_, error) = self.failure.as_ref()?;
        Some(match error {
            // There were some: an outage of who gives them is waited out like one of the store.
            CredentialsError::Unavailable(why) if self.held.is_some() => CredentialsError::NotRenewed(why.clone()),
            error => error.clone(),
        })
    }
}

impl CredentialsCache {
    pub(super) fn new(chain: Chain, clock: Arc<dyn Clock>, rng: SmallRng) -> Self {
        CredentialsCache(Arc::new(Shared {
            chain,
            clock,
            rng: Mutex::new(rng),
            state: Mutex::default(),
            ended: watch::Sender::new(()),
            warnings: RateLimit::new(WARNING_INTERVAL),
        }))
    }

    /// Who gave the credentials that are held.
    pub(super) fn provider(&self) -> Option<&'static str> {
        self.0.state().held.as_ref().map(|held| held.provider)
    }

    /// Credentials that have not expired, from memory if there are any.
    pub(super) async fn current(&self) -> Result<Arc<Credentials>, CredentialsError> {
        loop {
            // Before looking, so that an end between looking and waiting is not missed.
            let mut ended = self.0.ended.subscribe();
            if let Some(answer) = self.0.answer() {
                return answer;
            }
            // The sender is ours: it cannot be gone.
            let _ = ended.changed().await;
        }
    }

    /// Fetches anew, unless that has just been done; returns when it is.
    pub(super) async fn refresh(&self) {
        let mut ended = self.0.ended.subscribe();
        if self.0.force_fetch() {
            let _ = ended.changed().await;
        }
    }
}

impl Drop for CredentialsCache {
    fn drop(&mut self) {
        let fetch = self.0.state().fetch.clone();
        if let Some(fetch) = fetch {
            fetch.abort();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the answer is the end of the running fetch.
    fn answer(self: &Arc<Self>) -> Option<Result<Arc<Credentials>, CredentialsError>> {
        let state = self.state();
        let date = self.clock.date();
        if let Some(held) = state.held.as_ref().filter(|held| held.expires.is_none_or(|end| date < end)) {
            let credentials = Arc::clone(&held.credentials);
            if date >= held.refresh_at && state.fetch.is_none() {
                self.start_fetch(state);
            }
            return Some(Ok(credentials));
        }
        if state.fetch.is_some() {
            return None;
        }
        if state.has_failed_since(self.clock.now(), FAILURE_PAUSE) {
            return state.failure().map(Err);
        }
        self.start_fetch(state);
        None
    }

    /// True when a fetch runs now.
    fn force_fetch(self: &Arc<Self>) -> bool {
        let state = self.state();
        let now = self.clock.now();
        let just_done = state.last_start.is_some_and(|at| now.saturating_duration_since(at) < FORCED_INTERVAL);
        if state.fetch.is_none() && !just_done {
            self.start_fetch(state);
            return true;
        }
        state.fetch.is_some()
    }

    fn start_fetch(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let (abort, registration) = AbortHandle::new_pair();
        state.fetch = Some(abort);
        state.last_start = Some(self.clock.now());
        // A runtime that is ending drops the task within `spawn`, and the end of a fetch takes the lock.
        drop(state);
        let mut fetch = Fetch { shared: Arc::clone(self), result: None };
        let search = async move {
            let shared = Arc::clone(&fetch.shared);
            let too_late = shared.clock.sleep(FETCH_DEADLINE);
            fetch.end_with(match select(shared.chain.fetch().boxed(), too_late).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => {
                    let message = format!("no provider answered within {} s", FETCH_DEADLINE.as_secs());
                    Err(CredentialsError::Unavailable(message))
                }
            });
        };
        tokio::spawn(Abortable::new(search, registration));
    }

    fn end_fetch(&self, result: FetchResult) {
        let mut state = self.state();
        state.fetch = None;
        match result {
            Ok((fetched, provider)) => {
                state.failure = None;
                self.hold(&mut state, fetched, provider);
            }
            Err(error) => {
                if let Some(held) = &mut state.held {
                    held.refresh_at = self.clock.date() + FAILED_REFRESH_PAUSE + self.draw(FAILED_REFRESH_PAUSE);
                    self.warn(held, &error);
                }
                state.failure = Some((self.clock.now(), error));
            }
        }
        drop(state);
        self.ended.send_replace(());
    }

    fn hold(&self, state: &mut State, fetched: Fetched, provider: &'static str) {
        let date = self.clock.date();
        // Over on arrival: this machine's clock is wrong, or the store will say so. Either way they are the best there are.
        let expires = fetched.expires.filter(|end| *end > date);
        let refresh_at = match expires.and_then(|end| end.duration_since(date).ok().map(|life| (end, life))) {
            None => date + REREAD_INTERVAL,
            Some((end, life)) => end - (EXPIRY_MARGIN + self.draw(EXPIRY_JITTER)).min(life / 2),
        };
        let unchanged = state.held.take().filter(|held| {
            held.credentials.access_key_id == fetched.access_key_id
                && held.credentials.secret_access_key == fetched.secret_access_key
                && held.credentials.session_token == fetched.session_token
        });
        let credentials = match unchanged {
            // The same set keeps its id, and with it the signing keys made from it.
            Some(held) => held.credentials,
            None => {
                tracing::info!(provider, "new credentials");
                let Fetched { access_key_id, secret_access_key, session_token, .. } = fetched;
                Arc::new(Credentials::new(access_key_id, secret_access_key, session_token))
            }
        };
        state.held = Some(Held { credentials, provider, expires, refresh_at });
    }

    fn warn(&self, held: &Held, error: &CredentialsError) {
        if let Some(held_back) = self.warnings.allow(self.clock.now()) {
            let provider = held.provider;
            tracing::warn!(provider, %error, held_back, "cannot refresh the credentials; the old ones stay in use");
        }
    }

    fn draw(&self, limit: Duration) -> Duration {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.random_range(Duration::ZERO..=limit)
    }
}

/// A running fetch: it ends for those who wait even when a provider panics or the task is aborted.
struct Fetch {
    shared: Arc<Shared>,
    result: Option<FetchResult>,
}

impl Fetch {
    /// What those who wait are to hear.
    fn end_with(&mut self, result: FetchResult) {
        self.result = Some(result);
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let broken_off = || Err(CredentialsError::Unavailable("the search for credentials was broken off".to_owned()));
        self.shared.end_fetch(self.result.take().unwrap_or_else(broken_off));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures::future::BoxFuture;
    use rand::SeedableRng;

    use super::*;
    use crate::store::clock::ManualClock;
    use crate::store::credentials::provider::{Provider, ProviderFailure};

    /// Gives what the test queued, each after a second; the last one for ever.
    #[derive(Debug, Clone)]
    struct Scripted {
        clock: Arc<ManualClock>,
        answers: Arc<Mutex<VecDeque<Answer>>>,
        fetches: Arc<Mutex<u32>>,
    }

    #[derive(Debug, Clone)]
    enum Answer {
        Key(&'static str, Option<Duration>),
        Failure,
        Never,
        Panic,
    }

    impl Provider for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn fetch(&self) -> BoxFuture<'_, Result<Fetched, ProviderFailure>> {
            *self.fetches.lock().unwrap() += 1;
            let mut answers = self.answers.lock().unwrap();
            let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            async move {
                self.clock.sleep(Duration::from_secs(1)).await;
                match answer.unwrap() {
                    Answer::Key(name, life) => Ok(Fetched {
                        access_key_id: name.to_owned(),
                        secret_access_key: "hunter2".to_owned(),
                        session_token: None,
                        expires: life.map(|life| self.clock.date() + life),
                    }),
                    Answer::Failure => Err(ProviderFailure::Failed("scripted failure".to_owned())),
                    Answer::Never => futures::future::pending().await,
                    Answer::Panic => panic!("scripted panic"),
                }
            }
            .boxed()
        }
    }

    struct World {
        clock: Arc<ManualClock>,
        provider: Scripted,
        cache: Arc<CredentialsCache>,
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn world(answers: impl IntoIterator<Item = Answer>) -> World {
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let clock = Arc::new(ManualClock::new(date));
        let provider = Scripted {
            clock: clock.clone(),
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            fetches: Arc::default(),
        };
        let chain = Chain::new(vec![Box::new(provider.clone())], "do something");
        let cache = CredentialsCache::new(chain, clock.clone(), SmallRng::seed_from_u64(1));
        World { clock, provider, cache: Arc::new(cache) }
    }

    impl World {
        async fn current(&self) -> Result<String, CredentialsError> {
            self.clock.run(self.cache.current()).await.map(|found| found.access_key_id.clone())
        }

        /// Asks once at this moment, then lets a refresh that this began come to its end.
        async fn current_and_settle(&self) -> Result<String, CredentialsError> {
            let answer = self.current().await;
            self.clock.run(self.clock.sleep(Duration::from_secs(2))).await;
            answer
        }

        fn fetches(&self) -> u32 {
            *self.provider.fetches.lock().unwrap()
        }
    }

    #[tokio::test]
    async fn a_thousand_requests_at_once_are_one_fetch() {
        let world = world([Answer::Key("a", Some(HOUR))]);
        let all = (0..1000).map(|_| world.cache.current());
        let found = world.clock.run(futures::future::join_all(all)).await;
        assert!(found.iter().all(|one| one.as_ref().unwrap().access_key_id == "a"));
        assert_eq!(world.fetches(), 1);
        assert_eq!(world.cache.provider(), Some("scripted"));
    }

    #[tokio::test]
    async fn a_refresh_begins_five_minutes_before_the_end_and_nobody_waits_for_it() {
        let world = world([Answer::Key("a", Some(HOUR)), Answer::Key("b", Some(HOUR))]);
        world.current_and_settle().await.unwrap();
        world.clock.advance(HOUR - Duration::from_secs(370));
        assert_eq!(world.current_and_settle().await.unwrap(), "a");
        assert_eq!(world.fetches(), 1);
        world.clock.advance(Duration::from_secs(70));
        let before = world.clock.elapsed();
        assert_eq!(world.current().await.unwrap(), "a");
        assert_eq!(world.clock.elapsed(), before);
        world.clock.run(world.clock.sleep(Duration::from_secs(2))).await;
        assert_eq!(world.current().await.unwrap(), "b");
        assert_eq!(world.fetches(), 2);
    }

    #[tokio::test]
    async fn short_lives_are_refreshed_at_their_half() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let world = world([Answer::Key("a", Some(minutes(6))), Answer::Key("b", Some(minutes(6)))]);
        world.current_and_settle().await.unwrap();
        world.clock.advance(minutes(2));
        world.current_and_settle().await.unwrap();
        assert_eq!(world.fetches(), 1);
        world.clock.advance(minutes(1));
        world.current_and_settle().await.unwrap();
        assert_eq!(world.current().await.unwrap(), "b");
    }

    #[tokio::test]
    async fn failing_refreshes_leave_the_old_ones_in_use_until_they_end() {
        let world = world([Answer::Key("a", Some(HOUR)), Answer::Failure]);
        world.current_and_settle().await.unwrap();
        world.clock.advance(HOUR - Duration::from_secs(200));
        for _ in 0..18 {
            assert_eq!(world.current_and_settle().await.unwrap(), "a");
            world.clock.advance(Duration::from_secs(8));
        }
        // 180 s in all, at most one attempt in 15 s.
        assert!((5..=14).contains(&world.fetches()), "{}", world.fetches());
        world.clock.advance(Duration::from_secs(30));
        let error = world.current().await.unwrap_err();
        assert!(matches!(&error, CredentialsError::NotRenewed(why) if why.contains("scripted failure")), "{error}");
    }

    #[tokio::test]
    async fn expired_ones_are_waited_for() {
        let world = world([Answer::Key("a", Some(HOUR)), Answer::Key("b", Some(HOUR))]);
        world.current_and_settle().await.unwrap();
        world.clock.advance(HOUR);
        assert_eq!(world.current().await.unwrap(), "b");
    }

    #[tokio::test]
    async fn keys_without_an_end_are_read_again_after_a_minute() {
        let world = world([Answer::Key("a", None), Answer::Key("b", None)]);
        world.current_and_settle().await.unwrap();
        world.clock.advance(Duration::from_secs(50));
        world.current_and_settle().await.unwrap();
        assert_eq!(world.fetches(), 1);
        world.clock.advance(Duration::from_secs(10));
        assert_eq!(world.current_and_settle().await.unwrap(), "a");
        assert_eq!(world.current().await.unwrap(), "b");
    }

    #[tokio::test]
    async fn the_same_keys_keep_their_id() {
        let world = world([Answer::Key("a", None), Answer::Key("a", None), Answer::Key("b", None)]);
        let id = || async { world.clock.run(world.cache.current()).await.unwrap().id };
        let refresh = || async {
            world.clock.advance(FORCED_INTERVAL);
            world.clock.run(world.cache.refresh()).await;
        };
        let first = id().await;
        refresh().await;
        assert_eq!(id().await, first);
        refresh().await;
        assert_ne!(id().await, first);
        assert_eq!(world.fetches(), 3);
    }

    #[tokio::test]
    async fn what_the_store_calls_expired_is_fetched_anew_once_for_all() {
        let world = world([Answer::Key("a", Some(HOUR)), Answer::Key("b", Some(HOUR)), Answer::Key("c", Some(HOUR))]);
        world.current().await.unwrap();
        world.clock.advance(FORCED_INTERVAL);
        let all = (0..100).map(|_| world.cache.refresh());
        world.clock.run(futures::future::join_all(all)).await;
        assert_eq!(world.current().await.unwrap(), "b");
        world.clock.run(world.cache.refresh()).await;
        assert_eq!((world.current().await.unwrap().as_str(), world.fetches()), ("b", 2));
        world.clock.advance(FORCED_INTERVAL);
        world.clock.run(world.cache.refresh()).await;
        assert_eq!(world.current().await.unwrap(), "c");
    }

    #[tokio::test]
    async fn a_failure_answers_everybody_for_a_second_then_is_tried_again() {
        let world = world([Answer::Failure, Answer::Key("a", None)]);
        let all = (0..100).map(|_| world.cache.current());
        let found = world.clock.run(futures::future::join_all(all)).await;
        assert!(found.iter().all(|one| matches!(one, Err(CredentialsError::Unavailable(_)))));
        world.current().await.unwrap_err();
        assert_eq!(world.fetches(), 1);
        world.clock.advance(FAILURE_PAUSE);
        assert_eq!(world.current().await.unwrap(), "a");
    }

    #[tokio::test]
    async fn a_provider_that_never_answers_or_panics_is_an_error() {
        let world = world([Answer::Never, Answer::Panic, Answer::Key("a", None)]);
        let error = world.current().await.unwrap_err();
        assert!(error.to_string().contains("within 60 s"), "{error}");
        world.clock.advance(FAILURE_PAUSE);
        let error = world.current().await.unwrap_err();
        assert!(error.to_string().contains("broken off"), "{error}");
        world.clock.advance(FAILURE_PAUSE);
        assert_eq!(world.current().await.unwrap(), "a");
    }

    #[tokio::test]
    async fn credentials_that_are_over_on_arrival_are_used_all_the_same() {
        let world = world([Answer::Key("a", Some(Duration::ZERO))]);
        assert_eq!(world.current().await.unwrap(), "a");
        assert_eq!(world.current().await.unwrap(), "a");
        assert_eq!(world.fetches(), 1);
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_does_not_break_off_the_fetch() {
        let world = world([Answer::Key("a", None)]);
        {
            let mut first = Box::pin(world.cache.current());
            assert!(futures::poll!(&mut first).is_pending());
        }
        assert_eq!(world.current().await.unwrap(), "a");
        assert_eq!(world.fetches(), 1);
    }

    #[tokio::test]
    async fn the_fetch_ends_with_the_cache() {
        let World { clock, provider, cache } = world([Answer::Never]);
        let mut first = Box::pin(cache.current());
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        let alive = Arc::downgrade(&cache.0);
        drop(cache);
        clock.run(clock.sleep(Duration::from_secs(1))).await;
        assert!(alive.upgrade().is_none());
        assert!(*provider.fetches.lock().unwrap() <= 1);
    }

    #[test]
    fn a_request_while_the_runtime_ends_is_an_error() {
        // The runtime drops a task it no longer takes in the call that starts it. The fetch's own end then waited for the lock
        // that its start held, and the process never ended.
        struct AsksWhenDropped(Arc<CredentialsCache>, std::sync::mpsc::Sender<CredentialsError>);
        impl Drop for AsksWhenDropped {
            fn drop(&mut self) {
                let answer = self.0.current().now_or_never();
                self.1.send(answer.expect("an answer at once").unwrap_err()).unwrap();
            }
        }
        let (sender, answer) = std::sync::mpsc::channel();
        let World { cache, .. } = world([Answer::Key("a", None)]);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let last = AsksWhenDropped(cache, sender);
            runtime.spawn(async move {
                let _last = last;
                futures::future::pending::<()>().await;
            });
            drop(runtime);
        });
        // Against hanging only.
        let error = answer.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(error.to_string().contains("broken off"), "{error}");
    }

    #[tokio::test]
    async fn secrets_are_not_shown() {
        let world = world([Answer::Key("a", None)]);
        world.current().await.unwrap();
        let shown = format!("{:?}", world.cache);
        assert!(shown.contains("\"a\"") && !shown.contains("hunter2"), "{shown}");
    }
}
