//! Telling the kernel what to forget, from a thread of its own.
//!
//! A notification can block on a request that is still queued in the kernel, so it is never sent from a thread that serves
//! requests; the thread here holds no lock, permit or buffer.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread;

use fuser::{INodeNo, Notifier};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::read::NameChanged;

/// A name, and whom to tell that the kernel has forgotten it.
type Message = (NameChanged, oneshot::Sender<()>);

/// Accepts names that changed and makes the kernel look them up again. Cheap to clone; never blocks.
#[derive(Debug, Clone)]
pub struct KernelNotifier(mpsc::Sender<Message>);

/// The end of the notifier that waits for the session.
#[derive(Debug)]
pub struct PendingNotifications(mpsc::Receiver<Message>);

impl KernelNotifier {
    /// A notifier; what it is told before the session starts is sent then.
    #[must_use]
    pub fn new() -> (Self, PendingNotifications) {
        let (sender, receiver) = mpsc::channel();
        (KernelNotifier(sender), PendingNotifications(receiver))
    }

    /// The kernel shall look this name up again; what is returned is over when it will.
    #[must_use]
    pub fn name_changed(&self, change: NameChanged) -> BoxFuture<'static, ()> {
        let (done, forgotten) = oneshot::channel();
        // Nobody listens once the session has ended, and then there is no kernel to tell: `done` is dropped, which is an end, too.
        let _ended = self.0.send((change, done));
        forgotten.map(|_told_or_ended| ()).boxed()
    }
}

impl PendingNotifications {
    /// Starts the thread. It ends with the last [`KernelNotifier`].
    pub(super) fn spawn(self, kernel: Notifier) -> io::Result<()> {
        thread::Builder::new().name("fuse-notify".into()).spawn(move || {
            for (change, done) in self.0 {
                forget(&kernel, &change);
                // A reader that no longer waits needs no word.
                let _ = done.send(());
            }
        })?;
        Ok(())
    }
}

fn forget(kernel: &Notifier, change: &NameChanged) {
    let name = OsStr::from_bytes(&change.name);
    match kernel.inval_entry(INodeNo(change.parent.0), name) {
        Ok(()) => {}
        // The kernel did not know the name: nothing to forget.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        Err(error) => tracing::warn!(%error, "tell the kernel that a name changed"),
    }
    // The cached listing of the directory still names the old node.
    if let Err(error) = kernel.inval_inode(INodeNo(change.parent.0), 0, 0)
        && error.raw_os_error() != Some(libc::ENOENT)
    {
        tracing::warn!(%error, "tell the kernel that a directory changed");
    }
}
