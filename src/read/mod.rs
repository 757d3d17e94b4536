//! Bytes for (node, range). `Reader::read` is the only door.
//!
//! - `pool` owns all payload memory, `block_cache` what is kept of it, `scheduler` sends the GETs (one for all who wait).
//! - Cached mode reads aligned blocks that all readers share; direct mode fetches what is asked and keeps nothing.
//! - An object found changed or gone is looked up again at once: its node is stale from then on, the name leads to a new one.
//!
//! Nothing here knows the kernel, and nothing here blocks a thread.

mod block_cache;
mod error;
mod pool;
mod scheduler;
#[cfg(test)]
mod tests;

pub use block_cache::{Block, BlockCache, BlockId};
pub use error::ReadError;
pub use pool::{Buffer, MAX_BUFFER_BYTES, Pool};
pub use scheduler::{FetchCounters, Scheduler};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{ByteRange, KIB, MIB, NodeId, ObjectKey};
use crate::namespace::{Namespace, NodeKind, ObjectError, ObjectRef};
use crate::store::clock::RateLimit;
use crate::store::{ListRequest, ObjectStore};

use scheduler::Fetch;

/// Size of a cached block: the longest read the kernel sends, so that most reads touch one block.
const BLOCK_BYTES: u64 = MIB;

/// Direct reads are widened to this: the kernel's page, below which it never asks anyway.
const DIRECT_ALIGNMENT_BYTES: u64 = 4 * KIB;

/// In direct mode, an object up to this size is fetched whole when it is read from its start: the kernel's read-ahead asks
/// for the rest a moment later in two to four more reads, each of which would cost a round trip of 30 ms to save
/// the transfer of a few hundred KiB (1 to 5 ms).
const DIRECT_WHOLE_OBJECT_BYTES: u64 = 512 * KIB;

/// How long the rest of an object fetched whole in direct mode waits for the reads that follow.
const DIRECT_LINGER: Duration = Duration::from_secs(5);

/// Cached blocks that nobody used for this long are given back, so memory falls after load.
const CACHE_IDLE: Duration = Duration::from_secs(300);

/// Longest wait until the kernel has forgotten a name that changed: microseconds, unless the directory is busy.
const FORGET_DEADLINE: Duration = Duration::from_secs(1);

/// Part of the pool that the cache leaves to GETs in flight, but never less than one of the largest buffers: else a GET could
/// wait for memory that nobody gives back.
const IN_FLIGHT_SHARE: u64 = 4;

/// Longest wait of a read whose object has changed, until the name is known to lead to the new one. The read fails in any case, and
/// another one tries again.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(10);

/// A store that answers nothing must not flood the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Changed objects that are looked up at the same time, at most.
const LOOK_UPS: usize = 64;

/// Part of the memory that replies put together from several blocks may take.
const REPLY_SHARE: u64 = 8;

/// What the reader is given.
#[derive(Debug, Clone)]
pub struct ReadConfig {
    /// Bytes that all payload together may take.
    pub pool_bytes: u64,
    /// Fetch exactly what is asked and keep nothing, instead of sharing cached blocks.
    pub direct: bool,
    /// GETs under way at most.
    pub max_gets_in_flight: usize,
}

/// A name in the mount that leads elsewhere since its object was replaced or deleted; the kernel has to forget it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChanged {
    /// The directory.
    pub parent: NodeId,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Told of each name that changed. Must not block; what it returns is over when the kernel has forgotten the name.
pub type OnNameChanged = Box<dyn Fn(NameChanged) -> BoxFuture<'static, ()> + Send + Sync>;

/// Reads from objects by node.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

struct Shared {
    store: Arc<dyn ObjectStore>,
    namespace: Arc<Namespace>,
    cache: BlockCache,
    scheduler: Scheduler,
    direct: bool,
    replies: Arc<Semaphore>,
    /// One look-up of a changed object at a time, by node: those who met the same change find it settled, and a look-up that the
    /// store does not answer holds up few others.
    looking_up: [tokio::sync::Mutex<()>; LOOK_UPS],
    failed_look_ups: RateLimit,
    on_name_changed: OnNameChanged,
}

/// The answer to a read: here at once, or later.
pub enum Read {
    /// The bytes were in memory (or it is clear that there are none).
    Ready(Result<ReadBytes, ReadError>),
    /// They have to be fetched.
    Pending(BoxFuture<'static, Result<ReadBytes, ReadError>>),
}

impl Reader {
    /// A reader of `namespace` that fetches from `store`.
    #[must_use]
    pub fn new(
        store: Arc<dyn ObjectStore>,
        namespace: Arc<Namespace>,
        config: &ReadConfig,
        runtime: Handle,
        on_name_changed: OnNameChanged,
    ) -> Self {
        let reply_count = (config.pool_bytes / REPLY_SHARE / MIB).max(1);
        let pool = Pool::new(config.pool_bytes.saturating_sub(reply_count * MIB));
        let limit_bytes = pool.limit_bytes() as u64;
        let idle = if config.direct { DIRECT_LINGER } else { CACHE_IDLE };
        let in_flight_bytes = (limit_bytes / IN_FLIGHT_SHARE).max(MAX_BUFFER_BYTES as u64);
        let cache = BlockCache::new(pool, limit_bytes - in_flight_bytes, idle);
        let scheduler = Scheduler::new(Arc::clone(&store), cache.clone(), config.max_gets_in_flight, runtime);
        let replies = Arc::new(Semaphore::new(usize::try_from(reply_count).unwrap_or(Semaphore::MAX_PERMITS)));
        Reader(Arc::new(Shared {
            store,
            namespace,
            cache,
            scheduler,
            direct: config.direct,
            replies,
            looking_up: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            failed_look_ups: RateLimit::new(WARNING_INTERVAL),
            on_name_changed,
        }))
    }

