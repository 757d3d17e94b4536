//! Real mounts, served by a few lines that speak just enough FUSE: INIT, GETATTR, STATFS, OPENDIR and RELEASEDIR.
//!
//! As root the mounts are made by mount(2). `an_unprivileged_user_...` then runs all of `real_mounts` once more under
//! another uid, where fusermount3 does the work.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// Against hanging only.
const DEADLINE: Duration = Duration::from_secs(60);

/// How the server of a test behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Answers,
    /// Answers INIT, and nothing else.
    Hangs,
    /// Ends after the first GETATTR, as a daemon that is killed.
    DiesAfterOneAnswer,
}

const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const ENOSYS: u32 = 38;

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The body that answers `opcode`; `None` for a question that is not answered, an errno for one that is refused.
fn answer(opcode: u32, manner: Manner) -> Option<Result<Vec<u8>, u32>> {
    if matches!(opcode, FORGET | INTERRUPT | BATCH_FORGET) || (manner == Manner::Hangs && opcode != INIT) {
        return None;
    }
    Some(match opcode {
        // Version 7.31, no flags, 1 MiB writes; the rest of fuse_init_out is zero.
        INIT => Ok(u32s(&[7, 31, 0, 0, 0, 1 << 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        // fuse_attr_out: valid for a year; inode 1, a directory with mode 0755 and two links.
        GETATTR => {
            let mut body = vec![0; 104];
            body[0..8].copy_from_slice(&31_536_000_u64.to_le_bytes());
            body[16..24].copy_from_slice(&1_u64.to_le_bytes());
            body[76..84].copy_from_slice(&u32s(&[0o040_755, 2]));
            Ok(body)
        }
        STATFS => Ok(vec![0; 80]),
        OPENDIR => Ok(vec![0; 16]),
        RELEASEDIR => Ok(Vec::new()),
        _ => Err(ENOSYS),
    })
}

/// Serves until the kernel closes the connection.
fn serve(device: OwnedFd, manner: Manner) {
    let mut device = File::from(device);
    let mut request = vec![0; (1 << 20) + 4096];
    while let Ok(length) = device.read(&mut request) {
        assert!(length >= 40, "a request has a header");
        let opcode = u32::from_le_bytes(request[4..8].try_into().unwrap());
        let Some(answer) = answer(opcode, manner) else { continue };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (errno.wrapping_neg(), Vec::new()),
        };
        let mut reply = u32s(&[u32::try_from(16 + body.len()).unwrap(), error]);
        reply.extend(&request[8..16]);
        reply.extend(body);
        // The kernel forgets a request whose asker has gone.
        let _ = device.write(&reply);
        if manner == Manner::DiesAfterOneAnswer && opcode == GETATTR {
            break;
        }
    }
}

/// A directory to mount on that is gone, with whatever is mounted on it, when the test ends in any way.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while unmount(self.0.path(), UnmountMode::Force).is_ok() {}
    }
}

/// A mount and the thread that serves it.
struct Served {
    mounted: Mounted,
    server: JoinHandle<()>,
}

impl Served {
    fn device_number(&self) -> DeviceNumber {
        self.mounted.identity().device
    }

    /// Waits until the server has seen the end of the connection.
    fn ends(self) {
        let Served { mounted, server } = self;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(server.join().is_ok()));
        assert_eq!(receiver.recv_timeout(DEADLINE), Ok(true), "the server ends with its connection");
        assert!(!mounted.is_connected());
    }
}

fn options(source: &str) -> MountOptions {
    MountOptions { source: source.to_owned(), allow_other: false, max_read_bytes: 1 << 20 }
}

fn mount_at(path: &Path, source: &str) -> Mounted {
    mount(&prepare(path, DEADLINE).unwrap(), &options(source)).unwrap()
}

fn serve_at(path: &Path, manner: Manner) -> Served {
    let mounted = mount_at(path, "s3://bucket/prefix");
    let device = mounted.device().try_clone_to_owned().unwrap();
    Served { mounted, server: thread::spawn(move || serve(device, manner)) }
}

/// A mount that nobody serves and nobody owns any more, as a killed daemon leaves it.
fn leave_dead_mount(path: &Path, source: &str) {
    let _identity = mount_at(path, source).release();
}

