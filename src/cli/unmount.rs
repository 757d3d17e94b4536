//! `streamvol unmount MOUNTPOINT`.

use std::path::Path;

use super::error::CliError;
use crate::handoff::{self, UnmountMode};

/// Unmounts; the process that serves the mount ends by itself.
pub(super) fn run(mountpoint: &Path, mode: UnmountMode) -> Result<(), CliError> {
    Ok(handoff::unmount(mountpoint, mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::ExitCode;

    #[test]
    fn a_directory_that_is_not_mounted_cannot_be_unmounted() {
        let folder = tempfile::tempdir().unwrap();
        let error = run(folder.path(), UnmountMode::Orderly).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Mountpoint);
        assert!(error.to_string().contains("is not a mount point"), "{error}");
    }
}
