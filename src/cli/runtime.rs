//! The runtime that verbs run on.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::error::CliError;

/// How long work that cannot be cancelled (a file being read, a name being resolved) may hold up the end of the process.
const LAST_WORK: Duration = Duration::from_millis(500);

/// A runtime with one worker thread for each CPU: its tasks wait for the network, and none of them blocks.
///
/// # Errors
/// When threads cannot be started.
pub fn build(cpus: usize) -> Result<Runtime, CliError> {
    Builder::new_multi_thread()
        .worker_threads(cpus.max(1))
        .thread_name("streamvol-io")
        .enable_all()
        .build()
        .map_err(CliError::system("start worker threads"))
}

/// Ends a runtime without waiting for work that cannot be cancelled.
pub fn stop(runtime: Runtime) {
    runtime.shutdown_timeout(LAST_WORK);
}
