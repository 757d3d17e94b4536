//! docs/semantics.md, paragraph by paragraph: each title there is a test here with the same words.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use streamvol::model::UnixMillis;
use streamvol::origin::{Fault, FaultRule, KeyPattern, Verb};

use crate::support::*;

const MIB: usize = 1 << 20;

/// A title as the name of a test.
fn as_name(title: &str) -> String {
    let plain: String = title
        .replace('\'', "")
        .chars()
        .map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join("_")
}

#[test]
fn every_paragraph_is_a_test() {
    let document = include_str!("../docs/semantics.md");
    let titles: BTreeSet<String> = document.lines().filter_map(|line| line.strip_prefix("### ")).map(as_name).collect();
    let own = include_str!("semantics.rs");
    let tests: BTreeSet<String> = own
        .split("#[test]\nfn ")
        .skip(1)
        .filter_map(|text| text.split('(').next())
        .filter(|name| *name != "every_paragraph_is_a_test")
        .map(str::to_owned)
        .collect();
    assert!(titles.len() > 20);
    assert_eq!(titles, tests);
}

#[test]
fn names_and_attributes_hold_for_the_life_of_the_mount() {
    let origin = TestOrigin::with([("a", "old"), ("d/b", "old")]);
    let mount = Mount::start(&origin, &[]);
    origin.put("a", "new and longer");
    origin.put("c", "new");
    origin.put("d/e/f", "new");
    origin.memory().remove("d/b");
    origin.reset_counters();
    assert_eq!(mount.names(""), ["a", "d"]);
    assert_eq!(mount.names("d"), ["b"]);
    assert_eq!(fs::metadata(mount.join("a")).unwrap().len(), 3);
    for later in ["c", "d/e", "d/e/f", "no/such/file"] {
        assert_eq!(errno(fs::metadata(mount.join(later))), libc::ENOENT, "{later}");
        assert_eq!(errno(File::open(mount.join(later))), libc::ENOENT, "{later}");
    }
    assert_eq!(origin.requests(), 0);
    drop(mount);
    let mount = Mount::start(&origin, &[]);
    assert_eq!(mount.names(""), ["a", "c", "d"]);
    assert_eq!(mount.names("d"), ["e"]);
    assert_eq!(mount.read("a"), b"new and longer");
}

#[test]
fn keys_become_paths() {
    let long = "n".repeat(1024);
    let in_a_directory = format!("directory/{}", "m".repeat(1024 - "directory/".len()));
    let keys = [
        "plain",
        "a b",
        " lead",
        "trail ",
        "dot.",
        "...",
        "back\\slash",
        "tab\tnewline\nreturn\rdel\x7f",
        "A",
        "a",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{1f600}",
        "d1/d2/d3/f",
        "a+b%20c&d",
        &long,
        &in_a_directory,
    ];
    let origin = TestOrigin::with_keys(keys);
    origin.memory().insert(b"not utf-8 \xff\xfe", "x");
    let mount = Mount::start(&origin, &[]);
    for key in keys {
        assert_eq!(mount.read(key), key.as_bytes(), "{key:?}");
    }
    let listed: BTreeSet<Vec<u8>> =
        fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
    let first = |key: &str| key.split('/').next().unwrap().as_bytes().to_vec();
    let mut expected: BTreeSet<Vec<u8>> = keys.iter().map(|key| first(key)).collect();
    expected.insert(b"not utf-8 \xff\xfe".to_vec());
    assert_eq!(listed, expected);
    let odd = fs::metadata(mount.join(OsStr::from_bytes(b"not utf-8 \xff\xfe"))).unwrap();
    assert_eq!(odd.len(), 1);
    // Kernels before 6.15 refuse longer names themselves.
    assert!([libc::ENAMETOOLONG, libc::ENOENT].contains(&errno(fs::metadata(mount.join("x".repeat(1025))))));
}

#[test]
fn keys_that_cannot_be_paths_are_left_out() {
    let bad = ["a//b", "/lead", "//x", "d/./x", "d/../x", "d/..", ".", "..", "nul\0byte", "e//"];
    let origin = TestOrigin::with_keys(bad.into_iter().chain(["a/ok", "d/ok", "ok"]));
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("WARN");
    let shown: Vec<Vec<u8>> = tree_of(mount.path()).into_keys().collect();
    assert_eq!(shown, [&b"a/"[..], b"a/ok", b"d/", b"d/ok", b"ok"]);
    let counted = mount.log().lines().any(|line| line.contains(&bad.len().to_string()));
    assert!(counted, "the log counts {} keys:\n{}", bad.len(), mount.log());
}

