//! Which programs use a mount, found in /proc for the message "in use by".
//!
//! Only links are read, never the files behind them, so that a hung mount cannot hang the search; memory mappings are left
//! out, because listing them waits for a lock that a stuck page fault may hold. The search is bounded in time and result.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Enough to know what to stop.
const MAX_USERS: usize = 8;
/// A machine with very many processes gets an incomplete list rather than a slow error.
const SEARCH_TIME: Duration = Duration::from_millis(500);

/// A program that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountUser {
    /// Its process id.
    pub pid: u32,
    /// Its name, as the kernel has it (at most 15 bytes).
    pub name: String,
}

impl fmt::Display for MountUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// Programs with their working directory, root, executable or an open file at or below `mountpoint`.
pub(crate) fn users_of(mountpoint: &Path) -> Vec<MountUser> {
    let end = Instant::now() + SEARCH_TIME;
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .take_while(|_| Instant::now() < end)
        .filter_map(|entry| {
            let pid = std::str::from_utf8(entry.file_name().as_bytes()).ok()?.parse().ok()?;
            uses(&entry.path(), mountpoint).then(|| MountUser { pid, name: name_of(&entry.path()) })
        })
        .take(MAX_USERS)
        .collect()
}

fn uses(process: &Path, mountpoint: &Path) -> bool {
    let inside = |link: &Path| std::fs::read_link(link).is_ok_and(|target| target.starts_with(mountpoint));
    ["cwd", "root", "exe"].iter().any(|link| inside(&process.join(link)))
        || std::fs::read_dir(process.join("fd"))
            .is_ok_and(|descriptors| descriptors.flatten().any(|descriptor| inside(&descriptor.path())))
}

fn name_of(process: &Path) -> String {
    let name = std::fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii()).escape_debug().to_string()
}

/// The list as a message continues: empty, or " by 12 (bash), 34 (python)".
pub(crate) fn listed(users: &[MountUser]) -> String {
    match users {
        [] => String::new(),
        _ => format!(" by {}", users.iter().map(MountUser::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_open_file_below_the_path_is_found_by_pid_and_name() {
        let directory = tempfile::tempdir().unwrap();
        let _open = std::fs::File::create(directory.path().join("held")).unwrap();
        let users = users_of(directory.path());
        assert_eq!(users.iter().map(|user| user.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert!(!users[0].name.is_empty());
        assert_eq!(users_of(&directory.path().join("hel")), []);
    }

    #[test]
    fn users_are_listed_for_a_sentence() {
        let user = |pid, name: &str| MountUser { pid, name: name.to_owned() };
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&[user(1, "a"), user(22, "b c")]), " by 1 (a), 22 (b c)");
    }
}
