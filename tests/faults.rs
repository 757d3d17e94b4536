//! Stores, networks and objects that misbehave while they are read: right bytes or an error, never anything else.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use streamvol::origin::{Fault, FaultRule, KeyPattern, Quirk, Verb};

use crate::support::*;

const MODES: [&[&str]; 2] = [&["--direct-mode", "false"], &["--direct-mode", "true"]];
const LARGE: usize = (3 << 20) + 4567;
const SMALL: usize = 100_000;

/// Answers fast, whatever else goes on.
const FAST: Duration = Duration::from_secs(10);

/// A bucket with a small and a large object.
fn two_objects() -> (TestOrigin, [(&'static str, Vec<u8>); 2]) {
    let objects = [("small", content(1, SMALL)), ("large", content(2, LARGE))];
    (TestOrigin::with(objects.clone()), objects)
}

fn get_rule(fault: Fault) -> FaultRule {
    FaultRule::new(fault).verb(Verb::Get)
}

#[test]
fn one_broken_answer_is_not_noticed_by_the_reader() {
    let faults = [
        Fault::EarlyEnd(1000),
        Fault::EarlyEnd(0),
        Fault::EarlyReset(1000),
        Fault::CloseBeforeAnswer,
        Fault::ResetConnection,
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Status(503, "ServiceUnavailable"),
        Fault::Status(429, "TooManyRequests"),
        Fault::Status(400, "RequestTimeout"),
        Fault::Status200ForRange,
        Fault::WrongContentRange,
        Fault::ChunkedNoLength,
        Fault::ExtraBytes(1000),
        Fault::SlowFirstByte(Duration::from_millis(500)),
    ];
    let (origin, objects) = two_objects();
    for mode in MODES {
        for fault in &faults {
            let mut mount = Mount::start(&origin, mode);
            // That an answer was strange may be said.
            mount.expect_log("the store keeps failing");
            origin.conditions().add_fault(get_rule(fault.clone()).key(KeyPattern::Exact("small".to_owned())).times(1));
            origin.conditions().add_fault(get_rule(fault.clone()).key(KeyPattern::Exact("large".to_owned())).times(2));
            for (key, bytes) in &objects {
                same_bytes(&mount.read(key), bytes, &format!("{key} in spite of {fault:?}, {mode:?}"));
            }
            origin.conditions().clear_faults();
        }
    }
}

#[test]
fn a_stalled_body_is_fetched_again() {
    let (origin, objects) = two_objects();
    let mount = Mount::start(&origin, &[]);
    for (key, bytes) in &objects {
        for fault in [Fault::Stall(1000), Fault::NoAnswer] {
            origin.conditions().add_fault(get_rule(fault.clone()).times(1));
            forget_pages(&File::open(mount.join(key)).unwrap());
            same_bytes(&mount.read(key), bytes, &format!("{key} in spite of {fault:?}"));
        }
    }
}

#[test]
fn a_body_that_always_breaks_off_is_resumed_where_it_broke() {
    let bytes = content(3, 40_000);
    let origin = TestOrigin::with([("file", bytes.clone())]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("the store keeps failing");
    origin.reset_counters();
    let fault = origin.break_gets(Fault::EarlyEnd(10_000));
    same_bytes(&mount.read("file"), &bytes, "in pieces of 10,000 bytes");
    assert_eq!(origin.conditions().fault_hits(fault), 4);
    assert_eq!(origin.counters().get_requests, 4);
    assert_eq!(origin.counters().body_bytes_sent, 40_000, "no byte twice");
}

#[test]
fn answers_of_another_version_are_never_used() {
    for mode in MODES {
        let (origin, objects) = two_objects();
        origin.put("known", "known");
        let mut mount = MountOptions::of(&origin).args(mode).args(["--retry-deadline", "1s"]).start();
        mount.expect_log("read failed");
        // From here on the tags of this store are known to be what it lists.
        assert_eq!(mount.read("known"), b"known");
        origin.break_gets(Fault::OtherETag);
        for (key, _) in &objects {
            let error = fs::read(mount.join(key)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{key}, {mode:?}: {error}");
        }
        origin.conditions().clear_faults();
        for (key, bytes) in &objects {
            same_bytes(&mount.read(key), bytes, &format!("{key} afterwards, {mode:?}"));
        }
    }
}

#[test]
fn answers_without_a_tag_are_used_only_while_the_listing_confirms_them() {
    for mode in MODES {
        let (origin, objects) = two_objects();
        let mut mount = MountOptions::of(&origin).args(mode).args(["--retry-deadline", "1s"]).start();
        mount.expect_log("read failed");
        origin.break_gets(Fault::NoETag);
        origin.conditions().set_quirks([Quirk::IgnoreIfMatch]);
        for (key, bytes) in &objects {
            same_bytes(&mount.read(key), bytes, &format!("{key}, {mode:?}"));
        }
        origin.put("small", content(9, SMALL));
        forget_pages(&File::open(mount.join("small")).unwrap());
        match fs::read(mount.join("small")) {
            Ok(bytes) => same_bytes(&bytes, &objects[0].1, "from memory"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{mode:?}"),
        }
    }
}

#[test]
fn an_object_that_changes_while_it_is_read_is_stale_then_new() {
    for mode in MODES {
        for (quirk, new_length) in [
            (None, LARGE),
            (None, LARGE - 1_000_000),
            (None, LARGE + 1_000_000),
            // A store that answers whatever is there now.
            (Some(Quirk::IgnoreIfMatch), LARGE),
            (Some(Quirk::IgnoreIfMatch), LARGE + 1_000_000),
        ] {
            let (old, new) = (content(4, LARGE), content(5, new_length));
            let origin = TestOrigin::with([("file", old.clone())]);
            origin.conditions().set_quirks(quirk);
            let mut mount = Mount::start(&origin, mode);
            mount.expect_log("read failed");
            let file = File::open(mount.join("file")).unwrap();
            same_bytes(&read_at(&file, 0, 4096).unwrap(), &old[..4096], "before");
            origin.put("file", new.clone());
            origin.reset_counters();
            let far = 2_500_000;
            let error = read_at(&file, far, 4096).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{mode:?}, {quirk:?}, {new_length}");
            assert!(origin.requests() <= 6, "no storm of retries: {:?}", origin.counters());
            same_bytes(&mount.read("file"), &new, &format!("{mode:?}, {quirk:?}, {new_length}"));
            assert_eq!(fs::metadata(mount.join("file")).unwrap().len(), new.len() as u64);
        }
    }
}

#[test]
fn an_object_that_is_deleted_while_it_is_read_is_stale_then_gone() {
    for mode in MODES {
        let origin = TestOrigin::with([("d/file", content(6, LARGE)), ("d/other", vec![1])]);
        let mut mount = Mount::start(&origin, mode);
        mount.expect_log("read failed");
        let file = File::open(mount.join("d/file")).unwrap();
        read_at(&file, 0, 4096).unwrap();
        origin.memory().remove("d/file");
        assert_eq!(read_at(&file, 2_500_000, 4096).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert_eq!(File::open(mount.join("d/file")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(mount.names("d"), ["other"]);
    }
}

#[test]
fn a_store_that_throttles_half_of_the_requests_slows_down_and_nothing_fails() {
    let files: Vec<(String, Vec<u8>)> = (0..100).map(|number| (format!("f{number}"), content(number, 5000))).collect();
    let origin = TestOrigin::with(files.clone());
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("the store keeps failing");
    origin.conditions().add_fault(get_rule(Fault::Status(503, "SlowDown")).probability(0.5));
    let (files, root) = (Arc::new(files), mount.path().to_owned());
    let readers: Vec<_> = (0..10)
        .map(|reader| {
            let (files, root) = (Arc::clone(&files), root.clone());
            thread::spawn(move || {
                for (key, bytes) in files.iter().skip(reader * 10).take(10) {
                    same_bytes(&fs::read(root.join(key)).unwrap(), bytes, key);
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn a_denied_object_fails_at_once_and_is_still_listed() {
    let origin = TestOrigin::with_keys(["denied", "fine"]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("denied");
    mount.expect_log("read failed");
    let rule = get_rule(Fault::Status(403, "AccessDenied")).key(KeyPattern::Exact("denied".to_owned()));
    origin.conditions().add_fault(rule);
    origin.reset_counters();
    assert_eq!(fs::read(mount.join("denied")).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(origin.gets_of("denied") <= 2, "refusals are not tried again and again: {:?}", origin.counters());
    assert_eq!(mount.names(""), ["denied", "fine"]);
    assert_eq!(mount.read("fine"), b"fine");
}

#[test]
fn readers_wait_while_the_store_is_away_and_then_go_on() {
    let (mut origin, objects) = two_objects();
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("the store keeps failing");
    assert_eq!(mount.read("small").len(), SMALL);
    origin.stop();
    let (path, expected) = (mount.join("large"), objects[1].1.clone());
    let reader = thread::spawn(move || same_bytes(&fs::read(path).unwrap(), &expected, "after the outage"));
    // Long enough that the reader has met refused connections.
    let went_away = Instant::now();
    eventually(HANG, "two seconds pass", || went_away.elapsed() > Duration::from_secs(2));
    assert!(!reader.is_finished(), "the reader waits");
    assert_eq!(fs::metadata(mount.join("large")).unwrap().len(), LARGE as u64);
    origin.restart();
    reader.join().unwrap();
}

#[test]
fn when_the_store_stays_away_the_reader_gets_an_error_in_time() {
    let (origin, _) = two_objects();
    let mut mount = Mount::start(&origin, &["--retry-deadline", "1s"]);
    mount.expect_log("the store keeps failing");
    mount.expect_log("read failed");
    origin.stop();
    let asked = Instant::now();
    assert_eq!(fs::read(mount.join("small")).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

/// Reads a file in a process of its own, which can be killed.
fn reading_process(path: &std::path::Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn names_and_attributes_answer_at_once_while_every_get_stalls() {
    for mode in MODES {
        let origin = TestOrigin::with((0..200).map(|number| (format!("d{}/f{number}", number % 4), vec![1; 200_000])));
        let mount = Mount::start(&origin, mode);
        let stall = origin.break_gets(Fault::NoAnswer);
        let paths: Vec<_> = (0..100).map(|number| mount.join(format!("d{}/f{number}", number % 4))).collect();
        let mut readers: Vec<Child> = paths.iter().map(|path| reading_process(path)).collect();
        eventually(HANG, "the readers have asked", || origin.conditions().fault_hits(stall) >= 100);
        let root = mount.path().to_owned();
        let listed = within(FAST, "ls -lR", move || output(Command::new("ls").arg("-lR").arg(&root), HANG));
        assert!(listed.status.success());
        let path = mount.join("d1/f101");
        assert_eq!(within(FAST, "stat", move || fs::metadata(path).unwrap().len()), 200_000);
        // Readers that are killed go away although their bytes never come.
        for reader in &mut readers {
            assert!(reader.try_wait().unwrap().is_none(), "the reader waits");
            signal(reader.id(), Signal::KILL);
        }
        for reader in &mut readers {
            finish(reader, FAST, "a killed reader is gone");
        }
        origin.conditions().clear_faults();
        let path = mount.join("d1/f101");
        assert_eq!(within(HANG, "a reader of another file", move || fs::read(path).unwrap().len()), 200_000);
    }
}

#[test]
fn sigterm_ends_the_daemon_while_every_get_stalls() {
    let origin = TestOrigin::with([("file", vec![1; 200_000])]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("read failed");
    let stall = origin.break_gets(Fault::NoAnswer);
    let mut reader = reading_process(&mount.join("file"));
    eventually(HANG, "the reader has asked", || origin.conditions().fault_hits(stall) >= 1);
    let sent = Instant::now();
    assert_eq!(mount.stop().unwrap().code(), Some(0));
    assert!(sent.elapsed() < Duration::from_secs(4), "{:?}", sent.elapsed());
    assert!(!finish(&mut reader, FAST, "the reader gets an error").success());
    assert!(!is_mounted(mount.path()));
}

#[test]
fn errors_do_not_use_up_anything() {
    let origin = TestOrigin::with((0..50).map(|number| (format!("f{number:02}"), content(number, 1_300_000))));
    let options = ["--memory-limit", "16M", "--max-gets-in-flight", "4", "--retry-deadline", "300ms"];
    for mode in MODES {
        let mut mount = MountOptions::of(&origin).args(options).args(mode).start();
        mount.expect_log(" WARN ");
        let root = mount.path().to_owned();
        let read_all = |expect_errors: bool| {
            let readers: Vec<_> = (0..8)
                .map(|reader| {
                    let root = root.clone();
                    thread::spawn(move || {
                        for number in (0..50).filter(|number| number % 8 == reader) {
                            match fs::read(root.join(format!("f{number:02}"))) {
                                Err(_) => assert!(expect_errors, "f{number:02}"),
                                Ok(bytes) => same_bytes(&bytes, &content(number, 1_300_000), "after failures"),
                            }
                        }
                    })
                })
                .collect();
            within(HANG, "the readers end", || readers.into_iter().for_each(|reader| reader.join().unwrap()));
        };
        // Many that are not tried again, then some that are until the time is up.
        let denied = origin.break_gets(Fault::Status(403, "AccessDenied"));
        for _ in 0..30 {
            read_all(true);
        }
        assert!(origin.conditions().fault_hits(denied) > 1000, "enough to use up what there is of anything");
        origin.conditions().clear_faults();
        let some = KeyPattern::Containing("f0".to_owned());
        origin.conditions().add_fault(get_rule(Fault::EarlyEnd(0)).key(some));
        read_all(true);
        origin.conditions().clear_faults();
        read_all(false);
    }
}
