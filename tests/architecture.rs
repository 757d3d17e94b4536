//! The shape of the sources: who may name whom, how long a file may be, where `unsafe` may stand.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, counted without its unit tests. The table of options and the kernel's list of operations are long but flat.
const LONGEST_FILE_LINES: usize = 500;

/// Files that may hold `unsafe`, each use with a reason.
const UNSAFE_FILES: [&str; 2] = ["namespace/snapshot_file.rs", "handoff/inherited.rs"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file as (path below src, text without unit tests and comments).
fn files() -> Vec<(String, String)> {
    fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    collect(&sources(), &mut paths);
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.strip_prefix(sources()).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .filter(|(name, _)| !name.ends_with("tests.rs") && !name.contains("/tests/"))
        .map(|(name, text)| (name, code_of(&text)))
        .collect()
}

/// The part of a file that ships: up to its unit tests.
fn code_of(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..tests].to_owned()
}

fn without_comments(code: &str) -> String {
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The modules in the order of `lib.rs`, lowest first.
fn order() -> Vec<String> {
    fs::read_to_string(sources().join("lib.rs"))
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned))
        .collect()
}

fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

#[test]
fn a_module_names_only_those_below_it() {
    let order = order();
    let position = |module: &str| order.iter().position(|m| m == module);
    let mut wrong = Vec::new();
    for (file, code) in files() {
        let Some(own) = position(module_of(&file)) else { continue };
        for (number, line) in without_comments(&code).lines().enumerate() {
            for part in line.split("crate::").skip(1) {
                let named: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                match position(&named) {
                    Some(other) if other <= own => {}
                    _ => wrong.push(format!("src/{file}:{}: names crate::{named}", number + 1)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "modules may name only those above them in src/lib.rs:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_is_on_the_map() {
    let order = order();
    for (file, _) in files() {
        let module = module_of(&file);
        assert!(module == "lib" || module == "main" || order.iter().any(|m| m == module), "{file}");
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (file, code) in files() {
        let lines = code.lines().count();
        assert!(lines <= LONGEST_FILE_LINES, "src/{file} has {lines} lines: is there more than one job inside?");
        assert!(code.starts_with("//! "), "src/{file} does not open with a line on what lives there");
    }
    assert!(fs::read_to_string(sources().join("lib.rs")).unwrap().lines().count() <= 100);
}

#[test]
fn unsafe_stands_only_where_it_is_expected() {
    for (file, code) in files() {
        let holds = without_comments(&code).split_whitespace().any(|word| word == "unsafe");
        assert!(!holds || UNSAFE_FILES.contains(&file.as_str()), "src/{file} holds unsafe code");
    }
}

#[test]
fn only_the_fuse_module_knows_the_fuse_crate() {
    for (file, code) in files() {
        assert!(!without_comments(&code).contains("fuser::") || file.starts_with("fuse/"), "src/{file}");
    }
}

#[test]
fn what_holds_the_connection_needs_no_runtime_and_no_network() {
    for (file, code) in files().iter().filter(|(file, _)| file.starts_with("handoff/")) {
        for word in ["tokio::", "reqwest::", "std::net", "async fn"] {
            assert!(!without_comments(code).contains(word), "src/{file} names {word}");
        }
    }
}

#[test]
fn only_config_reads_the_environment() {
    for (file, code) in files() {
        let reads = code.contains("env::var") && !file.starts_with("config/");
        assert!(!reads, "src/{file} reads the environment");
    }
}

#[test]
fn nothing_unfinished_is_left() {
    for (file, code) in files() {
        for word in ["todo!(", "unimplemented!(", "TODO", "FIXME", "XXX"] {
            assert!(!code.contains(word), "src/{file} holds {word}");
        }
    }
}
