//! The one pool that all payload lives in: memory permits and the buffers they stand for.
//!
//! Always true: the bytes of all buffers, in use or kept for reuse, never pass the limit; a buffer is reserved before the GET
//! that fills it is sent. Permits stand for what is in use; what is kept for reuse is never more than the permits left over.
//! Buffers are recycled by size class, also from those who are done to those who wait, so a steady stream neither faults pages
//! in nor zeroes them again, and the allocator has nothing to keep beside.
//! What is evicted to make room is the cache's business (`block_cache`), not the pool's.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{KIB, MIB};

/// Memory is counted in pages of 4 KiB, the smallest page of every supported machine.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const PAGE_BYTES: usize = 4 * KIB as usize;

/// Largest single buffer: a block, or the longest read the kernel sends.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const MAX_BUFFER_BYTES: usize = MIB as usize;

/// From this size on, memory is mapped from the system: what is freed is back there at once, while an allocator keeps it until its
/// threads happen to allocate again. Smaller ones are left to the allocator, since a process may only have some 65,000 mappings.
const MAPPED_BYTES: usize = 32 * PAGE_BYTES;

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
    /// Of all memory there is, in use or kept.
    allocated_pages: AtomicUsize,
    kept: Mutex<Kept>,
}

/// Bytes from the system or from the allocator.
enum Memory {
    Mapped(MmapMut),
    Allocated(Box<[u8]>),
}

impl Memory {
    fn new(len_bytes: usize) -> Self {
        if len_bytes >= MAPPED_BYTES
            && let Ok(mapped) = MmapMut::map_anon(len_bytes)
        {
            return Memory::Mapped(mapped);
        }
        Memory::Allocated(vec![0; len_bytes].into_boxed_slice())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Allocated(Box::default())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Memory::Mapped(bytes) => bytes,
            Memory::Allocated(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Mapped(bytes) => bytes,
            Memory::Allocated(bytes) => bytes,
        }
    }
}

/// Memory kept for reuse.
#[derive(Default)]
struct Kept {
    classes: Vec<Class>,
    pages: usize,
}

/// Memory of one size; the newest last, since it is warmest in the CPU's cache.
struct Class {
    pages: usize,
    list: Vec<Memory>,
    /// How many were never taken since the last trim: nobody needs those.
    idle_since_trim: usize,
}

impl Class {
    fn pop(&mut self) -> Option<Memory> {
        let bytes = self.list.pop()?;
        self.idle_since_trim = self.idle_since_trim.min(self.list.len());
        Some(bytes)
    }

    fn take_idle(&mut self) -> Vec<Memory> {
        let idle = self.list.drain(..self.idle_since_trim).collect();
        self.idle_since_trim = self.list.len();
        idle
    }
}

impl Kept {
    fn pop(&mut self, pages: usize) -> Option<Memory> {
        let bytes = self.classes.iter_mut().find(|class| class.pages == pages)?.pop()?;
        self.pages -= pages;
        Some(bytes)
    }

    fn push(&mut self, bytes: Memory) {
        let pages = bytes.len() / PAGE_BYTES;
        self.pages += pages;
        match self.classes.iter_mut().find(|class| class.pages == pages) {
            Some(class) => class.list.push(bytes),
            None => self.classes.push(Class { pages, list: vec![bytes], idle_since_trim: 0 }),
        }
    }

    /// Takes out as much as it needs to keep at most `most_pages`.
    fn shrink_to(&mut self, most_pages: usize) -> Vec<Memory> {
        let mut surplus = Vec::new();
        while self.pages > most_pages
            && let Some(bytes) = self.classes.iter_mut().find_map(Class::pop)
        {
            self.pages -= bytes.len() / PAGE_BYTES;
            surplus.push(bytes);
        }
        surplus
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
            allocated_pages: AtomicUsize::new(0),
            kept: Mutex::default(),
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
        self.0.allocated_pages.load(Ordering::SeqCst) * PAGE_BYTES
    }

    /// A buffer of `len_bytes` if there is room for it now, and nobody waits for it.
    #[must_use]
    pub fn try_reserve(&self, len_bytes: usize) -> Option<Buffer> {
        let permit = Arc::clone(&self.0.permits).try_acquire_many_owned(permits(class_pages(len_bytes))).ok()?;
        Some(self.buffer(permit, len_bytes))
    }

