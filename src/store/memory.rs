//! A bucket in memory: the reference that the conformance suite is written against, and the bucket of other modules' tests.
//!
//! Lists as S3 does: keys in byte order, common prefixes rolled up and counted as one entry, opaque tokens. Objects are bytes,
//! or synthetic: a size and a function of (key, offset), so that 5 TiB cost nothing. Every request is counted, by key.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use md5::{Digest, Md5};

use super::{BodySink, GetRequest, ListPage, ListRequest, ListedObject, ObjectStore, StoreError, StoreErrorKind};
use crate::model::{ByteRange, ETag, ObjectKey, ObjectVersion, UnixMillis};

/// What S3 puts on a page at most.
const S3_PAGE_ENTRIES: u16 = 1000;

/// 2023-11-14T22:13:20Z, when the first object is put; each later one comes a second after.
const FIRST_MODIFIED: UnixMillis = UnixMillis(1_700_000_000_000);

/// Writes the bytes of a synthetic object from an offset on; called with (key, offset, where to).
pub type FillSynthetic = Arc<dyn Fn(&ObjectKey, u64, &mut [u8]) + Send + Sync>;

/// A bucket in memory.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    objects: BTreeMap<ObjectKey, StoredObject>,
    puts: u64,
    page_limit: u16,
    counters: MemoryCounters,
}

#[derive(Debug, Clone)]
struct StoredObject {
    content: Content,
    version: ObjectVersion,
    modified: UnixMillis,
}

#[derive(Clone)]
enum Content {
    Bytes(Bytes),
    Synthetic(FillSynthetic),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Bytes(_) => "Bytes",
            Content::Synthetic(_) => "Synthetic",
        })
    }
}

/// What a `MemoryStore` was asked, for tests that assert costs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// List requests.
    pub lists: u64,
    /// Get requests, refused ones included.
    pub gets: u64,
    /// Body bytes handed over.
    pub bytes: u64,
    /// Get requests and bytes of each key that was asked for.
    pub by_key: BTreeMap<ObjectKey, KeyCounters>,
}

