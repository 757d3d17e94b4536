//! What a listing gives, what it costs, and what odd stores do to both.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use proptest::prelude::*;

use super::fake_store::{Change, Clock, FakeStore, Oddity, object, shapes};
use super::*;
use crate::store::StoreErrorKind;

struct Silent;

impl ListingProgress for Silent {
    fn page(&self, _: u64, _: u64) {}
}

fn config(max_in_flight: usize) -> ListingConfig {
    ListingConfig { max_in_flight, page_keys: None }
}

/// Runs on this thread only: the same course each time.
fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn list(store: &Arc<FakeStore>, prefix: &str, max_in_flight: usize) -> Result<Listing, ListingError> {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    run(list_prefix(store, &prefix.into(), &config(max_in_flight), &Silent))
}

/// With answers that take 60 ms each, and the time that passes.
fn list_timed(mut store: FakeStore, max_in_flight: usize) -> (Listing, Duration) {
    let clock = Arc::new(Clock::default());
    store.latency = Some((Duration::from_millis(60), Arc::clone(&clock)));
    let config = config(max_in_flight);
    let listing = run(clock.drive(list_prefix(Arc::new(store), &"".into(), &config, &Silent))).unwrap();
    (listing, clock.now())
}

/// The keys of a listing, whose objects are checked on the way.
fn keys(listing: &Listing) -> Vec<String> {
    let mut keys = Vec::new();
    let all: Result<(), ()> = listing.for_each(&mut |entry| {
        let expected = object(&ObjectKey::from(entry.key));
        assert_eq!((entry.size_bytes, entry.modified), (expected.size_bytes, expected.modified));
        assert_eq!(entry.etag, expected.etag.as_ref());
        keys.push(String::from_utf8(entry.key.to_vec()).unwrap());
        Ok(())
    });
    all.unwrap();
    assert_eq!(keys.len() as u64, listing.objects());
    keys
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("d{:02}/f{i:05}", i / 700)).collect()
}

#[test]
fn a_prefix_of_one_page_costs_one_request() {
    for count in [0, 1, 999, 1000] {
        let store = Arc::new(FakeStore::new(numbered(count).iter().map(String::as_str), 1000));
        let listing = list(&store, "d", 32).unwrap();
        assert_eq!(keys(&listing).len(), count);
        assert_eq!((listing.requests(), store.requests.load(SeqCst)), (1, 1), "{count} keys");
        assert_eq!(listing.warnings(), []);
    }
}

#[test]
fn two_pages_cost_a_handful_of_requests() {
    for count in [1001, 1999, 2000] {
        for (name, shape) in shapes(count) {
            let listing = list_timed(FakeStore::new(shape.iter().map(String::as_str), 1000), 32).0;
            assert!(keys(&listing) == shape);
            assert!(listing.requests() <= 8, "{count} {name}: {} requests", listing.requests());
        }
    }
}

#[test]
fn large_listings_cost_little_more_than_their_pages_and_use_many_workers() {
    for count in [5_000, 30_000, 200_000] {
        for (name, shape) in shapes(count) {
            let (listing, time) = list_timed(FakeStore::new(shape.iter().map(String::as_str), 1000), 32);
            assert!(keys(&listing) == shape, "{name}");
            let pages = shape.len().div_ceil(1000) as f64;
            let requests = listing.requests();
            assert!(requests as f64 <= 1.15 * pages + 64.0, "{name}: {requests} requests for {pages} pages");
            // Some time to find out where to cut, then three workers of four are busy.
            let limit = 1.0 + pages * 0.060 / 24.0;
            assert!(time.as_secs_f64() < limit, "{name}: {time:?} for {pages} pages");
        }
    }
}

#[test]
fn a_million_objects_take_less_than_50_bytes_each() {
    for (name, shape) in
        shapes(1_000_000).into_iter().filter(|(name, _)| ["image classes", "padded numbers"].contains(name))
    {
        let (listing, time) = list_timed(FakeStore::new(shape.iter().map(String::as_str), 1000), 32);
        let bytes = listing.memory_bytes() as f64 / listing.objects() as f64;
        assert!(bytes < 50.0, "{name}: {bytes} bytes an object");
        assert!(time < Duration::from_secs(10), "{name}: {time:?}");
    }
}

