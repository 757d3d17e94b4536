//! What holds the kernel connection: checking the mount point, opening the device, mounting, unmounting.
//!
//! Needs no async runtime, no network and no other part of the program, so that a small supervisor can use it alone and
//! outlive the worker that serves the mount. Always true here: nothing waits for a file system to answer without a deadline
//! (`probe`), and nothing is unmounted that is not the very mount that was meant ([`MountIdentity`]).
//! Speaking the FUSE protocol over the device is left to `fuse`.
//!
//! A start goes `prepare` (the mount point) -> `mount` (a [`Mounted`], which unmounts when dropped) -> `fuse` serves
//! `Mounted::device` -> `answers` (only now has the mount succeeded) -> `set_read_ahead_kb`.

mod device;
mod error;
mod fusermount;
mod inherited;
mod mount_table;
mod mountpoint;
mod probe;
mod read_ahead;
mod unmount;
mod users;

#[cfg(test)]
mod tests;

pub use device::{MountIdentity, MountOptions, Mounted, mount};
pub use error::{AnswerError, MountError, ReadAheadError, UnmountError};
pub use inherited::inherited_device;
pub use mount_table::{DeviceNumber, MountEntry, MountTable};
pub use mountpoint::{Mountpoint, MountpointNote, prepare};
pub use probe::answers;
pub use read_ahead::set_read_ahead_kb;
pub use unmount::{UnmountMode, unmount};
pub use users::MountUser;

/// The file system type of our mounts, as mount tables show it: `fuse` with a subtype of our own.
pub const FILE_SYSTEM_TYPE: &str = "fuse.streamvol";

/// The part of [`FILE_SYSTEM_TYPE`] that tells us from other FUSE file systems.
pub(crate) const SUBTYPE: &str = "streamvol";