/// What a `MemoryStore` was asked about one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyCounters {
    /// Get requests, refused ones included.
    pub gets: u64,
    /// Body bytes handed over.
    pub bytes: u64,
    /// The ranges asked for, in order.
    pub ranges: Vec<ByteRange>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty bucket with pages of 1,000.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            objects: BTreeMap::new(),
            puts: 0,
            page_limit: S3_PAGE_ENTRIES,
            counters: MemoryCounters::default(),
        };
        MemoryStore { state: Mutex::new(state) }
    }

    /// Puts at most `entries` (1 or more) on a page, whatever a request allows.
    pub fn set_page_limit(&self, entries: u16) {
        self.state().page_limit = entries.max(1);
    }

    /// Stores or overwrites an object. Its entity tag is the MD5 of its content, as in S3.
    pub fn put(&self, key: impl Into<ObjectKey>, content: impl Into<Bytes>) -> ObjectVersion {
        let content = content.into();
        let tag = Md5::digest(&content).into();
        let size_bytes = content.len() as u64;
        self.insert(key.into(), tag, size_bytes, Content::Bytes(content))
    }

    /// Stores or overwrites an object of `size_bytes` whose bytes `fill` computes when asked. Every put is another version.
    pub fn put_synthetic(&self, key: impl Into<ObjectKey>, size_bytes: u64, fill: FillSynthetic) -> ObjectVersion {
        let key = key.into();
        let mut hash = Md5::new();
        hash.update(key.as_bytes());
        hash.update(size_bytes.to_le_bytes());
        hash.update(self.state().puts.to_le_bytes());
        self.insert(key, hash.finalize().into(), size_bytes, Content::Synthetic(fill))
    }

    fn insert(&self, key: ObjectKey, tag: [u8; 16], size_bytes: u64, content: Content) -> ObjectVersion {
        let mut state = self.state();
        let seconds = i64::try_from(state.puts).unwrap_or(i64::MAX);
        state.puts += 1;
        let modified = UnixMillis(FIRST_MODIFIED.0.saturating_add(seconds.saturating_mul(1000)));
        let version = ObjectVersion { etag: Some(ETag::Digest(tag)), size_bytes };
        state.objects.insert(key, StoredObject { content, version: version.clone(), modified });
        version
    }

    /// Dates an object; false when there is none.
    pub fn set_modified(&self, key: &ObjectKey, modified: UnixMillis) -> bool {
        self.state().objects.get_mut(key).map(|object| object.modified = modified).is_some()
    }

    /// Gives an object another entity tag, or none; false when there is no object.
    pub fn set_etag(&self, key: &ObjectKey, etag: Option<ETag>) -> bool {
        self.state().objects.get_mut(key).map(|object| object.version.etag = etag).is_some()
    }

    /// Deletes an object; false when there was none.
    pub fn delete(&self, key: &ObjectKey) -> bool {
        self.state().objects.remove(key).is_some()
    }

    /// The version under `key`, without a request being counted.
    #[must_use]
    pub fn version(&self, key: &ObjectKey) -> Option<ObjectVersion> {
        self.state().objects.get(key).map(|object| object.version.clone())
    }

    /// What was asked so far.
    #[must_use]
    pub fn counters(&self) -> MemoryCounters {
        self.state().counters.clone()
    }

    /// Counts from zero again, and gives back what was counted.
    pub fn take_counters(&self) -> MemoryCounters {
        std::mem::take(&mut self.state().counters)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        let mut state = self.state();
        state.counters.lists += 1;
        let after = match &request.continuation {
            Some(token) => Some(Entry::from_token(token).ok_or_else(|| {
                let message = "the continuation token is none of this store's";
                StoreError::new(StoreErrorKind::InvalidRequest, "list", &request.prefix, message)
            })?),
            None => request.start_after.clone().map(Entry::Object),
        };
        let limit = usize::from(request.max_keys.unwrap_or(S3_PAGE_ENTRIES).min(state.page_limit));
        Ok(list_page(&state.objects, request, after, limit))
    }

    fn answer_get(&self, request: &GetRequest, body: &mut dyn BodySink) -> Result<(), StoreError> {
        let object = self.open(request)?;
        let mut position = request.range.start;
        while position < request.range.end {
            let spare = body.spare();
            let room = usize::try_from(request.range.end - position).unwrap_or(usize::MAX).min(spare.len());
            if room == 0 {
                let message = "the caller's memory is smaller than the range";
                return Err(StoreError::new(StoreErrorKind::InvalidRequest, "get", &request.key, message));
            }
            match &object.content {
                Content::Bytes(bytes) => {
                    let start = usize::try_from(position).unwrap_or(usize::MAX);
                    spare[..room].copy_from_slice(&bytes[start..start + room]);
                }
                Content::Synthetic(fill) => fill(&request.key, position, &mut spare[..room]),
            }
            body.advance(room);
            position += room as u64;
            self.count_bytes(&request.key, room as u64);
        }
        Ok(())
    }

    /// The object, when it is the version asked for and has the bytes asked for.
    fn open(&self, request: &GetRequest) -> Result<StoredObject, StoreError> {
        let mut state = self.state();
        state.counters.gets += 1;
        let counted = state.counters.by_key.entry(request.key.clone()).or_default();
        counted.gets += 1;
        counted.ranges.push(request.range);
        let refuse = |kind, message: &str| Err(StoreError::new(kind, "get", &request.key, message));
        let Some(object) = state.objects.get(&request.key) else {
            return refuse(StoreErrorKind::NotFound, "there is no such object");
        };
        let wanted = &request.version;
        let same_tag = wanted.etag.is_none() || wanted.etag == object.version.etag;
        if !same_tag || wanted.size_bytes != object.version.size_bytes {
            return refuse(StoreErrorKind::Changed, "the object is another version now");
        }
        if request.range.is_empty() || request.range.end > wanted.size_bytes {
            return refuse(StoreErrorKind::InvalidRequest, "the range is empty or reaches past the object's end");
        }
        Ok(object.clone())
    }

    fn count_bytes(&self, key: &ObjectKey, bytes: u64) {
        let mut state = self.state();
        state.counters.bytes += bytes;
        state.counters.by_key.entry(key.clone()).or_default().bytes += bytes;
    }
}