#[test]
fn a_directory_marker_is_a_directory() {
    let origin = TestOrigin::with([("empty/", ""), ("full/", "some bytes"), ("both/", ""), ("both/x", "x")]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("full/");
    let shown: Vec<Vec<u8>> = tree_of(mount.path()).into_keys().collect();
    assert_eq!(shown, [&b"both/"[..], b"both/x", b"empty/", b"full/"]);
    assert!(fs::metadata(mount.join("empty")).unwrap().is_dir());
}

#[test]
fn a_directory_wins_over_an_object_of_the_same_name() {
    let origin =
        TestOrigin::with([("a", "hidden"), ("a/b", "b"), ("c", "hidden"), ("c/d", "d"), ("c.object", "taken")]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log("WARN");
    assert_eq!(mount.names(""), ["a", "c", "c.object"]);
    assert!(fs::metadata(mount.join("a")).unwrap().is_dir());
    assert_eq!(mount.read("a/b"), b"b");
    drop(mount);
    let mut mount = Mount::start(&origin, &["--show-shadowed", ".object"]);
    mount.expect_log("WARN");
    assert_eq!(mount.names(""), ["a", "a.object", "c", "c.object"]);
    assert_eq!(mount.read("a.object"), b"hidden");
    assert_eq!(mount.read("a/b"), b"b");
    assert_eq!(mount.read("c.object"), b"taken");
}

#[test]
fn a_directory_lists_in_the_order_of_its_names_bytes() {
    // Names around `/` in byte order, with a directory in between, and enough of them for several buffers.
    let mut keys: Vec<String> = ["a!", "a-", "a.txt", "a/x", "a0", "B", "\u{e9}"].map(str::to_owned).to_vec();
    keys.extend((0..500).map(|number| format!("file-{number}")));
    let origin = TestOrigin::with_keys(&keys);
    let mount = Mount::start(&origin, &[]);
    let names = keys.iter().map(|key| key.split('/').next().unwrap().as_bytes().to_vec());
    let mut expected: Vec<Vec<u8>> = names.collect::<BTreeSet<_>>().into_iter().collect();
    expected.splice(0..0, [b".".to_vec(), b"..".to_vec()]);
    let names_of = |entries: &[EntryRecord]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    let whole = list_in_pieces(mount.path(), 0, 1 << 20).unwrap();
    assert_eq!(names_of(&whole), expected);
    assert_eq!(names_of(&list_in_pieces(mount.path(), 0, 64).unwrap()), expected, "with a buffer for one entry");
    for (place, entry) in whole.iter().enumerate() {
        let rest = list_in_pieces(mount.path(), entry.cookie, 4096).unwrap();
        assert_eq!(names_of(&rest), expected[place + 1..], "seekdir to where telldir stood after {place} entries");
    }
    // rewinddir is lseek to 0 on a directory that has been read.
    let directory = File::open(mount.path()).unwrap();
    let mut stream = rustix::fs::Dir::read_from(&directory).unwrap();
    for _ in 0..2 {
        let listed: Vec<Vec<u8>> =
            stream.by_ref().map(|entry| entry.unwrap().file_name().to_bytes().to_vec()).collect();
        assert_eq!(listed, expected);
        stream.rewind();
    }
    let below = list_in_pieces(&mount.join("a"), 0, 4096).unwrap();
    assert_eq!(below[0].inode, fs::metadata(mount.join("a")).unwrap().ino());
    assert_eq!(below[1].inode, fs::metadata(mount.path()).unwrap().ino());
}

#[test]
fn stat_shows_size_time_and_the_configured_owner() {
    let origin = TestOrigin::empty();
    origin.memory().insert_modified("d/file", vec![7; 1_000_001], UnixMillis(1_700_000_000_123));
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let before = now();
    let owner = ["--uid", "1234", "--gid", "2345", "--umask", "027", "--allow-other"];
    let mount = Mount::start(&origin, &owner);
    let file = fs::metadata(mount.join("d/file")).unwrap();
    assert!(file.is_file());
    assert_eq!((file.len(), file.blocks(), file.blksize(), file.nlink()), (1_000_001, 1954, 1 << 20, 1));
    for (seconds, nanoseconds) in
        [(file.mtime(), file.mtime_nsec()), (file.atime(), file.atime_nsec()), (file.ctime(), file.ctime_nsec())]
    {
        assert_eq!((seconds, nanoseconds), (1_700_000_000, 123_000_000));
    }
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (1234, 2345, 0o750));
    let directory = fs::metadata(mount.join("d")).unwrap();
    assert!(directory.is_dir());
    assert_eq!((directory.nlink(), directory.blksize()), (2, 1 << 20));
    assert_eq!((directory.uid(), directory.gid(), directory.mode() & 0o7777), (1234, 2345, 0o750));
    let listed =
        Duration::new(u64::try_from(directory.mtime()).unwrap(), u32::try_from(directory.mtime_nsec()).unwrap());
    // Times are kept in milliseconds.
    assert!(listed + Duration::from_millis(1) >= before && listed <= now(), "{listed:?}");
    let reads_as = |uid| {
        let run = output(as_user(uid, "cat").arg(mount.join("d/file")), HANG);
        (run.status.success(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    assert!(reads_as(1234).0, "the owner reads");
    let (read, said) = reads_as(NOBODY);
    assert!(!read && said.contains("Permission denied"), "{said}");
    drop(mount);
    let modes = ["--umask", "000", "--file-mode", "0440", "--dir-mode", "0511"];
    let mount = Mount::start(&origin, &modes);
    assert_eq!(fs::metadata(mount.join("d/file")).unwrap().mode() & 0o7777, 0o440);
    assert_eq!(fs::metadata(mount.join("d")).unwrap().mode() & 0o7777, 0o511);
    drop(mount);
    let mount = Mount::start(&origin, &[]);
    let file = fs::metadata(mount.join("d/file")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (0, 0, 0o755));
}

#[test]
fn inode_numbers_are_stable() {
    let origin = TestOrigin::with_keys((0..50).map(|number| format!("d{}/f{number}", number % 3)));
    let mount = Mount::start(&origin, &[]);
    let numbers = || -> BTreeMap<String, u64> {
        let mut numbers = BTreeMap::new();
        for directory in ["d0", "d1", "d2"] {
            for entry in list_in_pieces(&mount.join(directory), 0, 4096).unwrap().split_off(2) {
                let path = format!("{directory}/{}", String::from_utf8(entry.name).unwrap());
                assert_eq!(fs::metadata(mount.join(&path)).unwrap().ino(), entry.inode, "{path}");
                numbers.insert(path, entry.inode);
            }
            numbers.insert(directory.to_owned(), fs::metadata(mount.join(directory)).unwrap().ino());
        }
        numbers
    };
    let first = numbers();
    assert_eq!(first.values().collect::<BTreeSet<_>>().len(), 53, "no two nodes share a number");
    drop_inodes();
    assert_eq!(numbers(), first);
}

#[test]
fn a_read_returns_the_listed_versions_bytes_or_fails() {
    for direct in ["false", "true"] {
        let (old, new) = (content(1, 5 * MIB), content(2, 5 * MIB));
        let origin = TestOrigin::with([("replaced", old.clone()), ("deleted", old.clone())]);
        let mut mount = Mount::start(&origin, &["--direct-mode", direct]);
        mount.expect_log("read failed");
        let replaced = File::open(mount.join("replaced")).unwrap();
        let deleted = File::open(mount.join("deleted")).unwrap();
        for file in [&replaced, &deleted] {
            same_bytes(&read_at(file, 0, 4096).unwrap(), &old[..4096], "before the change");
        }
        origin.put("replaced", new.clone());
        origin.memory().remove("deleted");
        // What the kernel still holds is the listed version.
        same_bytes(&read_at(&replaced, 0, 4096).unwrap(), &old[..4096], "from memory");
        let far = 4 * MIB + 123;
        assert_eq!(errno(read_at(&replaced, far as u64, 4096)), libc::ESTALE, "direct {direct}");
        assert_eq!(errno(read_at(&deleted, far as u64, 4096)), libc::ESTALE, "direct {direct}");
        let new_name = File::open(mount.join("replaced")).unwrap();
        same_bytes(&read_at(&new_name, far as u64, 4096).unwrap(), &new[far..][..4096], "the next open");
        same_bytes(&mount.read("replaced"), &new, "the next open, whole");
        assert_eq!(errno(File::open(mount.join("deleted"))), libc::ENOENT);
        assert_eq!(errno(read_at(&replaced, far as u64, 4096)), libc::ESTALE, "the old node stays stale");
    }
}

#[test]
fn reads_end_at_the_end_of_the_file() {
    let bytes = content(3, 10_000);
    let origin = TestOrigin::with([("file", bytes.clone()), ("empty", Vec::new())]);
    let mount = Mount::start(&origin, &[]);
    let file = File::open(mount.join("file")).unwrap();
    let mut buffer = vec![0; 4096];
    for past in [10_000, 10_001, 1 << 20, 1 << 40, i64::MAX as u64 - 8192, i64::MAX as u64 - 4096] {
        assert_eq!(file.read_at(&mut buffer, past).unwrap(), 0, "at {past}");
    }
    assert_eq!(file.read_at(&mut buffer, 9_000).unwrap(), 1000);
    same_bytes(&buffer[..1000], &bytes[9_000..], "across the end");
    origin.reset_counters();
    assert_eq!(mount.read("empty"), b"");
    assert_eq!(origin.requests(), 0, "an empty object costs nothing");
}

#[test]
fn mmap_works() {
    let bytes = content(4, 2 * MIB + 5000);
    let origin = TestOrigin::with([("file", bytes.clone())]);
    let mount = Mount::start(&origin, &[]);
    let file = File::open(mount.join("file")).unwrap();
    let pages = bytes.len().next_multiple_of(4096);
    let map = map_file(&file, pages);
    same_bytes(&map[bytes.len() - 10..bytes.len()], &bytes[bytes.len() - 10..], "the end first");
    same_bytes(&map[..bytes.len()], &bytes, "all of it");
    assert!(map[bytes.len()..].iter().all(|&byte| byte == 0), "the tail of the last page is zero");
}

#[test]
fn bytes_are_as_stored() {
    // Not even gzip: whoever tried to decompress it would fail.
    let bytes = content(5, 100_000);
    let address = Weed::bucket();
    Uploader::of(&address).put_encoded("packed", bytes.clone(), Some("gzip")).unwrap();
    let mount = Mount::start(&address, &[]);
    assert_eq!(fs::metadata(mount.join("packed")).unwrap().len(), 100_000);
    same_bytes(&mount.read("packed"), &bytes, "an object with Content-Encoding: gzip");
}

#[test]
fn nothing_can_be_written() {
    let origin = TestOrigin::with_keys(["file", "d/x"]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    let (file, new) = (mount.join("file"), mount.join("new"));
    let open = |path: &Path, flags: OFlags| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map(drop);
    let mode = Mode::from_raw_mode(0o600);
    let now = Timespec { tv_sec: 1, tv_nsec: 1 };
    let times = Timestamps { last_access: now, last_modification: now };
    let calls: [(&str, rustix::io::Result<()>); 19] = [
        ("open for writing", open(&file, OFlags::WRONLY)),
        ("open for both", open(&file, OFlags::RDWR)),
        ("open and truncate", open(&file, OFlags::WRONLY | OFlags::TRUNC)),
        ("create", open(&new, OFlags::WRONLY | OFlags::CREATE)),
        ("create alone", open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)),
        ("append", open(&file, OFlags::WRONLY | OFlags::APPEND)),
        ("mkdir", rustix::fs::mkdir(&new, mode)),
        ("mknod", rustix::fs::mknodat(CWD, &new, rustix::fs::FileType::RegularFile, mode, 0)),
        ("mkfifo", rustix::fs::mknodat(CWD, &new, rustix::fs::FileType::Fifo, mode, 0)),
        ("symlink", rustix::fs::symlink("file", &new)),
        ("link", rustix::fs::link(&file, &new)),
        ("unlink", rustix::fs::unlink(&file)),
        ("rmdir", rustix::fs::rmdir(mount.join("d"))),
        ("rename", rustix::fs::rename(&file, &new)),
        ("chmod", rustix::fs::chmod(&file, mode)),
        ("chown", rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(1)), None)),
        ("utimens", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())),
        ("setxattr", rustix::fs::setxattr(&file, "user.x", b"y", XattrFlags::empty())),
        ("removexattr", rustix::fs::removexattr(&file, "user.streamvol.key")),
    ];
    for (call, outcome) in calls {
        assert_eq!(outcome, Err(Errno::ROFS), "{call}");
    }
    assert_eq!(errno(truncate(&file)), libc::EROFS);
    assert_eq!(errno(symlink("file", mount.join("other"))), libc::EROFS);
    assert_eq!(errno(fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o700))), libc::EROFS);
    assert_eq!(origin.requests(), 0);
    let synchronous = open_with(&file, libc::O_SYNC).unwrap();
    assert_eq!(read_at(&synchronous, 0, 100).unwrap(), b"file");
}

