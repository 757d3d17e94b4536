//! Test support: a store that fails, stalls and lists oddly on request, around any other store.
//!
//! A script decides call by call; without one everything passes through. What passes is still right: bytes are never altered,
//! since no store under the contract of `ObjectStore` may do that. Used by the tests of every module above, so it is always built.

mod listing;

pub use listing::ListQuirk;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::clock::Clock;
use super::{BodySink, GetRequest, ListPage, ListRequest, ObjectStore, StoreError, StoreErrorKind};
use crate::model::{ByteRange, ObjectKey};

/// Which question a call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// A page of keys.
    List,
    /// Bytes.
    Get,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::List => "list",
            Verb::Get => "get",
        }
    }
}

/// One call, as a script sees it.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is asked.
    pub verb: Verb,
    /// The key, or the prefix that is listed.
    pub key: ObjectKey,
    /// The bytes asked for; `None` for a listing.
    pub range: Option<ByteRange>,
    /// How often this verb was asked of this key, this call included: 1 at first.
    pub attempt: u64,
}

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Fails at once. Another version is `Error(StoreErrorKind::Changed)`.
    Error(StoreErrorKind),
    /// Answers rightly, later.
    Delay(Duration),
    /// Fails so much later.
    DelayedError(Duration, StoreErrorKind),
    /// Hands over so many right bytes and breaks off. On a listing: breaks off at once.
    InterruptAfter(u64),
    /// Hands over so many right bytes, then nothing until `release`; goes on rightly after it.
    StallAfter(u64),
}

/// Never answers until `FaultyStore::release`.
pub const STALL: Fault = Fault::StallAfter(0);

type Script = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// A store that fails on request.
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    stalls: watch::Sender<Stalls>,
}

struct State {
    script: Script,
    attempts: HashMap<(Verb, ObjectKey), u64>,
    quirks: Vec<ListQuirk>,
    calls: u64,
}

/// `released` counts calls of `release`; who stalled before the latest goes on.
#[derive(Debug, Clone, Copy, Default)]
struct Stalls {
    stalled: usize,
    released: u64,
}

/// Counts one stalled call for as long as it stalls; also when its caller gives up on it.
struct StallGuard<'a>(&'a watch::Sender<Stalls>);

impl<'a> StallGuard<'a> {
    fn new(stalls: &'a watch::Sender<Stalls>) -> Self {
        stalls.send_modify(|stalls| stalls.stalled += 1);
        StallGuard(stalls)
    }
}

