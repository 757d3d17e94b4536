//! Bytes to expect, and ways to read files and trees and compare them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use streamvol::origin::{seed_of_key, synthetic_bytes};

/// Bytes without repetition, different for each seed.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    synthetic_bytes(seed.wrapping_mul(0x2545_f491_4f6c_dd1d), 0, &mut bytes);
    bytes
}

/// The bytes of a computed object at `offset`.
pub fn synthetic_content(key: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    synthetic_bytes(seed_of_key(key.as_bytes(), 0), offset, &mut bytes);
    bytes
}

/// Reads until `length` bytes are there or the file ends.
///
/// # Errors
/// Those of pread(2).
pub fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Asserts equality without printing megabytes.
#[track_caller]
pub fn same_bytes(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        panic!("{what}: {} bytes instead of {}, the first difference at {at}", found.len(), expected.len());
    }
}

/// Every path below `root`, relative, with its bytes; directories end in `/` and have none.
pub fn tree_of(root: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    fn walk(directory: &Path, below: &[u8], into: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let mut path = [below, entry.file_name().as_bytes()].concat();
            if entry.file_type().unwrap().is_dir() {
                path.push(b'/');
                walk(&entry.path(), &path, into);
                assert!(into.insert(path, Vec::new()).is_none(), "{:?} is listed twice", entry.path());
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(into.insert(path, bytes).is_none(), "{:?} is listed twice", entry.path());
            }
        }
    }
    let mut tree = BTreeMap::new();
    walk(root, b"", &mut tree);
    tree
}