    /// The bytes of `node` from `offset`, at most `length_bytes` (and never more than [`MAX_BUFFER_BYTES`]), cut at the end of
    /// the object. Answers without waiting when all of them are in memory.
    #[must_use]
    pub fn read(&self, node: NodeId, offset: u64, length_bytes: u64) -> Read {
        let size_bytes = match self.0.namespace.node(node).map(|node| node.kind) {
            Some(NodeKind::File { size_bytes }) => size_bytes,
            Some(NodeKind::Directory) => return Read::Ready(Err(ReadError::IsADirectory)),
            None => return Read::Ready(Err(ReadError::UnknownNode)),
        };
        let range = ByteRange::of_read(offset, length_bytes.min(MAX_BUFFER_BYTES as u64), size_bytes);
        if range.is_empty() {
            return Read::Ready(Ok(ReadBytes::default()));
        }
        let first = range.start / BLOCK_BYTES;
        let one_block = (range.end - 1) / BLOCK_BYTES == first;
        let id = BlockId { node, index: first };
        if one_block && let Some(block) = self.0.cache.get(id) {
            let bytes = ReadBytes::of_block(block, range);
            if self.0.direct && range.end == size_bytes {
                self.0.cache.remove(id); // the rest of a small object was waiting for this read
            }
            return Read::Ready(Ok(bytes));
        }
        let object = match self.0.namespace.object(node) {
            Ok(object) => object,
            Err(ObjectError::Stale) => return Read::Ready(Err(ReadError::Stale)),
            Err(ObjectError::NotAFile) => return Read::Ready(Err(ReadError::IsADirectory)),
            Err(ObjectError::Unknown) => return Read::Ready(Err(ReadError::UnknownNode)),
            Err(ObjectError::Damaged(damage)) => return Read::Ready(Err(damage.into())),
        };
        Read::Pending(Box::pin(Arc::clone(&self.0).read_from_store(node, object, range)))
    }

    /// What was fetched so far.
    #[must_use]
    pub fn counters(&self) -> &FetchCounters {
        self.0.scheduler.counters()
    }

    /// The pool all payload lives in.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.0.cache.pool()
    }

    /// Gives back memory that is no longer needed. Called every few seconds by the worker.
    pub fn maintain(&self) {
        self.0.cache.maintain();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("direct", &self.0.direct).field("scheduler", &self.0.scheduler).finish()
    }
}

impl Shared {
    async fn read_from_store(
        self: Arc<Self>,
        node: NodeId,
        object: ObjectRef,
        range: ByteRange,
    ) -> Result<ReadBytes, ReadError> {
        let key = object.key.clone();
        let read = if self.direct {
            self.read_direct(node, object, range).await
        } else {
            self.read_blocks(node, object, range).await
        };
        if matches!(read, Err(ReadError::Stale)) {
            // Safe to cut off: a name that was not settled is looked up again by the next read.
            let _settled = tokio::time::timeout(LOOK_UP_DEADLINE, self.look_up_again(node, key)).await;
        }
        read
    }

    async fn read_direct(&self, node: NodeId, object: ObjectRef, range: ByteRange) -> Result<ReadBytes, ReadError> {
        let size_bytes = object.version.size_bytes;
        if range.start == 0 && size_bytes <= DIRECT_WHOLE_OBJECT_BYTES {
            // What this read leaves over lingers for the reads that follow it.
            let fetch = whole_or_block(node, object, 0, range.end < size_bytes);
            return self.scheduler.fetch(fetch).await.map(|block| ReadBytes::of_block(block, range));
        }
        let aligned = range.aligned(DIRECT_ALIGNMENT_BYTES, size_bytes);
        // A read that is not aligned itself may only be widened to what one buffer holds.
        let wanted = if aligned.len() <= MAX_BUFFER_BYTES as u64 { aligned } else { range };
        let block = self.scheduler.get_exact(object.key, object.version, wanted).await?;
        Ok(ReadBytes::of_part(block, wanted, range))
    }

