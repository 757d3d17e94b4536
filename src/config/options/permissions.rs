//! Owner and permissions of files and directories.

use super::{SHOWING_VERBS, SWITCH};
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section, Verb};

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[UMASK, FILE_MODE, DIR_MODE, UID, GID, ALLOW_OTHER];

const PERMISSIONS: OptionRow = OptionRow { section: Section::Permissions, verbs: SHOWING_VERBS, ..SWITCH };

const UMASK: OptionRow = OptionRow {
    name: "umask",
    environment: "STREAMVOL_UMASK",
    kind: Kind::Value("MODE"),
    default: DefaultValue::Text("022"),
    help: "Permission bits, in octal, that files and directories do not have out of 0777",
    set: |typed, given| given.store(&mut typed.umask, parse::mode),
    ..PERMISSIONS
};

#[test]
fn umask_is_octal() {
    assert_eq!(parsed(&UMASK, "027").unwrap().umask.value, 0o27);
    assert_eq!(parsed(&UMASK, "9").unwrap_err(), "write octal permission bits from 000 to 777, as in 022");
}

const FILE_MODE: OptionRow = OptionRow {
    name: "file-mode",
    environment: "STREAMVOL_FILE_MODE",
    kind: Kind::Value("MODE"),
    default: DefaultValue::Derived("what the umask leaves"),
    help: "Permission bits of files, in octal, whatever the umask",
    set: |typed, given| given.store_some(&mut typed.file_mode, parse::mode),
    ..PERMISSIONS
};

#[test]
fn file_mode_is_octal() {
    assert_eq!(parsed(&FILE_MODE, "0444").unwrap().file_mode.value, Some(0o444));
}

const DIR_MODE: OptionRow = OptionRow {
    name: "dir-mode",
    environment: "STREAMVOL_DIR_MODE",
    kind: Kind::Value("MODE"),
    default: DefaultValue::Derived("what the umask leaves"),
    help: "Permission bits of directories, in octal, whatever the umask",
    set: |typed, given| given.store_some(&mut typed.dir_mode, parse::mode),
    ..PERMISSIONS
};

#[test]
fn dir_mode_is_octal() {
    assert_eq!(parsed(&DIR_MODE, "555").unwrap().dir_mode.value, Some(0o555));
}

const UID: OptionRow = OptionRow {
    name: "uid",
    environment: "STREAMVOL_UID",
    kind: Kind::Value("ID"),
    default: DefaultValue::Derived("the user who mounts"),
    help: "User that owns every file and directory",
    set: |typed, given| given.store_some(&mut typed.uid, parse::id),
    ..PERMISSIONS
};

#[test]
fn uid_is_a_number() {
    assert_eq!(parsed(&UID, "1000").unwrap().uid.value, Some(1000));
    assert_eq!(parsed(&UID, "root").unwrap_err(), "write a number from 0 to 4294967294");
}

const GID: OptionRow = OptionRow {
    name: "gid",
    environment: "STREAMVOL_GID",
    kind: Kind::Value("ID"),
    default: DefaultValue::Derived("the group of the user who mounts"),
    help: "Group that owns every file and directory",
    set: |typed, given| given.store_some(&mut typed.gid, parse::id),
    ..PERMISSIONS
};

#[test]
fn gid_is_a_number() {
    assert_eq!(parsed(&GID, "0").unwrap().gid.value, Some(0));
}

const ALLOW_OTHER: OptionRow = OptionRow {
    name: "allow-other",
    environment: "STREAMVOL_ALLOW_OTHER",
    verbs: &[Verb::Mount],
    help: "Let other users in; without root this needs user_allow_other in /etc/fuse.conf",
    set: |typed, given| given.store(&mut typed.allow_other, parse::boolean),
    ..PERMISSIONS
};

#[test]
fn allow_other_is_a_switch() {
    assert!(parsed(&ALLOW_OTHER, "true").unwrap().allow_other.value);
}
