//! Bytes: every size, every way to read, many readers, huge objects; always compared with what they must be.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::support::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The two ways in which the daemon fetches.
const MODES: [&[&str]; 2] = [&["--direct-mode", "false"], &["--direct-mode", "true"]];

/// Reads a part of a computed object through the mount and compares it.
#[track_caller]
fn check(file: &File, key: &str, size: u64, offset: u64, length: usize) {
    let there = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
    let found = read_at(file, offset, length).unwrap_or_else(|error| panic!("{key} at {offset}: {error}"));
    same_bytes(&found, &synthetic_content(key, offset, there), &format!("{key} at {offset}"));
}

/// The same for random parts.
#[track_caller]
fn check_random(file: &File, key: &str, size: u64, most: usize, count: usize, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..count {
        let offset = rng.random_range(0..size);
        check(file, key, size, offset, rng.random_range(1..=most));
    }
}

#[test]
fn objects_of_every_size_are_read_exactly() {
    let sizes = [
        0,
        1,
        2,
        511,
        4095,
        4096,
        4097,
        100_003,
        512 * KIB - 1,
        512 * KIB,
        512 * KIB + 1,
        MIB - 1,
        MIB,
        MIB + 1,
        2 * MIB - 1,
        2 * MIB,
        2 * MIB + 1,
        3 * MIB + 12_345,
        7_777_777,
    ];
    let names = sizes.map(|size| format!("size-{size}"));
    let rows: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(sizes).collect();
    let origin = TestOrigin::synthetic(&rows);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        for &(key, size) in &rows {
            assert_eq!(fs::metadata(mount.join(key)).unwrap().len(), size);
            let file = File::open(mount.join(key)).unwrap();
            // The end first, so that nothing is there yet.
            for offset in [size.saturating_sub(1), size.saturating_sub(5000), size / 2, size, size + 1] {
                check(&file, key, size, offset, 10_000);
            }
            let expected = synthetic_content(key, 0, usize::try_from(size).unwrap());
            same_bytes(&mount.read(key), &expected, key);
            forget_pages(&file);
            if size > 0 {
                check_random(&file, key, size, 300_000, 10, size);
            }
        }
    }
}

#[test]
fn every_way_to_read_gives_the_same_bytes() {
    let (key, size) = ("file", 5 * MIB + 321);
    let origin = TestOrigin::synthetic(&[(key, size)]);
    let expected = synthetic_content(key, 0, usize::try_from(size).unwrap());
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        let path = mount.join(key);
        let file = File::open(&path).unwrap();
        let (mut first, mut second) = (vec![0; 1000], vec![0; 70_000]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(rustix::io::preadv(&file, &mut parts, MIB - 500).unwrap(), 71_000);
        let at = usize::try_from(MIB - 500).unwrap();
        same_bytes(&[first, second].concat(), &expected[at..at + 71_000], "preadv");
        forget_pages(&file);
        same_bytes(&read_at(&open_direct(&path), 0, expected.len()).unwrap(), &expected, "O_DIRECT");
        let odd = read_at(&open_direct(&path), 4096 * 3, 8192 * 5).unwrap();
        same_bytes(&odd, &expected[4096 * 3..][..8192 * 5], "a part with O_DIRECT");
        same_bytes(&sent(&file, expected.len()), &expected, "sendfile");
        forget_pages(&file);
        let map = map_file(&file, expected.len());
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..50 {
            let at = rng.random_range(0..expected.len() - 5000);
            same_bytes(&map[at..at + 5000], &expected[at..at + 5000], "mapped, at random");
        }
        same_bytes(&map, &expected, "mapped");
        let copy = mount.folder().join("copy");
        assert!(output(Command::new("cp").arg(&path).arg(&copy), HANG).status.success());
        same_bytes(&fs::read(&copy).unwrap(), &expected, "cp");
    }
}

