//! The namespace as a whole, judged by a naive tree; the image, damaged in every way; and its size.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::format::{BLOCK_RECORD_BYTES, HEADER_BYTES, Header, work};
use super::*;
use crate::model::MAX_NAME_BYTES;

/// Objects to build a namespace from; sorted before they are pushed.
pub(super) struct Listing {
    prefix: String,
    keys: Vec<Vec<u8>>,
    show_shadowed: Option<String>,
}

impl Listing {
    pub(super) fn new(prefix: &str) -> Self {
        Listing { prefix: prefix.to_owned(), keys: Vec::new(), show_shadowed: None }
    }

    pub(super) fn keys<K: AsRef<[u8]>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys.extend(keys.into_iter().map(|key| key.as_ref().to_vec()));
        self
    }

    fn show_shadowed(mut self, suffix: Option<&str>) -> Self {
        self.show_shadowed = suffix.map(str::to_owned);
        self
    }

    fn builder(&self, destination: Destination) -> SnapshotBuilder {
        let config = BuilderConfig { destination, listed_at: LISTED_AT, show_shadowed: self.show_shadowed.clone() };
        SnapshotBuilder::new(&ObjectKey::from(self.prefix.as_str()), config).unwrap()
    }

    fn snapshot_at(&self, destination: Destination) -> Snapshot {
        let mut keys = self.keys.clone();
        keys.sort();
        let mut builder = self.builder(destination);
        for key in &keys {
            let object = Object::of_key(key);
            let Object { size_bytes, modified, etag } = &object;
            let entry = ObjectEntry { key, size_bytes: *size_bytes, modified: *modified, etag: etag.as_ref() };
            builder.push(entry).unwrap();
        }
        builder.finish().unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot_at(Destination::Memory)
    }

    pub(super) fn namespace(&self) -> Namespace {
        Namespace::new(self.snapshot())
    }
}

const LISTED_AT: UnixMillis = UnixMillis(1_700_000_000_000);

/// What a test's object is: made up from its key, so that a mix-up shows.
#[derive(Debug, Clone, PartialEq)]
struct Object {
    size_bytes: u64,
    modified: UnixMillis,
    etag: Option<ETag>,
}

impl Object {
    fn of_key(key: &[u8]) -> Object {
        let hash = key.iter().fold(7u64, |hash, &byte| hash.wrapping_mul(0x100_0193).wrapping_add(u64::from(byte) + 1));
        let digest = u128::from(hash).wrapping_mul(0x1234_5678_9abc_def1_0fed_cba9_8765_4321).to_le_bytes();
        let etag = match hash % 4 {
            0 => None,
            1 => Some(ETag::Digest(digest)),
            2 => Some(ETag::Multipart(digest, 1 + (hash % 10_000) as u32)),
            _ => Some(ETag::Verbatim(format!("tag-{hash}").into())),
        };
        let modified = UnixMillis(LISTED_AT.0 - (hash % 86_400_000) as i64);
        Object { size_bytes: hash % 3 * (hash % 230_000), modified, etag }
    }
}

pub(super) fn names_of(namespace: &Namespace, directory: NodeId) -> Vec<String> {
    let mut names = Vec::new();
    let read = namespace.read_dir(directory, 2, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    });
    assert_eq!(read, Ok(()));
    names
}

// ---- the reference model --------------------------------------------------------------------------------------------------

/// The tree as anybody would build it without a thought for memory or speed.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Directory(BTreeMap<Vec<u8>, Tree>),
    /// A file, by the full key of its object.
    File(Vec<u8>),
}

impl Tree {
    fn of_keys(prefix: &[u8], keys: &[Vec<u8>], suffix: Option<&str>) -> Tree {
        let mut root = Tree::Directory(BTreeMap::new());
        let mut files = Vec::new();
        for key in keys {
            let rest = &key[prefix.len()..];
            let mut components: Vec<&[u8]> = rest.split(|&byte| byte == b'/').collect();
            let name = components.pop().unwrap();
            let bad = |name: &[u8]| {
                name.is_empty() || name == b"." || name == b".." || name.contains(&0) || name.len() > MAX_NAME_BYTES
            };
            if components.iter().any(|name| bad(name)) || (!name.is_empty() && bad(name)) {
                continue;
            }
            root.directory(&components);
            if !name.is_empty() {
                files.push((components, name, key));
            }
        }
        let mut shadowed = Vec::new();
        for (components, name, key) in files {
            let directory = root.directory(&components);
            match directory.get(name) {
                Some(Tree::Directory(_)) => shadowed.push((components, name, key)),
                _ => drop(directory.insert(name.to_vec(), Tree::File(key.clone()))),
            }
        }
        for (components, name, key) in shadowed {
            if let Some(suffix) = suffix {
                let shown_as = [name, suffix.as_bytes()].concat();
                if shown_as.len() <= MAX_NAME_BYTES {
                    root.directory(&components).entry(shown_as).or_insert_with(|| Tree::File(key.clone()));
                }
            }
        }
        root
    }

