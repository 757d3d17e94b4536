//! The one pool that all payload lives in: memory permits and the buffers they stand for.
//!
//! Always true: the bytes of all buffers, in use or kept for reuse, never pass the limit; a buffer is reserved before the GET
//! that fills it is sent. Buffers are recycled by size class, so a steady stream neither faults pages in nor zeroes them again.
//! What is evicted to make room is the cache's business (`block_cache`), not the pool's.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{KIB, MIB};

/// Memory is counted in pages of 4 KiB, the smallest page of every supported machine.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const PAGE_BYTES: usize = 4 * KIB as usize;

/// Largest single buffer: a block, or the longest read the kernel sends.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const MAX_BUFFER_BYTES: usize = MIB as usize;

/// Buffers of `size` bytes come in classes of four steps per power of two, so at most a quarter of a buffer is unused.
fn class_pages(len_bytes: usize) -> usize {
    let pages = len_bytes.div_ceil(PAGE_BYTES).max(1);
    let step = (pages.next_power_of_two() / 8).max(1);
    pages.next_multiple_of(step)
}

/// A byte limit shared by every buffer of one volume.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    limit_bytes: usize,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    free: Mutex<FreeBuffers>,
}

/// Buffers kept for reuse.
#[derive(Default)]
struct FreeBuffers(Vec<Class>);

/// Buffers of one size; the newest last, since it is warmest in the CPU's cache.
struct Class {
    pages: usize,
    buffers: Vec<Memory>,
    /// How many were never taken since the last trim: nobody needs those.
    idle_since_trim: usize,
}

struct Memory {
    bytes: Box<[u8]>,
    permit: OwnedSemaphorePermit,
}

impl Class {
    fn pop(&mut self) -> Option<Memory> {
        let memory = self.buffers.pop()?;
        self.idle_since_trim = self.idle_since_trim.min(self.buffers.len());
        Some(memory)
    }

    fn take_idle(&mut self) -> Vec<Memory> {
        let idle = self.buffers.drain(..self.idle_since_trim).collect();
        self.idle_since_trim = self.buffers.len();
        idle
    }
}

impl FreeBuffers {
    fn pop(&mut self, pages: usize) -> Option<Memory> {
        self.0.iter_mut().find(|class| class.pages == pages)?.pop()
    }

    fn push(&mut self, memory: Memory) {
        let pages = memory.bytes.len() / PAGE_BYTES;
        match self.0.iter_mut().find(|class| class.pages == pages) {
            Some(class) => class.buffers.push(memory),
            None => self.0.push(Class { pages, buffers: vec![memory], idle_since_trim: 0 }),
        }
    }

    fn pop_any(&mut self) -> Option<Memory> {
        self.0.iter_mut().find_map(Class::pop)
    }
}

impl Pool {
    /// A pool of `limit_bytes`, but never less than two of the largest buffers.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX).max(2 * MAX_BUFFER_BYTES);
        let pages = (limit_bytes / PAGE_BYTES).min(Semaphore::MAX_PERMITS);
        Pool(Arc::new(Shared {
            limit_bytes: pages * PAGE_BYTES,
            permits: Arc::new(Semaphore::new(pages)),
            waiting: AtomicUsize::new(0),
            free: Mutex::default(),
        }))
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// Bytes held now, by buffers in use and by those kept for reuse.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.limit_bytes - self.0.permits.available_permits() * PAGE_BYTES
    }

    /// A buffer of `len_bytes` if there is room for it now.
    #[must_use]
    pub fn try_reserve(&self, len_bytes: usize) -> Option<Buffer> {
        let class = class_pages(len_bytes);
        let mut free = self.free();
        if let Some(memory) = free.pop(class) {
            return Some(self.buffer(memory, len_bytes));
        }
        loop {
            if let Ok(permit) = Arc::clone(&self.0.permits).try_acquire_many_owned(permits(class)) {
                drop(free);
                return Some(self.buffer(allocate(class, permit), len_bytes));
            }
            // Room that is only kept for reuse, in another size, is given up before anybody waits.
            free.pop_any()?;
        }
    }

    /// A buffer of `len_bytes`, waiting for room in the order of asking.
    ///
    /// # Panics
    /// When `len_bytes` is above [`MAX_BUFFER_BYTES`]: such a buffer might never fit.
    pub async fn reserve(&self, len_bytes: usize) -> Buffer {
        assert!(len_bytes <= MAX_BUFFER_BYTES, "buffers are at most {MAX_BUFFER_BYTES} bytes");
        let _waiting = Waiting::new(&self.0.waiting);
        // Announced as waiting, so from here on returned memory goes to the semaphore; what was kept before is taken here.
        if let Some(buffer) = self.try_reserve(len_bytes) {
            return buffer;
        }
        let class = class_pages(len_bytes);
        let acquired = Arc::clone(&self.0.permits).acquire_many_owned(permits(class)).await;
        #[expect(clippy::expect_used, reason = "the semaphore is never closed")]
        let permit = acquired.expect("the pool's semaphore stays open");
        self.buffer(allocate(class, permit), len_bytes)
    }

    /// Gives back memory that was kept for reuse and not needed since the last call. Called now and then by the worker.
    pub fn trim(&self) {
        // Each size by itself: a size that is in use must not keep those that nobody asks for any more.
        let unneeded: Vec<Memory> = self.free().0.iter_mut().flat_map(Class::take_idle).collect();
        // Freed without the lock.
        drop(unneeded);
    }

    /// True while somebody waits for room.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    fn free(&self) -> MutexGuard<'_, FreeBuffers> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self, memory: Memory, len_bytes: usize) -> Buffer {
        Buffer { memory: Some(memory), len_bytes, pool: self.clone() }
    }

    fn give_back(&self, memory: Memory) {
        if self.has_waiters() {
            return; // dropping it hands the permits to those who wait
        }
        self.free().push(memory);
        // Somebody may have begun to wait between the look and the push, after searching the free buffers in vain.
        if self.has_waiters() {
            let kept = std::mem::take(&mut *self.free());
            drop(kept);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} bytes)", self.held_bytes(), self.limit_bytes())
    }
}

