//! Starting, stopping, unmounting and everything that is wrong at the start: nothing is left mounted or running.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use streamvol::origin::{Fault, FaultRule, Latency, Verb};
use tempfile::TempDir;

use crate::support::*;

/// Exit codes that scripts rely on; the table is in `streamvol mount --help`.
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const DENIED: i32 = 4;
const UNREACHABLE: i32 = 5;
const MOUNTPOINT: i32 = 6;

fn one_file() -> TestOrigin {
    TestOrigin::with([("file", content(1, 5 << 20)), ("d/x", vec![1])])
}

/// Runs the program with these words.
fn program(words: &[&str], path: &Path) -> std::process::Output {
    output(Command::new(PROGRAM).args(words).arg(path), HANG)
}

#[track_caller]
fn succeeds(run: &std::process::Output) {
    assert!(run.status.success(), "{}: {}", run.status, String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_start_in_the_background_returns_when_the_mount_answers() {
    let origin = one_file();
    origin.conditions().set_list_latency(Latency::fixed(Duration::from_millis(700)));
    let started = Instant::now();
    let mut mount = Mount::background(&origin, &[]);
    assert!(started.elapsed() >= Duration::from_millis(700), "it waited for the listing");
    assert_eq!(mount.names(""), ["d", "file"]);
    assert_eq!(mount.read("file").len(), 5 << 20);
    assert!(!mount.log().is_empty(), "the daemon logs to its file");
    mount.stop();
    assert!(!is_mounted(mount.path()));
}

#[test]
fn the_daemon_keeps_no_terminal_and_no_directory_busy() {
    let origin = one_file();
    let mount = Mount::background(&origin, &[]);
    let process = PathBuf::from(format!("/proc/{}", mount.pid()));
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), Path::new("/"));
    for descriptor in 0..=2 {
        let to = fs::read_link(process.join(format!("fd/{descriptor}"))).unwrap();
        assert!(to == Path::new("/dev/null") || to.starts_with(mount.folder()), "{descriptor} is {}", to.display());
    }
    let stat = fs::read_to_string(process.join("stat")).unwrap();
    // Fields after the name: state, parent, group, session, terminal.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[4], "0", "no controlling terminal");
    assert_ne!(
        fields[3],
        fs::read_to_string("/proc/self/stat").unwrap().rsplit(") ").next().unwrap().split(' ').nth(3).unwrap()
    );
}

#[test]
fn every_way_to_unmount_works_while_files_are_open_or_says_why_not() {
    let origin = one_file();
    // In use: refused, and the mount goes on.
    let mount = Mount::start(&origin, &[]);
    let file = File::open(mount.join("file")).unwrap();
    let refused = program(&["unmount"], mount.path());
    assert_eq!(refused.status.code(), Some(MOUNTPOINT));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("in use") && said.contains("--lazy"), "{said}");
    same_bytes(&read_at(&file, 3 << 20, 100).unwrap(), &content(1, 5 << 20)[3 << 20..][..100], "still mounted");
    drop((file, mount));
    // Lazily: gone from the tree at once, open files go on.
    let mut mount = Mount::start(&origin, &[]);
    let file = File::open(mount.join("file")).unwrap();
    succeeds(&program(&["unmount", "--lazy"], mount.path()));
    assert!(!is_mounted(mount.path()));
    same_bytes(&read_at(&file, 4 << 20, 100).unwrap(), &content(1, 5 << 20)[4 << 20..][..100], "an open file goes on");
    drop(file);
    assert_eq!(mount.wait(HANG).unwrap().code(), Some(0));
    // By force: readers that wait for the store get an error.
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("read failed");
    mount.expect_log("aborted");
    let stall = origin.break_gets(Fault::NoAnswer);
    let mut reader =
        Command::new("cat").arg(mount.join("file")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(HANG, "the reader waits", || origin.conditions().fault_hits(stall) > 0);
    succeeds(&program(&["unmount", "--force"], mount.path()));
    assert!(!is_mounted(mount.path()));
    assert!(!finish(&mut reader, HANG, "the reader gets an error").success());
    assert_eq!(mount.wait(HANG).unwrap().code(), Some(0));
}

