//! What we ship is licensed compatibly: the licence of every dependency is on the list.
//!
//! `cargo metadata` answers offline. Advisories need a database from the network: `cargo deny check advisories` where it is installed.

use std::process::Command;

use serde_json::Value;

/// Licences that an Apache-2.0 program may link. A package offered under several needs one of them.
const ACCEPTED: [&str; 11] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "0BSD",
    "CDLA-Permissive-2.0",
];

#[test]
fn every_dependency_may_be_linked_by_an_apache_licensed_program() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"])
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "the dependencies are there");
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !accepted(package["license"].as_str().unwrap_or("")))
        .map(|package| format!("{} {}", package["name"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "licences not on the list:\n{}", refused.join("\n"));
}

/// Every AND part must offer an accepted alternative.
fn accepted(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|one| ACCEPTED.contains(&one.trim())))
}

#[test]
fn an_expression_is_read_part_by_part() {
    assert!(accepted("MIT OR GPL-3.0"));
    assert!(accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(accepted("MIT/Apache-2.0"));
    assert!(!accepted("MIT AND GPL-3.0"));
    assert!(!accepted(""));
}