#[test]
fn only_what_is_below_the_prefix_is_listed() {
    let all = ["a", "a/", "a/b", "a/c/d", "a0", "a/b/c", "b"];
    let store = Arc::new(FakeStore::new(all, 2));
    assert_eq!(keys(&list(&store, "a/", 4).unwrap()), ["a/", "a/b", "a/b/c", "a/c/d"]);
    assert_eq!(keys(&list(&store, "x", 4).unwrap()), [""; 0]);
    assert_eq!(list(&store, "", 4).unwrap().objects(), 7);
}

fn key_sets() -> impl Strategy<Value = BTreeSet<String>> {
    let awkward = proptest::string::string_regex("([ab0-2/.!\u{e9}]{1,6}/){0,2}[a-c0-9/\u{4e00}-\u{4e10} ]{1,5}")
        .unwrap()
        .boxed();
    let padded = (0u32..2000).prop_map(|i| format!("img/{i:06}.jpg")).boxed();
    let hashed = any::<u64>().prop_map(|i| format!("{i:016x}")).boxed();
    let set = |keys: BoxedStrategy<String>| proptest::collection::btree_set(keys, 0..400);
    prop_oneof![
        set(awkward.clone()),
        set(padded.clone()),
        set(hashed.clone()),
        set(prop_oneof![awkward, padded, hashed].boxed()),
    ]
}

