//! Opening /dev/fuse and mounting it; owning the mount that results.
//!
//! mount(2) is tried first, the set-uid helper when the kernel refuses it. The mount is read-only, without set-uid programs,
//! device files and access times. Permissions are left to the kernel (`default_permissions`), so that owner and modes given
//! by the user are enforced, not only shown.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::error::{MountError, UnmountError};
use super::mount_table::{DeviceNumber, MountTable};
use super::mountpoint::Mountpoint;
use super::unmount::{UnmountMode, detach, unmount};
use super::{FILE_SYSTEM_TYPE, SUBTYPE, fusermount, probe};

/// What a mount looks like to the kernel and in mount tables.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What is mounted, as `s3://bucket/prefix`; shown by mount(8) and df(1).
    pub source: String,
    /// Let users other than the one who mounts in; file modes still count.
    pub allow_other: bool,
    /// Longest READ the kernel may send, in bytes.
    pub max_read_bytes: u32,
}

/// Which mount exactly: numbers that no other mount has while its connection lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountIdentity {
    /// Where it was mounted: absolute, without symlinks.
    pub mountpoint: PathBuf,
    /// `st_dev` of everything in it.
    pub device: DeviceNumber,
    /// The mount's number in the mount table.
    pub mount_id: u64,
}

/// A mount of ours and the device that serves it. Dropped, it is detached from the tree (lazily), so that no way out of a
/// failed start leaves it behind.
#[derive(Debug)]
#[must_use = "dropping it unmounts"]
pub struct Mounted {
    device: OwnedFd,
    identity: MountIdentity,
    unmount_on_drop: bool,
}

impl Mounted {
    /// The device: requests are read from it, answers written to it. The kernel connection lives as long as this
    /// descriptor or any copy of it. Close-on-exec.
    #[must_use]
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Which mount this is.
    #[must_use]
    pub fn identity(&self) -> &MountIdentity {
        &self.identity
    }

    /// Whether the kernel still counts this mount as mounted somewhere: false once it was unmounted (by anybody) or its
    /// connection was aborted.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let mut waits = [PollFd::new(&self.device, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut waits, Some(&now)) {
            Ok(_) => !waits[0].revents().contains(PollFlags::ERR),
            Err(_) => true,
        }
    }

    /// Takes this very mount out of the tree; nothing when somebody has done so already, whatever is mounted there now.
    ///
    /// The numbers alone could deceive, since the kernel gives them to the next mount once they are free. They are not free
    /// while the connection lives, which the device tells; and when it does not live, a mount that answers, or stands
    /// elsewhere, is not this one.
    ///
    /// # Errors
    /// Still mounted: in use, covered by another mount, or not permitted.
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        let MountIdentity { mountpoint, device, mount_id } = &self.identity;
        let table = MountTable::read().map_err(UnmountError::MountTable)?;
        let Some(entry) = table.by_id(*mount_id).filter(|entry| entry.device == *device) else { return Ok(()) };
        if !self.is_connected() && (entry.mountpoint != *mountpoint || !is_dead(mountpoint)) {
            return Ok(());
        }
        match table.mounted_at(&entry.mountpoint) {
            Some(top) if top.mount_id == *mount_id => detach(&entry.mountpoint, *device, mode),
            _ => Err(UnmountError::Covered(entry.mountpoint.clone())),
        }
    }

    /// Gives the mount away without unmounting: whoever has a copy of the device serves it from now on.
    pub fn release(mut self) -> MountIdentity {
        self.unmount_on_drop = false;
        self.identity.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.unmount_on_drop {
            // There is nobody left to tell; a dead mount that remains is removed by the next start.
            let _ = self.unmount(UnmountMode::Lazy);
        }
    }
}

/// How long a mount whose connection is closed may take to say so; it takes microseconds.
const DEAD_ANSWER: Duration = Duration::from_secs(1);

fn is_dead(mountpoint: &Path) -> bool {
    probe::file_system_at(mountpoint, DEAD_ANSWER).is_err_and(|error| probe::is_dead(&error))
}