impl Drop for StallGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|stalls| stalls.stalled -= 1);
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// Passes everything on to `inner`; `clock` measures delays.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Self {
        let state = State { script: Box::new(|_| None), attempts: HashMap::new(), quirks: Vec::new(), calls: 0 };
        FaultyStore { inner, clock, state: Mutex::new(state), stalls: watch::Sender::new(Stalls::default()) }
    }

    /// Asks `script` about every call from now on.
    pub fn set_script(&self, script: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        self.state().script = Box::new(script);
    }

    /// Lets the next calls fail as `faults` says, one each (`None` passes), and everything after them pass.
    pub fn set_queue(&self, faults: impl IntoIterator<Item = Option<Fault>, IntoIter: Send + 'static>) {
        let mut faults = faults.into_iter().fuse();
        self.set_script(move |_| faults.next().flatten());
    }

    /// Lists as an odd store does from now on.
    pub fn set_list_quirks(&self, quirks: Vec<ListQuirk>) {
        self.state().quirks = quirks;
    }

    /// Calls so far, failed ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Calls that stall at this moment.
    #[must_use]
    pub fn stalled(&self) -> usize {
        self.stalls.borrow().stalled
    }

    /// Resolves once at least `count` calls stall.
    pub async fn until_stalled(&self, count: usize) {
        let mut stalls = self.stalls.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = stalls.wait_for(|stalls| stalls.stalled >= count).await;
    }

    /// Lets all who stall go on; later calls stall again if the script says so.
    pub fn release(&self) {
        self.stalls.send_modify(|stalls| stalls.released += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_script(&self, verb: Verb, key: &ObjectKey, range: Option<ByteRange>) -> Option<Fault> {
        let mut state = self.state();
        state.calls += 1;
        let attempt = state.attempts.entry((verb, key.clone())).or_default();
        *attempt += 1;
        let call = Call { verb, key: key.clone(), range, attempt: *attempt };
        (state.script)(&call)
    }

    async fn stall(&self) {
        let mut stalls = self.stalls.subscribe();
        let released = stalls.borrow_and_update().released;
        let _guard = StallGuard::new(&self.stalls);
        let _ = stalls.wait_for(|stalls| stalls.released > released).await;
    }

    /// What happens before the first byte; the number of bytes after which something else does, if it does.
    async fn begin(&self, verb: Verb, key: &ObjectKey, range: Option<ByteRange>) -> Result<Option<Break>, StoreError> {
        let scripted = |kind| Err(StoreError::new(kind, verb.name(), key, "scripted fault"));
        match self.ask_script(verb, key, range) {
            None => Ok(None),
            Some(Fault::Error(kind)) => scripted(kind),
            Some(Fault::Delay(delay)) => {
                self.clock.sleep(delay).await;
                Ok(None)
            }
            Some(Fault::DelayedError(delay, kind)) => {
                self.clock.sleep(delay).await;
                scripted(kind)
            }
            Some(Fault::InterruptAfter(0)) => scripted(StoreErrorKind::Interrupted),
            Some(Fault::InterruptAfter(bytes)) => Ok(Some(Break::Fail(bytes))),
            Some(Fault::StallAfter(0)) => {
                self.stall().await;
                Ok(None)
            }
            Some(Fault::StallAfter(bytes)) => Ok(Some(Break::Stall(bytes))),
        }
    }

    async fn list_faultily(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        if let Some(Break::Fail(_)) = self.begin(Verb::List, &request.prefix, None).await? {
            let message = "scripted fault";
            return Err(StoreError::new(StoreErrorKind::Interrupted, "list", &request.prefix, message));
        }
        let quirks = self.state().quirks.clone();
        listing::list_with_quirks(&*self.inner, request, &quirks).await
    }

    async fn get_faultily(&self, request: &GetRequest, body: &mut dyn BodySink) -> Result<(), StoreError> {
        let cut = self.begin(Verb::Get, &request.key, Some(request.range)).await?;
        let (Some(Break::Fail(bytes)) | Some(Break::Stall(bytes))) = cut else {
            return self.inner.get(request, body).await;
        };
        let cut_at = (request.range.start + bytes).min(request.range.end);
        let head = ByteRange::new(request.range.start, cut_at);
        self.inner.get(&GetRequest { range: head, ..request.clone() }, &mut LimitedSink::new(body, head)).await?;
        if let Some(Break::Fail(_)) = cut {
            return Err(StoreError::new(StoreErrorKind::Interrupted, "get", &request.key, "scripted fault"));
        }
        self.stall().await;
        let tail = ByteRange::new(cut_at, request.range.end);
        if tail.is_empty() {
            return Ok(());
        }
        self.inner.get(&GetRequest { range: tail, ..request.clone() }, body).await
    }
}

/// What happens after some bytes of a body.
#[derive(Debug, Clone, Copy)]
enum Break {
    Fail(u64),
    Stall(u64),
}

/// Shows a store no more room than its part of the body has.
struct LimitedSink<'a> {
    body: &'a mut dyn BodySink,
    left_bytes: usize,
}

impl<'a> LimitedSink<'a> {
    fn new(body: &'a mut dyn BodySink, range: ByteRange) -> Self {
        LimitedSink { body, left_bytes: usize::try_from(range.len()).unwrap_or(usize::MAX) }
    }
}

impl BodySink for LimitedSink<'_> {
    fn spare(&mut self) -> &mut [u8] {
        let spare = self.body.spare();
        let room = spare.len().min(self.left_bytes);
        &mut spare[..room]
    }

    fn advance(&mut self, filled_bytes: usize) {
        self.left_bytes -= filled_bytes;
        self.body.advance(filled_bytes);
    }
}