impl ObjectStore for MemoryStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        async move { self.answer_list(request) }.boxed()
    }

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { self.answer_get(request, body) }.boxed()
    }
}

/// What a page ended with: the next one begins after it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Object(ObjectKey),
    /// Everything under this prefix has been said.
    CommonPrefix(ObjectKey),
}

impl Entry {
    /// The token names its entry in hexadecimal digits: keys need not be text.
    fn to_token(&self) -> String {
        let (mark, key) = match self {
            Entry::Object(key) => ('o', key),
            Entry::CommonPrefix(prefix) => ('p', prefix),
        };
        let mut token = String::from(mark);
        for byte in key.as_bytes() {
            token.push_str(&format!("{byte:02x}"));
        }
        token
    }

    fn from_token(token: &str) -> Option<Self> {
        let hex = token.get(1..)?;
        let pairs = (0..hex.len()).step_by(2);
        let key: Option<Vec<u8>> =
            pairs.map(|at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok())).collect();
        let key = ObjectKey::from(key?);
        match token.as_bytes()[0] {
            b'o' => Some(Entry::Object(key)),
            b'p' => Some(Entry::CommonPrefix(key)),
            _ => None,
        }
    }

    fn lower_bound(&self) -> Bound<ObjectKey> {
        match self {
            Entry::Object(key) => Bound::Excluded(key.clone()),
            Entry::CommonPrefix(prefix) => after_all_under(prefix),
        }
    }
}

/// Where the keys after all of those under `prefix` begin.
fn after_all_under(prefix: &ObjectKey) -> Bound<ObjectKey> {
    let mut bytes = prefix.as_bytes().to_vec();
    while bytes.last() == Some(&u8::MAX) {
        bytes.pop();
    }
    match bytes.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Included(bytes.into())
        }
        // Nothing sorts after every key under a prefix of 0xFF bytes alone but longer runs of them, which are under it.
        None => Bound::Excluded(vec![u8::MAX; crate::model::MAX_KEY_BYTES + 1].into()),
    }
}

fn list_page(
    objects: &BTreeMap<ObjectKey, StoredObject>,
    request: &ListRequest,
    after: Option<Entry>,
    limit: usize,
) -> ListPage {
    let mut page = ListPage::default();
    let mut last: Option<Entry> = None;
    let mut from = match &after {
        Some(entry) => later(entry.lower_bound(), Bound::Included(request.prefix.clone())),
        None => Bound::Included(request.prefix.clone()),
    };
    while let Some((key, object)) = objects.range((from.clone(), Bound::Unbounded)).next() {
        if !key.as_bytes().starts_with(request.prefix.as_bytes()) {
            break;
        }
        if page.objects.len() + page.common_prefixes.len() == limit {
            page.next = last.map(|entry| entry.to_token());
            break;
        }
        let entry = match common_prefix(key, request) {
            Some(prefix) => Entry::CommonPrefix(prefix),
            None => Entry::Object(key.clone()),
        };
        from = entry.lower_bound();
        match &entry {
            Entry::CommonPrefix(prefix) => page.common_prefixes.push(prefix.clone()),
            Entry::Object(key) => page.objects.push(ListedObject {
                key: key.clone(),
                size_bytes: object.version.size_bytes,
                modified: object.modified,
                etag: object.version.etag.clone(),
            }),
        }
        last = Some(entry);
    }
    page
}

