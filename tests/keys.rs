//! Keys that broke other filesystems, through the kernel: listed, looked up, stat'ed and read.
//!
//! Most cases run on the project's own server, which can imitate odd stores; the awkward names also on servers not made by us, as
//! far as those store them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use streamvol::model::UnixMillis;
use streamvol::origin::Quirk;

use crate::support::*;

/// Names that are legal in a key and in a path, and awkward in XML, URLs, signatures, shells or logs.
const AWKWARD: [&str; 44] = [
    "a b",
    "a+b",
    "a%20b",
    "a%2Fb",
    "a%",
    "%",
    "a&b<c>\"'",
    "#?",
    "?x=1",
    "a=b;c@d,e:f",
    "!'()*",
    "$",
    "~",
    "[y]",
    "(x)",
    "{z}",
    "|",
    "^",
    "`",
    "*",
    "\u{e9}",
    "e\u{301}",
    "\u{1f600}",
    "\u{200b}",
    "\u{feff}bom",
    "\u{fffd}",
    "back\\slash",
    " lead",
    "trail ",
    "dot.",
    "...",
    ".hidden",
    "-rf",
    "A",
    "a",
    "tab\tx",
    "line\nx",
    "return\rx",
    "bell\x07x",
    "esc\x1b[1m",
    "del\x7fx",
    "\x01",
    "&amp;",
    "<Key>",
];

/// Reads everything through the kernel and compares it with the keys, each of which holds itself as text.
#[track_caller]
fn shows_exactly(mount: &Mount, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    let expected: BTreeMap<Vec<u8>, Vec<u8>> = with_directories(keys);
    let found = tree_of(mount.path());
    let differs: Vec<_> = found.iter().filter(|&(path, bytes)| expected.get(path) != Some(bytes)).collect();
    assert!(differs.is_empty(), "not expected: {:?}", shown(&differs));
    let missing: Vec<_> = expected.iter().filter(|&(path, _)| !found.contains_key(path)).collect();
    assert!(missing.is_empty(), "missing: {:?}", shown(&missing));
    // Once more by name, without a listing before.
    drop_inodes();
    for (path, bytes) in &expected {
        let metadata = fs::symlink_metadata(mount.join(OsStr::from_bytes(path))).unwrap();
        assert_eq!(metadata.is_dir(), path.ends_with(b"/"), "{:?}", String::from_utf8_lossy(path));
        assert!(metadata.is_dir() || metadata.len() == bytes.len() as u64);
    }
}

fn shown<'a>(entries: &[(&'a Vec<u8>, &'a Vec<u8>)]) -> Vec<std::borrow::Cow<'a, str>> {
    entries.iter().map(|(path, _)| String::from_utf8_lossy(path)).collect()
}

/// The paths of a tree of keys that are all legal and shadow nothing.
fn with_directories(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut tree = BTreeMap::new();
    for key in keys {
        let key = key.as_ref();
        for (place, _) in key.iter().enumerate().filter(|&(_, &byte)| byte == b'/') {
            tree.insert(key[..=place].to_vec(), Vec::new());
        }
        if !key.ends_with(b"/") {
            tree.insert(key.to_vec(), key.to_vec());
        }
    }
    tree
}

/// Every awkward name as a file, a directory and below a directory.
fn awkward_keys() -> Vec<String> {
    AWKWARD
        .iter()
        .flat_map(|name| [format!("files/{name}"), format!("dirs/{name}/x"), format!("deep/{name}/{name}/{name}")])
        .collect()
}

#[test]
fn awkward_names_go_there_and_back() {
    let keys = awkward_keys();
    let origin = TestOrigin::with_keys(&keys);
    shows_exactly(&Mount::start(&origin, &[]), &keys);
    shows_exactly(&Mount::start(&origin, &["--path-style"]), &keys);
}

