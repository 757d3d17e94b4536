//! Blocks in memory, shared by all readers of an object: aligned parts of large objects, whole small ones.
//!
//! moka decides which block goes (least recently used). It does not bound the memory: the pool's permits do. moka evicts late and
//! frees later still (epochs), so a cached value is only a slot; its block is taken out the moment moka lets go of the entry, and
//! moka is made to do its pending work whenever the pool is short: by who waits for memory, once, and by every insert from then on.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::model::NodeId;

use super::pool::{Buffer, Pool};

/// How long to wait for memory before asking moka again to let go of some. Every insert asks while somebody waits, so
/// this is for a moka that has not evicted all it should; a thousand waiters that asked more often would keep a CPU busy.
const RESERVE_POLL: Duration = Duration::from_millis(100);

/// Which bytes a block holds: the `index`-th block of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// The object version, which a node stands for.
    pub node: NodeId,
    /// Offset divided by the block size.
    pub index: u64,
}

/// Bytes of one object version, complete and unchanging.
#[derive(Debug)]
pub struct Block {
    buffer: Buffer,
}

impl Block {
    /// A block of the bytes that `buffer` was filled with.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        Block { buffer }
    }

    /// The block's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }
}

/// What moka holds: emptied at eviction, so that memory returns then and not when moka's epoch ends.
type Slot = Arc<Mutex<Option<Arc<Block>>>>;

/// The blocks that are kept, up to a share of the pool.
#[derive(Clone)]
pub struct BlockCache {
    slots: Cache<BlockId, Slot>,
    pool: Pool,
}

impl BlockCache {
    /// A cache that keeps at most `capacity_bytes` of `pool`; what is left of the pool is for GETs in flight.
    ///
    /// Blocks not used for `idle` are given back.
    #[must_use]
    pub fn new(pool: Pool, capacity_bytes: u64, idle: Duration) -> Self {
        let slots = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_: &BlockId, slot: &Slot| slot_weight(slot))
            .eviction_policy(EvictionPolicy::lru())
            .eviction_listener(|_, slot: Slot, _| drop(take(&slot)))
            .time_to_idle(idle)
            .build();
        BlockCache { slots, pool }
    }

    /// The block, if it is here.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<Arc<Block>> {
        let slot = self.slots.get(&id)?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a block.
    pub fn insert(&self, id: BlockId, block: Arc<Block>) {
        self.slots.insert(id, Arc::new(Mutex::new(Some(block))));
        if self.pool.has_waiters() {
            self.slots.run_pending_tasks();
        }
    }

    /// Forgets a block; those who read it keep it until they are done.
    pub fn remove(&self, id: BlockId) {
        self.slots.invalidate(&id);
    }

    /// A buffer from the pool; cached blocks make way for it.
    pub async fn reserve(&self, len_bytes: usize) -> Buffer {
        if let Some(buffer) = self.pool.try_reserve(len_bytes) {
            return buffer;
        }
        let wait = self.pool.reserve(len_bytes);
        tokio::pin!(wait);
        loop {
            if let Poll::Ready(buffer) = futures::poll!(&mut wait) {
                return buffer;
            }
            // Known to wait now: this evicts for what was inserted before, and each insert for itself from here on.
            self.slots.run_pending_tasks();
            if let Ok(buffer) = tokio::time::timeout(RESERVE_POLL, &mut wait).await {
                return buffer;
            }
        }
    }

    /// Lets moka evict what is over its share or idle, and the pool return what it kept. Called now and then by the worker.
    pub fn maintain(&self) {
        self.slots.run_pending_tasks();
        self.pool.trim();
    }

    /// The pool behind it.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCache({} blocks, {:?})", self.slots.entry_count(), self.pool)
    }
}

fn slot_weight(slot: &Slot) -> u32 {
    let held = slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |b| b.buffer.held_bytes());
    u32::try_from(held).unwrap_or(u32::MAX)
}

fn take(slot: &Slot) -> Option<Arc<Block>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MIB;
    use crate::read::pool::MAX_BUFFER_BYTES;

    fn id(index: u64) -> BlockId {
        BlockId { node: NodeId(16), index }
    }

    fn cache(pool_mib: u64, share_mib: u64) -> BlockCache {
        BlockCache::new(Pool::new(pool_mib * MIB), share_mib * MIB, Duration::from_secs(60))
    }

    /// The reported stall of moka's eviction: many inserts at once must neither pass the limit nor stop for ever.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn ten_times_the_pool_goes_through_without_passing_the_limit_or_stalling() {
        let cache = cache(16, 12);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let cache = cache.clone();
                tokio::spawn(async move {
                    for n in 0..10 {
                        let buffer = cache.reserve(MAX_BUFFER_BYTES).await;
                        assert!(cache.pool().held_bytes() <= cache.pool().limit_bytes());
                        cache.insert(id(task * 100 + n), Arc::new(Block::new(buffer)));
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(60), task).await.expect("no stall").unwrap();
        }
    }

    #[tokio::test]
    async fn an_evicted_block_returns_its_memory_although_moka_still_holds_the_slot() {
        let cache = cache(4, 1);
        for index in 0..4 {
            let buffer = cache.reserve(MAX_BUFFER_BYTES).await;
            cache.insert(id(index), Arc::new(Block::new(buffer)));
        }
        cache.slots.run_pending_tasks();
        cache.pool().trim();
        cache.pool().trim();
        assert_eq!(cache.pool().held_bytes(), MAX_BUFFER_BYTES);
        assert!(cache.get(id(3)).is_some(), "the newest stays");
        assert!(cache.get(id(0)).is_none());
    }

    #[tokio::test]
    async fn a_block_that_is_read_outlives_its_eviction() {
        let cache = cache(4, 1);
        let mut buffer = cache.reserve(3).await;
        buffer.copy_from_slice(b"abc");
        cache.insert(id(0), Arc::new(Block::new(buffer)));
        let held = cache.get(id(0)).unwrap();
        cache.remove(id(0));
        assert!(cache.get(id(0)).is_none());
        assert_eq!(held.bytes(), b"abc");
    }
}