impl ObjectStore for FaultyStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        self.list_faultily(request).boxed()
    }

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
        self.get_faultily(request, body).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::model::ObjectVersion;
    use crate::store::SliceSink;
    use crate::store::clock::ManualClock;
    use crate::store::memory::MemoryStore;

    struct World {
        clock: Arc<ManualClock>,
        faulty: Arc<FaultyStore>,
        version: ObjectVersion,
    }

    fn world() -> World {
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let memory = Arc::new(MemoryStore::new());
        let version = memory.put("a", "0123456789");
        World { faulty: Arc::new(FaultyStore::new(memory, clock.clone())), clock, version }
    }

    async fn get(faulty: &FaultyStore, version: &ObjectVersion) -> (Result<(), StoreErrorKind>, Vec<u8>) {
        let range = ByteRange::new(0, version.size_bytes);
        let request = GetRequest { key: "a".into(), version: version.clone(), range };
        let mut memory = vec![0; 10];
        let mut sink = SliceSink::new(&mut memory);
        let result = faulty.get(&request, &mut sink).await.map_err(|error| error.kind().clone());
        let filled = sink.filled_bytes();
        memory.truncate(filled);
        (result, memory)
    }

    #[tokio::test]
    async fn the_queue_is_served_call_by_call_then_all_passes() {
        let World { faulty, version, .. } = world();
        faulty.set_queue([Some(Fault::Error(StoreErrorKind::Changed)), None, Some(Fault::InterruptAfter(3))]);
        assert_eq!(get(&faulty, &version).await, (Err(StoreErrorKind::Changed), Vec::new()));
        assert_eq!(get(&faulty, &version).await, (Ok(()), b"0123456789".to_vec()));
        assert_eq!(get(&faulty, &version).await, (Err(StoreErrorKind::Interrupted), b"012".to_vec()));
        assert_eq!(get(&faulty, &version).await, (Ok(()), b"0123456789".to_vec()));
        assert_eq!(faulty.calls(), 4);
    }

    #[tokio::test]
    async fn the_script_sees_verb_key_range_and_attempt() {
        let World { faulty, version, .. } = world();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        faulty.set_script(move |call| {
            log.lock().unwrap().push((call.verb, call.key.to_string(), call.range, call.attempt));
            None
        });
        get(&faulty, &version).await.0.unwrap();
        get(&faulty, &version).await.0.unwrap();
        faulty.list(&ListRequest { prefix: "a".into(), ..ListRequest::default() }).await.unwrap();
        let range = Some(ByteRange::new(0, 10));
        let a = || "a".to_owned();
        let expected = [(Verb::Get, a(), range, 1), (Verb::Get, a(), range, 2), (Verb::List, a(), None, 1)];
        assert_eq!(*seen.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_delay_takes_the_clocks_time() {
        let World { faulty, version, clock } = world();
        let delay = Duration::from_secs(5);
        faulty.set_queue([Some(Fault::Delay(delay)), Some(Fault::DelayedError(delay, StoreErrorKind::NotFound))]);
        assert_eq!(clock.run(get(&faulty, &version)).await.0, Ok(()));
        assert_eq!(clock.elapsed(), delay);
        assert_eq!(clock.run(get(&faulty, &version)).await.0, Err(StoreErrorKind::NotFound));
        assert_eq!(clock.elapsed(), 2 * delay);
    }

    #[tokio::test]
    async fn who_stalls_goes_on_when_released_and_is_counted_until_then() {
        let World { faulty, version, .. } = world();
        faulty.set_queue([Some(STALL), Some(Fault::StallAfter(4))]);
        let calls = [(); 2].map(|()| {
            let (faulty, version) = (faulty.clone(), version.clone());
            tokio::spawn(async move { get(&faulty, &version).await })
        });
        faulty.until_stalled(2).await;
        assert_eq!(faulty.stalled(), 2);
        faulty.release();
        for call in calls {
            assert_eq!(call.await.unwrap(), (Ok(()), b"0123456789".to_vec()));
        }
        assert_eq!(faulty.stalled(), 0);
    }

    #[tokio::test]
    async fn a_stalled_call_that_is_given_up_counts_no_more() {
        let World { faulty, version, .. } = world();
        faulty.set_queue([Some(STALL)]);
        let call = {
            let (faulty, version) = (faulty.clone(), version.clone());
            tokio::spawn(async move { get(&faulty, &version).await })
        };
        faulty.until_stalled(1).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert_eq!(faulty.stalled(), 0);
    }
}
