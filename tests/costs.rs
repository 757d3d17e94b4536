//! What things cost at the store, counted there.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::support::*;

const MODES: [&[&str]; 2] = [&["--direct-mode", "false"], &["--direct-mode", "true"]];

/// Every regular file below a directory.
fn files_below(root: &std::path::Path) -> Vec<PathBuf> {
    let found = output(Command::new("find").arg(root).args(["-type", "f"]), HANG);
    assert!(found.status.success());
    String::from_utf8(found.stdout).unwrap().lines().map(PathBuf::from).collect()
}

#[test]
fn a_listing_of_twenty_thousand_objects_costs_its_pages_and_little_more() {
    let origin = TestOrigin::images(20_000, 100, 1000);
    let mount = Mount::start(&origin, &[]);
    let listed = origin.counters();
    // Twenty pages of 1,000 keys; splitting the work costs a few that are not full, and the start asks a little, too.
    assert!((20..=60).contains(&listed.list_requests), "{listed:?}");
    assert!(origin.requests() <= listed.list_requests + 2, "{listed:?}");
    assert_eq!(listed.get_requests, 0);
    origin.reset_counters();
    let run = output(Command::new("ls").arg("-lR").arg(mount.path()), HANG);
    assert!(run.status.success());
    assert!(run.stdout.split(|&byte| byte == b'\n').count() > 20_000);
    assert_eq!(files_below(mount.path()).len(), 20_000);
    assert_eq!(origin.requests(), 0);
}

#[test]
fn a_file_deep_down_costs_one_get_right_after_mounting() {
    for mode in MODES {
        let origin = TestOrigin::with_keys(["d1/d2/d3/f", "d1/d2/g", "h"]);
        let mount = Mount::start(&origin, mode);
        origin.reset_counters();
        assert_eq!(mount.read("d1/d2/d3/f"), b"d1/d2/d3/f");
        let cost = origin.counters();
        assert_eq!((cost.get_requests, origin.requests()), (1, 1), "{mode:?}: {cost:?}");
    }
}

#[test]
fn small_files_cost_one_whole_get_each() {
    let sizes = [1, 1000, 4096, 115_000, (512 << 10) - 1, 512 << 10];
    for mode in MODES {
        let origin = TestOrigin::with(sizes.iter().map(|&size| (format!("f{size}"), content(size as u64, size))));
        let recorder = Recorder::before(&origin);
        let mount = Mount::start(&recorder, mode);
        origin.reset_counters();
        for &size in &sizes {
            same_bytes(&mount.read(format!("f{size}")), &content(size as u64, size), "through the proxy");
        }
        assert_eq!(origin.requests(), sizes.len() as u64, "{mode:?}: {:?}", origin.counters());
        let heads = recorder.object_gets();
        assert_eq!(heads.len(), sizes.len());
        for head in heads {
            let lower = head.to_ascii_lowercase();
            assert!(!lower.contains("\r\nrange:"), "{mode:?}: {head}");
            assert!(lower.contains("\r\nif-match:"), "{mode:?}: {head}");
            assert!(lower.contains("\r\nauthorization: aws4-hmac-sha256 "), "{mode:?}: {head}");
            assert!(!lower.contains("\r\naccept-encoding: gzip"), "bytes are wanted as stored: {head}");
        }
    }
}

#[test]
fn reading_again_costs_nothing_in_cached_mode() {
    let origin = TestOrigin::synthetic(&[("large", 20 << 20), ("small", 1000)]);
    let mount = Mount::start(&origin, &[]);
    for key in ["large", "small"] {
        let bytes = mount.read(key);
        origin.reset_counters();
        forget_pages(&File::open(mount.join(key)).unwrap());
        same_bytes(&mount.read(key), &bytes, key);
        assert_eq!(origin.requests(), 0, "{key}: {:?}", origin.counters());
    }
}

#[test]
fn a_large_file_costs_one_get_for_each_mib_in_cached_mode() {
    let origin = TestOrigin::synthetic(&[("large", (20 << 20) + 1)]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    mount.read("large");
    assert_eq!(origin.counters().get_requests, 21);
    assert_eq!(origin.counters().body_bytes_sent, (20 << 20) + 1);
}

#[test]
fn a_thousand_shuffled_files_cost_a_thousand_gets() {
    for mode in MODES {
        let origin = TestOrigin::images(1000, 10, 115_000);
        let mount = Mount::start(&origin, mode);
        origin.reset_counters();
        let mut files = files_below(mount.path());
        files.shuffle(&mut SmallRng::seed_from_u64(1));
        let (files, next) = (Arc::new(files), Arc::new(AtomicUsize::new(0)));
        let readers: Vec<_> = (0..16)
            .map(|_| {
                let (files, next, root) = (Arc::clone(&files), Arc::clone(&next), mount.path().to_owned());
                thread::spawn(move || {
                    while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let key = path.strip_prefix(&root).unwrap().to_str().unwrap();
                        let bytes = fs::read(path).unwrap();
                        same_bytes(&bytes, &synthetic_content(key, 0, bytes.len()), key);
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let cost = origin.counters();
        assert_eq!((cost.get_requests, origin.requests()), (1000, 1000), "{mode:?}: {cost:?}");
        let sizes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(cost.body_bytes_sent, sizes, "{mode:?}");
    }
}

#[test]
fn names_that_are_not_there_cost_nothing() {
    let origin = TestOrigin::with_keys(["d/file"]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    for _ in 0..2 {
        for name in ["nothing", "d/nothing", "d/file.lock", "d/nothing/below"] {
            assert!(fs::metadata(mount.join(name)).is_err());
        }
    }
    assert_eq!(origin.requests(), 0);
}

#[test]
fn connections_are_used_again() {
    let origin = TestOrigin::images(300, 3, 2000);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    for path in files_below(mount.path()) {
        fs::read(path).unwrap();
    }
    let cost = origin.counters();
    assert_eq!(cost.get_requests, 300);
    assert!(cost.connections_accepted <= 5, "one reader, one connection: {cost:?}");
}
