//! The project's own S3 server with one bucket, as a fixture.

use std::sync::Arc;

use bytes::Bytes;
use streamvol::origin::{
    Bucket, Conditions, CounterSnapshot, Fault, FaultId, FaultRule, MemoryBucket, Origin, OriginConfig,
    SyntheticBucket, SyntheticKeys, Verb,
};

use super::servers::{Address, Server};

const BUCKET: &str = "bucket";
const ACCESS_KEY: &str = "origin-key";
const SECRET_KEY: &str = "origin-secret";

/// A server with one bucket; signatures are checked, GETs are counted by key.
#[derive(Debug)]
pub struct TestOrigin {
    config: OriginConfig,
    server: Origin,
    memory: Arc<MemoryBucket>,
}

impl TestOrigin {
    /// An empty bucket of real bytes.
    pub fn empty() -> Self {
        let memory = Arc::new(MemoryBucket::new());
        Self::serve(Arc::clone(&memory) as Arc<dyn Bucket>, memory)
    }

    /// A bucket of real bytes with these objects.
    pub fn with<K: AsRef<[u8]>, C: Into<Bytes>>(objects: impl IntoIterator<Item = (K, C)>) -> Self {
        let origin = Self::empty();
        for (key, content) in objects {
            origin.put(key, content);
        }
        origin
    }

    /// A bucket in which each key holds itself as text.
    pub fn with_keys<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::with(keys.into_iter().map(|key| {
            let text = Bytes::copy_from_slice(key.as_ref());
            (key, text)
        }))
    }

    /// Computed objects of these sizes; their bytes are `synthetic_content`.
    pub fn synthetic(objects: &[(&str, u64)]) -> Self {
        let rows = objects.iter().map(|&(key, size)| (key.to_owned(), size)).collect();
        Self::computed(SyntheticKeys::Explicit(rows))
    }

    /// Computed images of `mean_bytes` in class directories below `train/`.
    pub fn images(objects: u64, classes: u64, mean_bytes: u64) -> Self {
        Self::computed(SyntheticKeys::ImageClasses {
            prefix: "train/".to_owned(),
            objects,
            classes,
            mean_bytes,
            spread_percent: 50,
        })
    }

    fn computed(keys: SyntheticKeys) -> Self {
        Self::serve(Arc::new(SyntheticBucket::new(keys).unwrap()), Arc::default())
    }

    fn serve(bucket: Arc<dyn Bucket>, memory: Arc<MemoryBucket>) -> Self {
        let config = OriginConfig {
            credentials: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())),
            buckets: vec![(BUCKET.to_owned(), bucket)],
            count_by_key: true,
            ..OriginConfig::default()
        };
        TestOrigin { server: Origin::start(config.clone()).unwrap(), config, memory }
    }

    /// The bucket of real bytes, to change while it is mounted.
    pub fn memory(&self) -> &MemoryBucket {
        &self.memory
    }

    /// Stores or replaces an object.
    pub fn put(&self, key: impl AsRef<[u8]>, content: impl Into<Bytes>) {
        self.memory.insert(key, content);
    }

    /// Latency, limits, faults, oddities.
    pub fn conditions(&self) -> &Conditions {
        self.server.conditions()
    }

    /// Plays a fault for every GET of an object from now on.
    pub fn break_gets(&self, fault: Fault) -> FaultId {
        self.conditions().add_fault(FaultRule::new(fault).verb(Verb::Get))
    }

    /// What was asked and sent since the last reset.
    pub fn counters(&self) -> CounterSnapshot {
        self.server.counters()
    }

    /// Counts from zero.
    pub fn reset_counters(&self) {
        self.server.reset_counters();
    }

    /// Requests of all kinds since the last reset.
    pub fn requests(&self) -> u64 {
        let seen = self.counters();
        seen.list_requests + seen.get_requests + seen.head_requests + seen.put_requests + seen.other_requests
    }

    /// GETs of one key since the last reset.
    pub fn gets_of(&self, key: &str) -> u64 {
        self.server.gets_by_key().get(&format!("{BUCKET}/{key}")).copied().unwrap_or(0)
    }

    /// Ends the server; its port refuses connections from then on.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts it again on the same port, with the same objects, calm, counting from zero.
    pub fn restart(&mut self) {
        self.server.stop();
        self.config.listen = self.server.address();
        self.server = Origin::start(self.config.clone()).unwrap();
    }
}

impl Server for TestOrigin {
    fn address(&self) -> Address {
        Address {
            endpoint: self.server.endpoint().to_owned(),
            bucket: BUCKET.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
        }
    }
}
