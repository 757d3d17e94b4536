//! Whether a directory can be mounted on, and what is in the way.
//!
//! As mount(8) does, a directory that is not empty or is itself a mount point of another file system is accepted (a volume
//! of a container is one); what will be hidden is reported as a note. A live mount of ours is refused, because mounting
//! twice is always a mistake. A dead FUSE mount is removed first: nothing can use it, and it would hide the new one's
//! directory from every check.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::error::MountError;
use super::mount_table::{MountEntry, MountTable};
use super::probe;
use super::unmount::{UnmountMode, detach};

/// How many dead mounts on top of each other are removed; more means that something keeps mounting there.
const MAX_STALE_LAYERS: u32 = 16;

/// A directory that can be mounted on; made by [`prepare`].
#[derive(Debug, Clone)]
pub struct Mountpoint {
    path: PathBuf,
    notes: Vec<MountpointNote>,
}

impl Mountpoint {
    /// The directory: absolute, without symlinks.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the user may want to know about it; to be logged.
    #[must_use]
    pub fn notes(&self) -> &[MountpointNote] {
        &self.notes
    }
}

/// Something noteworthy about a mount point that is usable all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountpointNote {
    /// A mount whose daemon had died was removed.
    StaleMountRemoved {
        /// The mount point.
        path: PathBuf,
        /// What had been mounted, as the mount table named it.
        shown: String,
    },
    /// The directory has entries, which are hidden while the mount stands.
    NotEmpty(PathBuf),
}

impl fmt::Display for MountpointNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountpointNote::StaleMountRemoved { path, shown } => {
                write!(f, "removed a dead mount of {shown} from {path:?}")
            }
            MountpointNote::NotEmpty(path) => {
                write!(f, "{path:?} is not empty: its entries are hidden while it is mounted")
            }
        }
    }
}

/// Resolves `path` and makes sure that it can be mounted on; each look at the file system is given up after `deadline`.
///
/// # Errors
/// Missing, no directory, a live mount of ours there already, or something there that gives no answer.
pub fn prepare(path: &Path, deadline: Duration) -> Result<Mountpoint, MountError> {
    let path = resolve(path, deadline)?;
    let mut notes = Vec::new();
    for _ in 0..MAX_STALE_LAYERS {
        let table = MountTable::read().map_err(MountError::MountTable)?;
        match table.mounted_at(&path) {
            Some(mount) if mount.is_fuse() && !is_live(mount, deadline)? => {
                detach(&path, mount.device, UnmountMode::Lazy).map_err(MountError::Stale)?;
                notes.push(MountpointNote::StaleMountRemoved { path: path.clone(), shown: mount.source.clone() });
            }
            _ => break,
        }
    }
    if !is_empty(&path, deadline)? {
        notes.push(MountpointNote::NotEmpty(path.clone()));
    }
    Ok(Mountpoint { path, notes })
}

fn resolve(path: &Path, deadline: Duration) -> Result<PathBuf, MountError> {
    let typed = path.to_owned();
    probe::within(deadline, move || std::fs::canonicalize(typed)).map_err(|error| unusable(path, deadline, error))
}

/// False for a dead mount, true for a live one that may be mounted over.
fn is_live(mount: &MountEntry, deadline: Duration) -> Result<bool, MountError> {
    let path = &mount.mountpoint;
    match probe::file_system_at(path, deadline) {
        Err(error) if probe::is_dead(&error) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(unusable(path, deadline, error)),
        // An answer, or a refusal as root gets it from another user's mount: somebody is at home.
        _ if mount.is_ours() => Err(MountError::AlreadyMounted { path: path.clone(), shown: mount.source.clone() }),
        Err(error) => Err(unusable(path, deadline, error)),
        Ok(_) => Ok(true),
    }
}

/// Also the test for a directory.
fn is_empty(path: &Path, deadline: Duration) -> Result<bool, MountError> {
    let directory = path.to_owned();
    let first = probe::within(deadline, move || Ok(std::fs::read_dir(directory)?.next().is_none()));
    match first {
        // Mounting needs no permission to read the directory, so neither does this check.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        other => other.map_err(|error| unusable(path, deadline, error)),
    }
}

fn unusable(path: &Path, deadline: Duration, source: io::Error) -> MountError {
    let path = path.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::NOENT) => MountError::Missing(path),
        Some(Errno::NOTDIR) => MountError::NotADirectory(path),
        None if source.kind() == io::ErrorKind::TimedOut => MountError::Unresponsive { path, deadline },
        _ => MountError::Inaccessible { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_missing_mount_point_is_refused_with_the_command_that_makes_it() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("a b");
        let error = prepare(&missing, DEADLINE).unwrap_err();
        assert!(matches!(error, MountError::Missing(_)));
        assert!(error.to_string().contains(&format!("mkdir -p {missing:?}")), "{error}");
    }

    #[test]
    fn a_file_is_refused_as_no_directory_and_so_is_a_path_through_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = prepare(&path, DEADLINE).unwrap_err();
            assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
        }
    }

    #[test]
    fn symlinks_dots_and_trailing_slashes_are_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", directory.path().join("link")).unwrap();
        for typed in ["link", "link/", "./real/.", "real/../link"] {
            assert_eq!(prepare(&directory.path().join(typed), DEADLINE).unwrap().path(), real, "{typed}");
        }
    }

    #[test]
    fn a_relative_path_counts_from_the_working_directory() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(prepare(Path::new("src/.."), DEADLINE).unwrap().path(), here);
    }

    #[test]
    fn an_empty_directory_gives_no_note_and_one_with_entries_does() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(prepare(directory.path(), DEADLINE).unwrap().notes(), []);
        std::fs::write(directory.path().join("file"), "x").unwrap();
        let mountpoint = prepare(directory.path(), DEADLINE).unwrap();
        assert_eq!(mountpoint.notes(), [MountpointNote::NotEmpty(mountpoint.path().to_owned())]);
    }
}
