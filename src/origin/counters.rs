//! What the server was asked and what it sent, so that tests can assert costs on the server's side.
//!
//! Always true: a request is counted when it arrives, whatever comes of it; bytes are counted before the client can have them,
//! so a client that has its answer finds it counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::request::Verb;

/// A reading of the counters, since the start or the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Pages of listings asked for.
    pub list_requests: u64,
    /// GETs of objects.
    pub get_requests: u64,
    /// HEADs of objects.
    pub head_requests: u64,
    /// PUTs of objects and parts.
    pub put_requests: u64,
    /// All others.
    pub other_requests: u64,
    /// Requests answered 503 because of the request rate.
    pub throttled_requests: u64,
    /// Requests for which a fault was played.
    pub faulted_requests: u64,
    /// Bytes of answers' bodies, without headers.
    pub body_bytes_sent: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Most requests that were being answered at the same time.
    pub in_flight_max: u64,
}

/// The counters of a server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    lists: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    puts: AtomicU64,
    others: AtomicU64,
    throttled: AtomicU64,
    faulted: AtomicU64,
    body_bytes: AtomicU64,
    connections: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    gets_by_key: Option<Mutex<BTreeMap<String, u64>>>,
}

impl Counters {
    pub(super) fn new(by_key: bool) -> Self {
        Counters { gets_by_key: by_key.then(Mutex::default), ..Counters::default() }
    }

    /// Counts a request; it is in flight until the guard goes.
    pub(super) fn request(self: &Arc<Self>, verb: Verb, key: impl FnOnce() -> String) -> InFlight {
        let counter = match verb {
            Verb::List => &self.lists,
            Verb::Get => &self.gets,
            Verb::Head => &self.heads,
            Verb::Put => &self.puts,
            Verb::Delete | Verb::Other => &self.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if verb == Verb::Get
            && let Some(by_key) = &self.gets_by_key
        {
            *by_key.lock().unwrap_or_else(PoisonError::into_inner).entry(key()).or_default() += 1;
        }
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn faulted(&self) {
        self.faulted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            list_requests: read(&self.lists),
            get_requests: read(&self.gets),
            head_requests: read(&self.heads),
            put_requests: read(&self.puts),
            other_requests: read(&self.others),
            throttled_requests: read(&self.throttled),
            faulted_requests: read(&self.faulted),
            body_bytes_sent: read(&self.body_bytes),
            connections_accepted: read(&self.connections),
            in_flight_max: read(&self.in_flight_max),
        }
    }

    pub(super) fn gets_by_key(&self) -> BTreeMap<String, u64> {
        let by_key = self.gets_by_key.as_ref();
        by_key.map(|by_key| by_key.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// Everything to zero; the maximum in flight begins at what is in flight now.
    pub(super) fn reset(&self) {
        for counter in [
            &self.lists,
            &self.gets,
            &self.heads,
            &self.puts,
            &self.others,
            &self.throttled,
            &self.faulted,
            &self.body_bytes,
            &self.connections,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        self.in_flight_max.store(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(by_key) = &self.gets_by_key {
            by_key.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Counters>);

impl InFlight {
    pub(super) fn sent(&self, bytes: u64) {
        self.0.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