fn open_direct(path: &Path) -> File {
    open_with(path, libc::O_DIRECT).unwrap()
}

/// What sendfile(2) gives, read back from a temporary file.
fn sent(file: &File, length: usize) -> Vec<u8> {
    let target = tempfile::tempfile().unwrap();
    let (mut offset, mut left) = (0, length);
    while left > 0 {
        let count = rustix::fs::sendfile(&target, file, Some(&mut offset), left).unwrap();
        assert!(count > 0, "sendfile ended {left} bytes early");
        left -= count;
    }
    read_at(&target, 0, length + 1).unwrap()
}

#[test]
fn backward_reads_strides_and_tails_are_exact() {
    let (key, size) = ("file", 12 * MIB + 7);
    let origin = TestOrigin::synthetic(&[(key, size)]);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        let file = File::open(mount.join(key)).unwrap();
        for back in (0..size / (300 * KIB)).rev() {
            check(&file, key, size, back * 300 * KIB, 50_000);
        }
        forget_pages(&file);
        for stride in (0..size).step_by(1_000_003) {
            check(&file, key, size, stride, 100);
        }
        forget_pages(&file);
        // As zip and Parquet do: the tail, the head, then ranges.
        check(&file, key, size, size - 65_557, 65_557);
        check(&file, key, size, 0, 4);
        check_random(&file, key, size, 700_000, 20, 2);
    }
}