fn allocate(class: usize, permit: OwnedSemaphorePermit) -> Memory {
    Memory { bytes: vec![0; class * PAGE_BYTES].into_boxed_slice(), permit }
}

fn permits(class: usize) -> u32 {
    u32::try_from(class).unwrap_or(u32::MAX)
}

/// Counts one waiter for as long as it lives, also when the future that waits is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Memory from the pool. Its bytes are whatever the last user left there until they are filled.
pub struct Buffer {
    memory: Option<Memory>,
    len_bytes: usize,
    pool: Pool,
}

impl Buffer {
    /// Bytes of the pool that it takes, which is its length rounded up to its size class.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.permit.num_permits() * PAGE_BYTES)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes[..self.len_bytes])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes[..self.len_bytes])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_wastes_at_most_a_quarter() {
        for len in (1..MAX_BUFFER_BYTES).step_by(777) {
            let bytes = class_pages(len) * PAGE_BYTES;
            assert!(bytes >= len && bytes - len < PAGE_BYTES + len / 4, "{len} takes {bytes}");
        }
        assert_eq!(class_pages(MAX_BUFFER_BYTES) * PAGE_BYTES, MAX_BUFFER_BYTES);
    }

    #[tokio::test]
    async fn the_limit_holds_and_waiters_are_served_when_memory_returns() {
        let pool = Pool::new(4 * MIB);
        let held: Vec<Buffer> = (0..4).map(|_| pool.try_reserve(MAX_BUFFER_BYTES).unwrap()).collect();
        assert!(pool.try_reserve(1).is_none());
        let waiter = tokio::spawn({
            let pool = pool.clone();
            async move { pool.reserve(MAX_BUFFER_BYTES).await.len() }
        });
        while !pool.has_waiters() {
            tokio::task::yield_now().await;
        }
        drop(held);
        assert_eq!(waiter.await.unwrap(), MAX_BUFFER_BYTES);
        assert!(pool.held_bytes() <= pool.limit_bytes());
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_does_not_keep_memory_from_being_reused() {
        let pool = Pool::new(2 * MIB);
        let held = [pool.reserve(MAX_BUFFER_BYTES).await, pool.reserve(MAX_BUFFER_BYTES).await];
        {
            let waiting = pool.reserve(1);
            tokio::pin!(waiting);
            assert!(futures::poll!(&mut waiting).is_pending());
        }
        drop(held);
        assert_eq!(pool.free().0.iter().map(|class| class.buffers.len()).sum::<usize>(), 2);
    }

    #[test]
    fn memory_kept_for_reuse_makes_way_for_another_size() {
        let pool = Pool::new(2 * MIB);
        let small: Vec<Buffer> = (0..512).map(|_| pool.try_reserve(PAGE_BYTES).unwrap()).collect();
        drop(small);
        assert_eq!(pool.held_bytes(), pool.limit_bytes(), "kept for reuse");
        assert!(pool.try_reserve(MAX_BUFFER_BYTES).is_some());
    }

    #[test]
    fn trimming_gives_back_what_was_not_needed_since_the_last_time() {
        let pool = Pool::new(8 * MIB);
        drop([pool.try_reserve(MAX_BUFFER_BYTES), pool.try_reserve(MAX_BUFFER_BYTES)]);
        pool.trim();
        assert_eq!(pool.held_bytes(), 2 * MAX_BUFFER_BYTES, "just used");
        drop(pool.try_reserve(MAX_BUFFER_BYTES));
        pool.trim();
        assert_eq!(pool.held_bytes(), MAX_BUFFER_BYTES, "one of them was in use");
        pool.trim();
        assert_eq!(pool.held_bytes(), 0);
    }

    /// Idle buffers were counted over all sizes once, and taken from whichever size came first: the one in use.
    #[test]
    fn a_size_in_use_does_not_keep_sizes_that_nobody_asks_for() {
        let pool = Pool::new(8 * MIB);
        drop(pool.try_reserve(PAGE_BYTES));
        drop(pool.try_reserve(MAX_BUFFER_BYTES));
        for _ in 0..2 {
            drop(pool.try_reserve(PAGE_BYTES));
            pool.trim();
        }
        assert_eq!(pool.held_bytes(), PAGE_BYTES);
    }
}
