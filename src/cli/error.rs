//! Why a verb failed: what is printed, and the exit code.

use std::io;

use super::exit_code::ExitCode;
use crate::config::layers::OptionError;
use crate::config::uri::UriError;
use crate::handoff::UnmountError;
use crate::store::StoreError;
use crate::worker::VolumeError;

/// A verb that failed. What it says is printed after `error: `.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A wrong option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A wrong address.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The volume could not be started, or ended badly.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Unmounting failed.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// Nothing at the address.
    #[error("nothing at {0}: `streamvol ls` of the prefix above it shows what is there")]
    Nothing(String),
    /// The log cannot be written.
    #[error("cannot log to {place}: {error}; choose another --log-file")]
    Log {
        /// Where to.
        place: String,
        /// Why not.
        error: io::Error,
    },
    /// What the background process said before it ended.
    #[error("{message}")]
    Background {
        /// Its error.
        message: String,
        /// Its exit code.
        code: ExitCode,
    },
    /// A signal, or the end of the process that waits for the mount.
    #[error("stopped before the mount was ready; nothing is left mounted")]
    Interrupted,
    /// The operating system refused something ordinary; verb first.
    #[error("{action}: {error}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// Anything else a verb has to say, with its code.
    #[error("{message}")]
    Failed {
        /// What was wrong and what to do.
        message: String,
        /// The code.
        code: ExitCode,
    },
}

impl CliError {
    /// For `map_err`: what was attempted when the operating system refused.
    pub fn system(action: &'static str) -> impl FnOnce(io::Error) -> CliError {
        move |error| CliError::System { action, error }
    }

    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Option(_) | CliError::Uri(_) | CliError::Log { .. } => ExitCode::Usage,
            CliError::Volume(error) => error.into(),
            CliError::Store(error) => error.into(),
            CliError::Unmount(error) => error.into(),
            CliError::Nothing(_) => ExitCode::NotFound,
            CliError::Background { code, .. } | CliError::Failed { code, .. } => *code,
            CliError::Interrupted | CliError::System { .. } => ExitCode::Unexpected,
        }
    }
}
