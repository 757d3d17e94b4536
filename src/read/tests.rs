//! The reader over a store in memory and a real namespace: what is fetched, how often, and what a reader gets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::UnixMillis;
use crate::namespace::{BuilderConfig, Destination, ObjectEntry, SnapshotBuilder};
use crate::store::clock::SystemClock;
use crate::store::faulty::{Fault, FaultyStore, STALL, Verb};
use crate::store::memory::{MemoryStore, synthetic_pattern};
use crate::store::{BodySink, GetRequest, ListPage, SliceSink, StoreError, StoreErrorKind};

use super::*;

/// A namespace of what is in `store`, and a reader of it through `front`.
struct Fixture {
    store: Arc<MemoryStore>,
    namespace: Arc<Namespace>,
    reader: Reader,
    changes: Arc<Mutex<Vec<NameChanged>>>,
}

const POOL_BYTES: u64 = 64 * MIB;

fn config(direct: bool) -> ReadConfig {
    ReadConfig { pool_bytes: POOL_BYTES, direct, max_gets_in_flight: 16 }
}

async fn namespace_of(store: &MemoryStore) -> Namespace {
    let builder_config =
        BuilderConfig { destination: Destination::Memory, listed_at: UnixMillis(0), show_shadowed: None };
    let mut builder = SnapshotBuilder::new(&ObjectKey::default(), builder_config).unwrap();
    let mut request = ListRequest::default();
    loop {
        let page = store.list(&request).await.unwrap();
        for object in &page.objects {
            let entry = ObjectEntry {
                key: object.key.as_bytes(),
                size_bytes: object.size_bytes,
                modified: object.modified,
                etag: object.etag.as_ref(),
            };
            builder.push(entry).unwrap();
        }
        request.continuation = page.next;
        if request.continuation.is_none() {
            return Namespace::new(builder.finish().unwrap());
        }
    }
}

impl Fixture {
    async fn new(store: MemoryStore, config: ReadConfig) -> Self {
        let store = Arc::new(store);
        Self::with_front(Arc::clone(&store), store.clone(), config).await
    }

    async fn with_front(store: Arc<MemoryStore>, front: Arc<dyn ObjectStore>, config: ReadConfig) -> Self {
        let namespace = Arc::new(namespace_of(&store).await);
        store.take_counters();
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let reader = Reader::new(
            front,
            Arc::clone(&namespace),
            &config,
            Handle::current(),
            // As the kernel's notifier does it: known a little later.
            Box::new(move |change| {
                let seen = Arc::clone(&seen);
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    seen.lock().unwrap().push(change);
                })
            }),
        );
        Fixture { store, namespace, reader, changes }
    }

    fn node(&self, path: &str) -> NodeId {
        path.split('/').fold(NodeId::ROOT, |parent, name| self.namespace.lookup(parent, name.as_bytes()).unwrap().id)
    }

    async fn read(&self, node: NodeId, offset: u64, length_bytes: u64) -> Result<Vec<u8>, ReadError> {
        read(&self.reader, node, offset, length_bytes).await
    }

    fn gets(&self) -> u64 {
        self.store.counters().gets
    }
}

async fn read(reader: &Reader, node: NodeId, offset: u64, length_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let bytes = match reader.read(node, offset, length_bytes) {
        Read::Ready(outcome) => outcome?,
        Read::Pending(pending) => pending.await?,
    };
    Ok(bytes.as_slice().to_vec())
}

/// The right bytes of `range`, asked of the store itself.
async fn expected(store: &MemoryStore, key: &str, range: ByteRange) -> Vec<u8> {
    let key = ObjectKey::from(key);
    let version = store.version(&key).unwrap();
    let mut bytes = vec![0; usize::try_from(range.len()).unwrap()];
    if !range.is_empty() {
        store.get(&GetRequest { key, version, range }, &mut SliceSink::new(&mut bytes)).await.unwrap();
    }
    bytes
}

fn bucket(sizes: &[(&str, u64)]) -> MemoryStore {
    let store = MemoryStore::new();
    for (key, size_bytes) in sizes {
        store.put_synthetic(*key, *size_bytes, synthetic_pattern());
    }
    store
}