/// Mounts on `mountpoint`. The kernel waits for an INIT answer on the device before it lets anybody in.
///
/// # Errors
/// No device, no permission, or a refusal of the kernel or of fusermount3; nothing is left mounted.
pub fn mount(mountpoint: &Mountpoint, options: &MountOptions) -> Result<Mounted, MountError> {
    let path = mountpoint.path();
    let device = match mount_directly(path, options)? {
        Some(device) => device,
        None => fusermount::mount(path, &helper_options(options))?,
    };
    match identify(path, options) {
        Ok(identity) => Ok(Mounted { device, identity, unmount_on_drop: true }),
        Err(error) => {
            drop(device);
            // Only a dead mount is ours to remove: without a reading of the table nothing else can be told apart.
            if is_dead(path) {
                let _ = unmount(path, UnmountMode::Lazy);
            }
            Err(error)
        }
    }
}

/// mount(2); `None` when this process may not, and the helper may.
fn mount_directly(path: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = match rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(device) => device,
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(MountError::NoDevice),
        Err(Errno::ACCESS | Errno::PERM) if !rustix::process::geteuid().is_root() => return Ok(None),
        Err(error) => return Err(MountError::DeviceDenied(error.into())),
    };
    let refused = |source: io::Error| MountError::Refused { path: path.to_owned(), source };
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    let data = CString::new(mount_data(device.as_fd(), options)).map_err(|error| refused(error.into()))?;
    match rustix::mount::mount(shown_source(options).as_str(), path, FILE_SYSTEM_TYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoDevice),
        Err(error) => Err(refused(error.into())),
    }
}

/// What `mount(2)` gets as data; 40000 (octal) is the type of a directory.
fn mount_data(device: BorrowedFd<'_>, options: &MountOptions) -> String {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let fd = device.as_raw_fd();
    format!("fd={fd},rootmode=40000,user_id={user},group_id={group},{}", common_options(options))
}

/// The same for fusermount3, which adds descriptor, mode and owner itself.
fn helper_options(options: &MountOptions) -> String {
    let source = fusermount::escaped(&shown_source(options));
    format!("ro,nosuid,nodev,noatime,fsname={source},subtype={SUBTYPE},{}", common_options(options))
}

fn common_options(options: &MountOptions) -> String {
    let mut text = format!("default_permissions,max_read={}", options.max_read_bytes);
    if options.allow_other {
        text.push_str(",allow_other");
    }
    text
}

/// The source without what a mount table cannot hold: NUL ends the text for the kernel.
fn shown_source(options: &MountOptions) -> String {
    options.source.replace('\0', "?")
}

/// The mount that was just made on `path`.
fn identify(path: &Path, options: &MountOptions) -> Result<MountIdentity, MountError> {
    let table = MountTable::read().map_err(MountError::MountTable)?;
    match table.mounted_at(path) {
        Some(entry) if entry.is_ours() && entry.source == shown_source(options) => {
            Ok(MountIdentity { mountpoint: path.to_owned(), device: entry.device, mount_id: entry.mount_id })
        }
        _ => Err(MountError::Vanished(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(source: &str, allow_other: bool) -> MountOptions {
        MountOptions { source: source.to_owned(), allow_other, max_read_bytes: 1 << 20 }
    }

    #[test]
    fn the_kernel_is_told_descriptor_owner_and_limits() {
        let file = tempfile::tempfile().unwrap();
        let data = mount_data(file.as_fd(), &options("s3://b", true));
        let fd = file.as_raw_fd();
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(
            data,
            format!(
                "fd={fd},rootmode=40000,user_id={user},group_id={group},default_permissions,max_read=1048576,allow_other"
            )
        );
    }

    #[test]
    fn the_helper_is_told_the_same_with_the_source_escaped() {
        assert_eq!(
            helper_options(&options("s3://b/x,y\0", false)),
            r"ro,nosuid,nodev,noatime,fsname=s3://b/x\,y?,subtype=streamvol,default_permissions,max_read=1048576"
        );
    }
}
