//! What every `ObjectStore` must do, as one suite that runs against any of them: in memory, wrapped, or a real server.
//!
//! The suite states the contract of `store::ObjectStore` and no more. Where servers legitimately differ, the fixture says so
//! (`Limit`, or an error of `put`), and the report names what was therefore not checked: nothing is skipped silently.

mod get;
mod list;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{GetRequest, ListPage, ListRequest, ListedObject, ObjectStore, SliceSink, StoreError};
use crate::model::{ByteRange, ETag, ObjectKey, ObjectVersion};

/// A bucket for the suite: empty at first, and nobody else's.
pub trait Fixture: Send + Sync {
    /// The store under test, over this bucket.
    fn store(&self) -> Arc<dyn ObjectStore>;

    /// Stores or overwrites an object, without the store under test.
    ///
    /// An error says, in a few words, why the server cannot hold this key: it refuses it, or would store it under another name.
    fn put<'a>(&'a self, key: &'a ObjectKey, content: Bytes) -> BoxFuture<'a, Result<(), String>>;

    /// Deletes an object.
    fn delete<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), String>>;

    /// In what this server is allowed to differ.
    fn limits(&self) -> &[Limit] {
        &[]
    }
}

/// Something that a server legitimately does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Lists no entity tags: a version of the same size cannot be told from another.
    NoEtags,
    /// Puts more keys on a page than it was asked for.
    IgnoresMaxKeys,
    /// Begins at the prefix, wherever it was to begin.
    IgnoresStartAfter,
    /// Lists every key although directories were to be folded.
    IgnoresFolding,
    /// Says a common prefix more than once.
    RepeatsCommonPrefixes,
    /// Lists in no order.
    Unordered,
}

/// What came out of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Cases that held, by name.
    pub passed: Vec<&'static str>,
    /// What did not hold, one line each: case, and what was found.
    pub failures: Vec<String>,
    /// Keys the server cannot hold, each with the fixture's reason: unchecked.
    pub refused_keys: Vec<(ObjectKey, String)>,
    /// What was not checked since the fixture named a limit.
    pub unchecked: Vec<String>,
}

impl Report {
    /// The refused keys alone, for comparing with what is known of a server.
    #[must_use]
    pub fn refused(&self) -> BTreeSet<ObjectKey> {
        self.refused_keys.iter().map(|(key, _)| key.clone()).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cases passed, {} failures", self.passed.len(), self.failures.len())?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "FAILED {failure}"))?;
        self.refused_keys.iter().try_for_each(|(key, reason)| writeln!(f, "refused key \"{key}\": {reason}"))?;
        self.unchecked.iter().try_for_each(|text| writeln!(f, "unchecked: {text}"))
    }
}

/// Runs every case against the fixture's bucket.
pub async fn run(fixture: &dyn Fixture) -> Report {
    let mut suite = Suite { fixture, store: fixture.store(), report: Report::default(), stored: Vec::new() };
    list::run(&mut suite).await;
    get::run(&mut suite).await;
    suite.report
}

/// What a case says when it does not hold.
type Verdict = Result<(), String>;

/// The run so far, and what cases are written with.
struct Suite<'a> {
    fixture: &'a dyn Fixture,
    store: Arc<dyn ObjectStore>,
    report: Report,
    /// What the running case has put.
    stored: Vec<ObjectKey>,
}