    /// A buffer of `len_bytes`, waiting for room in the order of asking.
    ///
    /// # Panics
    /// When `len_bytes` is above [`MAX_BUFFER_BYTES`]: such a buffer might never fit.
    pub async fn reserve(&self, len_bytes: usize) -> Buffer {
        assert!(len_bytes <= MAX_BUFFER_BYTES, "buffers are at most {MAX_BUFFER_BYTES} bytes");
        let _waiting = Waiting::new(&self.0.waiting);
        let acquired = Arc::clone(&self.0.permits).acquire_many_owned(permits(class_pages(len_bytes))).await;
        #[expect(clippy::expect_used, reason = "the semaphore is never closed")]
        let permit = acquired.expect("the pool's semaphore stays open");
        self.buffer(permit, len_bytes)
    }

    /// Gives back memory that was kept for reuse and not needed since the last call. Called now and then by the worker.
    pub fn trim(&self) {
        let mut kept = self.kept();
        // Each size by itself: a size that is in use must not keep those that nobody asks for any more.
        let idle: Vec<_> = kept.classes.iter_mut().flat_map(Class::take_idle).collect();
        kept.pages -= idle.iter().map(|bytes| bytes.len() / PAGE_BYTES).sum::<usize>();
        self.free(idle);
    }

    /// True while somebody waits for room.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a permit: kept one of its size, else new, for which kept ones of other sizes make way.
    fn buffer(&self, permit: OwnedSemaphorePermit, len_bytes: usize) -> Buffer {
        let pages = permit.num_permits();
        let mut kept = self.kept();
        let bytes = if let Some(bytes) = kept.pop(pages) {
            bytes
        } else {
            let surplus = kept.shrink_to(self.0.permits.available_permits());
            self.free(surplus);
            self.0.allocated_pages.fetch_add(pages, Ordering::SeqCst);
            drop(kept);
            Memory::new(pages * PAGE_BYTES)
        };
        Buffer { bytes, len_bytes, permit: Some(permit), pool: self.clone() }
    }

    /// Called with the lock on what is kept: it is gone before anybody else finds room in its place.
    fn free(&self, memory: Vec<Memory>) {
        for bytes in memory {
            let pages = bytes.len() / PAGE_BYTES;
            drop(bytes);
            self.0.allocated_pages.fetch_sub(pages, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} bytes)", self.held_bytes(), self.limit_bytes())
    }
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
    bytes: Memory,
    len_bytes: usize,
    /// Given back when it is dropped, and not before its memory is.
    permit: Option<OwnedSemaphorePermit>,
    pool: Pool,
}

impl Buffer {
    /// Bytes of the pool that it takes, which is its length rounded up to its size class.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len_bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The memory first: whoever gets the permit finds it.
        self.pool.kept().push(std::mem::take(&mut self.bytes));
        drop(self.permit.take());
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
        assert_eq!(pool.kept().pages * PAGE_BYTES, 2 * MAX_BUFFER_BYTES);
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

    /// Memory used to be freed and allocated anew for each who had waited; what the allocator kept came on top of the limit.
    #[tokio::test]
    async fn memory_goes_from_who_is_done_to_who_waits_as_it_is() {
        let pool = Pool::new(2 * MIB);
        let mut held = [pool.reserve(MAX_BUFFER_BYTES).await, pool.reserve(MAX_BUFFER_BYTES).await];
        held[0][0] = 7;
        let waiting = pool.reserve(MAX_BUFFER_BYTES);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let [first, _second] = held;
        let address = first.as_ptr();
        drop(first);
        let served = waiting.await;
        assert_eq!((served.as_ptr(), served[0]), (address, 7));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_sizes_at_once_pass_no_limit_and_leave_nobody_waiting() {
        let pool = Pool::new(4 * MIB);
        let tasks: Vec<_> = (0..32_usize)
            .map(|task| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for n in 0..200 {
                        let len = (task * 7919 + n * 104_729) % MAX_BUFFER_BYTES + 1;
                        if n % 7 == 0 {
                            let mut given_up = std::pin::pin!(pool.reserve(len));
                            let _whatever = futures::poll!(&mut given_up);
                        }
                        let buffer = pool.reserve(len).await;
                        assert!(pool.held_bytes() <= pool.limit_bytes());
                        tokio::task::yield_now().await;
                        drop(buffer);
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(std::time::Duration::from_secs(60), task).await.expect("nobody waits").unwrap();
        }
        assert_eq!(pool.0.permits.available_permits() * PAGE_BYTES, pool.limit_bytes());
        pool.trim();
        pool.trim();
        assert_eq!(pool.held_bytes(), 0);
    }
}