/// The higher of two lower bounds.
fn later(a: Bound<ObjectKey>, b: Bound<ObjectKey>) -> Bound<ObjectKey> {
    let rank = |bound: &Bound<ObjectKey>| match bound {
        Bound::Included(key) => (key.clone(), false),
        Bound::Excluded(key) => (key.clone(), true),
        Bound::Unbounded => (ObjectKey::default(), false),
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

/// What `key` is rolled up into: everything up to the first `/` after the prefix.
fn common_prefix(key: &ObjectKey, request: &ListRequest) -> Option<ObjectKey> {
    if !request.fold_directories {
        return None;
    }
    let prefix_length = request.prefix.as_bytes().len();
    let rest = &key.as_bytes()[prefix_length..];
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    Some(key.as_bytes()[..=prefix_length + slash].into())
}

/// The bytes of a synthetic object when no test wants others: each depends on key and offset, so that a byte from a wrong place
/// or object shows.
#[must_use]
pub fn synthetic_pattern() -> FillSynthetic {
    Arc::new(|key, offset, out| {
        let seed = key
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        for (index, byte) in out.iter_mut().enumerate() {
            let position = offset + index as u64;
            // The finaliser of splitmix64, on 8 bytes at a time.
            let mut word = seed.wrapping_add((position / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            *byte = word.to_le_bytes()[(position % 8) as usize];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TIB;
    use crate::store::SliceSink;

    fn now<T>(future: BoxFuture<'_, T>) -> T {
        future.now_or_never().expect("memory answers at once")
    }

    fn list(store: &MemoryStore, request: &ListRequest) -> ListPage {
        now(store.list(request)).unwrap()
    }

    fn read(store: &MemoryStore, request: &GetRequest) -> Result<Vec<u8>, StoreErrorKind> {
        let mut memory = vec![0; usize::try_from(request.range.len()).unwrap()];
        let mut sink = SliceSink::new(&mut memory);
        now(store.get(request, &mut sink)).map_err(|error| error.kind().clone())?;
        assert_eq!(sink.filled_bytes(), memory.len());
        Ok(memory)
    }

    fn names(page: &ListPage) -> Vec<String> {
        let objects = page.objects.iter().map(|object| object.key.to_string());
        objects.chain(page.common_prefixes.iter().map(ToString::to_string)).collect()
    }

    #[test]
    fn a_common_prefix_counts_as_one_entry_and_comes_once() {
        let store = MemoryStore::new();
        for key in ["a/1", "a/2", "a/3", "b", "c/1"] {
            store.put(key, "");
        }
        let mut request = ListRequest { fold_directories: true, max_keys: Some(1), ..ListRequest::default() };
        for expected in ["a/", "b", "c/"] {
            let page = list(&store, &request);
            assert_eq!(names(&page), [expected]);
            assert_eq!(page.next.is_none(), expected == "c/");
            request.continuation = page.next;
        }
    }

    #[test]
    fn keys_and_prefixes_of_the_highest_bytes_are_passed_over_rightly() {
        let store = MemoryStore::new();
        for key in [&b"\xff"[..], b"\xff/a", b"\xff/b", b"\xff\xff", b"\xff\xff/c"] {
            store.put(key, "");
        }
        let mut request = ListRequest { fold_directories: true, max_keys: Some(1), ..ListRequest::default() };
        let mut entries = Vec::new();
        loop {
            let page = list(&store, &request);
            entries.extend(names(&page));
            request.continuation = page.next;
            if request.continuation.is_none() {
                break;
            }
        }
        assert_eq!(entries, ["\\xff", "\\xff/", "\\xff\\xff", "\\xff\\xff/"]);
    }

    #[test]
    fn pages_are_cut_by_the_request_and_by_the_store() {
        let store = MemoryStore::new();
        for n in 0..1001 {
            store.put(format!("{n:04}").as_str(), "");
        }
        let page = list(&store, &ListRequest::default());
        assert_eq!((page.objects.len(), page.next.is_some()), (1000, true));
        let rest = list(&store, &ListRequest { continuation: page.next, ..ListRequest::default() });
        assert_eq!((rest.objects.len(), rest.next), (1, None));
        store.set_page_limit(10);
        let request = ListRequest { max_keys: Some(50), ..ListRequest::default() };
        assert_eq!(list(&store, &request).objects.len(), 10);
        let nothing = list(&store, &ListRequest { max_keys: Some(0), ..ListRequest::default() });
        assert_eq!((names(&nothing).len(), nothing.next), (0, None));
    }

    #[test]
    fn a_foreign_token_is_refused() {
        let store = MemoryStore::new();
        for token in ["", "o", "x61", "o6", "ozz", "\u{e9}61"] {
            let request = ListRequest { continuation: Some(token.to_owned()), ..ListRequest::default() };
            let answer = now(store.list(&request));
            // "o" is the empty key: a place like any other.
            assert_eq!(answer.is_ok(), token == "o", "{token:?}");
        }
    }

    #[test]
    fn the_entity_tag_is_the_md5_of_the_content() {
        let store = MemoryStore::new();
        let version = store.put("a", "hello");
        assert_eq!(version.etag, ETag::parse("5d41402abc4b2a76b9719d911017c592"));
        assert_eq!(store.put("b", "hello"), version);
        assert_eq!(store.version(&"a".into()), Some(version));
    }

    #[test]
    fn five_tebibytes_cost_nothing_and_read_the_same_from_any_offset() {
        let store = MemoryStore::new();
        let version = store.put_synthetic("big", 5 * TIB, synthetic_pattern());
        let get = |start, end| {
            let request = GetRequest { key: "big".into(), version: version.clone(), range: ByteRange::new(start, end) };
            read(&store, &request).unwrap()
        };
        let tail = get(5 * TIB - 4096, 5 * TIB);
        assert_eq!(tail[13..21], get(5 * TIB - 4083, 5 * TIB - 4075));
        assert_ne!(tail[..8], tail[8..16]);
        assert_ne!(store.put_synthetic("big", 5 * TIB, synthetic_pattern()), version);
    }

    #[test]
    fn requests_and_bytes_are_counted_by_key() {
        let store = MemoryStore::new();
        let version = store.put("a", "0123456789");
        let get = |key: &str, start, end| {
            let request = GetRequest { key: key.into(), version: version.clone(), range: ByteRange::new(start, end) };
            read(&store, &request)
        };
        get("a", 0, 4).unwrap();
        get("a", 4, 10).unwrap();
        assert_eq!(get("b", 0, 1), Err(StoreErrorKind::NotFound));
        list(&store, &ListRequest::default());
        let counted = store.take_counters();
        assert_eq!((counted.lists, counted.gets, counted.bytes), (1, 3, 10));
        let a = &counted.by_key[&"a".into()];
        assert_eq!((a.gets, a.bytes, a.ranges.as_slice()), (2, 10, &[ByteRange::new(0, 4), ByteRange::new(4, 10)][..]));
        assert_eq!(counted.by_key[&"b".into()].gets, 1);
        assert_eq!(store.counters(), MemoryCounters::default());
    }

    #[test]
    fn a_range_past_the_end_or_without_bytes_is_refused() {
        let store = MemoryStore::new();
        let version = store.put("a", "0123456789");
        for range in [ByteRange::new(0, 11), ByteRange::new(10, 11), ByteRange::new(3, 3)] {
            let request = GetRequest { key: "a".into(), version: version.clone(), range };
            assert_eq!(read(&store, &request), Err(StoreErrorKind::InvalidRequest), "{range}");
        }
    }

    #[test]
    fn dates_and_tags_can_be_made_odd() {
        let store = MemoryStore::new();
        store.put("a", "x");
        assert!(store.set_modified(&"a".into(), UnixMillis(-1)) && store.set_etag(&"a".into(), None));
        let page = list(&store, &ListRequest::default());
        assert_eq!((page.objects[0].modified, page.objects[0].etag.clone()), (UnixMillis(-1), None));
        assert!(!store.set_modified(&"b".into(), UnixMillis(0)) && !store.set_etag(&"b".into(), None));
        assert!(store.delete(&"a".into()) && !store.delete(&"a".into()));
    }
}