#[test]
fn sixty_four_threads_share_one_descriptor() {
    let (key, size) = ("file", 64 * MIB + 99);
    let origin = TestOrigin::synthetic(&[(key, size)]);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        let file = Arc::new(File::open(mount.join(key)).unwrap());
        let readers: Vec<_> = (0..64)
            .map(|seed| {
                let file = Arc::clone(&file);
                thread::spawn(move || check_random(&file, key, size, 200_000, 12, seed))
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}

#[test]
fn the_largest_objects_are_read_at_random() {
    let sizes = [("5gib", 5 * GIB), ("50gib", 50 * GIB), ("5tib", 5 * TIB)];
    let origin = TestOrigin::synthetic(&sizes);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        for (key, size) in sizes {
            assert_eq!(fs::metadata(mount.join(key)).unwrap().len(), size);
            let file = File::open(mount.join(key)).unwrap();
            check(&file, key, size, size - 3 * MIB - 17, 4 << 20);
            check(&file, key, size, size - 1, 100);
            check(&file, key, size, (1 << 32) - 5, 10);
            check_random(&file, key, size, 100_000, 20, size);
        }
    }
}

#[test]
fn random_reads_in_direct_mode_fetch_little_more_than_is_asked() {
    let (key, size) = ("file", GIB);
    let origin = TestOrigin::synthetic(&[(key, size)]);
    let mount = Mount::start(&origin, &["--direct-mode", "true"]);
    let file = File::open(mount.join(key)).unwrap();
    origin.reset_counters();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut asked = 0;
    for _ in 0..500 {
        let offset = rng.random_range(0..size - 4096);
        check(&file, key, size, offset, 4096);
        asked += (offset + 4096).next_multiple_of(4096) - offset / 4096 * 4096;
    }
    let sent = origin.counters().body_bytes_sent;
    assert!(sent * 10 <= asked * 11, "{sent} bytes fetched for {asked} asked");
    assert!(origin.counters().get_requests <= 550, "{:?}", origin.counters());
}

#[test]
fn many_processes_read_a_file_and_each_block_is_fetched_once() {
    let (key, size) = ("file", 48 * MIB - 1);
    let origin = TestOrigin::synthetic(&[(key, size)]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    let mut readers: Vec<_> = (0..6)
        .map(|_| Command::new("sha256sum").arg(mount.join(key)).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let sums: Vec<String> = readers
        .iter_mut()
        .map(|reader| {
            let mut sum = String::new();
            reader.stdout.take().unwrap().read_to_string(&mut sum).unwrap();
            assert!(finish(reader, HANG, "sha256sum ends").success());
            sum
        })
        .collect();
    assert!(sums.windows(2).all(|pair| pair[0] == pair[1]), "{sums:?}");
    assert_eq!(origin.counters().get_requests, 48);
    assert_eq!(origin.counters().body_bytes_sent, size);
}

#[test]
fn hundreds_of_readers_get_on_with_the_smallest_memory() {
    let objects: Vec<(String, u64)> = (0..64).map(|number| (format!("f{number:03}"), 3 * MIB + number)).collect();
    let rows: Vec<(&str, u64)> = objects.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let origin = TestOrigin::synthetic(&rows);
    for mode in MODES {
        let mount = MountOptions::of(&origin).args(["--memory-limit", "16M"]).args(mode).start();
        let objects = Arc::new(objects.clone());
        let readers: Vec<_> = (0..256_usize)
            .map(|reader| {
                let (key, size) = objects[reader % objects.len()].clone();
                let path = mount.join(&key);
                thread::spawn(move || {
                    let file = File::open(path).unwrap();
                    // Across blocks, at places that differ between the readers of a file.
                    let offset = (reader as u64 / 64) * 600_000 + 300_000;
                    check(&file, &key, size, offset, 900_000);
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}

/// Reads a computed object from its start to its end, a MiB at a time, and compares every byte.
fn read_through(path: &Path, key: &str, size: u64) {
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut expected = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = file.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        streamvol::origin::synthetic_bytes(
            streamvol::origin::seed_of_key(key.as_bytes(), 0),
            offset,
            &mut expected[..count],
        );
        same_bytes(&buffer[..count], &expected[..count], &format!("at {offset}"));
        offset += count as u64;
    }
    assert_eq!(offset, size);
}

#[test]
fn a_large_object_is_read_through_and_every_byte_is_right() {
    let size = if long_forms() { 6 * GIB } else { GIB } + 4321;
    let origin = TestOrigin::synthetic(&[("large", size)]);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        origin.reset_counters();
        read_through(&mount.join("large"), "large", size);
        let sent = origin.counters().body_bytes_sent;
        assert!(sent <= size + size / 50, "{sent} bytes fetched for {size}");
    }
}

#[test]
fn many_threads_read_random_parts_of_many_files() {
    let objects: Vec<(String, u64)> =
        (0..40_u64).map(|number| (format!("d{}/f{number}", number % 5), 1 + number * number * 3000)).collect();
    let rows: Vec<(&str, u64)> = objects.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let origin = TestOrigin::synthetic(&rows);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        let objects = Arc::new(objects.clone());
        let readers: Vec<_> = (0..16_u64)
            .map(|seed| {
                let (objects, root) = (Arc::clone(&objects), mount.path().to_owned());
                thread::spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed);
                    for _ in 0..40 {
                        let (key, size) = &objects[rng.random_range(0..objects.len())];
                        let file = File::open(root.join(key)).unwrap();
                        check_random(&file, key, *size, 400_000, 1, rng.random());
                        if rng.random_bool(0.2) {
                            forget_pages(&file);
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}

#[test]
fn offsets_near_the_end_of_all_offsets_are_no_error() {
    let origin = TestOrigin::synthetic(&[("file", 10 * MIB), ("5tib", 5 * TIB)]);
    for mode in MODES {
        let mount = Mount::start(&origin, mode);
        for key in ["file", "5tib"] {
            for flags in [0, libc::O_DIRECT] {
                let file = open_with(&mount.join(key), flags).unwrap();
                for offset in [5 * TIB, i64::MAX as u64 / 4096 * 4096 - 4096, i64::MAX as u64 - 4096] {
                    let mut buffer = [0; 4096];
                    assert_eq!(file.read_at(&mut buffer, offset).unwrap(), 0, "{key} at {offset}, flags {flags:#x}");
                }
            }
        }
    }
}
