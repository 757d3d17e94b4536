//! A store for tests that lists made-up keys, rightly or in one of the odd ways that real stores have.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::model::{ETag, ObjectKey, UnixMillis};
use crate::store::{
    BodySink, GetRequest, ListPage, ListRequest, ListedObject, ObjectStore, StoreError, StoreErrorKind,
};

/// In what a store differs from what it should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Oddity {
    StartAfterIgnored,
    /// A key equal to start-after is listed, too.
    StartAfterInclusive,
    /// A listing that is to start within a folder starts behind it.
    StartAfterSkips,
    MaxKeysIgnored,
    DelimiterIgnored,
    PrefixIgnored,
    /// Every other page is empty.
    EmptyPages,
    /// Folders come twice on each page, backwards.
    FoldersRepeated,
    /// Keys come in an order of their own, start-after means that order.
    Shuffled,
    /// As a file system walks: a folder's name sorts without its slash.
    PathOrder,
    /// The last key of each page is also the first of the next.
    KeysRepeated,
    /// The same token each time, the same page with it.
    SameToken,
    /// A new token each time, but always the first page.
    TokenIgnored,
    /// No keys, for ever.
    EmptyForEver,
}

#[derive(Debug)]
pub(super) struct FakeStore {
    /// In the order they are listed in.
    keys: Vec<ObjectKey>,
    page_keys: usize,
    oddities: Vec<Oddity>,
    /// Time that passes between a request and its answer.
    pub(super) latency: Option<(Duration, Arc<Clock>)>,
    /// Answers overtake each other, in a way that this number decides.
    pub(super) jitter: Option<u64>,
    /// What happens to one key while others list.
    pub(super) change: Option<Change>,
    /// Answers as long as this says so: (how many-th request, requests running now).
    pub(super) refuses: Option<fn(u64, usize) -> Option<StoreErrorKind>>,
    pub(super) requests: AtomicU64,
    pub(super) running: AtomicUsize,
    pub(super) most_running: AtomicUsize,
}

/// A key that comes or goes after so many requests.
#[derive(Debug)]
pub(super) enum Change {
    Created(u64, ObjectKey),
    Deleted(u64, ObjectKey),
}

/// Counts a request as running until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// When, and which of those at the same time.
type Alarm = (Duration, u64);

/// Time that passes only when nothing else can happen.
#[derive(Debug, Default)]
pub(super) struct Clock {
    state: Mutex<(Duration, BTreeMap<Alarm, oneshot::Sender<()>>)>,
}

impl Clock {
    pub(super) fn now(&self) -> Duration {
        self.state.lock().unwrap().0
    }

    async fn wait(&self, time: Duration) {
        let (sender, receiver) = oneshot::channel();
        {
            let (now, waiting) = &mut *self.state.lock().unwrap();
            let number = waiting.len() as u64 + waiting.last_key_value().map_or(0, |((_, number), _)| *number);
            waiting.insert((*now + time, number), sender);
        }
        receiver.await.unwrap();
    }

    /// Runs `future` on the current thread, where time stands still while any task can go on.
    pub(super) async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        loop {
            // An answer passes from its task through the listing to the next request's task: a few turns of the scheduler.
            for _ in 0..12 {
                if let Poll::Ready(output) = futures::poll!(&mut future) {
                    return output;
                }
                tokio::task::yield_now().await;
            }
            let (now, waiting) = &mut *self.state.lock().unwrap();
            if let Some(((time, _), sender)) = waiting.pop_first() {
                *now = time;
                let _ = sender.send(());
            }
        }
    }
}

impl FakeStore {
    pub(super) fn new<K: Into<ObjectKey>>(keys: impl IntoIterator<Item = K>, page_keys: usize) -> Self {
        let mut keys: Vec<ObjectKey> = keys.into_iter().map(Into::into).collect();
        keys.sort();
        keys.dedup();
        FakeStore {
            keys,
            page_keys,
            oddities: Vec::new(),
            latency: None,
            jitter: None,
            change: None,
            refuses: None,
            requests: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        }
    }

    pub(super) fn with(mut self, oddities: &[Oddity]) -> Self {
        self.oddities = oddities.to_vec();
        if self.is(Oddity::Shuffled) {
            self.keys.sort_by_key(|key| scatter(key.as_bytes()));
        }
        if self.is(Oddity::PathOrder) {
            self.keys.sort_by(|a, b| by_path(a.as_bytes(), b.as_bytes()));
        }
        self
    }

