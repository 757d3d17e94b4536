//! (being built)
#![allow(missing_docs)]
mod inherited;
pub use inherited::inherited_device;
use std::path::{Path, PathBuf};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    Orderly,
    Lazy,
    Force,
}
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    #[error("{0:?} is not a mount point")]
    NotMounted(PathBuf),
    #[error("{0:?} needs")]
    NotPermitted(PathBuf),
    #[error("{0}")]
    MountTable(std::io::Error),
}
pub fn unmount(path: &Path, _mode: UnmountMode) -> Result<(), UnmountError> {
    Err(UnmountError::NotMounted(path.into()))
}
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("mount point {0:?} does not exist")]
    Missing(PathBuf),
    #[error("no /dev/fuse")]
    NoDevice,
    #[error("denied {0}")]
    DeviceDenied(std::io::Error),
    #[error("no helper")]
    NoHelper,
    #[error("allow other")]
    AllowOther,
    #[error("list {0}")]
    MountTable(std::io::Error),
    #[error("stale {0}")]
    Stale(UnmountError),
}