impl Suite<'_> {
    fn has(&self, limit: Limit) -> bool {
        self.fixture.limits().contains(&limit)
    }

    fn unchecked(&mut self, what: impl Into<String>) {
        self.report.unchecked.push(what.into());
    }

    /// Writes down how a case ended, and removes what it put.
    async fn conclude(&mut self, name: &'static str, verdict: Verdict) {
        match verdict {
            Ok(()) => self.report.passed.push(name),
            Err(finding) => self.report.failures.push(format!("{name}: {finding}")),
        }
        for key in std::mem::take(&mut self.stored) {
            if let Err(reason) = self.fixture.delete(&key).await {
                self.report.failures.push(format!("{name}: cannot delete \"{key}\" again: {reason}"));
            }
        }
    }

    /// Puts an object; false when the server cannot hold the key, which the report then says.
    async fn put(&mut self, key: &ObjectKey, content: impl Into<Bytes>) -> bool {
        match self.fixture.put(key, content.into()).await {
            Ok(()) => {
                if !self.stored.contains(key) {
                    self.stored.push(key.clone());
                }
                true
            }
            Err(reason) => {
                self.report.refused_keys.push((key.clone(), reason));
                false
            }
        }
    }

    /// Puts every key with itself as content, and says which the server holds.
    async fn put_all(&mut self, keys: &[ObjectKey]) -> BTreeSet<ObjectKey> {
        let mut held = BTreeSet::new();
        for key in keys {
            if self.put(key, Bytes::copy_from_slice(key.as_bytes())).await {
                held.insert(key.clone());
            }
        }
        held
    }

    async fn delete(&mut self, key: &ObjectKey) -> Verdict {
        self.stored.retain(|stored| stored != key);
        self.fixture.delete(key).await
    }

    /// All pages of a listing, by their tokens.
    async fn walk(&self, request: &ListRequest) -> Result<Vec<ListPage>, String> {
        /// More pages than any case has, empty ones included.
        const MOST_PAGES: usize = 1000;
        let mut request = request.clone();
        let mut pages = Vec::new();
        while pages.len() < MOST_PAGES {
            let page = self.store.list(&request).await.map_err(|error| error.to_string())?;
            request.continuation.clone_from(&page.next);
            pages.push(page);
            if request.continuation.is_none() {
                return Ok(pages);
            }
        }
        Err(format!("the listing of \"{}\" did not end after {MOST_PAGES} pages", request.prefix))
    }

    /// All objects of a listing without folding.
    async fn objects(&self, prefix: &ObjectKey) -> Result<Vec<ListedObject>, String> {
        let request = ListRequest { prefix: prefix.clone(), ..ListRequest::default() };
        Ok(self.walk(&request).await?.into_iter().flat_map(|page| page.objects).collect())
    }

    /// The one object under exactly this key, as it is listed.
    async fn listed(&self, key: &ObjectKey) -> Result<ListedObject, String> {
        let objects = self.objects(key).await?;
        objects.into_iter().find(|object| object.key == *key).ok_or_else(|| format!("\"{key}\" is not listed"))
    }

    /// The answer to a GET, and what reached the sink.
    async fn fetch(&self, request: &GetRequest) -> (Result<(), StoreError>, Vec<u8>) {
        let mut memory = vec![0; usize::try_from(request.range.len()).unwrap_or(0)];
        let mut sink = SliceSink::new(&mut memory);
        let result = self.store.get(request, &mut sink).await;
        let filled = sink.filled_bytes();
        memory.truncate(filled);
        (result, memory)
    }

    /// Holds when a GET gives exactly these bytes.
    async fn expect_bytes(&self, request: &GetRequest, expected: &[u8]) -> Verdict {
        let GetRequest { key, range, .. } = request;
        match self.fetch(request).await {
            (Err(error), _) => Err(format!("bytes {range}: {error}")),
            (Ok(()), found) if found == expected => Ok(()),
            (Ok(()), found) => {
                let (got, wanted) = (found.len(), expected.len());
                let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
                Err(format!("bytes {range} of \"{key}\": {got} instead of {wanted} bytes, the first wrong one at {at}"))
            }
        }
    }
}

/// A request for some bytes of an object as it was listed.
fn get_of(object: &ListedObject, range: ByteRange) -> GetRequest {
    GetRequest { key: object.key.clone(), version: version_of(object), range }
}

/// The version of an object as it was listed.
fn version_of(object: &ListedObject) -> ObjectVersion {
    ObjectVersion { etag: object.etag.clone(), size_bytes: object.size_bytes }
}

/// An entity tag that no object of the suite has.
fn foreign_etag() -> ETag {
    ETag::Digest([0x5a; 16])
}

