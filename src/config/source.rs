//! A value and where it came from.

use std::fmt;

/// Where the value of an option came from, weakest first: a later one replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nobody gave it.
    Default,
    /// An environment variable of other tools that is honoured, as `AWS_REGION`.
    Ambient(&'static str),
    /// The environment variable that belongs to the option, as `STREAMVOL_REGION`.
    Environment(&'static str),
    /// The command line.
    Flag,
}

impl Source {
    /// Strength: of two values the one with the higher rank holds.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self {
            Source::Default => 0,
            Source::Ambient(_) => 1,
            Source::Environment(_) => 2,
            Source::Flag => 3,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Ambient(name) | Source::Environment(name) => f.write_str(name),
            Source::Flag => f.write_str("command line"),
        }
    }
}

/// A value that remembers its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Who gave it.
    pub source: Source,
}

impl<T> Given<T> {
    /// True unless it is the default.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.source != Source::Default
    }
}

impl<T: Default> Default for Given<T> {
    fn default() -> Self {
        Given { value: T::default(), source: Source::Default }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_beats_our_variables_which_beat_those_of_other_tools() {
        let ranks = [Source::Default, Source::Ambient("A"), Source::Environment("B"), Source::Flag].map(Source::rank);
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }
}