    fn is(&self, oddity: Oddity) -> bool {
        self.oddities.contains(&oddity)
    }

    fn before(&self, a: &ObjectKey, b: &ObjectKey) -> Ordering {
        if self.is(Oddity::Shuffled) {
            scatter(a.as_bytes()).cmp(&scatter(b.as_bytes()))
        } else if self.is(Oddity::PathOrder) {
            by_path(a.as_bytes(), b.as_bytes())
        } else {
            a.cmp(b)
        }
    }

    fn answer(&self, request: &ListRequest) -> ListPage {
        let most = match request.max_keys {
            Some(most) if !self.is(Oddity::MaxKeysIgnored) => usize::from(most).min(self.page_keys),
            _ => self.page_keys,
        };
        // A token is the index of the next key.
        let mut token = request.continuation.as_ref().map(|token| token.parse::<usize>().unwrap());
        let mut page = ListPage::default();
        if self.is(Oddity::EmptyForEver) {
            page.next = Some((token.unwrap_or(0) + 1).to_string());
            return page;
        }
        if self.is(Oddity::EmptyPages) {
            let even = token.unwrap_or(0);
            if even.is_multiple_of(2) {
                page.next = Some((even + 1).to_string());
                return page;
            }
            token = Some(even / 2).filter(|_| even > 1);
        }
        if self.is(Oddity::SameToken) || self.is(Oddity::TokenIgnored) {
            page.next = Some(if self.is(Oddity::SameToken) { 7 } else { token.unwrap_or(0) + 1 }.to_string());
            token = None;
        }
        let start = match (token, &request.start_after) {
            (Some(token), _) => token,
            (None, Some(after)) if !self.is(Oddity::StartAfterIgnored) => self.keys.partition_point(|key| {
                let order = self.before(key, after);
                order == Ordering::Less || order == Ordering::Equal && !self.is(Oddity::StartAfterInclusive)
            }),
            _ => 0,
        };
        let start = match &request.start_after {
            Some(after) if token.is_none() && self.is(Oddity::StartAfterSkips) => {
                let folder = after.as_bytes().split(|&byte| byte == b'/').next().unwrap();
                let is_inside = |key: &&ObjectKey| key.as_bytes().starts_with(folder);
                start + self.keys[start..].iter().take_while(is_inside).count()
            }
            _ => start,
        };
        let next = self.fill(&mut page, start, most, request);
        if let (Some(next), None) = (next, &page.next) {
            let repeated = usize::from(self.is(Oddity::KeysRepeated) && page.objects.len() > 1);
            let next = next - repeated;
            page.next = Some(if self.is(Oddity::EmptyPages) { next * 2 } else { next }.to_string());
        }
        if self.is(Oddity::FoldersRepeated) {
            page.common_prefixes.extend(page.common_prefixes.clone());
            page.common_prefixes.reverse();
        }
        page
    }

    fn is_there(&self, key: &ObjectKey) -> bool {
        let requests = self.requests.load(SeqCst);
        match &self.change {
            Some(Change::Created(after, created)) if created == key => requests > *after,
            Some(Change::Deleted(after, deleted)) if deleted == key => requests <= *after,
            _ => true,
        }
    }

    /// Fills a page from the key at `index`; the index of the next one.
    fn fill(&self, page: &mut ListPage, mut index: usize, most: usize, request: &ListRequest) -> Option<usize> {
        let prefix = request.prefix.as_bytes();
        let is_plain = self.oddities.is_empty();
        if is_plain {
            index = index.max(self.keys.partition_point(|key| key.as_bytes() < prefix));
        }
        while let Some(key) = self.keys.get(index) {
            let bytes = key.as_bytes();
            if !self.is_there(key) {
                index += 1;
                continue;
            }
            if !bytes.starts_with(prefix) && !self.is(Oddity::PrefixIgnored) {
                if is_plain {
                    return None;
                }
                index += 1;
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() >= most {
                return Some(index);
            }
            let slash = bytes[prefix.len().min(bytes.len())..].iter().position(|&byte| byte == b'/');
            match slash.filter(|_| request.fold_directories && !self.is(Oddity::DelimiterIgnored)) {
                Some(slash) => {
                    let folder = ObjectKey::from(&bytes[..=prefix.len() + slash]);
                    if is_plain {
                        index = self.keys.partition_point(|key| {
                            key.as_bytes() < folder.as_bytes() || key.as_bytes().starts_with(folder.as_bytes())
                        });
                    } else {
                        index += 1;
                    }
                    if !page.common_prefixes.contains(&folder) {
                        page.common_prefixes.push(folder);
                    }
                }
                None => {
                    page.objects.push(object(key));
                    index += 1;
                }
            }
        }
        None
    }
}

/// The object that every fake store has under `key`.
pub(super) fn object(key: &ObjectKey) -> ListedObject {
    let hash = scatter(key.as_bytes());
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&hash.to_le_bytes());
    digest[8..].copy_from_slice(&hash.rotate_left(17).to_le_bytes());
    ListedObject {
        key: key.clone(),
        size_bytes: hash % 1_000_000,
        modified: UnixMillis(1_700_000_000_000 + (hash % 100_000).cast_signed() * 1000),
        etag: Some(ETag::Digest(digest)),
    }
}