/// truncate(2) by path, through coreutils: the standard library only truncates what is open for writing.
fn truncate(path: &Path) -> std::io::Result<()> {
    let run = output(
        Command::new("python3")
            .arg("-c")
            .arg("import os, sys\ntry: os.truncate(sys.argv[1], 0)\nexcept OSError as e: sys.exit(e.errno)")
            .arg(path),
        HANG,
    );
    match run.status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
        None => panic!("python3 was killed"),
    }
}

#[test]
fn locks_are_local() {
    let origin = TestOrigin::with_keys(["file"]);
    let mount = Mount::start(&origin, &[]);
    let path = mount.join("file");
    let file = File::open(&path).unwrap();
    let others_get = |kind: &str| {
        let mut other = Command::new("flock");
        output(other.args(["--nonblock", kind]).arg(&path).arg("true"), HANG).status.success()
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(!others_get("--shared") && !others_get("--exclusive"), "an exclusive lock keeps others out");
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    assert!(others_get("--shared") && !others_get("--exclusive"), "a shared lock lets readers in");
    rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
    assert!(others_get("--exclusive"));
    // Files are open for reading only, so these locks can only be shared.
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    let script = "import fcntl, sys\nfcntl.lockf(open(sys.argv[1], 'rb'), fcntl.LOCK_SH | fcntl.LOCK_NB)";
    let other = output(Command::new("python3").args(["-c", script]).arg(&path), HANG);
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
    assert_eq!(rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive), Err(Errno::BADF));
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock).unwrap();
}

