//! Reading the data set through a mounted directory, as a training job's loaders do, and comparing every byte.
//!
//! Works on any directory that holds the files; knows neither mount nor store. Readers are plain threads that take the next
//! file of a shared order. They end early only when told to stop.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::dataset::Image;

/// In which order files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As a directory walk gives them.
    Sorted,
    /// In an order that belongs to this seed.
    Shuffled(u64),
}

impl Order {
    fn indices(self, count: usize) -> Vec<usize> {
        let mut indices: Vec<_> = (0..count).collect();
        if let Order::Shuffled(seed) = self {
            indices.shuffle(&mut SmallRng::seed_from_u64(seed));
        }
        indices
    }
}

/// How to read everything once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    /// What the table calls it.
    pub(super) name: &'static str,
    pub(super) order: Order,
    pub(super) readers: usize,
}

/// What came of a pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) images: u64,
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    /// Files that could not be read or had other bytes than they should.
    pub(super) errors: u64,
    /// The first of them, in words.
    pub(super) first_error: Option<String>,
    /// Told to stop before all were read.
    pub(super) stopped: bool,
}

/// Counts of all readers of a pass together.
#[derive(Debug, Default)]
struct Tally {
    images: u64,
    bytes: u64,
    errors: u64,
    first_error: Option<String>,
}

/// Reads all `images` below `root` as `pass` says.
pub(super) fn read_all(root: &Path, images: &[Image], pass: &Pass, stop: &AtomicBool) -> Outcome {
    let order = pass.order.indices(images.len());
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    let started = Instant::now();
    let reader = || {
        let mut buffer = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let image = &images[*index];
            let result = read_one(&root.join(&image.key), &mut buffer);
            let problem = match result {
                Ok(()) if buffer == image.bytes => None,
                Ok(()) => Some(format!("{}: the bytes differ from what was uploaded", image.key)),
                Err(error) => Some(format!("{}: {error}", image.key)),
            };
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.images += 1;
            tally.bytes += buffer.len() as u64;
            if let Some(problem) = problem {
                tally.errors += 1;
                tally.first_error.get_or_insert(problem);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..pass.readers.max(1) {
            scope.spawn(reader);
        }
    });
    let Tally { images: read, bytes, errors, first_error } = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    Outcome {
        images: read,
        bytes,
        elapsed: started.elapsed(),
        errors,
        first_error,
        stopped: read < images.len() as u64,
    }
}

/// Reads one file into `buffer`, in place of what is there.
fn read_one(path: &Path, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(order: Order, readers: usize) -> Pass {
        Pass { name: "test", order, readers }
    }

    /// Ten files of 1 to 10 bytes, in a directory as they should be.
    fn directory_of_ten() -> (tempfile::TempDir, Vec<Image>) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        let images: Vec<_> =
            (1..=10_u8).map(|n| Image { key: format!("d/{n}"), bytes: vec![n; usize::from(n)].into() }).collect();
        for image in &images {
            std::fs::write(directory.path().join(&image.key), &image.bytes).unwrap();
        }
        (directory, images)
    }

    #[test]
    fn every_file_is_read_once_by_any_number_of_readers() {
        let (directory, images) = directory_of_ten();
        for readers in [1, 4, 16] {
            let outcome =
                read_all(directory.path(), &images, &pass(Order::Shuffled(3), readers), &AtomicBool::new(false));
            assert_eq!((outcome.images, outcome.bytes, outcome.errors), (10, 55, 0), "{:?}", outcome.first_error);
            assert!(!outcome.stopped);
        }
    }

    #[test]
    fn wrong_bytes_and_missing_files_are_counted_and_the_first_is_named() {
        let (directory, images) = directory_of_ten();
        std::fs::write(directory.path().join("d/3"), b"333").unwrap();
        std::fs::remove_file(directory.path().join("d/5")).unwrap();
        std::fs::write(directory.path().join("d/7"), [7; 8]).unwrap();
        let outcome = read_all(directory.path(), &images, &pass(Order::Sorted, 1), &AtomicBool::new(false));
        assert_eq!((outcome.images, outcome.errors), (10, 3));
        assert_eq!(outcome.first_error.unwrap(), "d/3: the bytes differ from what was uploaded");
    }

    #[test]
    fn a_pass_that_is_told_to_stop_reads_no_further() {
        let (directory, images) = directory_of_ten();
        let outcome = read_all(directory.path(), &images, &pass(Order::Sorted, 2), &AtomicBool::new(true));
        assert_eq!(outcome.images, 0);
        assert!(outcome.stopped);
    }

    #[test]
    fn a_shuffled_order_has_every_index_once_and_belongs_to_its_seed() {
        let shuffled = Order::Shuffled(1).indices(100);
        assert_ne!(shuffled, Order::Sorted.indices(100));
        assert_ne!(shuffled, Order::Shuffled(2).indices(100));
        assert_eq!(shuffled, Order::Shuffled(1).indices(100));
        let mut sorted = shuffled;
        sorted.sort_unstable();
        assert_eq!(sorted, Order::Sorted.indices(100));
    }
}
