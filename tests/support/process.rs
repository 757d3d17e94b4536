//! Processes: run as another user, run with a deadline, servers that cannot outlive the test binary.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::wait::eventually;

/// A user that owns nothing.
pub const NOBODY: u32 = 65534;

/// `program` run as `uid` (and the group of the same number), with no other groups and no capabilities.
pub fn as_user(uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}")).args(["--clear-groups", "--"]).arg(program);
    command
}

/// Sends a signal to a process started here.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // A process that is gone already needs no signal.
    let _ = kill_process(pid, signal);
}

/// Waits for the end of a child; panics when it takes longer than `deadline`.
#[track_caller]
pub fn finish(child: &mut Child, deadline: Duration, what: &str) -> ExitStatus {
    let mut status = None;
    eventually(deadline, what, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Runs a command to its end; panics when it cannot be started or takes longer than `deadline`.
#[track_caller]
pub fn output(command: &mut Command, deadline: Duration) -> Output {
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let what = format!("{command:?}");
    let spawned =
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut status = None;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        status = Some(finish(&mut child, deadline, &what));
    }));
    if let Err(panic) = ended {
        let _ = child.kill();
        let _ = child.wait();
        std::panic::resume_unwind(panic);
    }
    Output { status: status.unwrap(), stdout: all_of(out).unwrap(), stderr: all_of(err).unwrap() }
}

fn all_of(mut file: File) -> io::Result<Vec<u8>> {
    use io::{Read, Seek};
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A server process that ends, and whose files go, when this is dropped or the test binary ends in any way.
///
/// A shell watches over it: the end of its standard input tells it that nobody is there any more.
#[derive(Debug)]
pub struct Guarded {
    shell: Child,
    alive: Option<ChildStdin>,
}

const GUARD: &str = r#"
trap '' TERM INT HUP
log="$1"; trash="$2"; shift 2
"$@" > "$log" 2>&1 < /dev/null &
child=$!
read -r _
kill -9 "$child" 2> /dev/null
wait "$child" 2> /dev/null
eval "rm -rf -- $trash"
"#;

impl Guarded {
    /// Starts `command`, whose output goes to `log`. `trash` are paths (the shell's patterns are fine) to remove in the end.
    pub fn start(command: &Command, log: &Path, trash: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD, "guard"]).arg(log).arg(trash).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap());
        }
        if let Some(directory) = command.get_current_dir() {
            shell.current_dir(directory);
        }
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let alive = shell.stdin.take();
        Guarded { shell, alive }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.shell.wait();
    }
}
