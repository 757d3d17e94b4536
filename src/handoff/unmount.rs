//! Taking a mount out of the tree: in order, lazily, or by force.
//!
//! What is mounted at a path is decided from the mount table, so that a hung mount can be taken away without being touched.
//! Without the right to call umount2(2) the set-uid helper does it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::error::UnmountError;
use super::mount_table::{DeviceNumber, MountTable};
use super::users::users_of;
use super::{fusermount, probe};

/// How a mount is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Only when nothing uses it.
    Orderly,
    /// Out of the tree at once; programs that use it go on until they are done.
    Lazy,
    /// As lazily, and everything that waits for it fails now: for a mount whose daemon hangs.
    Force,
}

/// Resolving a path touches the file systems above the mount point, which may hang as well.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(5);

/// Unmounts the FUSE mount at `path`.
///
/// # Errors
/// Not a mount point, not a FUSE mount, in use (in order only), or not permitted.
pub fn unmount(path: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
    let table = MountTable::read().map_err(UnmountError::MountTable)?;
    // The whole path is resolved only when need be: that may touch a mount that hangs.
    for resolved in [resolve_above, resolve] {
        let Some(entry) = resolved(path)?.and_then(|absolute| table.mounted_at(&absolute)) else { continue };
        if !entry.is_fuse() {
            return Err(UnmountError::NotFuse { path: path.to_owned(), fs_type: entry.fs_type.clone() });
        }
        return detach(&entry.mountpoint, entry.device, mode);
    }
    Err(UnmountError::NotMounted(path.to_owned()))
}

/// `path` with all but its last component resolved: enough unless that is a symlink, and touches nothing of the mount.
fn resolve_above(path: &Path) -> Result<Option<PathBuf>, UnmountError> {
    let Some(name) = path.file_name() else { return Ok(None) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(resolve(parent)?.map(|parent| parent.join(name)))
}

fn resolve(path: &Path) -> Result<Option<PathBuf>, UnmountError> {
    let typed = path.to_owned();
    match probe::within(RESOLVE_DEADLINE, move || std::fs::canonicalize(typed)) {
        Ok(absolute) => Ok(Some(absolute)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(UnmountError::Unresponsive(path.to_owned())),
        Err(_) => Ok(None),
    }
}

/// Takes the topmost mount off `mountpoint`, which the caller has found to be a FUSE mount of file system `device`.
pub(crate) fn detach(mountpoint: &Path, device: DeviceNumber, mode: UnmountMode) -> Result<(), UnmountError> {
    let flags = match mode {
        UnmountMode::Orderly => UnmountFlags::NOFOLLOW,
        UnmountMode::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        UnmountMode::Force => {
            abort(device);
            // FORCE makes the kernel abort the connection too, for when the control file system is not mounted.
            UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE
        }
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy { path: mountpoint.to_owned(), users: users_of(mountpoint) }),
        Err(Errno::INVAL | Errno::NOENT) => Err(UnmountError::NotMounted(mountpoint.to_owned())),
        Err(Errno::PERM) => fusermount::unmount(mountpoint, mode != UnmountMode::Orderly),
        Err(error) => Err(UnmountError::Refused { path: mountpoint.to_owned(), source: error.into() }),
    }
}

/// Ends the kernel connection: whoever waits for an answer gets an error. The file belongs to the user who mounted.
fn abort(device: DeviceNumber) {
    // Not mounted in most containers; umount2's FORCE does the same there when root calls it.
    let _ = std::fs::write(format!("/sys/fs/fuse/connections/{}/abort", device.connection_number()), "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mounted_is_refused_whether_it_exists_or_not() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_owned(), directory.path().join("missing"), directory.path().join("a/b/..")] {
            for mode in [UnmountMode::Orderly, UnmountMode::Lazy, UnmountMode::Force] {
                assert!(matches!(unmount(&path, mode), Err(UnmountError::NotMounted(_))), "{path:?}");
            }
        }
    }

    #[test]
    fn mounts_of_other_kinds_are_left_alone() {
        let error = unmount(Path::new("/proc"), UnmountMode::Orderly).unwrap_err();
        assert_eq!(error.to_string(), "\"/proc\" is a proc mount, not a FUSE one: use umount(8)");
    }
}