    async fn read_blocks(&self, node: NodeId, object: ObjectRef, range: ByteRange) -> Result<ReadBytes, ReadError> {
        let first = range.start / BLOCK_BYTES;
        let last = (range.end - 1) / BLOCK_BYTES;
        if first == last {
            let block = self.scheduler.fetch(whole_or_block(node, object, first, true)).await?;
            return Ok(ReadBytes::of_block(block, range));
        }
        // All blocks are asked for at once, but none is held while another is awaited: readers that hold blocks and wait for
        // memory could wait for each other for ever. Their bytes are copied into a reply, whose memory has a share of its own.
        let turn = Arc::clone(&self.replies).acquire_owned().await.map_err(|_| ReadError::Abandoned)?;
        let mut joined = vec![0; usize::try_from(range.len()).map_err(|_| ReadError::Abandoned)?];
        let blocks = (first..=last).map(|index| {
            let fetch = whole_or_block(node, object.clone(), index, true);
            let block_range = fetch.range;
            let fetched = self.scheduler.fetch(fetch);
            async move { fetched.await.map(|block| (block, block_range)) }
        });
        let mut arriving: futures::stream::FuturesUnordered<_> = blocks.collect();
        while let Some(arrived) = futures::StreamExt::next(&mut arriving).await {
            let (block, block_range) = arrived?;
            copy_overlap(&block, block_range, &mut joined, range);
        }
        Ok(ReadBytes(Source::Joined { bytes: joined, _turn: turn }))
    }

    /// Learns what has become of an object that the store says has changed or gone.
    async fn look_up_again(&self, node: NodeId, key: ObjectKey) {
        #[expect(clippy::cast_possible_truncation, reason = "any part of the id spreads nodes over the locks")]
        let _one_at_a_time = self.looking_up[node.0 as usize % LOOK_UPS].lock().await;
        if self.namespace.object(node).is_err() {
            return;
        }
        let request = ListRequest { prefix: key.clone(), max_keys: Some(1), ..ListRequest::default() };
        let found = match self.store.list(&request).await {
            Ok(page) => page.objects.into_iter().find(|object| object.key == key),
            Err(error) => {
                if let Some(held_back) = self.failed_look_ups.allow(Instant::now()) {
                    tracing::warn!(%error, held_back, "look up a changed object again");
                }
                return;
            }
        };
        tracing::info!(%key, exists = found.is_some(), "object changed since it was listed");
        // The new node is found by name, once the kernel has forgotten the old one.
        let _new_node = self.namespace.replace(node, found.map(|object| (object.version(), object.modified)));
        let (Some(parent), Some(name)) = (self.namespace.parent(node), self.namespace.name_of(node)) else { return };
        // Whoever hears of the change may open the name again at once, and is to get the new object.
        let forgotten = (self.on_name_changed)(NameChanged { parent, name });
        if tokio::time::timeout(FORGET_DEADLINE, forgotten).await.is_err() {
            tracing::warn!(%key, "the kernel has not forgotten a changed object's name yet");
        }
    }
}

/// The block of that index; a small object is one block, fetched whole.
fn whole_or_block(node: NodeId, object: ObjectRef, index: u64, keep: bool) -> Fetch {
    let start = index * BLOCK_BYTES;
    let range = ByteRange::of_read(start, BLOCK_BYTES, object.version.size_bytes);
    Fetch { id: BlockId { node, index }, key: object.key, version: object.version, range, keep }
}

fn copy_overlap(block: &Block, block_range: ByteRange, into: &mut [u8], wanted: ByteRange) {
    let start = block_range.start.max(wanted.start);
    let end = block_range.end.min(wanted.end);
    into[within(ByteRange::new(start, end), wanted.start)]
        .copy_from_slice(&block.bytes()[within(ByteRange::new(start, end), block_range.start)]);
}

/// `range` as indices into bytes that begin at `origin`.
#[expect(clippy::cast_possible_truncation, reason = "ranges within one buffer are at most MAX_BUFFER_BYTES long")]
fn within(range: ByteRange, origin: u64) -> Range<usize> {
    (range.start - origin) as usize..(range.end - origin) as usize
}

/// The bytes of one read. Holds their memory until it is dropped, so: drop it once the reply is written.
#[derive(Debug, Default)]
pub struct ReadBytes(Source);

#[derive(Debug, Default)]
enum Source {
    #[default]
    Empty,
    Block {
        block: Arc<Block>,
        part: Range<usize>,
    },
    Joined {
        bytes: Vec<u8>,
        _turn: OwnedSemaphorePermit,
    },
}

impl ReadBytes {
    fn of_block(block: Arc<Block>, range: ByteRange) -> Self {
        let origin = range.start / BLOCK_BYTES * BLOCK_BYTES;
        ReadBytes(Source::Block { block, part: within(range, origin) })
    }

    fn of_part(block: Arc<Block>, block_range: ByteRange, range: ByteRange) -> Self {
        ReadBytes(Source::Block { block, part: within(range, block_range.start) })
    }

    /// The bytes, exactly as many as the read covers of the object.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Source::Empty => &[],
            Source::Block { block, part } => &block.bytes()[part.clone()],
            Source::Joined { bytes, .. } => bytes,
        }
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Read::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Read::Pending(_) => f.write_str("Pending"),
        }
    }
}