#[test]
fn unmounting_what_is_no_mount_of_ours_is_refused() {
    let folder = TempDir::new().unwrap();
    let run = program(&["unmount"], folder.path());
    assert_eq!(run.status.code(), Some(MOUNTPOINT));
    assert!(String::from_utf8_lossy(&run.stderr).contains("not a mount point"), "{run:?}");
    let missing = program(&["unmount"], &folder.path().join("missing"));
    assert_eq!(missing.status.code(), Some(MOUNTPOINT), "{missing:?}");
}

#[test]
fn sigterm_with_readers_inside_ends_within_two_seconds() {
    let origin = one_file();
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("read failed");
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (stop, path) = (Arc::clone(&stop), mount.join("file"));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Errors are what an unmounted file gives; a later open finds an empty mount point.
                    let _ = fs::read(&path);
                }
            })
        })
        .collect();
    eventually(HANG, "the readers read", || origin.counters().get_requests > 3);
    let sent = Instant::now();
    assert_eq!(mount.stop().unwrap().code(), Some(0));
    let took = sent.elapsed();
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    // Two seconds are promised; the machine may be busy with other tests.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(!is_mounted(mount.path()));
}

#[test]
fn a_signal_during_the_start_leaves_nothing() {
    let origin = one_file();
    for which in [Signal::TERM, Signal::INT] {
        let list = origin.conditions().add_fault(FaultRule::new(Fault::NoAnswer).verb(Verb::List));
        let folder = TempDir::new().unwrap();
        let mountpoint = folder.path().join("mnt");
        fs::create_dir_all(folder.path().join("home")).unwrap();
        fs::create_dir(&mountpoint).unwrap();
        let mut command = MountOptions::of(&origin).command(folder.path(), &mountpoint, true);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(HANG, "it lists", || origin.conditions().fault_hits(list) > 0);
        signal(child.id(), which);
        assert_eq!(finish(&mut child, HANG, "it ends").code(), Some(1));
        assert!(!is_mounted(&mountpoint));
        origin.conditions().clear_faults();
    }
}

#[test]
fn a_mount_point_that_is_mounted_already_is_refused() {
    let origin = one_file();
    let mount = Mount::start(&origin, &[]);
    for second in [MountOptions::of(&origin).at(mount.path()), MountOptions::of(&origin).at(mount.join("."))] {
        let failure = second.fail();
        assert_eq!(failure.code, MOUNTPOINT, "{failure:?}");
        assert!(failure.message.contains("already mounted") && failure.message.contains("unmount"), "{failure:?}");
    }
    assert_eq!(mount.names(""), ["d", "file"], "the first goes on");
}

#[test]
fn bad_mount_points_are_named_with_what_to_do() {
    let origin = one_file();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    for (path, word) in [(folder.path().join("missing"), "mkdir"), (file, "not a directory"), (dangling, "mkdir")] {
        let failure = MountOptions::of(&origin).at(&path).fail();
        assert_eq!(failure.code, MOUNTPOINT, "{failure:?}");
        assert!(failure.message.contains(word) && failure.message.contains(path.to_str().unwrap()), "{failure:?}");
    }
}

#[test]
fn mount_points_may_be_relative_symlinks_or_full() {
    let origin = one_file();
    let folder = TempDir::new().unwrap();
    let real = folder.path().join("real directory");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("covered"), "covered").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut mount = MountOptions::of(&origin).at(&link).start();
    mount.expect_log("is not empty");
    assert!(is_mounted(&real));
    assert_eq!(mount.names(""), ["d", "file"]);
    succeeds(&program(&["unmount"], &link));
    drop(mount);
    assert_eq!(fs::read(real.join("covered")).unwrap(), b"covered");
    // Relative to the directory that the program is started in.
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let mut command = MountOptions::of(&origin).command(folder.path(), Path::new("real directory"), false);
    let run = output(command.arg("--log-file").arg(folder.path().join("log")), HANG);
    succeeds(&run);
    assert_eq!(fs::read_dir(&real).unwrap().count(), 2);
    succeeds(&program(&["unmount"], &real));
    assert!(!is_mounted(&real));
}