fn oddities() -> impl Strategy<Value = Vec<Oddity>> {
    use Oddity as O;
    let harmless = prop_oneof![
        Just(O::StartAfterIgnored),
        Just(O::StartAfterInclusive),
        Just(O::StartAfterSkips),
        Just(O::MaxKeysIgnored),
        Just(O::DelimiterIgnored),
        Just(O::PrefixIgnored),
        Just(O::EmptyPages),
        Just(O::FoldersRepeated),
        Just(O::Shuffled),
        Just(O::PathOrder),
        Just(O::KeysRepeated),
    ];
    proptest::collection::vec(harmless, 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_key_is_listed_once_in_order(
        set in key_sets(), page in 1usize..40, asked in proptest::option::of(1u16..60), workers in 1usize..40, jitter: u64,
    ) {
        let mut store = FakeStore::new(set.iter().map(String::as_str), page);
        store.jitter = Some(jitter);
        let store = Arc::new(store);
        let config = ListingConfig { max_in_flight: workers, page_keys: asked };
        let listing = run(list_prefix(Arc::clone(&store) as Arc<dyn ObjectStore>, &"".into(), &config, &Silent)).unwrap();
        prop_assert_eq!(keys(&listing), set.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(listing.warnings(), &[]);
        prop_assert!(store.most_running.load(SeqCst) <= workers);
        // Those of which the answer is no longer needed may not have gone out.
        prop_assert!(listing.requests() >= store.requests.load(SeqCst));
    }

    #[test]
    fn every_key_is_listed_once_in_order_by_odd_stores_too(
        set in key_sets(), page in 2usize..40, workers in 1usize..40, oddities in oddities(), jitter: u64,
    ) {
        let mut store = FakeStore::new(set.iter().map(String::as_str), page).with(&oddities);
        store.jitter = Some(jitter);
        let store = Arc::new(store);
        let listing = list(&store, "", workers).unwrap();
        prop_assert_eq!(keys(&listing), set.into_iter().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_object_that_comes_or_goes_meanwhile_does_not_disturb_the_others(
        set in key_sets(), page in 2usize..20, after in 1u64..30, which: proptest::sample::Index, comes: bool, jitter: u64,
    ) {
        prop_assume!(!set.is_empty());
        let changed = which.get(&set.iter().collect::<Vec<_>>()).to_string();
        let mut store = FakeStore::new(set.iter().map(String::as_str), page);
        store.jitter = Some(jitter);
        let key = ObjectKey::from(changed.as_str());
        store.change = Some(if comes { Change::Created(after, key) } else { Change::Deleted(after, key) });
        let listing = list(&Arc::new(store), "", 16).unwrap();
        let without = |keys: Vec<String>| keys.into_iter().filter(|key| *key != changed).collect::<Vec<_>>();
        prop_assert_eq!(without(keys(&listing)), without(set.into_iter().collect()));
        prop_assert_eq!(listing.warnings(), &[]);
    }
}

#[test]
fn a_store_that_ignores_start_after_is_listed_folder_by_folder() {
    let all = numbered(5_000);
    let store = FakeStore::new(all.iter().map(String::as_str), 100).with(&[Oddity::StartAfterIgnored]);
    let (listing, time) = list_timed(store, 8);
    assert!(keys(&listing) == all);
    assert_eq!(listing.warnings(), [ListingWarning::StartAfterIgnored]);
    assert!(
        time.as_secs_f64() < listing.requests() as f64 * 0.060 / 4.0,
        "folders were not listed side by side: {time:?}"
    );
}

#[test]
fn a_store_with_an_order_of_its_own_is_sorted() {
    let all: Vec<String> = (0..3_000).map(|i| format!("{}/{i:04}", ["a", "a-", "a.b"][i % 3])).collect();
    let sorted: Vec<String> = all.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    for oddity in [Oddity::PathOrder, Oddity::Shuffled] {
        let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100).with(&[oddity]));
        let listing = list(&store, "", 8).unwrap();
        assert!(keys(&listing) == sorted);
        assert!(!listing.warnings().is_empty());
    }
}

#[test]
fn keys_that_one_range_sees_and_the_next_one_does_not_are_not_lost() {
    let all = numbered(5_000);
    let store = FakeStore::new(all.iter().map(String::as_str), 100).with(&[Oddity::StartAfterSkips]);
    let listing = list_timed(store, 8).0;
    assert!(keys(&listing) == all);
    assert_eq!(listing.warnings(), [ListingWarning::Unordered]);
}

#[test]
fn what_does_not_belong_is_left_out_and_reported() {
    let all = numbered(3_000);
    let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100).with(&[Oddity::PrefixIgnored]));
    let listing = list(&store, "d01/", 8).unwrap();
    assert!(keys(&listing) == all[700..1400]);
    assert!(matches!(listing.warnings(), [ListingWarning::ForeignKeys { count: 1.., .. }]), "{:?}", listing.warnings());

    let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100).with(&[Oddity::KeysRepeated]));
    let listing = list(&store, "", 8).unwrap();
    assert!(keys(&listing) == all);
    assert!(matches!(listing.warnings(), [ListingWarning::RepeatedKeys(1..)]), "{:?}", listing.warnings());

    let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100).with(&[Oddity::DelimiterIgnored]));
    let listing = list(&store, "", 8).unwrap();
    assert!(keys(&listing) == all);
    assert_eq!(listing.warnings(), [ListingWarning::DelimiterIgnored]);
}

#[test]
fn a_listing_that_never_ends_is_an_error() {
    for oddity in [Oddity::SameToken, Oddity::TokenIgnored, Oddity::EmptyForEver] {
        let all = numbered(500);
        let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100).with(&[oddity]));
        let error = list(&store, "d", 8).unwrap_err();
        assert!(matches!(error, ListingError::NoProgress { .. }), "{oddity:?}: {error}");
        assert_eq!(store.running.load(SeqCst), 0);
    }
}

#[test]
fn a_failed_page_fails_the_listing_and_ends_the_other_requests() {
    let all = numbered(20_000);
    let mut store = FakeStore::new(all.iter().map(String::as_str), 100);
    store.refuses = Some(|number, _| (number > 60).then_some(StoreErrorKind::AccessDenied));
    let clock = Arc::new(Clock::default());
    store.latency = Some((Duration::from_millis(60), Arc::clone(&clock)));
    let store = Arc::new(store);
    run(async {
        let config = config(16);
        let prefix = "d".into();
        let error =
            clock.drive(list_prefix(Arc::clone(&store) as Arc<dyn ObjectStore>, &prefix, &config, &Silent)).await;
        assert!(matches!(error, Err(ListingError::Store { .. })));
        assert_eq!(store.running.load(SeqCst), 0, "requests were still running when the error came");
    });
}

