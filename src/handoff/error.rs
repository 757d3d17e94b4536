//! What can go wrong around a mount, one enum per thing that was attempted; each message says what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::users::{MountUser, listed};

/// A mount that did not come about. Nothing is left mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("mount point {0:?} does not exist: create it with `mkdir -p {0:?}`")]
    Missing(PathBuf),
    /// The mount point, or something on the way to it, is no directory.
    #[error("mount point {0:?} is not a directory: name an empty directory")]
    NotADirectory(PathBuf),
    /// A live mount of ours is there already.
    #[error(
        "{path:?} is already mounted (it shows {shown}): run `streamvol unmount {path:?}` first, or name another directory"
    )]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted there, as the mount table names it.
        shown: String,
    },
    /// The file system on or above the mount point gives no answer.
    #[error(
        "{path:?} gave no answer within {} s: if a hung file system is mounted there, run `streamvol unmount --force {path:?}`",
        .deadline.as_secs_f32()
    )]
    Unresponsive {
        /// The mount point.
        path: PathBuf,
        /// How long an answer was waited for.
        deadline: Duration,
    },
    /// The mount point cannot be looked at.
    #[error("mount point {path:?} cannot be used: {source}")]
    Inaccessible {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A dead mount is in the way and could not be removed.
    #[error("a dead mount is in the way and could not be removed: {0}")]
    Stale(#[source] UnmountError),
    /// The list of mounts cannot be read.
    #[error("the list of mounts (/proc/self/mountinfo) cannot be read: {0}")]
    MountTable(#[source] io::Error),
    /// The machine has no FUSE device.
    #[error(
        "no /dev/fuse: load the module with `modprobe fuse`, or pass the device to the container (`--device /dev/fuse`)"
    )]
    NoDevice,
    /// The FUSE device may not be opened.
    #[error(
        "/dev/fuse may not be opened ({0}): in a container pass the device (`--device /dev/fuse`), elsewhere `chmod 666 /dev/fuse`"
    )]
    DeviceDenied(#[source] io::Error),
    /// Neither mount(2) is allowed nor is the set-uid helper installed.
    #[error(
        "mounting needs root, CAP_SYS_ADMIN or the fusermount3 helper, and none of them is here: \
         install it with `apt-get install fuse3`, or give the container `--cap-add SYS_ADMIN --device /dev/fuse`"
    )]
    NoHelper,
    /// Other users may only be let in when the machine's configuration says so.
    #[error("--allow-other needs the line `user_allow_other` in /etc/fuse.conf when not mounting as root")]
    AllowOther,
    /// fusermount3 refused.
    #[error("fusermount3 could not mount on {path:?}: {message}")]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What fusermount3 printed.
        message: String,
    },
    /// mount(2) refused.
    #[error("mounting on {path:?} failed: {source}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The mount was made, and was covered or gone before it could be looked at.
    #[error("{0:?} was unmounted, or something was mounted over it, while it was being set up: try again")]
    Vanished(PathBuf),
}

/// A mount that is still there.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Nothing is mounted at the path.
    #[error("{0:?} is not a mount point: `findmnt -t fuse.streamvol` lists what can be unmounted")]
    NotMounted(PathBuf),
    /// The mount at the path is not one that FUSE serves.
    #[error("{path:?} is a {fs_type} mount, not a FUSE one: use umount(8)")]
    NotFuse {
        /// The mount point.
        path: PathBuf,
        /// Its file system type.
        fs_type: String,
    },
    /// Programs use the mount.
    #[error(
        "{path:?} is in use{}: stop them, or detach it from the tree at once with `streamvol unmount --lazy {path:?}`",
        listed(.users)
    )]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// Programs seen using it; not all when there are many or some belong to other users.
        users: Vec<MountUser>,
    },
    /// Something else is mounted on top.
    #[error("{0:?} has another mount on top of this one: unmount that first")]
    Covered(PathBuf),
    /// Not allowed, and the set-uid helper is not installed.
    #[error("unmounting {0:?} needs root or the fusermount3 helper: install it with `apt-get install fuse3`")]
    NotPermitted(PathBuf),
    /// fusermount3 refused.
    #[error("fusermount3 could not unmount {path:?}: {message}")]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What fusermount3 printed.
        message: String,
    },
    /// The path could not be resolved in time.
    #[error("{0:?} gave no answer: name the mount point as `findmnt -t fuse.streamvol` shows it, and add --force")]
    Unresponsive(PathBuf),
    /// The list of mounts cannot be read.
    #[error("the list of mounts (/proc/self/mountinfo) cannot be read: {0}")]
    MountTable(#[source] io::Error),
    /// The kernel refused for another reason.
    #[error("unmounting {path:?} failed: {source}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A fresh mount that does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// No answer in time.
    #[error("{path:?} did not answer within {} s", .deadline.as_secs_f32())]
    TimedOut {
        /// The mount point.
        path: PathBuf,
        /// How long an answer was waited for.
        deadline: Duration,
    },
    /// Its connection is closed.
    #[error("{0:?} is mounted, but nothing serves it any more")]
    Dead(PathBuf),
    /// Another file system answered.
    #[error("{0:?} is answered by another file system: it was unmounted, or something was mounted over it")]
    Elsewhere(PathBuf),
    /// The question itself failed.
    #[error("{path:?} cannot be asked: {source}")]
    Failed {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The kernel's read-ahead that stayed as it was; never a reason to give up a mount.
#[derive(Debug, thiserror::Error)]
pub enum ReadAheadError {
    /// Not allowed, or sysfs is read-only as in most containers.
    #[error(
        "the kernel's read-ahead stays at its default: as root run `echo {kb} > {path}` on the host for faster sequential reads"
    )]
    NotPermitted {
        /// The file to write.
        path: PathBuf,
        /// The value it should have, in KiB.
        kb: u32,
    },
    /// Anything else.
    #[error("the kernel's read-ahead stays at its default: {path:?}: {source}")]
    Failed {
        /// The file that should have been written.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
