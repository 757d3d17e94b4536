//! A mount in the background, from both sides: the process that was typed, and the one it starts from the same program.
//!
//! Two pipes join them. Reports (`report`) come over the new process's standard output; its standard input stays open as long
//! as somebody waits. The new process says that it is ready and goes on only when that is acknowledged: so one that
//! nobody waits for any more (Ctrl-C, a kill) ends and leaves nothing, at whatever moment that happens.
//!
//! A process started anew instead of a fork: threads do not survive a fork, and locks they held stay locked.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::command::background_arguments;
use super::error::CliError;
use super::exit_code::ExitCode;
use super::progress::Display;
use super::report::Report;
use super::say;
use crate::config::environment;

/// What acknowledges that somebody has heard that the mount is ready.
const ACKNOWLEDGED: &[u8] = b"k";

/// Starts this program again in the background and waits until its mount answers; says how the listing went.
pub(super) fn start(arguments: &[OsString]) -> Result<String, CliError> {
    let program = std::env::current_exe().map_err(CliError::system("find this program"))?;
    let mut child = Command::new(program)
        .args(background_arguments(arguments))
        // It changes its directory.
        .envs(environment::absolute_paths(&environment::variable))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(CliError::system("start a process in the background"))?;
    let (Some(mut waiting), Some(reports)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(CliError::system("talk to the process in the background")(io::ErrorKind::BrokenPipe.into()));
    };
    let mut display = Display::new(say);
    let followed = follow(BufReader::new(reports), &mut display);
    if let Ok(Some(objects)) = followed {
        waiting.write_all(ACKNOWLEDGED).map_err(CliError::system("talk to the process in the background"))?;
        return Ok(display.finish(objects));
    }
    // Whatever went wrong, nothing runs any more when this returns.
    drop(waiting);
    let status = child.wait().map_err(CliError::system("wait for the process in the background"))?;
    followed?;
    Err(ended_early(status))
}

/// Shows reports until the mount is ready (the number of objects), or the process has ended without a last word (`None`).
fn follow(mut reports: impl BufRead, display: &mut Display) -> Result<Option<u64>, CliError> {
    let mut line = String::new();
    loop {
        line.clear();
        if reports.read_line(&mut line).map_err(CliError::system("read from the process in the background"))? == 0 {
            return Ok(None);
        }
        match Report::parse(&line) {
            Some(Report::Progress { objects }) => display.show(objects),
            Some(Report::Ready { objects }) => return Ok(Some(objects)),
            Some(Report::Failed { code, message }) => return Err(CliError::Background { message, code }),
            // Nothing else is written there on purpose; shown, for it may say why nothing follows.
            None => say(line.trim_end()),
        }
    }
}

fn ended_early(status: ExitStatus) -> CliError {
    let code =
        status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::Unexpected, ExitCode::from_number);
    let code = if code == ExitCode::Done { ExitCode::Unexpected } else { code };
    let message =
        format!("the process in the background ended before the mount was ready ({status}): --foreground may show why");
    CliError::Background { message, code }
}

/// The two pipes, taken off standard input and output.
#[derive(Debug)]
pub(super) struct Pipes {
    reports: OwnedFd,
    waiting: OwnedFd,
}

/// Leaves the terminal, the session and the current directory of whoever typed the command. Standard error stays for now.
pub(super) fn detach() -> Result<Pipes, CliError> {
    let attempt = || -> io::Result<Pipes> {
        let pipes =
            Pipes { reports: fcntl_dupfd_cloexec(io::stdout(), 3)?, waiting: fcntl_dupfd_cloexec(io::stdin(), 3)? };
        let null = null()?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        // It was started by another process, so it leads no process group, and this cannot fail.
        rustix::process::setsid()?;
        // A daemon that stays in a directory keeps its file system from being unmounted.
        std::env::set_current_dir("/")?;
        Ok(pipes)
    };
    attempt().map_err(CliError::system("leave the terminal"))
}

/// Lets go of standard error, so that a pipe behind it can end.
pub(super) fn let_go_of_stderr() -> io::Result<()> {
    Ok(dup2_stderr(null()?)?)
}

fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().read(true).write(true).open("/dev/null")?.into())
}

/// The process that started this one and waits for the mount.
#[derive(Debug)]
pub(super) struct Parent {
    reports: pipe::Sender,
    waiting: pipe::Receiver,
}

impl Parent {
    /// Takes up the pipes; inside of a runtime.
    pub(super) fn new(pipes: Pipes) -> io::Result<Self> {
        Ok(Parent {
            reports: pipe::Sender::from_owned_fd(pipes.reports)?,
            waiting: pipe::Receiver::from_owned_fd(pipes.waiting)?,
        })
    }

