//! How bytes are fetched and kept.

use super::{MOUNTING_VERBS, SWITCH};
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section};
use crate::model::{ByteSize, MIB};

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[DIRECT_MODE, READ_AHEAD_KB, MEMORY_LIMIT, MAX_GETS_IN_FLIGHT];

/// Smallest pool: a few requests of the kernel's largest read (1 MiB) at a time.
pub(crate) const LEAST_MEMORY: ByteSize = ByteSize(16 * MIB);

const READING: OptionRow = OptionRow { section: Section::Reading, verbs: MOUNTING_VERBS, ..SWITCH };

const DIRECT_MODE: OptionRow = OptionRow {
    name: "direct-mode",
    environment: "STREAMVOL_DIRECT_MODE",
    kind: Kind::Choice(&["true", "false"]),
    default: DefaultValue::Text("false"),
    help: "Fetch exactly what is read and keep none of it: for files that are read once, in random order",
    set: |typed, given| given.store(&mut typed.direct_mode, parse::boolean),
    ..READING
};

#[test]
fn direct_mode_is_true_or_false() {
    assert!(parsed(&DIRECT_MODE, "true").unwrap().direct_mode.value);
    assert!(!parsed(&DIRECT_MODE, "false").unwrap().direct_mode.value);
    assert_eq!(parsed(&DIRECT_MODE, "auto").unwrap_err(), "write true or false");
}

const READ_AHEAD_KB: OptionRow = OptionRow {
    name: "read-ahead-kb",
    environment: "STREAMVOL_READ_AHEAD_KB",
    kind: Kind::Value("KIB"),
    default: DefaultValue::Derived("1024, or 128 in direct mode"),
    help: "How far the kernel reads ahead in a file, in KiB; also the size of its largest read",
    set: |typed, given| given.store_some(&mut typed.read_ahead_kb, |text| parse::count(text, 0, 1024 * 1024)),
    ..READING
};

#[test]
fn read_ahead_kb_is_a_number_of_kib() {
    assert_eq!(parsed(&READ_AHEAD_KB, "0").unwrap().read_ahead_kb.value, Some(0));
    assert_eq!(parsed(&READ_AHEAD_KB, "1M").unwrap_err(), "write a number from 0 to 1048576");
}

const MEMORY_LIMIT: OptionRow = OptionRow {
    name: "memory-limit",
    environment: "STREAMVOL_MEMORY_LIMIT",
    kind: Kind::Value("SIZE"),
    default: DefaultValue::Derived("1 GiB, or a quarter of the memory there is if that is less"),
    help: "Most memory for object bytes: in flight and cached together",
    set: |typed, given| given.store_some(&mut typed.memory_limit, |text| parse::bytes(text, LEAST_MEMORY)),
    ..READING
};

#[test]
fn memory_limit_is_a_size_that_reads_can_live_with() {
    assert_eq!(parsed(&MEMORY_LIMIT, "512M").unwrap().memory_limit.value, Some(ByteSize(512 * MIB)));
    assert_eq!(parsed(&MEMORY_LIMIT, "1M").unwrap_err(), "it must be at least 16 MiB");
}

const MAX_GETS_IN_FLIGHT: OptionRow = OptionRow {
    name: "max-gets-in-flight",
    environment: "STREAMVOL_MAX_GETS_IN_FLIGHT",
    kind: Kind::Value("N"),
    default: DefaultValue::Derived("128 for each CPU"),
    help: "Most GET requests in flight at a time",
    set: |typed, given| given.store_some(&mut typed.max_gets_in_flight, |text| parse::size(text, 1, 65_536)),
    ..READING
};

#[test]
fn max_gets_in_flight_is_a_number_above_zero() {
    assert_eq!(parsed(&MAX_GETS_IN_FLIGHT, "512").unwrap().max_gets_in_flight.value, Some(512));
    assert_eq!(parsed(&MAX_GETS_IN_FLIGHT, "0").unwrap_err(), "write a number from 1 to 65536");
}
