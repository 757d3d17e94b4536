//! One GET for all who want a block, and the bound on GETs in flight.
//!
//! A fetch belongs to the scheduler, never to the reader that asked first: a reader that is killed takes nothing from the
//! others. Memory is reserved before a GET waits for its turn, and a fetch holds nothing else while it waits, so fetches cannot
//! wait for each other in a circle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::model::{ByteRange, ObjectKey, ObjectVersion};
use crate::store::{GetRequest, ObjectStore, SliceSink, StoreErrorKind};

use super::block_cache::{Block, BlockCache, BlockId};
use super::error::ReadError;
use super::pool::Buffer;

/// Counts of what the scheduler did, for logs and tests.
#[derive(Debug, Default)]
pub struct FetchCounters {
    /// GETs sent (a GET resumed or tried again counts once).
    pub gets: AtomicU64,
    /// Bytes asked of the store.
    pub bytes: AtomicU64,
    /// Reads that joined a GET already in flight.
    pub joined: AtomicU64,
}

/// What to fetch.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Under which name others find it.
    pub id: BlockId,
    /// Key of the object.
    pub key: ObjectKey,
    /// The version whose bytes are wanted.
    pub version: ObjectVersion,
    /// The block's bytes in the object.
    pub range: ByteRange,
    /// Whether the block stays in the cache.
    pub keep: bool,
}

type Outcome = Result<Arc<Block>, ReadError>;

/// A fetch under way. `done` has no permits; closing it wakes everybody.
struct Flight {
    outcome: OnceLock<Outcome>,
    done: Semaphore,
}

/// Sends GETs; see the module's description.
#[derive(Clone)]
pub struct Scheduler(Arc<Shared>);

struct Shared {
    store: Arc<dyn ObjectStore>,
    cache: BlockCache,
    in_flight: Semaphore,
    flights: Mutex<HashMap<BlockId, Arc<Flight>>>,
    runtime: Handle,
    counters: FetchCounters,
}

impl Scheduler {
    /// A scheduler that keeps at most `max_in_flight` GETs under way, on the given runtime.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, cache: BlockCache, max_in_flight: usize, runtime: Handle) -> Self {
        Scheduler(Arc::new(Shared {
            store,
            cache,
            in_flight: Semaphore::new(max_in_flight.clamp(1, Semaphore::MAX_PERMITS)),
            flights: Mutex::default(),
            runtime,
            counters: FetchCounters::default(),
        }))
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> &FetchCounters {
        &self.0.counters
    }

    /// The block, from the cache or from one GET shared by all who ask for it. Safe to cancel: the fetch goes on.
    pub async fn fetch(&self, fetch: Fetch) -> Outcome {
        let flight = match self.join_or_start(fetch) {
            Ok(block) => return Ok(block),
            Err(flight) => flight,
        };
        // The semaphore never has permits: this returns when it is closed.
        let _closed = flight.done.acquire().await;
        flight.outcome.get().cloned().unwrap_or(Err(ReadError::Abandoned))
    }

    /// Exactly these bytes, for this caller alone, past the cache.
    pub async fn get_exact(
        &self,
        key: ObjectKey,
        version: ObjectVersion,
        range: ByteRange,
    ) -> Result<Arc<Block>, ReadError> {
        self.0.get(key, version, range).await.map(|buffer| Arc::new(Block::new(buffer)))
    }

    /// The block when it has arrived in the meantime, else the flight that brings it.
    fn join_or_start(&self, fetch: Fetch) -> Result<Arc<Block>, Arc<Flight>> {
        let mut flights = self.0.flights();
        if let Some(flight) = flights.get(&fetch.id) {
            self.0.counters.joined.fetch_add(1, Ordering::Relaxed);
            return Err(Arc::clone(flight));
        }
        // Looked up under the lock: a flight puts its block into the cache before it leaves the table.
        if let Some(block) = self.0.cache.get(fetch.id) {
            return Ok(block);
        }
        let flight = Arc::new(Flight { outcome: OnceLock::new(), done: Semaphore::new(0) });
        flights.insert(fetch.id, Arc::clone(&flight));
        drop(flights);
        let landing = Landing { shared: Arc::clone(&self.0), id: fetch.id, flight: Arc::clone(&flight) };
        self.0.runtime.spawn(fly(landing, fetch));
        Err(flight)
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scheduler({} in flight, {:?})", self.0.flights().len(), self.0.cache)
    }
}

async fn fly(landing: Landing, fetch: Fetch) {
    let shared = &landing.shared;
    let outcome = shared.get(fetch.key, fetch.version, fetch.range).await.map(|buffer| {
        let block = Arc::new(Block::new(buffer));
        if fetch.keep {
            shared.cache.insert(fetch.id, Arc::clone(&block));
        }
        block
    });
    let _first = landing.flight.outcome.set(outcome);
}

/// Takes a flight out of the table and wakes its waiters, also when the fetch panicked or the runtime stopped.
struct Landing {
    shared: Arc<Shared>,
    id: BlockId,
    flight: Arc<Flight>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.shared.flights().remove(&self.id);
        self.flight.done.close();
    }
}

impl Shared {
    fn flights(&self) -> MutexGuard<'_, HashMap<BlockId, Arc<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(&self, key: ObjectKey, version: ObjectVersion, range: ByteRange) -> Result<Buffer, ReadError> {
        let len_bytes = usize::try_from(range.len()).map_err(|_| ReadError::Abandoned)?;
        let mut buffer = self.cache.reserve(len_bytes).await;
        let _turn = self.in_flight.acquire().await.map_err(|_| ReadError::Abandoned)?;
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(range.len(), Ordering::Relaxed);
        let request = GetRequest { key, version, range };
        match self.store.get(&request, &mut SliceSink::new(&mut buffer)).await {
            Ok(()) => Ok(buffer),
            Err(error) => match error.kind() {
                StoreErrorKind::Changed | StoreErrorKind::NotFound => Err(ReadError::Stale),
                _ => Err(error.into()),
            },
        }
    }
}