#[test]
fn a_failed_look_at_folders_does_not_fail_the_listing() {
    let all = numbered(3_000);
    let mut store = FakeStore::new(all.iter().map(String::as_str), 100);
    // The first request is the first page; the next two are its continuation and the folded page.
    store.refuses = Some(|number, _| (number == 3).then_some(StoreErrorKind::AccessDenied));
    let store = Arc::new(store);
    assert!(keys(&list(&store, "", 8).unwrap()) == all);
}

#[test]
fn throttling_halves_the_requests_in_flight_and_loses_nothing() {
    let all = numbered(20_000);
    let mut store = FakeStore::new(all.iter().map(String::as_str), 100);
    // A store that bears six requests at a time; a millisecond is the wait it asks for.
    store.refuses =
        Some(|_, running| (running > 6).then_some(StoreErrorKind::Throttled(Some(Duration::from_millis(1)))));
    let clock = Arc::new(Clock::default());
    store.latency = Some((Duration::from_millis(60), Arc::clone(&clock)));
    let store = Arc::new(store);
    let config = config(32);
    let listing = run(async {
        clock
            .drive(list_prefix(Arc::clone(&store) as Arc<dyn ObjectStore>, &"".into(), &config, &Silent))
            .await
            .unwrap()
    });
    assert!(keys(&listing) == all);
    assert!(listing.requests() < 200 + 30 + 64 + 40, "{} requests", listing.requests());
}

#[test]
fn a_store_that_only_throttles_fails_the_listing() {
    let mut store = FakeStore::new(["a"], 100);
    store.refuses = Some(|_, _| Some(StoreErrorKind::Throttled(Some(Duration::from_millis(1)))));
    let store = Arc::new(store);
    assert!(matches!(list(&store, "", 8), Err(ListingError::Store { .. })));
    assert_eq!(store.requests.load(SeqCst), 7);
}

#[test]
fn dropping_the_listing_ends_its_requests() {
    let all = numbered(20_000);
    let mut store = FakeStore::new(all.iter().map(String::as_str), 100);
    let clock = Arc::new(Clock::default());
    store.latency = Some((Duration::from_millis(60), Arc::clone(&clock)));
    let store = Arc::new(store);
    run(async {
        let (prefix, config) = ("".into(), config(16));
        let listing = list_prefix(Arc::clone(&store) as Arc<dyn ObjectStore>, &prefix, &config, &Silent);
        let enough = async {
            while store.requests.load(SeqCst) < 100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = clock.drive(listing) => panic!("the listing ended before it was dropped"),
            () = enough => {}
        }
        while store.running.load(SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        let sent = store.requests.load(SeqCst);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.requests.load(SeqCst), sent);
    });
}

#[test]
fn progress_is_told_for_every_page() {
    struct Recorder(Mutex<Vec<(u64, u64)>>);
    impl ListingProgress for Recorder {
        fn page(&self, objects: u64, requests: u64) {
            self.0.lock().unwrap().push((objects, requests));
        }
    }
    let all = numbered(2_500);
    let store = Arc::new(FakeStore::new(all.iter().map(String::as_str), 100));
    let recorder = Recorder(Mutex::default());
    let listing = run(list_prefix(store, &"".into(), &config(8), &recorder)).unwrap();
    let calls = recorder.0.into_inner().unwrap();
    assert_eq!(calls[0], (100, 3), "the next page and the folders are asked for before the first page is stored");
    assert_eq!(calls.last().unwrap().0, listing.objects());
    assert!(calls.is_sorted() && calls.len() >= 25);
}

#[test]
fn visiting_stops_at_the_first_error() {
    let store = Arc::new(FakeStore::new(["a", "b", "c"], 100));
    let listing = list(&store, "", 1).unwrap();
    let mut seen = 0;
    let outcome = listing.for_each(&mut |entry| {
        seen += 1;
        if entry.key == b"b" { Err("enough") } else { Ok(()) }
    });
    assert_eq!((outcome, seen), (Err("enough"), 2));
}