#[tokio::test]
async fn a_small_object_is_one_get_and_then_none() {
    let fixture = Fixture::new(bucket(&[("a/b", 115_000)]), config(false)).await;
    let node = fixture.node("a/b");
    let bytes = fixture.read(node, 0, MIB).await.unwrap();
    assert_eq!(bytes, expected(&fixture.store, "a/b", ByteRange::new(0, 115_000)).await);
    fixture.store.take_counters();
    assert!(matches!(fixture.reader.read(node, 4096, 4096), Read::Ready(Ok(_))), "from memory, at once");
    assert_eq!(fixture.gets(), 0);
}

#[tokio::test]
async fn an_empty_object_and_the_end_of_a_file_need_no_request() {
    let fixture = Fixture::new(bucket(&[("empty", 0), ("ten", 10)]), config(false)).await;
    for (path, offset) in [("empty", 0), ("ten", 10), ("ten", 11), ("ten", u64::MAX), ("ten", i64::MAX as u64)] {
        assert_eq!(fixture.read(fixture.node(path), offset, 4096).await.unwrap(), b"");
    }
    assert_eq!(fixture.gets(), 0);
}

#[tokio::test]
async fn every_range_around_the_edges_of_blocks_is_exact_in_both_modes() {
    let sizes = [1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 12_345, 512 * KIB, 512 * KIB + 1];
    for direct in [false, true] {
        let keys: Vec<(String, u64)> = sizes.iter().map(|size| (format!("o{size}"), *size)).collect();
        let store = bucket(&keys.iter().map(|(key, size)| (key.as_str(), *size)).collect::<Vec<_>>());
        let fixture = Fixture::new(store, config(direct)).await;
        for (key, size_bytes) in &keys {
            let node = fixture.node(key);
            for offset in [0, 1, 4095, 4096, MIB - 4096, MIB - 1, MIB, 2 * MIB + 5, size_bytes - 1, *size_bytes] {
                for length in [1, 4096, 131_072, MIB] {
                    let range = ByteRange::of_read(offset, length, *size_bytes);
                    let got = fixture.read(node, offset, length).await.unwrap();
                    assert_eq!(got, expected(&fixture.store, key, range).await, "{key} {range} direct={direct}");
                }
            }
        }
    }
}

#[tokio::test]
async fn all_who_want_a_block_share_one_get() {
    let fixture = Fixture::new(bucket(&[("a", 5 * MIB)]), config(false)).await;
    let node = fixture.node("a");
    let readers = (0..64).map(|n| {
        let reader = fixture.reader.clone();
        tokio::spawn(async move { read(&reader, node, (n % 5) * MIB, MIB).await.unwrap().len() })
    });
    for reader in futures::future::join_all(readers).await {
        assert_eq!(reader.unwrap() as u64, MIB);
    }
    assert_eq!(fixture.gets(), 5);
}

#[tokio::test]
async fn a_reader_that_gives_up_takes_nothing_from_the_others() {
    let store = Arc::new(bucket(&[("a", 1000)]));
    let faulty = Arc::new(FaultyStore::new(store.clone(), Arc::new(SystemClock)));
    let fixture = Fixture::with_front(store, faulty.clone(), config(false)).await;
    faulty.set_script(|_| Some(STALL));
    let node = fixture.node("a");
    let first = tokio::spawn({
        let reader = fixture.reader.clone();
        async move { read(&reader, node, 0, 1000).await }
    });
    while faulty.stalled() == 0 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn({
        let reader = fixture.reader.clone();
        async move { read(&reader, node, 0, 1000).await }
    });
    while fixture.reader.counters().joined.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    faulty.set_script(|_| None);
    faulty.release();
    assert_eq!(second.await.unwrap().unwrap().len(), 1000);
    assert_eq!(fixture.gets(), 1);
}