/// `Ok` when `holds`, else what `finding` says.
fn check(holds: bool, finding: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(finding()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use futures::FutureExt;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::store::StoreErrorKind;
    use crate::store::clock::ManualClock;
    use crate::store::faulty::{Fault, FaultyStore, ListQuirk, Verb};
    use crate::store::memory::MemoryStore;
    use crate::store::retry::{RetryConfig, RetryStore};

    struct MemoryFixture {
        memory: Arc<MemoryStore>,
        store: Arc<dyn ObjectStore>,
        limits: Vec<Limit>,
        refuses: Option<ObjectKey>,
    }

    impl Fixture for MemoryFixture {
        fn store(&self) -> Arc<dyn ObjectStore> {
            self.store.clone()
        }

        fn put<'a>(&'a self, key: &'a ObjectKey, content: Bytes) -> BoxFuture<'a, Result<(), String>> {
            if self.refuses.as_ref() == Some(key) {
                return async { Err("scripted refusal".to_owned()) }.boxed();
            }
            self.memory.put(key.clone(), content);
            async { Ok(()) }.boxed()
        }

        fn delete<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), String>> {
            self.memory.delete(key);
            async { Ok(()) }.boxed()
        }

        fn limits(&self) -> &[Limit] {
            &self.limits
        }
    }

    /// Memory, and whatever `wrap` puts around it.
    fn fixture(wrap: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn ObjectStore>) -> MemoryFixture {
        let memory = Arc::new(MemoryStore::new());
        MemoryFixture { store: wrap(memory.clone()), memory, limits: Vec::new(), refuses: None }
    }

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH))
    }

    fn retrying(inner: Arc<dyn ObjectStore>, clock: Arc<ManualClock>) -> Arc<RetryStore> {
        Arc::new(RetryStore::new(inner, RetryConfig::default(), clock, SmallRng::seed_from_u64(7)))
    }

    fn assert_all_checked(report: &Report) {
        assert!(report.failures.is_empty(), "{report}");
        assert!(report.refused_keys.is_empty() && report.unchecked.is_empty(), "{report}");
        assert!(report.passed.len() >= 15, "{report}");
    }

    #[tokio::test]
    async fn memory_conforms() {
        assert_all_checked(&run(&fixture(|memory| memory)).await);
    }

    #[tokio::test]
    async fn retry_around_memory_conforms() {
        let clock = clock();
        let fixture = fixture(|memory| retrying(memory, clock.clone()));
        assert_all_checked(&clock.run(run(&fixture)).await);
    }

    #[tokio::test]
    async fn a_faulty_store_without_faults_conforms() {
        assert_all_checked(&run(&fixture(|memory| Arc::new(FaultyStore::new(memory, clock())))).await);
    }

    #[tokio::test]
    async fn retry_over_interruptions_conforms() {
        let clock = clock();
        let mut retry = None;
        let fixture = fixture(|memory| {
            let faulty = FaultyStore::new(memory, clock.clone());
            let mut calls = 0_u64;
            faulty.set_script(move |call| {
                calls += 1;
                match (calls % 3, call.verb) {
                    (0, _) => None,
                    (1, _) => Some(Fault::InterruptAfter(calls % 97)),
                    (_, Verb::List) => Some(Fault::Error(StoreErrorKind::Unavailable)),
                    (_, Verb::Get) => Some(Fault::Error(StoreErrorKind::Throttled(Some(Duration::from_secs(1))))),
                }
            });
            let store = retrying(Arc::new(faulty), clock.clone());
            retry = Some(store.clone());
            store
        });
        assert_all_checked(&clock.run(run(&fixture)).await);
        let retries = retry.unwrap().counters().total();
        assert!(retries > 100, "only {retries} retries: the faults were not met");
    }

    #[tokio::test]
    async fn odd_listings_conform_within_their_limits() {
        let odd = [
            (ListQuirk::IgnoresMaxKeys, Some(Limit::IgnoresMaxKeys)),
            (ListQuirk::IgnoresFolding, Some(Limit::IgnoresFolding)),
            (ListQuirk::IgnoresStartAfter, Some(Limit::IgnoresStartAfter)),
            (ListQuirk::EmptyPages, None),
            (ListQuirk::RepeatsCommonPrefixes, Some(Limit::RepeatsCommonPrefixes)),
            (ListQuirk::Unordered, Some(Limit::Unordered)),
            (ListQuirk::PageSizes(vec![1, 2, 3, 5]), None),
        ];
        for (quirk, limit) in odd {
            let with_limits = |limits: Vec<Limit>| {
                let quirk = quirk.clone();
                let fixture = fixture(|memory| {
                    let faulty = FaultyStore::new(memory, clock());
                    faulty.set_list_quirks(vec![quirk]);
                    Arc::new(faulty)
                });
                MemoryFixture { limits, ..fixture }
            };
            let report = run(&with_limits(limit.into_iter().collect())).await;
            assert!(report.failures.is_empty(), "{quirk:?}: {report}");
            if limit.is_some() {
                assert!(!report.unchecked.is_empty(), "{quirk:?}: {report}");
                let strict = run(&with_limits(Vec::new())).await;
                assert!(!strict.failures.is_empty(), "{quirk:?} passes without its limit");
            }
        }
    }

    #[tokio::test]
    async fn a_key_that_the_server_refuses_is_reported() {
        let key = ObjectKey::from("names/a\tb");
        let fixture = MemoryFixture { refuses: Some(key.clone()), ..fixture(|memory| memory) };
        let report = run(&fixture).await;
        assert!(report.failures.is_empty(), "{report}");
        assert_eq!(report.refused_keys, [(key, "scripted refusal".to_owned())]);
    }

    /// Gives wrong answers, one kind each, to show that the suite sees them.
    #[derive(Debug)]
    struct Liar(Arc<MemoryStore>, Lie);

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Lie {
        DropsLastKey,
        DecodesPlus,
        WrongSize,
        IgnoresVersion,
        ShiftsRanges,
        WritesBeforeRefusing,
        NotFoundAsChanged,
    }

    impl ObjectStore for Liar {
        fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
            async move {
                let mut page = self.0.list(request).await?;
                match self.1 {
                    Lie::DropsLastKey if page.objects.len() > 1 => drop(page.objects.pop()),
                    Lie::DecodesPlus => page.objects.iter_mut().for_each(|object| {
                        let key: Vec<u8> =
                            object.key.as_bytes().iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
                        object.key = key.into();
                    }),
                    Lie::WrongSize => page.objects.iter_mut().for_each(|object| object.size_bytes += 1),
                    _ => {}
                }
                Ok(page)
            }
            .boxed()
        }

        fn get<'a>(
            &'a self,
            request: &'a GetRequest,
            body: &'a mut dyn BodySink,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            async move {
                let mut request = request.clone();
                match self.1 {
                    Lie::IgnoresVersion => request.version.etag = None,
                    Lie::ShiftsRanges if request.range.start > 0 => {
                        request.range = ByteRange::new(request.range.start - 1, request.range.end - 1);
                    }
                    _ => {}
                }
                let result = self.0.get(&request, body).await;
                match (self.1, result) {
                    (Lie::WritesBeforeRefusing, Err(error)) => {
                        body.advance(1);
                        Err(error)
                    }
                    (Lie::NotFoundAsChanged, Err(error)) if *error.kind() == StoreErrorKind::NotFound => {
                        Err(StoreError::new(StoreErrorKind::Changed, "get", &request.key, "lie"))
                    }
                    (_, result) => result,
                }
            }
            .boxed()
        }
    }

    use crate::store::BodySink;

    #[tokio::test]
    async fn the_suite_sees_every_kind_of_wrong_answer() {
        for lie in [
            Lie::DropsLastKey,
            Lie::DecodesPlus,
            Lie::WrongSize,
            Lie::IgnoresVersion,
            Lie::ShiftsRanges,
            Lie::WritesBeforeRefusing,
            Lie::NotFoundAsChanged,
        ] {
            let report = run(&fixture(|memory| Arc::new(Liar(memory, lie)))).await;
            assert!(!report.failures.is_empty(), "{lie:?} was not seen");
        }
    }
}
