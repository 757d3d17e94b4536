//! What the mount shows.

use super::{SHOWING_VERBS, SWITCH};
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section, Verb};
use crate::model::EntryName;

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[LIST_CONCURRENCY, SHOW_SHADOWED, REQUIRE_NONEMPTY, RECURSIVE];

const LIST_CONCURRENCY: OptionRow = OptionRow {
    name: "list-concurrency",
    environment: "STREAMVOL_LIST_CONCURRENCY",
    kind: Kind::Value("N"),
    default: DefaultValue::Text("32"),
    section: Section::Listing,
    verbs: &[Verb::Mount, Verb::Ls, Verb::Demo],
    help: "Most LIST requests in flight while the bucket is listed",
    set: |typed, given| given.store(&mut typed.list_concurrency, |text| parse::size(text, 1, 1024)),
    ..SWITCH
};

#[test]
fn list_concurrency_is_a_number_above_zero() {
    assert_eq!(parsed(&LIST_CONCURRENCY, "1").unwrap().list_concurrency.value, 1);
    assert_eq!(parsed(&LIST_CONCURRENCY, "0").unwrap_err(), "write a number from 1 to 1024");
}

const SHOW_SHADOWED: OptionRow = OptionRow {
    name: "show-shadowed",
    environment: "STREAMVOL_SHOW_SHADOWED",
    kind: Kind::Value("SUFFIX"),
    default: DefaultValue::Derived("such objects are not shown"),
    section: Section::Listing,
    verbs: SHOWING_VERBS,
    help: "Show an object whose name is also a directory under its name with this suffix",
    set: |typed, given| given.store_some(&mut typed.show_shadowed, suffix),
    ..SWITCH
};

fn suffix(text: &str) -> Result<String, String> {
    // Appended to a name, so "." and ".." are fine; only what no name may hold is not.
    match EntryName::new(format!("x{text}").as_bytes()) {
        Some(_) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err("write what can end a file name, as in .object".to_owned()),
    }
}

#[test]
fn show_shadowed_is_the_end_of_a_name() {
    assert_eq!(parsed(&SHOW_SHADOWED, ".object").unwrap().show_shadowed.value.as_deref(), Some(".object"));
    for bad in ["", "/", "a/b", "\0"] {
        assert_eq!(parsed(&SHOW_SHADOWED, bad).unwrap_err(), "write what can end a file name, as in .object");
    }
}

const REQUIRE_NONEMPTY: OptionRow = OptionRow {
    name: "require-nonempty",
    environment: "STREAMVOL_REQUIRE_NONEMPTY",
    section: Section::Listing,
    verbs: &[Verb::Mount],
    help: "Refuse to mount a prefix that nothing matches",
    set: |typed, given| given.store(&mut typed.require_nonempty, parse::boolean),
    ..SWITCH
};

#[test]
fn require_nonempty_is_a_switch() {
    assert!(parsed(&REQUIRE_NONEMPTY, "true").unwrap().require_nonempty.value);
}

const RECURSIVE: OptionRow = OptionRow {
    name: "recursive",
    short: Some('R'),
    environment: "STREAMVOL_RECURSIVE",
    section: Section::Listing,
    verbs: &[Verb::Ls],
    help: "List directories below, too, with paths instead of names",
    set: |typed, given| given.store(&mut typed.recursive, parse::boolean),
    ..SWITCH
};

#[test]
fn recursive_is_a_switch() {
    assert!(parsed(&RECURSIVE, "true").unwrap().recursive.value);
}