#[test]
fn a_dead_mount_does_not_stand_in_the_way_however_it_died() {
    let origin = one_file();
    let mut dead = Mount::start(&origin, &[]);
    // A program that is inside keeps the dead mount busy.
    let inside = File::open(dead.join("file")).unwrap();
    dead.kill();
    let mut again = MountOptions::of(&origin).at(dead.path()).start_in_background();
    again.expect_log("removed a dead mount");
    assert_eq!(again.names(""), ["d", "file"]);
    drop((again, inside));
    assert!(!is_mounted(dead.path()));
}

#[test]
fn what_is_wrong_with_the_store_is_said_with_its_exit_code() {
    let origin = TestOrigin::with_keys(["object", "object-2/x", "d/e/file"]);
    let options = || MountOptions::of(&origin);
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases: [(&str, MountOptions, i32, &[&str]); 8] = [
        ("no such bucket", options().bucket("no-such-bucket"), NOT_FOUND, &["no-such-bucket"]),
        ("unknown key", options().credentials("wrong", "origin-secret"), DENIED, &["wrong"]),
        ("wrong secret", options().credentials("origin-key", "wrong"), DENIED, &["secret"]),
        ("unsigned", options().args(["--no-sign-request"]), DENIED, &["--no-sign-request"]),
        (
            "nobody listens",
            options().endpoint(&format!("http://{refused}")).args(["--retry-deadline", "1s"]),
            UNREACHABLE,
            &["127.0.0.1"],
        ),
        (
            "no such host",
            options().endpoint("http://store.invalid").args(["--retry-deadline", "1s"]),
            UNREACHABLE,
            &["store.invalid"],
        ),
        ("prefix is an object", options().prefix("object"), NOT_FOUND, &["object"]),
        ("prefix is an object below", options().prefix("d/e/file"), NOT_FOUND, &["d/e/file"]),
    ];
    for (case, options, code, words) in cases {
        let started = Instant::now();
        let failure = options.fail_in_foreground();
        assert_eq!(failure.code, code, "{case}: {}", failure.message);
        assert!(failure.message.contains("error: "), "{case}: {}", failure.message);
        for word in words {
            assert!(failure.message.contains(word), "{case}: {}", failure.message);
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{case} took {:?}", started.elapsed());
    }
}

#[test]
fn errors_of_a_start_in_the_background_arrive_in_the_foreground() {
    let origin = one_file();
    let failure = MountOptions::of(&origin).bucket("no-such-bucket").fail();
    assert_eq!(failure.code, NOT_FOUND);
    assert!(failure.message.contains("no-such-bucket"), "{failure:?}");
}

#[test]
fn something_that_is_no_object_store_is_recognised() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        use std::io::Write;
        for mut client in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = client.read(&mut request);
            let page = "<!doctype html><html><body>hello</body></html>";
            let length = page.len();
            let _ =
                write!(client, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}");
        }
    });
    let options = MountOptions::of(&one_file()).endpoint(&format!("http://{address}")).args(["--retry-deadline", "1s"]);
    let failure = options.fail_in_foreground();
    assert!([5, 8].contains(&failure.code), "{failure:?}");
    assert!(failure.message.contains("127.0.0.1"), "{failure:?}");
}

