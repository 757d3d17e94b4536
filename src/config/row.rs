//! What one row of the options table says.
//!
//! A row is data: everything that is shown or accepted about an option stands in it, and nothing about it anywhere else.

use super::source::{Given, Source};
use super::typed::Typed;

/// A verb of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `streamvol mount`.
    Mount,
    /// `streamvol unmount`.
    Unmount,
    /// `streamvol demo`.
    Demo,
    /// `streamvol ls`.
    Ls,
    /// `streamvol stat`.
    Stat,
}

/// The heading under which help and README show an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// The bucket and how to reach it.
    Store,
    /// What the mount shows.
    Listing,
    /// Owner and permissions of files and directories.
    Permissions,
    /// How bytes are fetched and kept.
    Reading,
    /// The process itself.
    Process,
    /// The demo's made-up bucket.
    Demo,
    /// How to unmount.
    Unmounting,
}

impl Section {
    /// All sections, in the order they are shown.
    pub const ALL: [Section; 7] = [
        Section::Store,
        Section::Listing,
        Section::Permissions,
        Section::Reading,
        Section::Process,
        Section::Demo,
        Section::Unmounting,
    ];

    /// The heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Section::Store => "Store",
            Section::Listing => "Listing",
            Section::Permissions => "Permissions",
            Section::Reading => "Reading",
            Section::Process => "Process",
            Section::Demo => "Demo",
            Section::Unmounting => "Unmounting",
        }
    }
}

/// What may follow the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing (that is `true`), or `=true`, `=false`.
    Switch,
    /// A value; its name in help, which is its unit where it has one.
    Value(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// What holds when nobody gives a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text, parsed like any other.
    Text(&'static str),
    /// Nothing is stored; `resolve` does what these words say.
    Derived(&'static str),
}

impl DefaultValue {
    /// As help shows it.
    #[must_use]
    pub fn shown(self) -> &'static str {
        match self {
            DefaultValue::Text(text) | DefaultValue::Derived(text) => text,
        }
    }
}

/// One option.
#[derive(Debug)]
pub struct OptionRow {
    /// Long name, without the two dashes; also its name in a configuration file.
    pub name: &'static str,
    /// One letter that stands for it.
    pub short: Option<char>,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Its environment variable.
    pub environment: &'static str,
    /// Environment variables of other tools that are honoured, strongest first.
    pub ambient: &'static [&'static str],
    /// What follows the name.
    pub kind: Kind,
    /// What holds when nobody gives it.
    pub default: DefaultValue,
    /// Heading in help.
    pub section: Section,
    /// Which verbs take it.
    pub verbs: &'static [Verb],
    /// Names of options that cannot be given with it; said on both sides.
    pub conflicts: &'static [&'static str],
    /// One sentence, no full stop.
    pub help: &'static str,
    /// Parses a text and stores it; the error says what would be accepted.
    pub set: fn(&mut Typed, Text<'_>) -> Result<(), String>,
}

impl OptionRow {
    /// How somebody who gave it from `source` calls it.
    #[must_use]
    pub fn name_in(&self, source: Source) -> String {
        match source {
            Source::Ambient(name) | Source::Environment(name) => name.to_owned(),
            Source::Default | Source::Flag => format!("--{}", self.name),
        }
    }
}

/// A text that was given for an option.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// As it was typed.
    pub text: &'a str,
    /// Who gave it.
    pub source: Source,
}

impl Text<'_> {
    /// Stores in `field` what `parse` makes of the text.
    ///
    /// # Errors
    /// Those of `parse`.
    pub fn store<T>(self, field: &mut Given<T>, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<(), String> {
        *field = Given { value: parse(self.text)?, source: self.source };
        Ok(())
    }

    /// Stores in `field`, which is empty by default, what `parse` makes of the text.
    ///
    /// # Errors
    /// Those of `parse`.
    pub fn store_some<T>(
        self,
        field: &mut Given<Option<T>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<(), String> {
        self.store(field, |text| parse(text).map(Some))
    }
}
