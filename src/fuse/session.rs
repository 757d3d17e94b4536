//! The conversation with the kernel: what is negotiated, on how many threads it runs, when it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, InitFlags, KernelConfig, SessionACL};
use tokio::runtime::Handle;

use crate::model::MIB;
use crate::namespace::Namespace;
use crate::read::Reader;

use super::attributes::AttributeConfig;
use super::filesystem::Filesystem;
use super::notify::PendingNotifications;

/// Longest request: 256 pages of 4 KiB, the kernel's default limit since 4.20.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const MAX_REQUEST_BYTES: u32 = MIB as u32;

/// Requests the kernel may have under way in the background (read-ahead). At fewer, hundreds of readers make it split reads
/// into single pages once three quarters of them are taken.
const MAX_BACKGROUND: u16 = 1024;

/// What is wanted of the kernel where it can do it.
const WANTED: [InitFlags; 5] = [
    // Lookups and listings of one directory at the same time.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Attributes come with the listing: no LOOKUP after an `ls`.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_ASYNC_DIO,
    // No OPEN and no OPENDIR, ever: read-ahead state is kept per node.
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// How the mount looks and how it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuseConfig {
    /// Owner and permissions shown.
    pub attributes: AttributeConfig,
    /// Threads that take requests from the kernel; two to four, since more only wake each other up.
    pub reader_threads: usize,
    /// The kernel's read-ahead for this mount, in KiB.
    pub read_ahead_kb: u32,
    /// Let other users in.
    pub allow_other: bool,
}

/// A session under way.
#[derive(Debug)]
pub struct Session {
    background: BackgroundSession,
}

impl Session {
    /// Answers the kernel's INIT on `device` and serves it from then on. The device must be mounted already.
    ///
    /// # Errors
    /// When the kernel's protocol is too old, or threads cannot be started.
    pub fn start(
        device: OwnedFd,
        config: &FuseConfig,
        namespace: Arc<Namespace>,
        reader: Reader,
        notifications: PendingNotifications,
        runtime: Handle,
    ) -> io::Result<Self> {
        let filesystem = Filesystem::new(namespace, reader, config.attributes.clone(), runtime);
        let mut session_config = Config::default();
        session_config.n_threads = Some(config.reader_threads);
        // Who may enter is the kernel's decision (allow_other), which also knows idmapped mounts; the crate would compare with
        // the worker's own user id.
        let session = fuser::Session::from_fd(filesystem, device, SessionACL::All, session_config)?;
        notifications.spawn(session.notifier())?;
        Ok(Session { background: session.spawn()? })
    }

    /// Waits for the end of the session. Blocks.
    ///
    /// # Errors
    /// What ended it, unless it was an unmount.
    pub fn join(self) -> io::Result<()> {
        self.background.join()
    }
}

/// Settles the connection's limits and flags.
pub(super) fn negotiate(kernel: &mut KernelConfig) {
    for flag in WANTED {
        if kernel.add_capabilities(flag).is_err() {
            tracing::debug!(?flag, "the kernel does not offer this");
        }
    }
    // Each answers with the nearest value that is possible; all are within the protocol's limits.
    let _previous = kernel.set_max_write(MAX_REQUEST_BYTES);
    let _previous = kernel.set_max_background(MAX_BACKGROUND);
    let _previous = kernel.set_congestion_threshold(MAX_BACKGROUND);
}