/// FNV-1a, mixed: the same on every run.
pub(super) fn scatter(bytes: &[u8]) -> u64 {
    let hash =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (hash >> 17)
}

fn by_path(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|&byte| byte == b'/').cmp(b.split(|&byte| byte == b'/'))
}

impl ObjectStore for FakeStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        async move {
            let number = self.requests.fetch_add(1, SeqCst) + 1;
            let running = self.running.fetch_add(1, SeqCst) + 1;
            let _running = Running(&self.running);
            self.most_running.fetch_max(running, SeqCst);
            if let Some(seed) = self.jitter {
                for _ in 0..scatter(&(seed ^ number).to_le_bytes()) % 7 {
                    tokio::task::yield_now().await;
                }
            }
            if let Some((latency, clock)) = &self.latency {
                clock.wait(*latency).await;
            }
            if let Some(kind) = self.refuses.and_then(|refuses| refuses(number, running)) {
                return Err(StoreError::new(kind, "list", &request.prefix, "refused by the test"));
            }
            Ok(self.answer(request))
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        request: &'a GetRequest,
        _body: &'a mut dyn BodySink,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let error = StoreError::new(StoreErrorKind::NotFound, "get", &request.key, "this store only lists");
        futures::future::ready(Err(error)).boxed()
    }
}

/// The how many-th key of a data set.
type KeyOf = fn(u64) -> String;

/// Keys as data sets have them, `count` of each.
pub(super) fn shapes(count: u64) -> Vec<(&'static str, Vec<String>)> {
    let shapes: [(&str, KeyOf); 12] = [
        ("padded numbers", |i| format!("img_{i:07}.jpg")),
        ("padded numbers in a folder", |i| format!("train/img_{i:09}.jpg")),
        ("plain numbers", |i| format!("images/{i}.png")),
        ("hashes", |i| format!("objects/{}", hex(i))),
        ("hashes in 256 folders", |i| format!("{}/{}", &hex(i)[..2], &hex(i)[2..])),
        ("UUIDs", |i| format!("{}-{}-{}", &hex(i)[..8], &hex(i)[8..12], &hex(i)[12..])),
        ("base62", base62),
        ("image classes", |i| {
            let class = format!("n{:08}", 1_440_764 + i / 1300 * 13_577);
            format!("train/{class}/{class}_{}.JPEG", scatter(&i.to_le_bytes()) % 1_000_000)
        }),
        ("two folders", |i| format!("{}/{i:08}.jpg", if i % 10 == 0 { "val" } else { "train" })),
        ("dates", |i| {
            let (day, second) = (i / 86_400, i % 86_400);
            let date = format!("log/2024/{:02}/{:02}", 1 + day / 28, 1 + day % 28);
            format!("{date}/{:02}-{:02}-{:02}.json", second / 3600, second / 60 % 60, second % 60)
        }),
        ("many small folders", |i| format!("case_{:06}/{}.dcm", i / 7, i % 7)),
        ("uneven folders", |i| {
            let hash = scatter(&i.to_le_bytes());
            let class = (hash % 40).min(hash / 64 % 40).min(hash / 4096 % 40);
            format!("c{class:02}/{:05}/{i}", hash / 77 % 200)
        }),
    ];
    let sorted = |key: KeyOf| {
        let mut keys: Vec<String> = (0..count).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    shapes.map(|(name, key)| (name, sorted(key))).into()
}

fn hex(i: u64) -> String {
    format!("{:016x}{:016x}", scatter(&i.to_le_bytes()), scatter(&(i + (1 << 40)).to_le_bytes()))
}

fn base62(i: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let hash = scatter(&i.to_le_bytes());
    (0..10).map(|place| char::from(DIGITS[usize::try_from(hash / 62_u64.pow(place) % 62).unwrap()])).collect()
}