    /// Tells how far the listing is, unless the parent is behind with its reading.
    pub(super) fn progress(&self, objects: u64) {
        // Shorter than PIPE_BUF, so it is written as a whole or not at all. A parent that is gone is seen in `gone`.
        let _behind = self.reports.try_write(Report::Progress { objects }.to_line().as_bytes());
    }

    /// Returns when the parent is gone. Safe to cancel.
    pub(super) async fn gone(&mut self) {
        self.acknowledged().await;
    }

    /// Tells that the mount is ready; false when nobody has heard it.
    pub(super) async fn ready(&mut self, objects: u64) -> bool {
        let line = Report::Ready { objects }.to_line();
        self.reports.write_all(line.as_bytes()).await.is_ok() && self.acknowledged().await
    }

    /// Tells that it failed. A parent that is gone already has nothing to do with it.
    pub(super) async fn failed(&mut self, error: &CliError) {
        let report = Report::Failed { code: error.exit_code(), message: error.to_string() };
        let _gone = self.reports.write_all(report.to_line().as_bytes()).await;
    }

    async fn acknowledged(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.waiting.read(&mut byte).await, Ok(1))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// What the parent holds.
    struct ParentSide {
        reports: BufReader<std::fs::File>,
        waiting: std::fs::File,
    }

    fn joined() -> (Parent, ParentSide) {
        let (reports_read, reports) = rustix::pipe::pipe().unwrap();
        let (waiting, waiting_write) = rustix::pipe::pipe().unwrap();
        let parent = Parent::new(Pipes { reports, waiting }).unwrap();
        (parent, ParentSide { reports: BufReader::new(reports_read.into()), waiting: waiting_write.into() })
    }

    fn followed(lines: &str) -> Result<Option<u64>, CliError> {
        follow(lines.as_bytes(), &mut Display::new(|_line| {}))
    }

    #[test]
    fn the_parent_waits_for_ready_or_the_error() {
        assert_eq!(followed("progress 1\nprogress 2\nready 3\nprogress 4\n").unwrap(), Some(3));
        let error = followed("progress 1\nfailed 3 no such bucket\\ncheck it\n").unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("no such bucket\ncheck it", ExitCode::NotFound));
        assert_eq!(followed("progress 1\n").unwrap(), None);
        assert_eq!(followed("something else\nready 1\n").unwrap(), Some(1));
    }

    #[test]
    fn a_process_that_ends_without_a_word_is_a_failure_with_its_own_code() {
        let code = |raw| ended_early(ExitStatus::from_raw(raw)).exit_code();
        assert_eq!(code(6 << 8), ExitCode::Mountpoint);
        assert_eq!(code(0), ExitCode::Unexpected);
        assert_eq!(
            ended_early(ExitStatus::from_raw(9)).to_string(),
            "the process in the background ended before the mount was ready (signal: 9 (SIGKILL)): --foreground may show why"
        );
    }

    #[tokio::test]
    async fn ready_counts_only_when_it_is_acknowledged() {
        let (mut parent, mut side) = joined();
        let acknowledge = std::thread::spawn(move || {
            let objects = follow(&mut side.reports, &mut Display::new(|_line| {})).unwrap();
            side.waiting.write_all(ACKNOWLEDGED).unwrap();
            objects
        });
        parent.progress(5);
        assert!(parent.ready(7).await);
        assert_eq!(acknowledge.join().unwrap(), Some(7));

        let (mut parent, side) = joined();
        drop(side);
        assert!(!parent.ready(7).await, "nobody reads");

        let (mut parent, ParentSide { reports: _still_open, waiting }) = joined();
        drop(waiting);
        assert!(!parent.ready(7).await, "it was written, but whoever should read it is gone");
    }

    #[tokio::test]
    async fn a_parent_that_ends_is_noticed_at_once() {
        let (mut parent, side) = joined();
        let pending = futures::poll!(std::pin::pin!(parent.gone()));
        assert!(pending.is_pending());
        drop(side);
        parent.gone().await;
    }

    #[tokio::test]
    async fn a_parent_that_does_not_read_does_not_hold_up_the_listing() {
        let (parent, _side) = joined();
        for objects in 0..100_000 {
            parent.progress(objects);
        }
    }

    #[tokio::test]
    async fn an_error_arrives_with_its_code() {
        let (mut parent, mut side) = joined();
        parent.failed(&CliError::Nothing("s3://b/x".to_owned())).await;
        drop(parent);
        let error = follow(&mut side.reports, &mut Display::new(|_line| {})).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::NotFound);
        assert!(error.to_string().starts_with("nothing at s3://b/x"), "{error}");
    }
}