#[test]
fn statfs_is_sane() {
    let origin = TestOrigin::with([("a", vec![1; 100_000]), ("d/b", vec![1; 200_000])]);
    let mount = Mount::start(&origin, &[]);
    let whole = rustix::fs::statvfs(mount.path()).unwrap();
    assert_eq!(whole.f_blocks * whole.f_frsize, 300_000_u64.next_multiple_of(whole.f_frsize));
    assert_eq!((whole.f_bfree, whole.f_bavail, whole.f_ffree), (0, 0, 0));
    assert_eq!(whole.f_namemax, 1024);
    assert!((2..=5).contains(&whole.f_files), "two files and two directories: {}", whole.f_files);
    let table = output(Command::new("df").arg("--output=size,avail,iavail").arg(mount.path()), HANG);
    assert!(table.status.success());
    drop(mount);
    let empty = Mount::start(&TestOrigin::with([("d/", "")]), &[]);
    assert!(rustix::fs::statvfs(empty.path()).unwrap().f_blocks > 0, "programs divide by it");
    let script = "import shutil, sys; u = shutil.disk_usage(sys.argv[1]); assert u.total > 0 and u.free == 0, u";
    let run = output(Command::new("python3").args(["-c", script]).arg(empty.path()), HANG);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn extended_attributes_name_the_object() {
    let origin = TestOrigin::with_keys(["pre/fix/d/file", "pre/fix/d/e/x"]);
    let etag = origin.memory().get("pre/fix/d/file").unwrap().etag.to_string();
    let mount = MountOptions::of(&origin).prefix("pre/fix").start();
    let value = |path: &str, name: &str| {
        let mut room = vec![0; 4096];
        let length = rustix::fs::getxattr(mount.join(path), name, &mut room[..])?;
        Ok::<_, Errno>(String::from_utf8(room[..length].to_vec()).unwrap())
    };
    let names = |path: &str| {
        let mut room = vec![0_u8; 4096];
        let length = rustix::fs::listxattr(mount.join(path), &mut room[..]).unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    };
    assert_eq!(value("d/file", "user.streamvol.key").unwrap(), "pre/fix/d/file");
    assert_eq!(value("d/file", "user.streamvol.etag").unwrap(), etag);
    assert_eq!(value("d", "user.streamvol.key").unwrap(), "pre/fix/d/");
    assert_eq!(value("d/e", "user.streamvol.key").unwrap(), "pre/fix/d/e/");
    assert_eq!(value("", "user.streamvol.key").unwrap(), "pre/fix/");
    for (path, name) in [
        ("d", "user.streamvol.etag"),
        ("d/file", "user.other"),
        ("d/file", "security.capability"),
        ("d/file", "security.selinux"),
    ] {
        assert_eq!(value(path, name), Err(Errno::NODATA), "{path}: {name}");
    }
    assert_eq!(names("d/file"), "user.streamvol.key\0user.streamvol.etag\0");
    assert_eq!(names("d"), "user.streamvol.key\0");
    let mut little = [0_u8; 3];
    assert_eq!(rustix::fs::getxattr(mount.join("d/file"), "user.streamvol.key", &mut little[..]), Err(Errno::RANGE));
}

#[test]
fn a_file_is_no_terminal() {
    let origin = TestOrigin::with_keys(["d/file"]);
    let mount = Mount::start(&origin, &[]);
    let file = File::open(mount.join("d/file")).unwrap();
    assert_eq!(tcgets_errno(&file), libc::ENOTTY);
    let directory = File::open(mount.join("d")).unwrap();
    // _IOW('S', 1, 16000): no file system has it. FS_IOC_GETFLAGS: what lsattr asks.
    let (unknown, get_flags) = (0x7e80_5301, 0x8008_6601);
    for (what, descriptor) in [("file", &file), ("directory", &directory)] {
        for request in [unknown, get_flags] {
            assert_eq!(ioctl_errno(descriptor, request), libc::ENOTTY, "{what} {request:#x}");
        }
    }
    let script = "import sys; f = open(sys.argv[1]); assert not f.isatty() and f.read() == 'd/file'";
    let run = output(Command::new("python3").args(["-c", script]).arg(mount.join("d/file")), HANG);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_walk_costs_the_listing_alone() {
    let origin = TestOrigin::images(2000, 20, 1000);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    for command in [&["ls", "-lR"][..], &["find"], &["du", "-s"]] {
        let run = output(Command::new(command[0]).args(&command[1..]).arg(mount.path()), HANG);
        assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
    let found = output(Command::new("find").arg(mount.path()).args(["-type", "f", "-size", "+0"]), HANG);
    assert_eq!(found.stdout.split(|&byte| byte == b'\n').count() - 1, 2000);
    assert_eq!(origin.requests(), 0);
}

#[test]
fn a_cold_read_of_a_small_file_is_one_get() {
    let origin = TestOrigin::with_keys(["d1/d2/d3/f", "d1/d2/d3/g", "d1/other"]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    for _ in 0..2 {
        assert_eq!(mount.read("d1/d2/d3/f"), b"d1/d2/d3/f");
        assert_eq!((origin.requests(), origin.counters().get_requests), (1, 1));
    }
    forget_pages(&File::open(mount.join("d1/d2/d3/f")).unwrap());
    assert_eq!(mount.read("d1/d2/d3/f"), b"d1/d2/d3/f");
    assert_eq!(origin.requests(), 1, "the daemon has it, too");
}

#[test]
fn direct_mode_fetches_what_is_read() {
    let origin = TestOrigin::synthetic(&[("large", 100 << 20), ("small", 512 << 10)]);
    let mount = Mount::start(&origin, &["--direct-mode", "true"]);
    origin.reset_counters();
    let large = open_with(&mount.join("large"), libc::O_DIRECT).unwrap();
    let offset = (50 << 20) + 5000;
    same_bytes(&read_at(&large, offset, 6000).unwrap(), &synthetic_content("large", offset, 6000), "a part");
    assert_eq!(origin.counters().get_requests, 1);
    assert_eq!(origin.counters().body_bytes_sent, 8192, "5000..11000 rounded to 4 KiB");
    same_bytes(&read_at(&large, offset, 6000).unwrap(), &synthetic_content("large", offset, 6000), "again");
    assert_eq!(origin.counters().get_requests, 2, "nothing is kept in the daemon");
    origin.reset_counters();
    same_bytes(&mount.read("small"), &synthetic_content("small", 0, 512 << 10), "a small object");
    assert_eq!(origin.counters().get_requests, 1);
    assert_eq!(origin.counters().body_bytes_sent, 512 << 10);
}

#[test]
fn errors_of_the_store() {
    let cases = [
        ("denied", Fault::Status(403, "AccessDenied"), libc::EACCES),
        ("archived", Fault::Status(403, "InvalidObjectState"), libc::EACCES),
        ("unknown-key", Fault::Status(403, "InvalidAccessKeyId"), libc::EACCES),
        ("changed", Fault::Status(412, "PreconditionFailed"), libc::ESTALE),
        ("throttled", Fault::Status(503, "SlowDown"), libc::EIO),
        ("broken", Fault::Status(500, "InternalError"), libc::EIO),
        ("closed", Fault::CloseBeforeAnswer, libc::EIO),
        ("strange", Fault::Status(418, "Teapot"), libc::EIO),
    ];
    let origin = TestOrigin::with_keys(cases.iter().map(|(key, ..)| *key).chain(["gone"]));
    let mut mount = Mount::start(&origin, &["--retry-deadline", "500ms"]);
    mount.expect_log("WARN");
    origin.memory().remove("gone");
    for (key, fault, _) in &cases {
        let rule = FaultRule::new(fault.clone()).verb(Verb::Get).key(KeyPattern::Exact((*key).to_owned()));
        origin.conditions().add_fault(rule);
    }
    for (key, _, expected) in &cases {
        let file = File::open(mount.join(key)).unwrap();
        assert_eq!(errno(read_at(&file, 0, 10)), *expected, "{key}");
    }
    let gone = File::open(mount.join("gone")).unwrap();
    assert_eq!(errno(read_at(&gone, 0, 10)), libc::ESTALE);
}

#[test]
fn success_means_it_answers() {
    let origin = TestOrigin::with_keys(["file"]);
    let mount = Mount::background(&origin, &[]);
    assert_eq!(mount.read("file"), b"file");
    let parent = fs::metadata(mount.folder()).unwrap();
    assert_ne!(fs::metadata(mount.path()).unwrap().dev(), parent.dev());
    assert!(mount_line(mount.path()).unwrap().contains(" - fuse.streamvol s3://bucket "), "what mount(8) shows");
}

#[test]
fn an_unmount_ends_the_daemon() {
    let origin = TestOrigin::with_keys(["file"]);
    let ways = [&[PROGRAM, "unmount"][..], &[PROGRAM, "umount"], &["umount"], &["fusermount3", "-u"]];
    for way in ways {
        let mut mount = Mount::start(&origin, &[]);
        assert_eq!(mount.read("file"), b"file");
        let run = output(Command::new(way[0]).args(&way[1..]).arg(mount.path()), HANG);
        assert!(run.status.success(), "{way:?}: {}", String::from_utf8_lossy(&run.stderr));
        assert!(!is_mounted(mount.path()), "{way:?}");
        assert_eq!(mount.wait(HANG).unwrap().code(), Some(0), "{way:?}");
    }
    let mut mount = Mount::start(&origin, &[]);
    let successor = format!("umount '{0}' && mount -t tmpfs successor '{0}'", mount.path().display());
    assert!(output(Command::new("sh").args(["-c", &successor]), HANG).status.success());
    assert_eq!(mount.wait(HANG).unwrap().code(), Some(0));
    assert!(mount_line(mount.path()).unwrap().contains("tmpfs"), "what was mounted since is still there");
    assert!(output(Command::new("umount").arg(mount.path()), HANG).status.success());
}

#[test]
fn sigterm_and_sigint_unmount() {
    let origin = TestOrigin::with_keys(["file"]);
    for which in [Signal::TERM, Signal::INT] {
        for held_open in [false, true] {
            let mut mount = Mount::start(&origin, &[]);
            let file = held_open.then(|| File::open(mount.join("file")).unwrap());
            let sent = std::time::Instant::now();
            mount.signal(which);
            assert_eq!(mount.wait(HANG).unwrap().code(), Some(0), "{which:?}, open: {held_open}");
            // Two seconds are promised; the machine may be busy with other tests.
            assert!(sent.elapsed() < Duration::from_secs(4), "{which:?}, open: {held_open}: {:?}", sent.elapsed());
            assert!(!is_mounted(mount.path()));
            drop(file);
        }
    }
}

#[test]
fn a_dead_mount_is_cleaned_up() {
    let origin = TestOrigin::with_keys(["file"]);
    let mut dead = Mount::start(&origin, &[]);
    dead.kill();
    assert_eq!(errno(fs::metadata(dead.join("file"))), libc::ENOTCONN);
    let mut alive = MountOptions::of(&origin).at(dead.path()).start();
    alive.expect_log("removed a dead mount");
    assert_eq!(alive.read("file"), b"file");
    drop(alive);
    assert!(!is_mounted(dead.path()), "the dead mount is not beneath");
}
