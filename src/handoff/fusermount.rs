//! The set-uid helper fusermount3, which mounts and unmounts for users who may not call mount(2).
//!
//! The protocol is the one libfuse speaks: the helper finds a socket in `_FUSE_COMMFD`, opens /dev/fuse and mounts as root,
//! and sends the descriptor through the socket (SCM_RIGHTS). The socket is handed over as the helper's standard input: a
//! descriptor that is inherited by no other program started at the same moment, and needs no code between fork and exec.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use super::error::{MountError, UnmountError};
use super::probe;
use super::users::users_of;

/// Names under which distributions install the helper; the full paths are for daemons that start with a bare PATH.
const PROGRAMS: [&str; 4] = ["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3", "fusermount"];
/// The helper answers in milliseconds unless a directory above the mount point is on a hung file system.
const DEADLINE: Duration = Duration::from_secs(30);

/// Mounts on `mountpoint` with the helper's `options` and gives the device back, close-on-exec.
pub(crate) fn mount(mountpoint: &Path, options: &str) -> Result<OwnedFd, MountError> {
    let refused = |source: io::Error| MountError::Refused { path: mountpoint.to_owned(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| refused(error.into()))?;
    set_socket_timeout(&ours, Timeout::Recv, Some(DEADLINE)).map_err(|error| refused(error.into()))?;
    let mut child = spawn(&theirs, mountpoint, options).map_err(refused)?.ok_or(MountError::NoHelper)?;
    drop(theirs);
    let received = receive_descriptor(ours.as_fd());
    if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        // It hangs; what matters is the error that follows.
        let _ = child.kill();
    }
    let output = child.wait_with_output().map_err(refused)?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(explain(mountpoint, &output.stderr)),
        Err(error) => Err(refused(error)),
    }
}

fn spawn(socket: &OwnedFd, mountpoint: &Path, options: &str) -> io::Result<Option<Child>> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(["-o", options, "--"]).arg(mountpoint).env("_FUSE_COMMFD", "0").current_dir("/");
        command.stdin(socket.try_clone()?).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// The descriptor that the helper sends; `None` when it ends without sending one.
fn receive_descriptor(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(received) => Some(received),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut received| received.next()))
}

/// What the helper's words mean for the user.
fn explain(mountpoint: &Path, stderr: &[u8]) -> MountError {
    let message = words(stderr);
    if message.contains("user_allow_other") {
        MountError::AllowOther
    } else if message.contains("device not found") {
        MountError::NoDevice
    } else if message.contains("failed to open /dev/fuse") || message.contains("failed to open fuse device") {
        MountError::DeviceDenied(io::Error::other(message))
    } else {
        let hint = if message.contains("Operation not permitted") {
            " (a container needs `--cap-add SYS_ADMIN --device /dev/fuse`)"
        } else {
            ""
        };
        MountError::Helper { path: mountpoint.to_owned(), message: message + hint }
    }
}

/// Unmounts `mountpoint`, which must be in the table as a FUSE mount of this user.
pub(crate) fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let path = || mountpoint.to_owned();
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint).current_dir("/").stdin(Stdio::null());
        let output = probe::within(DEADLINE, move || command.output());
        match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(UnmountError::Unresponsive(path())),
            Err(source) => return Err(UnmountError::Refused { path: path(), source }),
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let message = words(&output.stderr);
                return Err(if message.contains("busy") {
                    UnmountError::Busy { path: path(), users: users_of(mountpoint) }
                } else {
                    UnmountError::Helper { path: path(), message }
                });
            }
        }
    }
    Err(UnmountError::NotPermitted(path()))
}

/// What a helper printed, on one line, without its own name in front.
fn words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix("fusermount3: ").or_else(|| line.strip_prefix("fusermount: ")).unwrap_or(line)
    });
    let joined = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if joined.is_empty() { "it gave no reason".to_owned() } else { joined }
}

/// `text` as the value of a helper option: a comma would end it, a backslash escapes.
pub(crate) fn escaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ',' | '\\') {
            value.push('\\');
        }
        value.push(c);
    }
    value
}

/// True when the helper is installed where [`mount`] looks for it.
#[cfg(test)]
pub(crate) fn is_installed() -> bool {
    PROGRAMS.iter().any(|program| Command::new(program).arg("-V").output().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_backslashes_of_an_option_value_are_escaped() {
        assert_eq!(escaped(r"s3://b/a,b\c d"), r"s3://b/a\,b\\c d");
    }

    #[test]
    fn the_helpers_words_become_errors_that_say_what_to_do() {
        let explained = |stderr: &str| explain(Path::new("/m"), stderr.as_bytes()).to_string();
        let allow = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n";
        assert!(explained(allow).contains("/etc/fuse.conf"));
        assert!(explained("fusermount3: fuse: device not found, try 'modprobe fuse' first\n").contains("--device"));
        assert!(explained("fusermount3: failed to open /dev/fuse: Permission denied\n").contains("may not be opened"));
        assert!(explained("fusermount3: mount failed: Operation not permitted\n").contains("--cap-add SYS_ADMIN"));
        let access = explained("fusermount3: user has no write access to mountpoint /m\n");
        assert_eq!(access, "fusermount3 could not mount on \"/m\": user has no write access to mountpoint /m");
        assert!(explained("").contains("no reason"));
    }

    #[test]
    fn a_descriptor_sent_through_the_socket_arrives_and_an_end_without_one_is_seen() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(&theirs, &[io::IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
        drop(theirs);
        let received = receive_descriptor(&ours).unwrap().unwrap();
        assert!(rustix::io::fcntl_getfd(&received).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(rustix::fs::fstat(&received).unwrap().st_ino, rustix::fs::fstat(&file).unwrap().st_ino);
        assert!(receive_descriptor(&ours).unwrap().is_none());
    }
}