fn entry_at(path: &Path) -> Option<MountEntry> {
    MountTable::read().unwrap().mounted_at(path).cloned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

mod real_mounts {
    use super::*;

    #[test]
    fn a_mount_shows_type_source_and_read_only_flags_and_its_device_is_close_on_exec() {
        let place = Place::new();
        let source = r"s3://bucket/with, comma \ and space";
        let mounted = mount_at(&place.path(), source);
        let entry = entry_at(&place.path()).unwrap();
        assert_eq!((entry.fs_type.as_str(), entry.source.as_str()), ("fuse.streamvol", source));
        assert_eq!(
            mounted.identity(),
            &MountIdentity { mountpoint: place.path(), device: entry.device, mount_id: entry.mount_id }
        );
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", entry.mount_id))).unwrap();
        assert!(line.contains(" ro,nosuid,nodev,noatime "), "{line}");
        assert!(line.contains("default_permissions") && line.contains("max_read=1048576"), "{line}");
        assert!(rustix::io::fcntl_getfd(mounted.device()).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_served_mount_answers_for_itself_and_for_nobody_else() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Answers);
        let device = served.device_number();
        answers(&place.path(), device, DEADLINE).unwrap();
        let other = DeviceNumber { minor: device.minor + 1, ..device };
        assert!(matches!(answers(&place.path(), other, DEADLINE), Err(AnswerError::Elsewhere(_))));
        served.mounted.unmount(UnmountMode::Orderly).unwrap();
        assert!(matches!(answers(&place.path(), device, DEADLINE), Err(AnswerError::Elsewhere(_))));
        served.ends();
    }

    #[test]
    fn a_mount_that_gives_no_answer_is_a_time_out_and_a_dead_one_is_said_to_be_dead() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Hangs);
        let device = served.device_number();
        let error = answers(&place.path(), device, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, AnswerError::TimedOut { .. }), "{error}");
        served.mounted.unmount(UnmountMode::Force).unwrap();
        served.ends();
        leave_dead_mount(&place.path(), "s3://dead");
        let device = entry_at(&place.path()).unwrap().device;
        assert!(matches!(answers(&place.path(), device, DEADLINE), Err(AnswerError::Dead(_))));
    }

    #[test]
    fn attributes_that_the_kernel_remembers_do_not_pass_for_an_answer() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::DiesAfterOneAnswer);
        let device = served.device_number();
        answers(&place.path(), device, DEADLINE).unwrap();
        let _identity = served.mounted.release();
        served.server.join().unwrap();
        rustix::fs::stat(place.path()).expect("a plain stat is answered by the kernel");
        assert!(matches!(answers(&place.path(), device, DEADLINE), Err(AnswerError::Dead(_))));
        let notes = prepare(&place.path(), DEADLINE).unwrap().notes().to_vec();
        assert!(matches!(notes[..], [MountpointNote::StaleMountRemoved { .. }]), "{notes:?}");
    }

    #[test]
    fn every_mode_unmounts_a_mount_that_is_not_in_use() {
        for mode in [UnmountMode::Orderly, UnmountMode::Lazy, UnmountMode::Force] {
            let place = Place::new();
            let served = serve_at(&place.path(), Manner::Answers);
            answers(&place.path(), served.device_number(), DEADLINE).unwrap();
            unmount(&place.path(), mode).unwrap();
            assert_eq!(entry_at(&place.path()), None, "{mode:?}");
            served.ends();
        }
    }

    #[test]
    fn a_mount_in_use_is_named_busy_with_its_users_and_goes_lazily() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Answers);
        let held = File::open(place.path()).unwrap();
        let Err(UnmountError::Busy { users, path }) = unmount(&place.path(), UnmountMode::Orderly) else {
            panic!("busy is an error")
        };
        // A program that another test has just forked may be among them.
        assert!(users.iter().any(|user| user.pid == std::process::id()), "{users:?}");
        let text = UnmountError::Busy { path, users }.to_string();
        assert!(text.contains("--lazy") && text.contains(&std::process::id().to_string()), "{text}");
        unmount(&place.path(), UnmountMode::Lazy).unwrap();
        assert_eq!(entry_at(&place.path()), None);
        assert!(served.mounted.is_connected(), "the open directory still holds the connection");
        held.metadata().unwrap();
        drop(held);
        served.ends();
    }

    #[test]
    fn force_frees_a_reader_that_waits_for_a_hung_mount() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Hangs);
        let (path, (sender, receiver)) = (place.path(), mpsc::channel());
        thread::spawn(move || sender.send(std::fs::metadata(path).map(|_| ())));
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        unmount(&place.path(), UnmountMode::Force).unwrap();
        receiver.recv_timeout(DEADLINE).unwrap().unwrap_err();
        served.ends();
    }

    #[test]
    fn a_mount_is_found_through_a_symlink_and_a_relative_looking_path() {
        let place = Place::new();
        let target = place.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        for typed in [link, place.path().join("./target/"), place.path().join("target/../target")] {
            let served = serve_at(&typed, Manner::Answers);
            unmount(&typed, UnmountMode::Orderly).unwrap();
            assert_eq!(entry_at(&target), None, "{typed:?}");
            served.ends();
        }
    }

    #[test]
    fn dead_mounts_are_cleaned_up_and_reported_before_mounting() {
        let place = Place::new();
        leave_dead_mount(&place.path(), "s3://lower");
        assert_eq!(std::fs::metadata(place.path()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        let mountpoint = prepare(&place.path(), DEADLINE).unwrap();
        let removed = MountpointNote::StaleMountRemoved { path: place.path(), shown: "s3://lower".to_owned() };
        assert_eq!(mountpoint.notes(), [removed]);
        assert_eq!(entry_at(&place.path()), None);
        let served = serve_at(&place.path(), Manner::Answers);
        answers(&place.path(), served.device_number(), DEADLINE).unwrap();
        served.mounted.unmount(UnmountMode::Orderly).unwrap();
        served.ends();
    }

    #[test]
    fn a_live_mount_of_ours_is_refused_and_a_hung_one_is_given_up() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Answers);
        let error = prepare(&place.path(), DEADLINE).unwrap_err();
        assert!(matches!(error, MountError::AlreadyMounted { .. }), "{error}");
        assert!(error.to_string().contains("s3://bucket/prefix"), "{error}");
        served.mounted.unmount(UnmountMode::Orderly).unwrap();
        served.ends();
        let served = serve_at(&place.path(), Manner::Hangs);
        let error = prepare(&place.path(), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("--force"), "{error}");
        served.mounted.unmount(UnmountMode::Force).unwrap();
    }

    #[test]
    fn a_dropped_mount_is_gone_and_a_released_one_is_not() {
        let place = Place::new();
        drop(mount_at(&place.path(), "s3://dropped"));
        assert_eq!(entry_at(&place.path()), None);
        let identity = mount_at(&place.path(), "s3://released").release();
        assert_eq!(entry_at(&place.path()).map(|entry| entry.mount_id), Some(identity.mount_id));
    }

    #[test]
    fn a_mount_never_unmounts_the_one_that_took_its_place() {
        let place = Place::new();
        let first = serve_at(&place.path(), Manner::Answers);
        let old = first.mounted.identity().clone();
        unmount(&place.path(), UnmountMode::Orderly).unwrap();
        let second = serve_at(&place.path(), Manner::Answers);
        let new = second.mounted.identity().clone();
        for mode in [UnmountMode::Orderly, UnmountMode::Lazy, UnmountMode::Force] {
            first.mounted.unmount(mode).unwrap();
            assert_eq!(entry_at(&place.path()).map(|entry| entry.mount_id), Some(new.mount_id), "{old:?} {mode:?}");
        }
        first.ends();
        answers(&place.path(), second.device_number(), DEADLINE).unwrap();
        second.mounted.unmount(UnmountMode::Orderly).unwrap();
        second.ends();
    }

    #[test]
    fn a_mount_that_is_gone_leaves_alone_the_one_that_got_its_numbers() {
        let (place, other) = (Place::new(), Place::new());
        let first = mount_at(&place.path(), "s3://first");
        unmount(&place.path(), UnmountMode::Orderly).unwrap();
        let identity = mount_at(&other.path(), "s3://second").release();
        drop(first);
        assert_eq!(entry_at(&other.path()).map(|entry| entry.mount_id), Some(identity.mount_id));
    }

    #[test]
    fn a_covered_mount_says_so_instead_of_taking_away_the_cover() {
        let place = Place::new();
        let prepared = prepare(&place.path(), DEADLINE).unwrap();
        let below = serve_at(&place.path(), Manner::Answers);
        answers(&place.path(), below.device_number(), DEADLINE).unwrap();
        if !is_root() {
            // fusermount3 refuses to mount on a file system of its own kind; the case cannot arise.
            let error = mount(&prepared, &options("s3://cover"));
            assert!(matches!(error, Err(MountError::Helper { .. })), "{error:?}");
            return;
        }
        let cover = mount(&prepared, &options("s3://cover")).unwrap();
        assert!(matches!(below.mounted.unmount(UnmountMode::Lazy), Err(UnmountError::Covered(_))));
        assert_eq!(entry_at(&place.path()).map(|entry| entry.source), Some("s3://cover".to_owned()));
        cover.unmount(UnmountMode::Force).unwrap();
        below.mounted.unmount(UnmountMode::Orderly).unwrap();
        below.ends();
    }

    #[test]
    fn read_ahead_is_raised_by_root_and_a_hint_for_others() {
        let place = Place::new();
        let served = serve_at(&place.path(), Manner::Answers);
        answers(&place.path(), served.device_number(), DEADLINE).unwrap();
        let path = format!("/sys/class/bdi/{}/read_ahead_kb", served.device_number());
        match set_read_ahead_kb(served.device_number(), 2048) {
            Ok(()) => assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "2048"),
            Err(error @ ReadAheadError::NotPermitted { .. }) => {
                assert!(!is_root(), "{error}");
                assert!(error.to_string().contains(&format!("echo 2048 > {path}")), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
        let nowhere = DeviceNumber { major: 0, minor: u32::MAX };
        assert!(matches!(set_read_ahead_kb(nowhere, 2048), Err(ReadAheadError::Failed { .. })));
        served.mounted.unmount(UnmountMode::Orderly).unwrap();
        served.ends();
    }

    #[test]
    fn allow_other_without_permission_names_the_file_to_change() {
        let place = Place::new();
        let wanted = MountOptions { allow_other: true, ..options("s3://open") };
        let allowed = std::fs::read_to_string("/etc/fuse.conf")
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
        match mount(&prepare(&place.path(), DEADLINE).unwrap(), &wanted) {
            Ok(_mounted) => assert!(is_root() || allowed),
            Err(error) => {
                assert!(!is_root() && !allowed, "{error}");
                assert!(error.to_string().contains("/etc/fuse.conf"), "{error}");
            }
        }
    }
}

/// Runs as root, in a mount namespace of its own that ends with it: gives everybody the FUSE device, as udev does, and the
/// control file system, as systemd does; then becomes another user. (Root aborts without the control file system.) The test program is run through a descriptor, because other users may not be able to
/// walk to it.
const AS_NOBODY: &str = "set -e
mount -t tmpfs none \"$0\"
mknod -m 666 \"$0/fuse\" c 10 229
mount --bind \"$0/fuse\" /dev/fuse
mount -t fusectl none /sys/fs/fuse/connections
exec setpriv --pdeathsig=KILL --reuid=65534 --regid=65534 --clear-groups -- /proc/self/fd/0 handoff::tests::real_mounts:: --test-threads=2";

#[test]
fn an_unprivileged_user_has_all_of_it_through_fusermount3() {
    if !is_root() {
        return; // `real_mounts` has just run as such a user.
    }
    assert!(fusermount::is_installed(), "fusermount3 is needed: apt-get install fuse3");
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    let devices = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", AS_NOBODY])
        .arg(devices.path())
        .stdin(Stdio::from(program))
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok.") && !text.contains(" 0 passed"), "{text}");
}

/// Nothing of a mount may end up in a program that is started meanwhile: it would keep the connection alive.
#[test]
fn a_child_process_inherits_no_device() {
    let place = Place::new();
    let mounted = mount_at(&place.path(), "s3://b");
    let output = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("/dev/fuse"));
    assert!(mounted.device().as_fd().try_clone_to_owned().is_ok());
}
