//! The texts that were given for a verb's options, from all sources; the strongest source holds.
//!
//! Always true: a text that does not hold is never parsed (a wrong variable that a flag replaces is no error), and of two
//! options that exclude each other the one from the stronger source stays. Only when both come from the same source is it
//! an error.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::options;
use super::parse;
use super::row::{DefaultValue, Kind, OptionRow, Text, Verb};
use super::source::{Given, Source};
use super::typed::Typed;

/// An option that was given wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A value that cannot be read.
    #[error("invalid value \"{text}\" for {name}: {reason}")]
    Invalid {
        /// The option, as whoever gave it calls it.
        name: String,
        /// What was given.
        text: String,
        /// What would be accepted.
        reason: String,
    },
    /// Two options that exclude each other.
    #[error("{first} and {second} exclude each other: give only one of them")]
    Conflict {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// Options that are right alone, but not together or not here.
    #[error("{0}")]
    Meaning(String),
}

/// Texts by option, with their sources.
#[derive(Debug, Clone)]
pub struct Layers {
    verb: Verb,
    texts: BTreeMap<&'static str, (&'static OptionRow, Given<String>)>,
}

impl Layers {
    /// The defaults of `verb`.
    #[must_use]
    pub fn new(verb: Verb) -> Self {
        let mut layers = Layers { verb, texts: BTreeMap::new() };
        for row in options::of_verb(verb) {
            if let DefaultValue::Text(text) = row.default {
                layers.add(row, text.to_owned(), Source::Default);
            }
        }
        layers
    }

    /// Adds one text; it holds unless a stronger source has given another.
    pub fn add(&mut self, row: &'static OptionRow, text: String, source: Source) {
        let held = self.texts.get(row.name).map_or(0, |(_, given)| given.source.rank());
        if source.rank() >= held {
            self.texts.insert(row.name, (row, Given { value: text, source }));
        }
    }

