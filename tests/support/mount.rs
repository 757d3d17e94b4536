//! Mounts made by the built program: started until they answer, stopped and looked after when they go out of scope.
//!
//! Always true: after a `Mount` is gone its process is gone, nothing is mounted, and its folder is removed. Its log held no line
//! of level WARN or ERROR that the test had not announced with [`Mount::expect_log`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use tempfile::TempDir;

use super::mount_table::is_mounted;
use super::process::{as_user, finish, output, signal};
use super::servers::{Address, Server};
use super::wait::{HANG, eventually};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_streamvol");

/// After this a mount is killed, so that reads that hang fail and their test says so.
const WATCHDOG: Duration = Duration::from_secs(240);

/// What to mount, where and how; `start` and its relatives do it.
#[derive(Debug)]
pub struct MountOptions {
    address: Address,
    prefix: OsString,
    args: Vec<OsString>,
    user: Option<u32>,
    at: Option<PathBuf>,
}

/// How a start failed.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: i32,
    /// What stood on standard error.
    pub message: String,
}

impl MountOptions {
    /// The whole bucket with no options.
    pub fn of(server: &impl Server) -> Self {
        MountOptions { address: server.address(), prefix: OsString::new(), args: Vec::new(), user: None, at: None }
    }

    /// What follows the bucket's slash.
    pub fn prefix(self, prefix: impl AsRef<OsStr>) -> Self {
        MountOptions { prefix: prefix.as_ref().to_owned(), ..self }
    }

    /// Options of the command line.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Run by this user, who owns the folder it runs in.
    pub fn user(self, uid: u32) -> Self {
        MountOptions { user: Some(uid), ..self }
    }

    /// On this mount point instead of a new one.
    pub fn at(self, mountpoint: impl Into<PathBuf>) -> Self {
        MountOptions { at: Some(mountpoint.into()), ..self }
    }

    /// Another bucket of the server.
    pub fn bucket(mut self, name: &str) -> Self {
        name.clone_into(&mut self.address.bucket);
        self
    }

    /// Other credentials.
    pub fn credentials(mut self, access_key: &str, secret_key: &str) -> Self {
        access_key.clone_into(&mut self.address.access_key);
        secret_key.clone_into(&mut self.address.secret_key);
        self
    }

    /// Another server.
    pub fn endpoint(mut self, url: &str) -> Self {
        url.clone_into(&mut self.address.endpoint);
        self
    }

    /// Mounts in the foreground and waits until the program says that it is ready.
    #[track_caller]
    pub fn start(self) -> Mount {
        let (folder, path) = self.folder();
        let notify = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        if let Some(uid) = self.user {
            give_away(&folder.path().join("notify"), uid);
        }
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = self.command(folder.path(), &path, true);
        command.env("NOTIFY_SOCKET", folder.path().join("notify")).stderr(log).stdout(Stdio::null());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let mut mount = Mount::new(folder, path, Some(child), pid);
        mount.wait_until_ready(&notify);
        mount.service_manager = Some(notify);
        mount
    }

    /// Mounts without `--foreground`: waits for the command's end and finds the process it leaves behind.
    #[track_caller]
    pub fn start_in_background(self) -> Mount {
        let (folder, path) = self.folder();
        let log = folder.path().join("log");
        let mut command = self.command(folder.path(), &path, false);
        let run = output(command.arg("--log-file").arg(&log), HANG);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{}: {said}", run.status);
        let daemons = processes_of(&path);
        assert_eq!(daemons.len(), 1, "one process serves {}: {said}", path.display());
        Mount::new(folder, path, None, daemons[0])
    }

    /// Runs a start that must fail; nothing may be left mounted or running.
    #[track_caller]
    pub fn fail(self) -> Failure {
        self.fail_with(false)
    }

    /// The same with `--foreground`.
    #[track_caller]
    pub fn fail_in_foreground(self) -> Failure {
        self.fail_with(true)
    }

