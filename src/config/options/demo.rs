//! The demo's made-up bucket.

use super::SWITCH;
use crate::config::parse;
use crate::config::row::{DefaultValue, Kind, OptionRow, Section, Verb};

#[cfg(test)]
use super::parsed;

pub(super) const ROWS: &[OptionRow] = &[LATENCY, IMAGES];

const LATENCY: OptionRow = OptionRow {
    name: "latency",
    environment: "STREAMVOL_LATENCY",
    kind: Kind::Value("DURATION"),
    default: DefaultValue::Text("30ms"),
    section: Section::Demo,
    verbs: &[Verb::Demo],
    help: "How long the made-up store waits before it answers a GET",
    set: |typed, given| given.store(&mut typed.latency, parse::duration),
    ..SWITCH
};

#[test]
fn latency_is_a_duration() {
    assert_eq!(parsed(&LATENCY, "30ms").unwrap().latency.value.as_millis(), 30);
}

const IMAGES: OptionRow = OptionRow {
    name: "images",
    environment: "STREAMVOL_IMAGES",
    kind: Kind::Value("N"),
    default: DefaultValue::Text("1000"),
    section: Section::Demo,
    verbs: &[Verb::Demo],
    help: "How many pictures the made-up data set has",
    set: |typed, given| given.store(&mut typed.images, |text| parse::count(text, 1, 20_000)),
    ..SWITCH
};

#[test]
fn images_is_a_number_above_zero() {
    assert_eq!(parsed(&IMAGES, "400").unwrap().images.value, 400);
    assert_eq!(parsed(&IMAGES, "0").unwrap_err(), "write a number from 1 to 20000");
}
