//! Questions to a file system that may never answer.
//!
//! A system call on a hung FUSE mount blocks for as long as its daemon lives, and no signal but SIGKILL ends it. So each
//! question is asked from a thread of its own, and given up after a deadline; a thread that was given up stays behind until
//! the mount is aborted or the process ends.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use super::error::AnswerError;
use super::mount_table::DeviceNumber;

/// The result of `work`, done on a thread of its own.
///
/// # Errors
/// `TimedOut` when it takes longer than `deadline`; whatever keeps the machine from starting a thread.
pub(crate) fn within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("probe".to_owned()).spawn(move || {
        // Nobody listens any more when the deadline has passed: the answer is worthless then.
        let _ = sender.send(work());
    })?;
    match receiver.recv_timeout(deadline) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::Error::other("the probe ended without an answer")),
    }
}

/// The file system that answers at `path` now.
///
/// A plain stat would not do: attributes that are cached for a year answer for a daemon that is long dead. So the kernel is
/// told to ask (AT_STATX_FORCE_SYNC).
pub(crate) fn file_system_at(path: &Path, deadline: Duration) -> io::Result<DeviceNumber> {
    let path = path.to_owned();
    within(deadline, move || {
        let forced = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        match rustix::fs::statx(CWD, &path, forced, StatxFlags::TYPE | StatxFlags::MODE) {
            Ok(stat) => Ok(DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor }),
            // Old container runtimes filter a call that they do not know.
            Err(Errno::NOSYS | Errno::PERM) => {
                let stat = rustix::fs::lstat(&path)?;
                Ok(DeviceNumber { major: rustix::fs::major(stat.st_dev), minor: rustix::fs::minor(stat.st_dev) })
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// True for what the kernel answers when nothing serves a FUSE mount any more.
pub(crate) fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED))
}

/// Succeeds when a stat through the mount point is answered, and by the file system `expected`.
///
/// # Errors
/// No answer within `deadline`, a dead mount, or another file system at `path`.
pub fn answers(path: &Path, expected: DeviceNumber, deadline: Duration) -> Result<(), AnswerError> {
    match file_system_at(path, deadline) {
        Ok(found) if found == expected => Ok(()),
        Ok(_) => Err(AnswerError::Elsewhere(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(AnswerError::TimedOut { path: path.to_owned(), deadline })
        }
        Err(error) if is_dead(&error) => Err(AnswerError::Dead(path.to_owned())),
        Err(source) => Err(AnswerError::Failed { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_time_is_handed_over_and_a_late_one_is_a_time_out() {
        assert_eq!(within(Duration::from_secs(60), || Ok(7)).unwrap(), 7);
        let (hold, held) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(20), move || {
            let _ = held.recv();
            Ok(7)
        });
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(hold);
    }

    #[test]
    fn a_probe_that_panics_is_an_error_at_once() {
        let result: io::Result<()> = within(Duration::from_secs(60), || panic!("as a test"));
        assert!(result.unwrap_err().to_string().contains("without an answer"));
    }
}