    #[track_caller]
    fn fail_with(self, foreground: bool) -> Failure {
        let (folder, path) = self.folder();
        let before = processes_of(&path);
        let mounted_before = is_mounted(&path);
        let run = output(&mut self.command(folder.path(), &path, foreground), HANG);
        let message = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success(), "the mount succeeded: {message}");
        assert_eq!(is_mounted(&path), mounted_before, "a failed start changed what is mounted: {message}");
        // In the background the process may still be on its way out when its error has been told.
        let gone = || processes_of(&path) == before;
        eventually(HANG, &format!("a failed start leaves no process: {message}"), gone);
        Failure { code: run.status.code().expect("ended by a signal"), message }
    }

    /// The command line, without starting it.
    pub fn command(&self, folder: &Path, mountpoint: &Path, foreground: bool) -> Command {
        let mut command = match self.user {
            Some(uid) => as_user(uid, program_for_all(folder)),
            None => Command::new("setpriv"),
        };
        if self.user.is_none() {
            // Should the test binary be killed, its mounts go with it.
            if foreground {
                command.arg("--pdeathsig=TERM");
            }
            command.arg("--").arg(PROGRAM);
        }
        let mut source = OsString::from(format!("s3://{}", self.address.bucket));
        if !self.prefix.is_empty() {
            source.push("/");
            source.push(&self.prefix);
        }
        command.arg("mount").arg(source).arg(mountpoint).args(["--endpoint-url", &self.address.endpoint]);
        if foreground {
            command.arg("--foreground");
        }
        command.args(&self.args);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", folder.join("home"));
        command.env("AWS_ACCESS_KEY_ID", &self.address.access_key);
        command.env("AWS_SECRET_ACCESS_KEY", &self.address.secret_key);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("RUST_BACKTRACE", "1");
        command.current_dir(folder);
        command
    }

    /// A folder for this mount with a home, and the mount point (below it unless another is wanted).
    fn folder(&self) -> (TempDir, PathBuf) {
        let folder = TempDir::with_prefix("streamvol-test-").unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = self.at.clone().unwrap_or_else(|| folder.path().join("mnt"));
        std::fs::create_dir(folder.path().join("home")).unwrap();
        if self.at.is_none() {
            std::fs::create_dir(&path).unwrap();
        }
        if let Some(uid) = self.user {
            open_device_to_all();
            for owned in [folder.path(), &folder.path().join("home"), &path] {
                give_away(owned, uid);
            }
        }
        (folder, path)
    }
}

/// Gives /dev/fuse the mode that every distribution gives it, where nobody has.
fn open_device_to_all() {
    std::fs::set_permissions("/dev/fuse", PermissionsExt::from_mode(0o666)).unwrap();
}

/// The program where every user can run it: the build may stand in a home that is closed to others.
fn program_for_all(folder: &Path) -> PathBuf {
    let path = folder.join("streamvol");
    if std::fs::hard_link(PROGRAM, &path).is_err() && !path.exists() {
        std::fs::copy(PROGRAM, &path).unwrap();
    }
    path
}

fn give_away(path: &Path, uid: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

/// Processes of the program whose command line names this mount point.
pub fn processes_of(mountpoint: &Path) -> Vec<u32> {
    let wanted = mountpoint.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while it is looked at.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        let is_program = words.next().is_some_and(|word| word.ends_with(b"streamvol"));
        if is_program && words.any(|word| word == wanted) {
            found.push(pid);
        }
    }
    found
}

/// A mount that answers.
#[derive(Debug)]
pub struct Mount {
    folder: TempDir,
    path: PathBuf,
    /// The process, when it is our child.
    child: Option<Child>,
    pid: u32,
    ended: Option<ExitStatus>,
    expected: Vec<String>,
    abandoned: bool,
    /// Where the program tells how it is, as long as it lives.
    service_manager: Option<UnixDatagram>,
    watchdog: Option<mpsc::Sender<()>>,
}

impl Mount {
    /// Mounts the server's bucket in the foreground with these options and waits until it answers.
    #[track_caller]
    pub fn start(server: &impl Server, args: &[&str]) -> Self {
        MountOptions::of(server).args(args).start()
    }

    /// Mounts the server's bucket as a daemon.
    #[track_caller]
    pub fn background(server: &impl Server, args: &[&str]) -> Self {
        MountOptions::of(server).args(args).start_in_background()
    }

