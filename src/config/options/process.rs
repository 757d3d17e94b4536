//! The process itself: where it runs and where it writes its log.

use super::SWITCH;
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section, Verb};
use crate::telemetry::log::LogLevel;

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[FOREGROUND, LOG_LEVEL, LOG_FILE];

const FOREGROUND: OptionRow = OptionRow {
    name: "foreground",
    environment: "STREAMVOL_FOREGROUND",
    section: Section::Process,
    verbs: &[Verb::Mount],
    help: "Stay in the foreground and log to standard error, instead of returning when the mount answers",
    set: |typed, given| given.store(&mut typed.foreground, parse::boolean),
    ..SWITCH
};

#[test]
fn foreground_is_a_switch() {
    assert!(parsed(&FOREGROUND, "true").unwrap().foreground.value);
}

const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

const LOG_LEVEL: OptionRow = OptionRow {
    name: "log-level",
    environment: "STREAMVOL_LOG_LEVEL",
    kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
    default: DefaultValue::Text("info"),
    section: Section::Process,
    verbs: &[Verb::Mount, Verb::Demo, Verb::Ls, Verb::Stat],
    help: "How much is logged; ls, stat and demo log warnings only unless told otherwise",
    set: |typed, given| given.store(&mut typed.log_level, |text| parse::choice(text, LEVELS)),
    ..SWITCH
};

#[test]
fn log_level_is_one_of_five() {
    assert_eq!(parsed(&LOG_LEVEL, "debug").unwrap().log_level.value, LogLevel::Debug);
    assert_eq!(parsed(&LOG_LEVEL, "loud").unwrap_err(), "write one of error, warn, info, debug, trace");
}

const LOG_FILE: OptionRow = OptionRow {
    name: "log-file",
    environment: "STREAMVOL_LOG_FILE",
    kind: Kind::Value("FILE"),
    default: DefaultValue::Derived("standard error in the foreground, journald otherwise"),
    section: Section::Process,
    verbs: &[Verb::Mount],
    help: "File to append the log to",
    set: |typed, given| given.store_some(&mut typed.log_file, parse::path),
    ..SWITCH
};

#[test]
fn log_file_is_a_path() {
    let typed = parsed(&LOG_FILE, "/var/log/streamvol.log").unwrap();
    assert_eq!(typed.log_file.value.as_deref(), Some(std::path::Path::new("/var/log/streamvol.log")));
}
