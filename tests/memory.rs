//! What the daemon takes of the machine's memory, as the kernel counts it.

use std::fs::File;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::support::*;

const MIB: u64 = 1 << 20;

/// A field of /proc/PID/status, in bytes.
fn memory_of(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Beside the pool: buffers of connections and TLS, tables, stacks; for the 128 GETs in flight below.
const BESIDE_THE_POOL: u64 = 96 * MIB;

#[test]
fn memory_stays_near_its_limit_under_load_and_falls_after_it() {
    let size = 512 * MIB;
    let origin = TestOrigin::synthetic(&[("file", size)]);
    let limit = 64 * MIB;
    let mount = MountOptions::of(&origin)
        .args(["--memory-limit", "64M", "--direct-mode", "true", "--max-gets-in-flight", "128"])
        .args(["--read-ahead-kb", "1024"])
        .start();
    let before = memory_of(mount.pid(), "VmRSS");
    let file = Arc::new(File::open(mount.join("file")).unwrap());
    let readers: Vec<_> = (0..128_u64)
        .map(|reader| {
            let file = Arc::clone(&file);
            thread::spawn(move || {
                let offset = reader * 4 * MIB;
                let found = read_at(&file, offset, 3 << 20).unwrap();
                same_bytes(&found, &synthetic_content("file", offset, 3 << 20), "file");
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let peak = memory_of(mount.pid(), "VmHWM");
    assert!(peak <= before + limit + BESIDE_THE_POOL, "{} MiB, {} before", peak / MIB, before / MIB);
    eventually(Duration::from_secs(60), "the pool's memory is back at the system's after load", || {
        memory_of(mount.pid(), "VmRSS") <= peak - limit / 4 * 3
    });
}
