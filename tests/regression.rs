//! What once went wrong on a running mount, seen from outside.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

/// The allocator asks for huge pages. A mount with a limit of 16 MiB took 60 MiB more than it used, all of it zeros, since each
/// page of 2 MiB was there for the first few bytes touched. What it touches before `main` may stay huge.
#[test]
fn memory_is_taken_in_small_pages() {
    let origin = TestOrigin::images(20_000, 100, 1000);
    let mount = Mount::start(&origin, &["--memory-limit", "16M"]);
    let memory = fs::read_to_string(format!("/proc/{}/smaps_rollup", mount.pid())).unwrap();
    let huge = memory.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
    let huge_kib: u64 = huge.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(huge_kib <= 8 << 10, "{memory}");
}

/// Objects that change all the time, in bytes and length, while many read them: nobody ever sees two versions in one. They are
/// several blocks long, and more than the cache holds.
#[test]
fn what_is_read_while_it_is_overwritten_is_one_version_or_stale() {
    const OBJECTS: u64 = 8;
    const READERS: u64 = 32;
    let version =
        |number: u64| number.to_le_bytes().repeat([300_000, 300_777, 301_554][usize::try_from(number % 3).unwrap()]);
    for mode in ["false", "true"] {
        let origin = TestOrigin::with((0..OBJECTS).map(|object| (object.to_string(), version(0))));
        let mut mount = Mount::start(&origin, &["--direct-mode", mode, "--memory-limit", "16M"]);
        mount.expect_log("changed since it was listed");
        let stop = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                for number in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    origin.put((number % OBJECTS).to_string(), version(number));
                }
            });
            let end = Instant::now() + Duration::from_secs(2);
            let readers: Vec<_> = (0..READERS)
                .map(|reader| {
                    let path = mount.join((reader % OBJECTS).to_string());
                    scope.spawn(move || {
                        let mut seen = BTreeSet::new();
                        while Instant::now() < end {
                            let mut bytes = Vec::new();
                            let read = fs::File::open(&path).and_then(|mut file| {
                                forget_pages(&file);
                                file.read_to_end(&mut bytes)
                            });
                            if let Err(error) = read {
                                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                                continue;
                            }
                            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                            assert!(bytes == version(number), "mixed with version {number}, {} bytes", bytes.len());
                            seen.insert(number);
                        }
                        seen.len() as u64
                    })
                })
                .collect();
            let seen: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            seen
        });
        let seen: u64 = seen.into_iter().map(Result::unwrap).sum();
        assert!(seen > READERS, "direct {mode}: {seen} versions seen by {READERS} readers");
    }
}