    fn new(folder: TempDir, path: PathBuf, child: Option<Child>, pid: u32) -> Self {
        let (watchdog, over) = mpsc::channel::<()>();
        let watched = path.clone();
        std::thread::spawn(move || {
            if over.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{} takes too long: its process is killed", watched.display());
                signal(pid, Signal::KILL);
            }
        });
        Mount {
            folder,
            path,
            child,
            pid,
            ended: None,
            expected: Vec::new(),
            abandoned: false,
            service_manager: None,
            watchdog: Some(watchdog),
        }
    }

    /// sd_notify is what the program promises to send when a stat through the mount was answered.
    #[track_caller]
    fn wait_until_ready(&mut self, notify: &UnixDatagram) {
        notify.set_nonblocking(true).unwrap();
        eventually(HANG, "the mount is ready", || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
                self.ended = Some(status);
                panic!("the mount did not start: {status}");
            }
            let mut message = [0; 512];
            let count = notify.recv(&mut message).unwrap_or(0);
            String::from_utf8_lossy(&message[..count]).lines().any(|line| line == "READY=1")
        });
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path below the mount point.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// A folder for the test's own use, beside the mount point.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Names in a directory, sorted; the mount's root is "".
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.join(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A file's bytes.
    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// What the daemon has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Announces that the log may hold warnings and errors with this text.
    pub fn expect_log(&mut self, text: &str) {
        self.expected.push(text.to_owned());
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, which: Signal) {
        signal(self.pid, which);
    }

    /// Kills the daemon and leaves the dead mount where it is.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait(HANG);
        self.abandoned = true;
    }

    /// SIGTERM, and what the daemon ends with; `None` of a daemon that is not our child.
    #[track_caller]
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(HANG)
    }

    /// Waits for the daemon's end.
    #[track_caller]
    pub fn wait(&mut self, deadline: Duration) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return self.ended;
        }
        if let Some(child) = &mut self.child {
            self.ended = Some(finish(child, deadline, "the daemon ends"));
        } else {
            let path = self.path.clone();
            eventually(deadline, "the daemon ends", || !processes_of(&path).contains(&self.pid));
        }
        self.ended
    }

    /// Lines of the log that nobody announced.
    fn surprises(&self) -> Vec<String> {
        let is_bad = |line: &str| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked");
        let is_expected = |line: &str| self.expected.iter().any(|text| line.contains(text.as_str()));
        self.log().lines().filter(|line| is_bad(line) && !is_expected(line)).map(str::to_owned).collect()
    }

    /// Ends the process, unless it has ended; then nothing of ours may be mounted any more.
    fn clean_up(&mut self) -> Result<(), String> {
        let was_running =
            self.ended.is_none() && (self.child.is_some() || processes_of(&self.path).contains(&self.pid));
        if was_running {
            self.signal(Signal::TERM);
        }
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.wait(Duration::from_secs(20))));
        if stopped.is_err() {
            self.signal(Signal::KILL);
            self.wait(HANG);
        }
        let left = is_mounted(&self.path) && (self.abandoned || was_running);
        if left {
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        }
        match (stopped, left) {
            (Err(_), _) => Err("SIGTERM did not end the daemon".to_owned()),
            (Ok(_), true) if !self.abandoned => Err("the daemon ended and left its mount".to_owned()),
            (Ok(Some(status)), _) if was_running && !status.success() => Err(format!("the daemon ended with {status}")),
            _ => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let outcome = self.clean_up();
        drop(self.watchdog.take());
        if is_mounted(&self.path) && self.path.starts_with(self.folder.path()) {
            // Removing the folder must not walk into somebody's mount.
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        }
        if std::thread::panicking() {
            eprintln!("log of {}:\n{}", self.path.display(), self.log());
            if let Err(problem) = outcome {
                eprintln!("{problem}");
            }
            return;
        }
        let log = self.log();
        outcome.unwrap_or_else(|problem| panic!("{problem}\n{log}"));
        let surprises = self.surprises();
        assert!(surprises.is_empty(), "log lines that the test did not announce:\n{}", surprises.join("\n"));
    }
}
