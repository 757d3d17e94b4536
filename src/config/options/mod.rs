//! The table of options: one row is one option, and its parse test stands right after it.
//!
//! Add an option: write its row in the file of its section, its test below it, a field in `typed::Typed`, and its name in
//! that file's `ROWS`. Command line, help, environment and README follow. What the table promises is tested at the end.

mod demo;
mod listing;
mod permissions;
mod process;
mod reading;
mod store;
mod unmounting;

use super::row::{DefaultValue, Kind, OptionRow, Section, Verb};
use super::typed::Typed;

pub(super) use reading::LEAST_MEMORY;

/// A switch that is off, of no verb: rows say how they differ.
const SWITCH: OptionRow = OptionRow {
    name: "",
    short: None,
    aliases: &[],
    environment: "",
    ambient: &[],
    kind: Kind::Switch,
    default: DefaultValue::Text("false"),
    section: Section::Process,
    verbs: &[],
    conflicts: &[],
    help: "",
    set: |_: &mut Typed, _| Ok(()),
};

/// Verbs that talk to a store of the user's.
const STORE_VERBS: &[Verb] = &[Verb::Mount, Verb::Ls, Verb::Stat];

/// Verbs that mount.
const MOUNTING_VERBS: &[Verb] = &[Verb::Mount, Verb::Demo];

/// Verbs that show names and attributes.
const SHOWING_VERBS: &[Verb] = &[Verb::Mount, Verb::Ls, Verb::Stat];

/// Every option, in the order of help.
pub fn all() -> impl Iterator<Item = &'static OptionRow> {
    let sections =
        [store::ROWS, listing::ROWS, permissions::ROWS, reading::ROWS, process::ROWS, demo::ROWS, unmounting::ROWS];
    sections.into_iter().flatten()
}

/// The options that `verb` takes, in the order of help.
pub fn of_verb(verb: Verb) -> impl Iterator<Item = &'static OptionRow> {
    all().filter(move |row| row.verbs.contains(&verb))
}

/// The option with this name or alias; `_` may stand for `-`.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionRow> {
    let name = name.replace('_', "-");
    all().find(|row| row.name == name || row.aliases.contains(&name.as_str()))
}

/// What `text` makes of the option, for the rows' tests.
#[cfg(test)]
fn parsed(row: &OptionRow, text: &str) -> Result<Typed, String> {
    let mut typed = Typed::default();
    (row.set)(&mut typed, super::row::Text { text, source: super::source::Source::Flag })?;
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::config::layers::Layers;

    #[test]
    fn no_name_and_no_variable_stands_twice() {
        let mut names = HashSet::new();
        let mut variables = HashSet::new();
        for row in all() {
            for name in [row.name].iter().chain(row.aliases) {
                assert!(names.insert(*name), "--{name} stands twice");
            }
            for variable in [row.environment].iter().chain(row.ambient) {
                assert!(variables.insert(*variable), "{variable} stands twice");
            }
        }
        assert!(names.len() > 25);
    }

    #[test]
    fn names_are_lower_case_words_and_variables_follow_from_them() {
        for row in all() {
            for name in [row.name].iter().chain(row.aliases) {
                let regular =
                    name.split('-').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()));
                assert!(regular, "--{name}");
            }
            let variable = format!("STREAMVOL_{}", row.name.replace('-', "_").to_ascii_uppercase());
            assert_eq!(row.environment, variable);
            assert!(row.ambient.iter().all(|variable| variable.starts_with("AWS_")), "--{}", row.name);
        }
    }

    #[test]
    fn help_is_one_ascii_sentence_without_a_full_stop() {
        for row in all() {
            let help = row.help;
            assert!(help.is_ascii() && help.len() > 10 && !help.contains('\n'), "--{}: {help}", row.name);
            assert!(
                help.starts_with(|c: char| c.is_ascii_uppercase()) && !help.ends_with('.'),
                "--{}: {help}",
                row.name
            );
            assert!(row.default.shown().is_ascii() && !row.default.shown().is_empty(), "--{}", row.name);
        }
    }

    #[test]
    fn value_names_are_upper_case_and_choices_hold_their_default() {
        for row in all() {
            match (row.kind, row.default) {
                (Kind::Switch, default) => assert_eq!(default, DefaultValue::Text("false"), "--{}", row.name),
                (Kind::Value(name), _) => {
                    assert!(name.bytes().all(|b| b.is_ascii_uppercase()) && !name.is_empty(), "--{}", row.name);
                }
                (Kind::Choice(words), DefaultValue::Text(text)) => assert!(words.contains(&text), "--{}", row.name),
                (Kind::Choice(_), default) => panic!("--{}: {default:?}", row.name),
            }
        }
    }

    #[test]
    fn every_choice_and_every_default_can_be_parsed() {
        for row in all() {
            if let Kind::Choice(words) = row.kind {
                for word in words {
                    parsed(row, word).unwrap();
                }
            }
            if let DefaultValue::Text(text) = row.default {
                parsed(row, text).unwrap();
            }
        }
        for verb in [Verb::Mount, Verb::Unmount, Verb::Demo, Verb::Ls, Verb::Stat] {
            Layers::new(verb).typed().unwrap();
        }
    }

    #[test]
    fn every_row_stores_what_it_parses() {
        for row in all() {
            let text = match row.kind {
                Kind::Switch => "true",
                Kind::Choice(words) => words[0],
                Kind::Value("MODE") => "077",
                Kind::Value("DURATION") => "7s",
                Kind::Value("SIZE") => "77M",
                Kind::Value("N" | "ID" | "KIB") => "77",
                Kind::Value(_) => "text",
            };
            let changed = format!("{:?}", parsed(row, text).unwrap());
            assert_ne!(changed, format!("{:?}", Typed::default()), "--{}", row.name);
        }
    }

    #[test]
    fn conflicts_are_said_on_both_sides() {
        for row in all() {
            for name in row.conflicts {
                let other = find(name).unwrap();
                assert!(other.conflicts.contains(&row.name), "--{} and --{name}", row.name);
            }
        }
    }

    #[test]
    fn every_option_belongs_to_a_verb_and_sections_stay_together() {
        let mut sections: Vec<Section> = all().map(|row| row.section).collect();
        sections.dedup();
        assert_eq!(sections, Section::ALL);
        assert!(all().all(|row| !row.verbs.is_empty()));
    }

    #[test]
    fn options_are_found_by_name_and_alias_in_both_spellings() {
        for name in ["path-style", "force-path-style", "path_style"] {
            assert_eq!(find(name).unwrap().name, "path-style");
        }
        assert!(find("no-such-option").is_none());
    }
}
