//! What the machine gives this process: memory and CPUs.
//!
//! The memory is the smallest of the machine's and every limit on the way from our control group to the root, in either
//! version of control groups. `cgroups_rs` finds where they are mounted and which is ours; the limits are read here, since a
//! limit of an ancestor binds as well.

use std::ffi::OsStr;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use cgroups_rs::fs::Controllers;
use cgroups_rs::fs::cgroup::get_cgroups_relative_paths;
use cgroups_rs::fs::hierarchies::{UNIFIED_MOUNTPOINT, V1, is_cgroup2_unified_mode};

use crate::model::{GIB, KIB};

/// Taken for the machine's memory where /proc cannot be read.
const UNKNOWN_MEMORY_BYTES: u64 = 4 * GIB;

/// What this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs, by affinity and quota.
    pub cpus: usize,
}

impl Machine {
    /// Looks at the machine that this runs on.
    #[must_use]
    pub fn detect() -> Self {
        let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory_bytes(&text));
        let limit = MemoryGroup::ours().and_then(|group| group.limit_bytes());
        let memory_bytes = total.into_iter().chain(limit).min().unwrap_or(UNKNOWN_MEMORY_BYTES);
        Machine { memory_bytes, cpus: std::thread::available_parallelism().map_or(1, NonZero::get) }
    }
}

/// `MemTotal` of /proc/meminfo.
fn total_memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(KIB)
}

/// A group that memory is accounted to, in the file system that shows it.
#[derive(Debug)]
struct MemoryGroup {
    /// Where the file system is mounted.
    mount_point: PathBuf,
    /// Which group is seen at the mount point: not `/` in a container without a namespace of its own.
    mount_root: PathBuf,
    /// Our group.
    group: PathBuf,
    /// Name of the file that holds the limit.
    limit_file: &'static str,
}

impl MemoryGroup {
    fn ours() -> Option<Self> {
        let groups = get_cgroups_relative_paths().ok()?;
        if is_cgroup2_unified_mode() {
            return Some(MemoryGroup {
                mount_point: UNIFIED_MOUNTPOINT.into(),
                mount_root: "/".into(),
                group: groups.get("")?.into(),
                limit_file: "memory.max",
            });
        }
        let (mount_point, mount_root) = V1::new().get_mount_point(Controllers::Mem)?;
        let group = groups.get("memory")?.into();
        Some(MemoryGroup { mount_point, mount_root, group, limit_file: "memory.limit_in_bytes" })
    }

    /// The smallest limit from our group up to the mount point; `None` when there is none.
    fn limit_bytes(&self) -> Option<u64> {
        // A group outside of what is mounted cannot be seen; the mount point then is the nearest that binds us.
        let inside = self.group.strip_prefix(&self.mount_root).unwrap_or(Path::new(""));
        let inside =
            if inside.components().any(|part| part.as_os_str() == OsStr::new("..")) { Path::new("") } else { inside };
        let limits = inside.ancestors().filter_map(|group| {
            let text = std::fs::read_to_string(self.mount_point.join(group).join(self.limit_file)).ok()?;
            // "max" in version 2; version 1 has a number beyond any memory instead.
            text.trim().parse().ok()
        });
        limits.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MIB;

    fn group(files: &[(&str, &str)], mount_root: &str, group: &str, limit_file: &'static str) -> Option<u64> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mount_point = folder.path().to_owned();
        MemoryGroup { mount_point, mount_root: mount_root.into(), group: group.into(), limit_file }.limit_bytes()
    }

    #[test]
    fn the_limit_of_an_ancestor_binds() {
        let files = [("a/b/memory.max", "max\n"), ("a/memory.max", "536870912\n"), ("memory.max", "1073741824\n")];
        assert_eq!(group(&files, "/", "/a/b", "memory.max"), Some(512 * MIB));
        assert_eq!(group(&files, "/", "/", "memory.max"), Some(GIB));
        assert_eq!(group(&files[..1], "/", "/a/b", "memory.max"), None);
        assert_eq!(group(&[], "/", "/a/b", "memory.max"), None);
    }

    #[test]
    fn version_1_without_a_limit_has_a_number_beyond_any_memory() {
        let files =
            [("pods/x/memory.limit_in_bytes", "268435456\n"), ("memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(group(&files, "/", "/pods/x", "memory.limit_in_bytes"), Some(256 * MIB));
        assert_eq!(group(&files, "/", "/", "memory.limit_in_bytes"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        let files = [("memory.limit_in_bytes", "268435456\n"), ("inner/memory.limit_in_bytes", "134217728")];
        let limit = |name| group(&files, "/docker/0123", name, "memory.limit_in_bytes");
        assert_eq!(limit("/docker/0123"), Some(256 * MIB));
        assert_eq!(limit("/docker/0123/inner"), Some(128 * MIB));
        assert_eq!(limit("/elsewhere"), Some(256 * MIB));
        assert_eq!(group(&files, "/", "/../../inner", "memory.limit_in_bytes"), Some(256 * MIB));
    }

    #[test]
    fn the_machine_s_memory_is_read_from_meminfo() {
        assert_eq!(total_memory_bytes("MemTotal:       16384000 kB\nMemFree: 1 kB\n"), Some(16_384_000 * KIB));
        assert_eq!(total_memory_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_memory_and_cpus() {
        let machine = Machine::detect();
        assert!(machine.memory_bytes > 0 && machine.cpus > 0);
    }
}