#[test]
fn wrong_options_are_refused_with_the_nearest_right_one() {
    let origin = one_file();
    let options = || MountOptions::of(&origin);
    for (wrong, word) in [
        (&["--direct-mod", "true"][..], "--direct-mode"),
        (&["--umask", "9"], "octal"),
        (&["--memory-limit", "lots"], "64M"),
        (&["--path-style", "--virtual-hosted"], "--virtual-hosted"),
        (&["--dialect", "azure"], "minio"),
    ] {
        let failure = options().args(wrong).fail();
        assert_eq!(failure.code, USAGE, "{failure:?}");
        assert!(failure.message.contains(word), "{wrong:?}: {}", failure.message);
    }
    for address in ["bucket", "http://bucket", "s3://", "s3://b/x*y/*"] {
        let run = output(Command::new(PROGRAM).args(["mount", address, "/mnt"]), HANG);
        assert_eq!(run.status.code(), Some(USAGE), "{address}");
        assert!(String::from_utf8_lossy(&run.stderr).contains("s3://") || address.contains('*'), "{address}");
    }
}

/// Mounts what the test holds open as /dev/fuse, the way a container's privileged helper does.
#[test]
fn an_inherited_device_is_served() {
    let origin = one_file();
    let folder = TempDir::new().unwrap();
    let mountpoint = folder.path().join("mnt");
    for name in ["mnt", "home"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    // The shell opens the device and mounts it; the program gets only the number.
    let script = r#"
        exec 7<> /dev/fuse
        mountpoint="$1"; shift
        mount -i -t fuse -o "fd=7,rootmode=40000,user_id=0,group_id=0,ro,default_permissions,max_read=1048576" helper "$mountpoint" || exit 99
        exec "$@"
    "#;
    let inner = MountOptions::of(&origin).command(folder.path(), Path::new("/dev/fd/7"), true);
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=TERM", "--", "sh", "-c", script, "helper"]).arg(&mountpoint);
    // Of the inner command, what comes after its own wrapper.
    command.args(inner.get_args().skip_while(|word| *word != PROGRAM));
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
    let log = File::create(folder.path().join("log")).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let said = || fs::read_to_string(folder.path().join("log")).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually(HANG, "something is mounted", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended: {}", said());
            is_mounted(&mountpoint)
        });
        let path = mountpoint.join("file");
        let bytes = within(HANG, "a read through the inherited device", move || fs::read(path).unwrap());
        same_bytes(&bytes, &content(1, 5 << 20), "through the inherited device");
        assert!(output(Command::new("umount").arg(&mountpoint), HANG).status.success());
        assert_eq!(finish(&mut child, HANG, "it ends").code(), Some(0), "{}", said());
    }));
    if let Err(panic) = outcome {
        eprintln!("{}", said());
        let _ = child.kill();
        let _ = child.wait();
        let _ = output(Command::new("umount").arg("-l").arg(&mountpoint), HANG);
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_user_without_privileges_mounts_and_others_stay_out() {
    let origin = one_file();
    let mut mount = MountOptions::of(&origin).user(NOBODY).start();
    // The kernel's read-ahead cannot be raised without root, which is said.
    mount.expect_log("read_ahead_kb");
    mount.expect_log("read-ahead");
    let path = mount.join("file");
    let reads = |uid| output(as_user(uid, "sha256sum").arg(&path), HANG);
    let sum = reads(NOBODY);
    succeeds(&sum);
    let expected = mount.folder().join("expected");
    fs::write(&expected, content(1, 5 << 20)).unwrap();
    let wanted = output(Command::new("sha256sum").arg(&expected), HANG);
    assert_eq!(sum.stdout[..64], wanted.stdout[..64]);
    // Not even root gets in.
    let as_root = fs::metadata(&path).unwrap_err();
    assert_eq!(as_root.kind(), std::io::ErrorKind::PermissionDenied);
    let another = reads(12_345);
    assert!(!another.status.success() && String::from_utf8_lossy(&another.stderr).contains("Permission denied"));
    let listed = output(as_user(NOBODY, "stat").args(["-c", "%u %g %a"]).arg(&path), HANG);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), format!("{NOBODY} {NOBODY} 755"));
    assert_eq!(mount.stop().unwrap().code(), Some(0));
    assert!(!is_mounted(mount.path()));
}

