//! The kernel's read-ahead of one mount.
//!
//! FUSE's INIT can only lower it below the default of 128 KiB; raising it takes a write to sysfs after mounting, which needs
//! root. One sequential reader is about three times as fast with 1 MiB.

use std::io;
use std::path::PathBuf;

use super::error::ReadAheadError;
use super::mount_table::DeviceNumber;

/// Sets the kernel's read-ahead for the file system `device` to `kb` KiB.
///
/// # Errors
/// Not permitted (its message is the hint to log), or any other failure. The mount works all the same.
pub fn set_read_ahead_kb(device: DeviceNumber, kb: u32) -> Result<(), ReadAheadError> {
    let path = PathBuf::from(format!("/sys/class/bdi/{device}/read_ahead_kb"));
    std::fs::write(&path, kb.to_string()).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ReadAheadError::NotPermitted { path, kb }
        }
        _ => ReadAheadError::Failed { path, source },
    })
}
