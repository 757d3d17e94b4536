//! How to unmount.

use super::SWITCH;
use crate::config::parse;
use crate::config::row::{OptionRow, Section, Verb};

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[LAZY, FORCE];

const LAZY: OptionRow = OptionRow {
    name: "lazy",
    environment: "STREAMVOL_LAZY",
    section: Section::Unmounting,
    verbs: &[Verb::Unmount],
    conflicts: &["force"],
    help: "Detach now, and end when the last program has let go of it",
    set: |typed, given| given.store(&mut typed.lazy, parse::boolean),
    ..SWITCH
};

#[test]
fn lazy_is_a_switch() {
    assert!(parsed(&LAZY, "true").unwrap().lazy.value);
}

const FORCE: OptionRow = OptionRow {
    name: "force",
    environment: "STREAMVOL_FORCE",
    section: Section::Unmounting,
    verbs: &[Verb::Unmount],
    conflicts: &["lazy"],
    help: "Abort the connection to the kernel: programs that read get an error",
    set: |typed, given| given.store(&mut typed.force, parse::boolean),
    ..SWITCH
};

#[test]
fn force_is_a_switch() {
    assert!(parsed(&FORCE, "true").unwrap().force.value);
}