#[tokio::test]
async fn direct_mode_fetches_what_is_asked_rounded_to_pages() {
    let fixture = Fixture::new(bucket(&[("a", 100 * MIB)]), config(true)).await;
    let node = fixture.node("a");
    for n in 0..100 {
        fixture.read(node, n * 999_983 + 4096, 4096).await.unwrap();
    }
    assert!(fixture.store.counters().bytes <= 100 * 2 * 4096, "{}", fixture.store.counters().bytes);
    assert_eq!(fixture.gets(), 100);
    fixture.reader.maintain();
    fixture.reader.maintain();
    assert_eq!(fixture.reader.pool().held_bytes(), 0, "nothing is kept");
}

#[tokio::test]
async fn direct_mode_brings_a_small_object_in_one_get_however_the_kernel_asks() {
    let fixture = Fixture::new(bucket(&[("a", 183_000)]), config(true)).await;
    let node = fixture.node("a");
    let mut bytes = Vec::new();
    for length in [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB] {
        bytes.extend(fixture.read(node, bytes.len() as u64, length).await.unwrap());
    }
    assert_eq!(bytes, expected(&fixture.store, "a", ByteRange::new(0, 183_000)).await);
    assert_eq!(fixture.gets(), 2, "one for the reads, one for the comparison");
    fixture.read(node, 0, MIB).await.unwrap();
    assert_eq!(fixture.gets(), 3, "nothing is kept once it was read to its end");
}

#[tokio::test]
async fn a_replaced_object_is_stale_and_its_name_leads_to_the_new_version() {
    for direct in [false, true] {
        let fixture = Fixture::new(bucket(&[("d/a", 3 * MIB)]), config(direct)).await;
        let old = fixture.node("d/a");
        fixture.read(old, 0, 4096).await.unwrap();
        fixture.store.put("d/a", vec![7; 100]);
        assert!(matches!(fixture.read(old, 2 * MIB, 4096).await, Err(ReadError::Stale)));
        let new = fixture.node("d/a");
        assert_ne!(new, old);
        assert_eq!(fixture.read(new, 0, 4096).await.unwrap(), [7; 100]);
        let changes = fixture.changes.lock().unwrap().clone();
        let expected = [NameChanged { parent: fixture.node("d"), name: b"a".to_vec() }];
        assert_eq!(changes, expected, "the kernel has forgotten the name before the error is told");
        assert_eq!(fixture.store.counters().lists, 1, "that one key, once");
        assert!(matches!(fixture.read(old, 2 * MIB, 4096).await, Err(ReadError::Stale)));
        assert_eq!(fixture.store.counters().lists, 1, "no storm");
    }
}

#[tokio::test]
async fn a_deleted_object_is_stale_and_its_name_is_gone() {
    let fixture = Fixture::new(bucket(&[("a", 1000), ("b", 1000)]), config(false)).await;
    let old = fixture.node("a");
    fixture.store.delete(&"a".into());
    assert!(matches!(fixture.read(old, 0, 10).await, Err(ReadError::Stale)));
    assert!(fixture.namespace.lookup(NodeId::ROOT, b"a").is_none());
    assert_eq!(fixture.read(fixture.node("b"), 0, 10).await.unwrap().len(), 10);
}

#[tokio::test]
async fn errors_of_the_store_reach_everybody_who_waits_and_nothing_is_kept() {
    let store = Arc::new(bucket(&[("a", 1000)]));
    let faulty = Arc::new(FaultyStore::new(store.clone(), Arc::new(SystemClock)));
    let fixture = Fixture::with_front(store, faulty.clone(), config(false)).await;
    let node = fixture.node("a");
    faulty.set_script(|call| (call.verb == Verb::Get).then_some(Fault::Error(StoreErrorKind::AccessDenied)));
    for _ in 0..10_000 {
        assert!(matches!(fixture.read(node, 0, 10).await, Err(ReadError::Store(_))));
    }
    faulty.set_script(|_| None);
    assert_eq!(fixture.read(node, 0, 10).await.unwrap().len(), 10, "no permit was lost");
}