    /// Adds what the environment says about this verb's options.
    ///
    /// # Errors
    /// When a variable is not UTF-8.
    pub fn add_environment(&mut self, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<(), OptionError> {
        for row in options::of_verb(self.verb) {
            let ambient = row.ambient.iter().map(|&name| Source::Ambient(name));
            // Weakest first: each replaces the one before.
            for source in ambient.rev().chain([Source::Environment(row.environment)]) {
                let Some(value) = lookup(&row.name_in(source)) else { continue };
                let text = value.into_string().map_err(|value| OptionError::Invalid {
                    name: row.name_in(source),
                    text: value.to_string_lossy().into_owned(),
                    reason: "it is not UTF-8".to_owned(),
                })?;
                self.add(row, text, source);
            }
        }
        Ok(())
    }

    /// Every option of the verb that has a text, with the text that holds: the effective configuration.
    pub fn effective(&self) -> impl Iterator<Item = (&'static OptionRow, &Given<String>)> {
        self.texts.values().map(|(row, given)| (*row, given))
    }

    /// Parses the texts that hold; from then on `effective` shows only those.
    ///
    /// # Errors
    /// A value that cannot be read, or two options that exclude each other.
    pub fn typed(&mut self) -> Result<Typed, OptionError> {
        self.drop_excluded()?;
        let mut typed = Typed::default();
        for (row, given) in self.texts.values() {
            (row.set)(&mut typed, Text { text: &given.value, source: given.source }).map_err(|reason| {
                OptionError::Invalid { name: row.name_in(given.source), text: given.value.clone(), reason }
            })?;
        }
        Ok(typed)
    }

    fn drop_excluded(&mut self) -> Result<(), OptionError> {
        let mut excluded = Vec::new();
        for (row, given) in self.texts.values().filter(|(row, given)| is_on(row, given)) {
            for (other, weaker) in row.conflicts.iter().filter_map(|name| self.texts.get(name)) {
                if !is_on(other, weaker) || weaker.source.rank() > given.source.rank() {
                    continue;
                }
                if weaker.source.rank() == given.source.rank() {
                    let (first, second) = (row.name_in(given.source), other.name_in(weaker.source));
                    return Err(OptionError::Conflict { first, second });
                }
                excluded.push(other.name);
            }
        }
        for name in excluded {
            self.texts.remove(name);
        }
        Ok(())
    }
}

/// True when the option says something: a switch that is off, or a default, excludes nothing.
fn is_on(row: &OptionRow, given: &Given<String>) -> bool {
    given.is_chosen() && !(row.kind == Kind::Switch && parse::boolean(&given.value) == Ok(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(verb: Verb, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::new(verb);
        let lookup = |name: &str| {
            environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        layers.add_environment(&lookup).unwrap();
        for (name, text) in flags {
            layers.add(options::find(name).unwrap(), (*text).to_owned(), Source::Flag);
        }
        layers
    }

    fn typed(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Typed, OptionError> {
        layers(Verb::Mount, environment, flags).typed()
    }

    #[test]
    fn the_strongest_source_holds_and_is_remembered() {
        let all = [("AWS_REGION", "b"), ("AWS_DEFAULT_REGION", "c"), ("STREAMVOL_REGION", "a")];
        for (environment, flags, value, source) in [
            (&all[..0], &[][..], None, Source::Default),
            (&all[1..2], &[], Some("c"), Source::Ambient("AWS_DEFAULT_REGION")),
            (&all[..2], &[], Some("b"), Source::Ambient("AWS_REGION")),
            (&all[..], &[], Some("a"), Source::Environment("STREAMVOL_REGION")),
            (&all[..], &[("region", "f")], Some("f"), Source::Flag),
        ] {
            let region = typed(environment, flags).unwrap().region;
            assert_eq!((region.value.as_deref(), region.source), (value, source));
        }
    }

    #[test]
    fn a_variable_that_does_not_hold_is_not_parsed() {
        let environment = [("STREAMVOL_UMASK", "nonsense")];
        assert_eq!(typed(&environment, &[("umask", "077")]).unwrap().umask.value, 0o77);
        assert_eq!(
            typed(&environment, &[]).unwrap_err().to_string(),
            "invalid value \"nonsense\" for STREAMVOL_UMASK: write octal permission bits from 000 to 777, as in 022"
        );
    }

    #[test]
    fn options_that_exclude_each_other_are_refused_when_both_come_from_one_source() {
        let error = typed(&[], &[("path-style", "true"), ("virtual-hosted", "true")]).unwrap_err();
        assert_eq!(error.to_string(), "--path-style and --virtual-hosted exclude each other: give only one of them");
        let both = [("STREAMVOL_PATH_STYLE", "1"), ("STREAMVOL_VIRTUAL_HOSTED", "1")];
        assert_eq!(
            typed(&both, &[]).unwrap_err().to_string(),
            "STREAMVOL_PATH_STYLE and STREAMVOL_VIRTUAL_HOSTED exclude each other: give only one of them"
        );
    }

    #[test]
    fn of_options_that_exclude_each_other_the_stronger_source_holds() {
        let typed = typed(
            &[("STREAMVOL_PATH_STYLE", "true"), ("STREAMVOL_PROFILE", "work")],
            &[("virtual-hosted", "true"), ("no-sign-request", "true")],
        )
        .unwrap();
        assert!(!typed.path_style.value && typed.virtual_hosted.value);
        assert_eq!(typed.profile.value, None);
    }

    #[test]
    fn a_switch_that_is_off_excludes_nothing() {
        let typed = typed(&[], &[("path-style", "false"), ("virtual-hosted", "true")]).unwrap();
        assert!(typed.virtual_hosted.value);
    }

    #[test]
    fn a_verb_takes_only_its_own_options() {
        let layers = layers(Verb::Unmount, &[("STREAMVOL_REGION", "x"), ("STREAMVOL_LAZY", "yes")], &[]);
        let names: Vec<&str> = layers.effective().map(|(row, _)| row.name).collect();
        assert_eq!(names, ["force", "lazy"]);
    }

    #[test]
    fn a_variable_that_is_not_utf8_is_refused_by_name() {
        use std::os::unix::ffi::OsStringExt;
        let lookup = |name: &str| (name == "STREAMVOL_REGION").then(|| OsString::from_vec(vec![b'x', 0xff]));
        let error = Layers::new(Verb::Mount).add_environment(&lookup).unwrap_err();
        assert_eq!(error.to_string(), "invalid value \"x\u{fffd}\" for STREAMVOL_REGION: it is not UTF-8");
    }
}