#[test]
fn a_user_without_privileges_mounts_in_the_background_and_unmounts() {
    let origin = one_file();
    let mut mount = MountOptions::of(&origin).user(NOBODY).start_in_background();
    mount.expect_log("read_ahead_kb");
    mount.expect_log("read-ahead");
    succeeds(&output(as_user(NOBODY, "ls").arg("-l").arg(mount.path()), HANG));
    let unmount = output(as_user(NOBODY, mount.folder().join("streamvol")).arg("unmount").arg(mount.path()), HANG);
    succeeds(&unmount);
    mount.wait(HANG);
    assert!(!is_mounted(mount.path()));
}

#[test]
fn allow_other_without_permission_for_it_is_explained() {
    let allowed =
        fs::read_to_string("/etc/fuse.conf").unwrap_or_default().lines().any(|line| line.trim() == "user_allow_other");
    assert!(!allowed, "this test needs a machine whose /etc/fuse.conf does not allow it");
    let origin = one_file();
    let failure = MountOptions::of(&origin).user(NOBODY).args(["--allow-other"]).fail();
    assert!(failure.message.contains("user_allow_other") && failure.message.contains("/etc/fuse.conf"), "{failure:?}");
    assert_ne!(failure.code, 0);
}

#[test]
fn others_get_in_with_allow_other() {
    let origin = one_file();
    let mount = Mount::start(&origin, &["--allow-other"]);
    succeeds(&output(as_user(NOBODY, "cat").arg(mount.join("d/x")), HANG));
    drop(mount);
    let mount = Mount::start(&origin, &[]);
    let out = output(as_user(NOBODY, "cat").arg(mount.join("d/x")), HANG);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("Permission denied"));
}

#[test]
fn the_kernel_reads_ahead_as_far_as_is_asked() {
    let origin = one_file();
    for (args, expected) in
        [(&[][..], "1024"), (&["--read-ahead-kb", "256"], "256"), (&["--direct-mode", "true"], "128")]
    {
        let mount = Mount::start(&origin, args);
        let device = mount_line(mount.path()).unwrap().split(' ').nth(2).unwrap().to_owned();
        let shown = fs::read_to_string(format!("/sys/class/bdi/{device}/read_ahead_kb")).unwrap();
        assert_eq!(shown.trim(), expected, "{args:?}");
    }
}

#[test]
fn what_the_mount_would_show_is_listed_without_mounting() {
    let origin = TestOrigin::with_keys(["d/file", "d/e/x", "top"]);
    let address = origin.address();
    let run = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(words).args(["--endpoint-url", &address.endpoint]).env_clear();
        command.env("AWS_ACCESS_KEY_ID", &address.access_key).env("AWS_SECRET_ACCESS_KEY", &address.secret_key);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", "/nonexistent");
        let run = output(&mut command, HANG);
        (run.status.code(), String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap())
    };
    let (code, listed, said) = run(&["ls", "s3://bucket"]);
    assert_eq!(code, Some(0), "{said}");
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["d", "top"], "{listed}");
    let (_, listed, _) = run(&["ls", "s3://bucket/d", "--recursive"]);
    assert!(listed.contains(" e/x\n") && listed.contains(" file\n"), "{listed}");
    let (code, shown, said) = run(&["stat", "s3://bucket/d/file"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(shown.contains("size: 6 ") && shown.contains("key: d/file"), "{shown}");
    assert_eq!(run(&["stat", "s3://bucket/nothing"]).0, Some(NOT_FOUND));
    assert_eq!(run(&["ls", "s3://no-such-bucket"]).0, Some(NOT_FOUND));
}

#[test]
fn no_secret_is_logged() {
    let origin = one_file();
    let mut mount = Mount::start(&origin, &["--log-level", "trace"]);
    mount.read("file");
    mount.stop();
    let log = mount.log();
    assert!(log.len() > 100, "{log}");
    for secret in ["origin-secret", "Signature=", "AWS4-HMAC"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