/// Readers that hold one block and wait for the memory of the next could wait for each other for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_readers_across_block_borders_finish_on_the_smallest_pool() {
    let small = ReadConfig { pool_bytes: 4 * MIB, ..config(false) };
    let fixture = Fixture::new(bucket(&[("a", 600 * MIB)]), small).await;
    let node = fixture.node("a");
    let readers: Vec<_> = (0..1024)
        .map(|n: u64| {
            let reader = fixture.reader.clone();
            tokio::spawn(async move { read(&reader, node, (n % 512) * MIB + MIB / 2, MIB).await.unwrap().len() })
        })
        .collect();
    for reader in readers {
        let length = tokio::time::timeout(Duration::from_secs(120), reader).await.expect("progress").unwrap();
        assert_eq!(length as u64, MIB);
        assert!(fixture.reader.pool().held_bytes() <= fixture.reader.pool().limit_bytes());
    }
}

#[tokio::test]
async fn a_directory_and_an_unknown_node_cannot_be_read() {
    let fixture = Fixture::new(bucket(&[("d/a", 1)]), config(false)).await;
    assert!(matches!(fixture.read(fixture.node("d"), 0, 1).await, Err(ReadError::IsADirectory)));
    assert!(matches!(fixture.read(NodeId(999_999), 0, 1).await, Err(ReadError::UnknownNode)));
}

/// The cache could keep so much of a small pool that one block found no room, and nothing was ever evicted for it.
#[tokio::test]
async fn the_cache_leaves_room_for_the_largest_get_on_the_smallest_pool() {
    let smallest = ReadConfig { pool_bytes: 4 * MIB, ..config(false) };
    let fixture = Fixture::new(bucket(&[("large", 2 * MIB), ("quarter", 256 * KIB), ("next", MIB)]), smallest).await;
    for (path, offset) in [("large", 0), ("large", MIB), ("quarter", 0), ("next", 0)] {
        let read = fixture.read(fixture.node(path), offset, MIB);
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("room").unwrap();
    }
}

/// All look-ups waited for one lock, so one that the store did not answer held up every read of a changed object.
#[tokio::test]
async fn a_look_up_that_is_not_answered_holds_up_no_other_changed_object() {
    let store = Arc::new(bucket(&[("a", 1000), ("b", 1000)]));
    let faulty = Arc::new(FaultyStore::new(store.clone(), Arc::new(SystemClock)));
    let fixture = Fixture::with_front(store, faulty.clone(), config(false)).await;
    let (a, b) = (fixture.node("a"), fixture.node("b"));
    fixture.store.put("a", vec![1; 10]);
    fixture.store.put("b", vec![2; 10]);
    faulty.set_script(|call| (call.verb == Verb::List && call.key == "a".into()).then_some(STALL));
    let held_up = tokio::spawn({
        let reader = fixture.reader.clone();
        async move { read(&reader, a, 0, 10).await }
    });
    while faulty.stalled() == 0 {
        tokio::task::yield_now().await;
    }
    let told = tokio::time::timeout(Duration::from_secs(5), fixture.read(b, 0, 10)).await.expect("not held up");
    assert!(matches!(told, Err(ReadError::Stale)));
    assert_eq!(fixture.read(fixture.node("b"), 0, 10).await.unwrap(), [2; 10]);
    faulty.release();
    assert!(matches!(held_up.await.unwrap(), Err(ReadError::Stale)));
}

/// A store whose GETs panic as long as it is told to.
#[derive(Debug)]
struct PanickingStore {
    store: Arc<MemoryStore>,
    panics: AtomicBool,
}

impl ObjectStore for PanickingStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        self.store.list(request)
    }

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
        assert!(!self.panics.load(Ordering::SeqCst), "as a test");
        self.store.get(request, body)
    }
}

#[tokio::test]
async fn a_get_that_panics_is_an_error_for_those_who_wait_and_costs_nothing_else() {
    let store = Arc::new(bucket(&[("a", 1000)]));
    let panicking = Arc::new(PanickingStore { store: Arc::clone(&store), panics: true.into() });
    let fixture = Fixture::with_front(store, Arc::clone(&panicking) as _, config(false)).await;
    let node = fixture.node("a");
    for _ in 0..20 {
        assert!(matches!(fixture.read(node, 0, 10).await, Err(ReadError::Abandoned)));
    }
    panicking.panics.store(false, Ordering::SeqCst);
    assert_eq!(fixture.read(node, 0, 10).await.unwrap().len(), 10, "more panics than turns, and none was lost");
}