#[test]
fn awkward_names_go_there_and_back_on_seaweedfs() {
    let address = Weed::bucket();
    let uploads = Uploader::of(&address);
    for name in AWKWARD {
        let key = format!("files/{name}");
        uploads.put(&key, key.as_bytes()).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    let mount = Mount::start(&address, &[]);
    // It takes a backslash for a slash.
    assert_eq!(mount.read("files/back/slash"), b"files/back\\slash");
    for name in AWKWARD.iter().filter(|name| !name.contains('\\')) {
        let key = format!("files/{name}");
        assert_eq!(mount.read(&key), key.as_bytes(), "{name:?}");
    }
    assert_eq!(fs::read_dir(mount.join("files")).unwrap().count(), AWKWARD.len());
}

#[test]
fn awkward_names_go_there_and_back_on_rclone() {
    let server = Rclone::start();
    let folder = server.directory().join("files");
    fs::create_dir(&folder).unwrap();
    for name in AWKWARD {
        fs::write(folder.join(name), format!("files/{name}")).unwrap();
    }
    let mount = Mount::start(&server, &[]);
    for name in AWKWARD {
        let key = format!("files/{name}");
        // It shows a picture of each control character, as in U+240A for a line feed.
        let picture = |c: char| match c {
            '\x7f' => '\u{2421}',
            '\0'..'\x20' => char::from_u32(0x2400 + u32::from(c)).unwrap(),
            other => other,
        };
        let shown: String = key.chars().map(picture).collect();
        assert_eq!(mount.read(&shown), key.as_bytes(), "{name:?}");
    }
    assert_eq!(fs::read_dir(mount.join("files")).unwrap().count(), AWKWARD.len());
}

#[test]
fn a_prefix_is_mounted_with_and_without_its_slash_and_with_any_characters() {
    for prefix in ["p", "p/q", "a b+c%20d&<e>", "caf\u{e9}/cafe\u{301}", "tab\there", "back\\slash", "\u{1f600}"] {
        let key = format!("{prefix}/d/file");
        let origin =
            TestOrigin::with_keys([key.as_str(), "other/file", &format!("{prefix}x/no"), &format!("{prefix}-no")]);
        for slash in ["", "/"] {
            let mount = MountOptions::of(&origin).prefix(format!("{prefix}{slash}")).start();
            assert_eq!(mount.names(""), ["d"], "{prefix:?}{slash}");
            assert_eq!(mount.read("d/file"), key.as_bytes(), "{prefix:?}{slash}");
        }
    }
}

#[test]
fn a_prefix_that_nothing_matches_mounts_empty_unless_that_is_refused() {
    let origin = TestOrigin::with_keys(["other/file"]);
    let mut mount = MountOptions::of(&origin).prefix("none/here").start();
    mount.expect_log("none/here");
    assert_eq!(mount.names(""), [""; 0]);
    assert!(mount.log().contains(" WARN "), "{}", mount.log());
    let failure = MountOptions::of(&origin).prefix("none/here").args(["--require-nonempty"]).fail();
    assert!(failure.message.contains("none/here"), "{failure:?}");
}

#[test]
fn an_empty_bucket_mounts_empty() {
    let mut mount = Mount::start(&TestOrigin::empty(), &[]);
    mount.expect_log(" WARN ");
    assert_eq!(mount.names(""), [""; 0]);
    assert_eq!(fs::metadata(mount.join("x")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_name_before_a_slash_is_found_by_itself_only() {
    let origin = TestOrigin::with_keys(["dir-1/foo", "dir.x", "dirx", "d"]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    for missing in ["dir", "dir-", "dir-1/fo", "dir-1/foo2", "di", "dir/foo"] {
        assert_eq!(fs::metadata(mount.join(missing)).unwrap_err().kind(), ErrorKind::NotFound, "{missing}");
    }
    for through_a_file in ["dir.x/foo", "d/x"] {
        assert_eq!(fs::metadata(mount.join(through_a_file)).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
    assert_eq!(origin.requests(), 0);
}

#[test]
fn a_directory_comes_once_and_in_order_whatever_sorts_around_its_slash() {
    // Every byte below `/` after the same stem, twice: as a file and as the start of a directory's name.
    let low = (1_u8..0x2f).map(char::from);
    let mut keys: Vec<String> = low.flat_map(|c| [format!("a{c}"), format!("b{c}x/y")]).collect();
    keys.extend(["a/x", "a/y/z", "b/x", "b0", "a0/x"].map(str::to_owned));
    let origin = TestOrigin::with_keys(&keys);
    for quirks in [vec![], vec![Quirk::RepeatedPrefixes], vec![Quirk::Unordered], vec![Quirk::EmptyFirstPage]] {
        origin.conditions().set_quirks(quirks.clone());
        let mut mount = Mount::start(&origin, &[]);
        mount.expect_log("does not list in byte order");
        let listed = list_in_pieces(mount.path(), 0, 4096).unwrap();
        let names: Vec<&[u8]> = listed[2..].iter().map(|entry| entry.name.as_slice()).collect();
        assert!(names.is_sorted(), "{quirks:?}");
        shows_exactly(&mount, &keys);
    }
}

#[test]
fn a_file_and_a_directory_of_one_name_on_different_pages() {
    // 1,500 keys between `a` and `a/x` in byte order: they come on different pages.
    let mut keys: Vec<String> = (0..1500).map(|number| format!("a!{number:05}")).collect();
    let between = keys.clone();
    keys.extend(["a".to_owned(), "a/x".to_owned()]);
    let origin = TestOrigin::with_keys(&keys);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log(" WARN ");
    assert!(fs::metadata(mount.join("a")).unwrap().is_dir());
    shows_exactly(&mount, between.iter().map(String::as_str).chain(["a/x"]));
}

#[test]
fn page_boundaries_lose_and_double_nothing() {
    for count in [999, 1000, 1001, 2000] {
        let origin = TestOrigin::with((0..count).map(|number| (format!("d/{number:05}"), "")));
        let mount = Mount::start(&origin, &[]);
        let listed = list_in_pieces(&mount.join("d"), 0, 32 * 1024).unwrap();
        assert_eq!(listed.len() - 2, count);
        assert_eq!(listed.iter().map(|entry| &entry.name).collect::<BTreeSet<_>>().len(), count + 2);
    }
}

#[test]
fn stores_that_ignore_what_they_are_asked_are_listed_all_the_same() {
    let mut keys: Vec<String> =
        (0..2500).map(|number| format!("d{}/e{}/f{number:05}", number % 7, number % 3)).collect();
    keys.extend(["x", "y z", "y+z", "\u{e9}"].map(str::to_owned));
    let origin = TestOrigin::with((0..0).map(|_: u32| ("", "")));
    for key in &keys {
        origin.put(key, "");
    }
    let directories: usize = 7 + 21;
    for quirk in [
        Quirk::IgnoreStartAfter,
        Quirk::IgnoreMaxKeys,
        Quirk::IgnoreDelimiter,
        Quirk::IgnoreEncodingType,
        Quirk::EmptyFirstPage,
        Quirk::Unordered,
        Quirk::RepeatedPrefixes,
        Quirk::NoNamespace,
        Quirk::NoLastModified,
        Quirk::WholeSeconds,
    ] {
        origin.conditions().set_quirks([quirk]);
        let mut mount = Mount::start(&origin, &[]);
        // A store that does not do what it is asked is worth a line.
        mount.expect_log("WARN streamvol::worker: listing: the store");
        let found = tree_of(mount.path());
        assert_eq!(found.len(), keys.len() + directories, "{quirk:?}");
        assert!(keys.iter().all(|key| found.contains_key(key.as_bytes())), "{quirk:?}");
    }
}

#[test]
fn entity_tags_of_any_form_are_readable() {
    for quirk in [Quirk::NoListEtag, Quirk::UnquotedListEtag, Quirk::WeakListEtag, Quirk::OtherListEtag] {
        let bytes = content(1, 3_000_000);
        let origin = TestOrigin::with([("large", bytes.clone()), ("small", b"small".to_vec())]);
        origin.conditions().set_quirks([quirk]);
        let mount = Mount::start(&origin, &[]);
        assert_eq!(mount.read("small"), b"small", "{quirk:?}");
        same_bytes(&mount.read("large"), &bytes, &format!("{quirk:?}"));
    }
}

#[test]
fn dates_of_all_times_are_listed() {
    // 1969, the year 9999, and the furthest that the format can write.
    let dates = [("before", -86_400_000), ("epoch", 0), ("far", 253_402_300_799_000), ("now", 1_700_000_000_001)];
    let origin = TestOrigin::empty();
    for (key, millis) in dates {
        origin.memory().insert_modified(key, key, UnixMillis(millis));
    }
    let mount = Mount::start(&origin, &[]);
    for (key, millis) in dates {
        let modified = fs::metadata(mount.join(key)).unwrap();
        let shown = std::os::unix::fs::MetadataExt::mtime(&modified) * 1000
            + std::os::unix::fs::MetadataExt::mtime_nsec(&modified) / 1_000_000;
        assert_eq!(shown, millis, "{key}");
        assert_eq!(mount.read(key), key.as_bytes());
    }
}

#[test]
fn long_names_do_not_break_a_directory() {
    let names: Vec<String> = [255, 256, 257, 511, 512, 1000, 1022].map(|length| "x".repeat(length)).to_vec();
    let keys: Vec<String> = names.iter().map(|name| format!("d/{name}")).chain(["d/short".to_owned()]).collect();
    let origin = TestOrigin::with_keys(&keys);
    let mount = Mount::start(&origin, &[]);
    shows_exactly(&mount, &keys);
    let found = output(std::process::Command::new("find").arg(mount.path()).args(["-type", "f"]), HANG);
    assert_eq!(found.stdout.split(|&byte| byte == b'\n').count() - 1, keys.len());
}

#[test]
fn names_that_no_key_can_have_are_not_there_and_cost_nothing() {
    let origin = TestOrigin::with_keys(["d/file"]);
    let mount = Mount::start(&origin, &[]);
    origin.reset_counters();
    let odd: [&[u8]; 3] = [b"\xff\xfe", b"d/\xc3", b"d/file\xf0\x9f"];
    for name in odd {
        assert_eq!(fs::metadata(mount.join(OsStr::from_bytes(name))).unwrap_err().kind(), ErrorKind::NotFound);
    }
    // Together longer than any key, though each name is fine.
    let deep = Path::new("d").join("y".repeat(1000)).join("z".repeat(1000));
    assert_eq!(fs::metadata(mount.join(deep)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(origin.requests(), 0);
}

#[test]
fn a_walk_never_loops_over_odd_keys() {
    let origin = TestOrigin::with_keys(["a//b", "a//b//c", "a/../a/b", "a/./b", "a/b/c", "//", "/", "../x", "a/b/"]);
    let mut mount = Mount::start(&origin, &[]);
    mount.expect_log(" WARN ");
    let found =
        output(std::process::Command::new("find").arg(mount.path()).args(["-mindepth", "1", "-printf", "%P\n"]), HANG);
    let mut lines: Vec<&[u8]> = found.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, [&b"a"[..], b"a/b", b"a/b/c"]);
}