    fn directory(&mut self, components: &[&[u8]]) -> &mut BTreeMap<Vec<u8>, Tree> {
        let Tree::Directory(entries) = self else { panic!("directories are made first") };
        match components {
            [] => entries,
            [first, rest @ ..] => {
                entries.entry(first.to_vec()).or_insert_with(|| Tree::Directory(BTreeMap::new())).directory(rest)
            }
        }
    }
}

type Shown = (Vec<u8>, Node, u64);

/// All entries after a cookie, fetched `at_once` at a time, each time from the cookie of the last one seen.
fn entries_after(namespace: &Namespace, directory: NodeId, mut cookie: u64, at_once: usize) -> Vec<Shown> {
    let mut shown = Vec::new();
    loop {
        let before = shown.len();
        let read = namespace.read_dir(directory, cookie, &mut |entry| {
            shown.push((entry.name.to_vec(), entry.node, entry.cookie));
            if shown.len() - before == at_once { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(read, Ok(()));
        match shown.last() {
            Some(last) if shown.len() > before => cookie = last.2,
            _ => return shown,
        }
    }
}

/// Compares everything that can be asked about a directory and what is below it with the model.
fn assert_like(namespace: &Namespace, tree: &Tree, node: Node, parent: NodeId, key: &[u8]) {
    assert_eq!(namespace.node(node.id), Some(node));
    assert_eq!(namespace.parent(node.id), Some(parent));
    assert_eq!(namespace.path_of(node.id).unwrap().as_bytes(), key);
    let entries = match tree {
        Tree::File(key) => {
            let expected = Object::of_key(key);
            assert_eq!(node.kind, NodeKind::File { size_bytes: expected.size_bytes });
            assert_eq!(node.modified, expected.modified);
            let version = ObjectVersion { etag: expected.etag, size_bytes: expected.size_bytes };
            assert_eq!(namespace.object(node.id), Ok(ObjectRef { key: ObjectKey::from(&key[..]), version }));
            let read = namespace.read_dir(node.id, 0, &mut |_| panic!("a file has no entries"));
            assert_eq!(read, Err(ReadDirError::NotADirectory));
            assert_eq!(namespace.lookup(node.id, b"x"), None);
            return;
        }
        Tree::Directory(entries) => entries,
    };
    assert_eq!(node.kind, NodeKind::Directory);
    assert_eq!(node.modified, LISTED_AT);
    assert_eq!(namespace.object(node.id), Err(ObjectError::NotAFile));

    let all = entries_after(namespace, node.id, 0, usize::MAX);
    assert_eq!((&all[0].0[..], all[0].1.id, all[0].2), (&b"."[..], node.id, 1));
    assert_eq!((&all[1].0[..], all[1].1.id, all[1].2), (&b".."[..], parent, 2));
    let names: Vec<_> = all[2..].iter().map(|entry| &entry.0).collect();
    assert_eq!(names, entries.keys().collect::<Vec<_>>());
    for at_once in [1, 2, 3] {
        assert_eq!(entries_after(namespace, node.id, 0, at_once), all);
    }
    for (position, (_, _, cookie)) in all.iter().enumerate() {
        assert_eq!(entries_after(namespace, node.id, *cookie, usize::MAX), all[position + 1..]);
    }
    for ((name, tree), (_, child, cookie)) in entries.iter().zip(&all[2..]) {
        assert!(*cookie >= FIRST_ENTRY_ID && *cookie == child.id.0);
        assert_eq!(namespace.lookup(node.id, name), Some(*child));
        for absent in [[name, &b"!"[..]].concat(), [name, &b"\0"[..]].concat(), name[..name.len() - 1].to_vec()] {
            assert_eq!(namespace.lookup(node.id, &absent).is_some(), entries.contains_key(&absent));
        }
        let key = match tree {
            Tree::File(key) => key.clone(),
            Tree::Directory(_) => [key, name, &b"/"[..]].concat(),
        };
        assert_like(namespace, tree, *child, node.id, &key);
    }
    for absent in [&b""[..], b".", b"..", b"/", b"zz", &[0xff; MAX_NAME_BYTES + 1]] {
        assert_eq!(namespace.lookup(node.id, absent).is_some(), entries.contains_key(absent));
    }
}

fn count(tree: &Tree) -> (u64, u64) {
    match tree {
        Tree::File(_) => (1, 0),
        Tree::Directory(entries) => {
            entries.values().map(count).fold((0, 1), |sum, child| (sum.0 + child.0, sum.1 + child.1))
        }
    }
}

fn assert_like_model(listing: &Listing, namespace: &Namespace) {
    let tree = Tree::of_keys(listing.prefix.as_bytes(), &listing.keys, listing.show_shadowed.as_deref());
    let root = namespace.node(NodeId::ROOT).unwrap();
    assert_like(namespace, &tree, root, NodeId::ROOT, listing.prefix.as_bytes());
    let statistics = namespace.statistics();
    assert_eq!((statistics.objects, statistics.directories), count(&tree));
    assert_eq!(namespace.damage(), None);
}

/// Keys that collide, nest, sort around `/`, and cannot be paths.
fn awkward_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = select(b"aaab!-.0//%\xff\n".to_vec());
    let word = prop_oneof![
        30 => vec(byte, 0..6),
        1 => Just(b"\0".to_vec()),
        1 => Just(b"..".to_vec()),
        1 => Just(b"/".to_vec()),
        1 => Just(vec![b'n'; 255]),
        1 => Just(vec![b'n'; MAX_NAME_BYTES - 1]),
        1 => Just(vec![b'n'; MAX_NAME_BYTES]),
        1 => Just(vec![b'n'; MAX_NAME_BYTES + 1]),
    ];
    vec(word, 1..3).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_listing_gives_the_tree_of_the_model(
        keys in vec(awkward_key(), 0..60),
        prefix in select(vec!["", "p/", "p/%2F x/"]),
        show_shadowed in select(vec![None, Some("!"), Some("-"), Some(".object"), Some("0")]),
    ) {
        let keys = keys.into_iter().map(|key| [prefix.as_bytes(), &key].concat());
        let listing = Listing::new(prefix).keys(keys).show_shadowed(show_shadowed);
        assert_like_model(&listing, &listing.namespace());
    }
}

#[test]
fn any_number_of_keys_around_a_page_or_a_block_gives_as_many_files() {
    for number in [0, 1, 15, 16, 17, 31, 32, 33, 999, 1000, 1001, 2000] {
        let listing = Listing::new("").keys((0..number).map(|index| format!("d/{index:05}")));
        let namespace = listing.namespace();
        assert_eq!(namespace.statistics().objects, number);
        if number > 0 {
            let directory = namespace.lookup(NodeId::ROOT, b"d").unwrap();
            let names: Vec<_> = (0..number).map(|index| format!("{index:05}")).collect();
            assert_eq!(names_of(&namespace, directory.id), names);
        }
        if number < 100 {
            assert_like_model(&listing, &namespace);
        }
    }
}

#[test]
fn a_directory_stands_once_among_names_with_every_byte_that_sorts_around_its_slash() {
    for byte in 1..=255u8 {
        if byte == b'/' {
            continue;
        }
        let listing = Listing::new("").keys([
            &[b'a', byte][..],
            b"a",
            b"a/x",
            b"a.txt",
            b"a0",
            &[b'a', byte, b'/', b'x'],
            &[b'a', b'/', byte, b'y'],
        ]);
        assert_like_model(&listing, &listing.namespace());
    }
    let listing = Listing::new("").keys(["a!", "a-", "a.txt", "a/x", "a0"]);
    assert_eq!(names_of(&listing.namespace(), NodeId::ROOT), ["a", "a!", "a-", "a.txt", "a0"]);
}

#[test]
fn a_directory_wins_over_a_file_of_its_name_however_far_apart_their_keys_are() {
    let between = (0..3000).map(|index| format!("a!{index:04}"));
    let listing = Listing::new("").keys(["a", "a/b"]).keys(between);
    for suffix in [None, Some("~object")] {
        let listing = Listing { keys: listing.keys.clone(), ..Listing::new("").show_shadowed(suffix) };
        let namespace = listing.namespace();
        let directory = namespace.lookup(NodeId::ROOT, b"a").unwrap();
        assert_eq!(directory.kind, NodeKind::Directory);
        let names = names_of(&namespace, NodeId::ROOT);
        assert_eq!(names.iter().filter(|name| *name == "a").count(), 1);
        assert_eq!(names.len(), 3001 + usize::from(suffix.is_some()));
        assert_eq!(namespace.statistics().shadowed, 1);
        let shadowed = namespace.lookup(NodeId::ROOT, b"a~object");
        assert_eq!(shadowed.map(|node| namespace.object(node.id).unwrap().key), suffix.map(|_| ObjectKey::from("a")));
    }
}

#[test]
fn an_entry_really_named_like_a_shown_shadow_comes_first() {
    for real in ["a~", "a~/x"] {
        let listing = Listing::new("").keys(["a", "a/b", real]).show_shadowed(Some("~"));
        let namespace = listing.namespace();
        assert_like_model(&listing, &namespace);
        assert_eq!(names_of(&namespace, NodeId::ROOT), ["a", "a~"]);
        assert_eq!(namespace.statistics().shadowed, 1);
    }
}

#[test]
fn markers_make_empty_directories_and_are_not_shown() {
    let entry = |key, size_bytes| ObjectEntry { key, size_bytes, modified: UnixMillis(0), etag: None };
    let mut builder = Listing::new("p/").builder(Destination::Memory);
    for (key, size_bytes) in
        [(&b"p/"[..], 2), (b"p/", 2), (b"p/empty/", 0), (b"p/full/", 3), (b"p/full/x", 1), (b"p/full/y/", 9)]
    {
        builder.push(entry(key, size_bytes)).unwrap();
    }
    let snapshot = builder.finish().unwrap();
    let warnings = snapshot.warnings().to_vec();
    assert_eq!(snapshot.statistics().markers_with_bytes, 3);
    assert_eq!(warnings.len(), 3);
    assert_eq!(warnings[1].key, ObjectKey::from("p/full/"));
    assert_eq!(warnings[1].cause, WarningCause::MarkerWithBytes);
    let namespace = Namespace::new(snapshot);
    assert_eq!(names_of(&namespace, NodeId::ROOT), ["empty", "full"]);
    let empty = namespace.lookup(NodeId::ROOT, b"empty").unwrap();
    assert_eq!(names_of(&namespace, empty.id), [""; 0]);
    assert_eq!(entries_after(&namespace, empty.id, 0, 1).len(), 2);
}

#[test]
fn keys_that_cannot_be_paths_are_counted_and_warned_of_once_a_directory() {
    let listing = Listing::new("p/").keys(["p/d//x", "p/d//y", "p/d/./z", "p//lead", "p/d/ok", "p/e/\0", "p/f//"]);
    let snapshot = listing.snapshot();
    let rejected = snapshot.statistics().rejected;
    let counts = RejectReason::ALL.map(|reason| rejected.count(reason));
    assert_eq!(counts, [1, 3, 1, 1, 0]);
    assert_eq!(rejected.total(), 6);
    let directories: Vec<_> = snapshot.warnings().iter().map(|warning| warning.directory.to_string()).collect();
    assert_eq!(directories, ["p/", "p/d/", "p/e/", "p/f/"]);
    assert_eq!(names_of(&Namespace::new(snapshot), NodeId::ROOT), ["d"]);
}

#[test]
fn a_lookup_of_what_is_only_the_beginning_of_a_name_finds_nothing() {
    let namespace = Listing::new("").keys(["dir-1/foo"]).namespace();
    assert_eq!(namespace.lookup(NodeId::ROOT, b"dir"), None);
}

#[test]
fn a_prefix_is_the_same_with_and_without_its_slash() {
    for prefix in ["p", "p/"] {
        let namespace = Listing { keys: vec![b"p/x".to_vec()], ..Listing::new(prefix) }.namespace();
        assert_eq!(namespace.key_prefix(), ObjectKey::from("p/"));
        assert_eq!(names_of(&namespace, NodeId::ROOT), ["x"]);
    }
}

#[test]
fn a_prefix_that_nothing_matches_is_an_empty_directory() {
    let namespace = Listing::new("none/").namespace();
    assert_like_model(&Listing::new("none/"), &namespace);
    assert_eq!(namespace.statistics().objects, 0);
}

#[test]
fn keys_out_of_order_or_outside_the_prefix_are_refused_and_the_rest_goes_on() {
    let entry = |key| ObjectEntry { key, size_bytes: 0, modified: UnixMillis(0), etag: None };
    let mut builder = Listing::new("p/").builder(Destination::Memory);
    builder.push(entry(b"p/b/x")).unwrap();
    assert!(matches!(builder.push(entry(b"p/a")), Err(BuildError::UnsortedKey { .. })));
    assert!(matches!(builder.push(entry(b"q")), Err(BuildError::OutsidePrefix { .. })));
    assert!(matches!(builder.push(entry(b"p")), Err(BuildError::OutsidePrefix { .. })));
    builder.push(entry(b"p/b/y")).unwrap();
    let namespace = Namespace::new(builder.finish().unwrap());
    let directory = namespace.lookup(NodeId::ROOT, b"b").unwrap();
    assert_eq!(names_of(&namespace, directory.id), ["x", "y"]);
}

#[test]
fn of_a_key_pushed_twice_the_last_version_counts() {
    let mut builder = Listing::new("").builder(Destination::Memory);
    let long = ETag::Verbatim("long".repeat(50).into());
    for (key, size_bytes, etag) in
        [(&b"a"[..], 1, None), (b"d/", 0, None), (b"d/", 0, None), (b"d/x", 1, Some(&long)), (b"d/x", 300, None)]
    {
        builder.push(ObjectEntry { key, size_bytes, modified: UnixMillis(7), etag }).unwrap();
    }
    let again = ObjectEntry { key: b"d/x", size_bytes: 5, modified: UnixMillis(8), etag: Some(&long) };
    builder.push(again).unwrap();
    builder.push(ObjectEntry { key: b"d/xy", ..again }).unwrap();
    let namespace = Namespace::new(builder.finish().unwrap());
    let directory = namespace.lookup(NodeId::ROOT, b"d").unwrap();
    assert_eq!(names_of(&namespace, directory.id), ["x", "xy"]);
    let node = namespace.lookup(directory.id, b"x").unwrap();
    assert_eq!((node.kind, node.modified), (NodeKind::File { size_bytes: 5 }, UnixMillis(8)));
    assert_eq!(namespace.object(node.id).unwrap().version.etag, Some(long));
    assert_eq!(namespace.statistics().total_bytes, 1 + 5 + 5);
}

#[test]
fn what_cannot_end_a_name_or_begin_a_key_is_refused() {
    let build = |prefix: &str, suffix: &str| {
        let show_shadowed = Some(suffix.to_owned());
        let config = BuilderConfig { destination: Destination::Memory, listed_at: LISTED_AT, show_shadowed };
        SnapshotBuilder::new(&ObjectKey::from(prefix), config)
    };
    for suffix in ["", "a/b", "a\0", &"x".repeat(256)] {
        assert!(matches!(build("", suffix), Err(BuildError::BadSuffix(_))));
    }
    assert!(matches!(build(&"x".repeat(2048), "~"), Err(BuildError::PrefixTooLong(2049))));
    assert!(build(&"x".repeat(2047), "~").is_ok());
}

#[test]
fn cookies_that_never_were_of_the_directory_are_its_end() {
    let namespace = Listing::new("").keys(["d/x", "e/y"]).namespace();
    let directory = namespace.lookup(NodeId::ROOT, b"d").unwrap();
    let elsewhere = namespace.lookup(NodeId::ROOT, b"e").unwrap().id.0;
    for cookie in [3, 15, elsewhere, 1 << 40, 1 << 62, u64::MAX] {
        assert_eq!(entries_after(&namespace, directory.id, cookie, 1), []);
    }
    let entry_of_another = namespace.lookup(directory.id, b"x").unwrap().id.0;
    assert_eq!(entries_after(&namespace, NodeId(elsewhere), entry_of_another, 1), []);
}

// ---- the image ------------------------------------------------------------------------------------------------------------

fn small_listing() -> Listing {
    let files = (0..40).map(|index| format!("p/train/n{:03}/img_{index}.JPEG", index / 9));
    Listing::new("p/").keys(files).keys(["p/train", "p/train/empty/", "p/readme", "p//bad"]).show_shadowed(Some("~"))
}

#[test]
fn an_image_in_a_file_reads_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let listing = small_listing();
    fs::write(&path, "an older one").unwrap();
    let built = listing.snapshot_at(Destination::File(path.clone()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    let opened = Snapshot::open(&path).unwrap();
    assert_eq!(opened.statistics(), built.statistics());
    assert_eq!(opened.statistics().image_bytes, fs::metadata(&path).unwrap().len());
    assert_eq!((opened.prefix(), opened.listed_at()), (built.prefix(), built.listed_at()));
    assert_like_model(&listing, &Namespace::new(opened));
}

#[test]
fn an_image_that_is_given_up_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let builder = small_listing().builder(Destination::File(folder.path().join("image")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    drop(builder);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_image_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    assert!(matches!(Snapshot::open(&path), Err(SnapshotError::Open(_))));
    for foreign in [vec![], b"SVOLSNAP".to_vec(), vec![0; 10_000]] {
        fs::write(&path, foreign).unwrap();
        assert!(matches!(Snapshot::open(&path), Err(SnapshotError::NotASnapshot)));
    }
    drop(small_listing().snapshot_at(Destination::File(path.clone())));
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[2], 8).unwrap();
    assert!(matches!(Snapshot::open(&path), Err(SnapshotError::Version { found: 2 })));
}

fn image_bytes(listing: &Listing) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    drop(listing.snapshot_at(Destination::File(path.clone())));
    fs::read(path).unwrap()
}

fn open_bytes(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Snapshot::of_new_image(file, Vec::new())
}

/// Asks everything there is to ask; the number of nodes seen.
fn walk(namespace: &Namespace) -> Result<usize, ()> {
    let mut seen = 0;
    let mut todo = vec![NodeId::ROOT];
    while let Some(directory) = todo.pop() {
        let mut children = Vec::new();
        let read = namespace.read_dir(directory, 0, &mut |entry| {
            children.push((entry.name.to_vec(), entry.node));
            ControlFlow::Continue(())
        });
        read.map_err(|_| ())?;
        for (name, node) in children.into_iter().skip(2) {
            seen += 1;
            assert!(seen < 10_000, "a walk ends");
            let _ = (namespace.lookup(directory, &name), namespace.node(node.id), namespace.path_of(node.id));
            let _ = (namespace.parent(node.id), namespace.object(node.id));
            if node.kind == NodeKind::Directory {
                todo.push(node.id);
            }
        }
    }
    if namespace.damage().is_some() { Err(()) } else { Ok(seen) }
}

#[test]
fn every_truncation_and_every_byte_more_is_refused() {
    let bytes = image_bytes(&small_listing());
    assert!(open_bytes(&bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(open_bytes(&bytes[..length]).is_err(), "cut to {length}");
    }
    assert!(open_bytes(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn every_changed_byte_is_found_when_it_is_touched() {
    let bytes = image_bytes(&small_listing());
    assert!(walk(&Namespace::new(open_bytes(&bytes).unwrap())).is_ok());
    let rows = range_of(header_of(&bytes).row_section);
    for position in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[position] ^= change;
            let opened = open_bytes(&damaged);
            assert_eq!(opened.is_ok(), rows.contains(&position), "byte {position} changed by {change:#x}");
            if let Ok(snapshot) = opened {
                assert_eq!(walk(&Namespace::new(snapshot)), Err(()), "byte {position} changed by {change:#x}");
            }
        }
    }
}

fn header_of(bytes: &[u8]) -> Header {
    Header::decode(bytes.first_chunk().unwrap()).unwrap()
}

fn range_of(section: format::Section) -> Range<usize> {
    let start = usize::try_from(section.offset).unwrap();
    start..start + usize::try_from(section.length).unwrap()
}

/// Makes all checksums fit again, as somebody would who means harm.
fn forge(bytes: &mut [u8]) {
    let mut header = header_of(bytes);
    let (rows, table) = (range_of(header.row_section), range_of(header.block_table));
    let starts: Vec<usize> = bytes[table.clone()]
        .chunks_exact(BLOCK_RECORD_BYTES)
        .map(|record| rows.start + usize::try_from(u64::from_le_bytes(record[..8].try_into().unwrap())).unwrap())
        .collect();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(rows.end);
        if let Some(block) = bytes.get(start..end) {
            let crc = crc32c::crc32c(block).to_le_bytes();
            let at = table.start + index * BLOCK_RECORD_BYTES + 8;
            bytes[at..at + 4].copy_from_slice(&crc);
        }
    }
    header.block_table_crc = crc32c::crc32c(&bytes[table]);
    header.directory_table_crc = crc32c::crc32c(&bytes[range_of(header.directory_table)]);
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn forged_images_give_errors_or_some_tree_but_never_a_panic_or_an_endless_walk(
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        thread_local! {
            static IMAGE: Vec<u8> = image_bytes(&small_listing());
        }
        let mut bytes = IMAGE.with(Clone::clone);
        let body_bytes = bytes.len() - HEADER_BYTES;
        for (index, value) in changes {
            bytes[HEADER_BYTES + index.index(body_bytes)] = value;
        }
        forge(&mut bytes);
        if let Ok(snapshot) = open_bytes(&bytes) {
            let _ = walk(&Namespace::new(snapshot));
        }
    }
}

#[test]
fn rows_and_directories_that_contradict_each_other_are_damage_although_checksums_fit() {
    // Rows: x in a, y in b, then a and b themselves.
    let bytes = image_bytes(&Listing::new("").keys(["a/x", "b/y"]));
    let header = header_of(&bytes);
    let mut rest = &bytes[range_of(header.row_section)];
    let ends: Vec<usize> = std::iter::from_fn(|| {
        format::Row::decode(LISTED_AT, &mut rest)?;
        Some(range_of(header.row_section).end - rest.len())
    })
    .collect();
    assert_eq!(ends.len(), 4);
    let own_row_of_a = range_of(header.directory_table).start + 8;
    for (what, position, value, opens) in [
        ("b shares more than a has", ends[2] + 1, 9, true),
        ("a is the directory that b is", ends[2] - 1, 1, true),
        ("a is a directory that is none", ends[2] - 1, 77, true),
        ("the root stands in itself", ends[2] - 1, 2, true),
        ("a stands in itself", own_row_of_a, 0, false),
        ("a stands nowhere", own_row_of_a, 4, false),
    ] {
        let mut forged = bytes.clone();
        assert_ne!(forged[position], value);
        forged[position] = value;
        forge(&mut forged);
        let opened = open_bytes(&forged);
        assert_eq!(opened.is_ok(), opens, "{what}");
        if let Ok(snapshot) = opened {
            assert_eq!(walk(&Namespace::new(snapshot)), Err(()), "{what}");
        }
    }
}

// ---- size and cost --------------------------------------------------------------------------------------------------------

/// Pseudo-random numbers, the same each time.
fn mixed(seed: u64) -> u64 {
    let mut value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// An image put as one part: md5 tag, about 115 KB, written within one day half a year before the listing.
fn push_image(builder: &mut SnapshotBuilder, key: &[u8], index: u64) {
    let random = mixed(index);
    let digest = u128::from(random).wrapping_mul(0x1234_5678_9abc_def1_0fed_cba9_8765_4321).to_le_bytes();
    let modified = UnixMillis(LISTED_AT.0 - 180 * 86_400_000 + (random % 86_400_000) as i64);
    let size_bytes = 80_000 + random % 70_000;
    builder.push(ObjectEntry { key, size_bytes, modified, etag: Some(&ETag::Digest(digest)) }).unwrap();
}

#[test]
fn an_imagenet_like_object_takes_at_most_48_bytes() {
    let mut builder = Listing::new("").builder(Destination::Memory);
    for class in 0..100u64 {
        let class_name = format!("n{:08}", 1_440_764 + mixed(class) % 10_000 + class * 10_000);
        let mut names: Vec<_> =
            (0..1300u64).map(|image| format!("{}", mixed(class * 1300 + image) % 100_000)).collect();
        names.sort();
        names.dedup();
        for (index, name) in (0..).zip(names) {
            let key = format!("train/{class_name}/{class_name}_{name}.JPEG");
            push_image(&mut builder, key.as_bytes(), class * 1300 + index);
        }
    }
    let Statistics { objects, directories, image_bytes, .. } = builder.finish().unwrap().statistics();
    assert_eq!(directories, 102);
    assert!(objects > 128_000);
    assert!(image_bytes <= 48 * objects, "{} bytes an object", image_bytes as f64 / objects as f64);
}

/// Bytes of the image for each of 50,000 objects, whose keys are made from names of 64 hex digits.
fn bytes_per_sha256_object(key_of: impl Fn(&str) -> String) -> f64 {
    let mut builder = Listing::new("").builder(Destination::Memory);
    let hex = |seed: u64| (0..4).map(|part| format!("{:016x}", mixed(seed * 4 + part))).collect::<String>();
    let mut names: Vec<_> = (0..50_000).map(hex).collect();
    names.sort();
    for (index, name) in (0..).zip(&names) {
        push_image(&mut builder, key_of(name).as_bytes(), index);
    }
    let Statistics { objects, image_bytes, .. } = builder.finish().unwrap().statistics();
    assert_eq!(objects, 50_000);
    image_bytes as f64 / objects as f64
}

#[test]
fn an_object_named_by_its_sha256_takes_at_most_100_bytes() {
    let flat = bytes_per_sha256_object(str::to_owned);
    assert!(flat <= 100.0, "{flat} bytes an object");
    let fanned_out = bytes_per_sha256_object(|name| format!("{}/{name}", &name[..2]));
    assert!(fanned_out <= 100.0, "{fanned_out} bytes an object");
}

#[test]
fn a_directory_for_each_object_adds_at_most_40_bytes() {
    let flat = bytes_per_sha256_object(str::to_owned);
    let alone = bytes_per_sha256_object(|name| format!("{}/{name}", &name[..8]));
    assert!(alone <= flat + 40.0, "{alone} bytes an object, {flat} in one directory");
}

#[test]
fn a_directory_of_a_million_files_costs_its_encoded_size_and_two_passes() {
    const ENTRIES: u64 = 1_000_000;
    let mut builder = Listing::new("").builder(Destination::Memory);
    let (snapshot, encoded, decoded) = work::of(|| {
        for index in 0..ENTRIES {
            push_image(&mut builder, format!("big/{index:08}.jpg").as_bytes(), index);
        }
        let waiting_bytes = builder.waiting_bytes() as u64;
        let snapshot = builder.finish().unwrap();
        let image_bytes = snapshot.statistics().image_bytes;
        assert!(waiting_bytes < image_bytes * 11 / 10, "{waiting_bytes} bytes waited for an image of {image_bytes}");
        snapshot
    });
    assert_eq!((encoded, decoded), (2 * ENTRIES + 1, ENTRIES + 2), "once to wait, once to stay; ends are looked for");

    let namespace = Namespace::new(snapshot);
    let big = namespace.lookup(NodeId::ROOT, b"big").unwrap();
    let (mut cookie, mut seen) = (2, 0u64);
    let ((), _, decoded) = work::of(|| {
        while seen < ENTRIES {
            let before = seen;
            let read = namespace.read_dir(big.id, cookie, &mut |entry| {
                assert_eq!(entry.name, format!("{seen:08}.jpg").as_bytes());
                cookie = entry.cookie;
                seen += 1;
                if seen - before == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(read, Ok(()));
            assert!(seen > before, "entries end at {seen}");
        }
    });
    assert!(decoded <= ENTRIES + 1000 * 2 * format::BLOCK_ROWS, "{decoded} rows read for {ENTRIES} entries");

    for index in (0..ENTRIES).step_by(997) {
        let name = format!("{index:08}.jpg");
        let (node, _, decoded) = work::of(|| namespace.lookup(big.id, name.as_bytes()).unwrap());
        assert!(decoded <= 3 * format::BLOCK_ROWS, "{decoded} rows read for one lookup");
        assert_eq!(node.id, NodeId(FIRST_ENTRY_ID + index));
        assert_eq!(namespace.lookup(big.id, format!("{name}x").as_bytes()), None);
    }
}

#[test]
fn many_subdirectories_cost_the_same_each() {
    const DIRECTORIES: u64 = 100_000;
    let mut builder = Listing::new("").builder(Destination::Memory);
    let (snapshot, encoded, _) = work::of(|| {
        for index in 0..DIRECTORIES {
            push_image(&mut builder, format!("big/{index:08}/image.jpg").as_bytes(), index);
        }
        builder.finish().unwrap()
    });
    assert_eq!(encoded, 3 * DIRECTORIES + 1);
    let namespace = Namespace::new(snapshot);
    let big = namespace.lookup(NodeId::ROOT, b"big").unwrap();
    for index in (0..DIRECTORIES).step_by(997) {
        let key = format!("big/{index:08}/image.jpg");
        let directory = namespace.lookup(big.id, &key.as_bytes()[4..12]).unwrap();
        let file = namespace.lookup(directory.id, b"image.jpg").unwrap();
        let (object, _, decoded) = work::of(|| namespace.object(file.id).unwrap());
        assert_eq!(object.key, ObjectKey::from(key.as_str()));
        assert!(decoded <= 4 * format::BLOCK_ROWS, "{decoded} rows read for one object of three components");
    }
}

#[test]
fn deep_paths_and_many_small_directories_are_walked_back_to_the_root() {
    let deep = "a/".repeat(511) + "b";
    let small = (0..5000).map(|index| format!("s/{index:04}/{index}"));
    let namespace = Listing::new("").keys([deep.clone()]).keys(small).namespace();
    let mut node = namespace.node(NodeId::ROOT).unwrap();
    for name in deep.split('/') {
        let parent = node.id;
        node = namespace.lookup(parent, name.as_bytes()).unwrap();
        assert_eq!(namespace.parent(node.id), Some(parent));
    }
    assert_eq!(namespace.object(node.id).unwrap().key, ObjectKey::from(deep.as_str()));
    let small = namespace.lookup(NodeId::ROOT, b"s").unwrap();
    let directory = namespace.lookup(small.id, b"1234").unwrap();
    let file = namespace.lookup(directory.id, b"1234").unwrap();
    assert_eq!(namespace.object(file.id).unwrap().key, ObjectKey::from("s/1234/1234"));
}

#[test]
fn a_namespace_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Namespace>();
    shared::<SnapshotBuilder>();
}
