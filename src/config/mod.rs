//! Options and where their values come from.
//!
//! Three steps, each its own file: `layers` collects texts (command line, environment, defaults) by option name, `typed`
//! holds what they say once parsed, `resolve` turns that into what is meant: the small `Config` of each module below. The
//! options themselves are rows of one table (`options`); the command line, its help and the README's table are made from it.
//!
//! This module knows every other module's `Config`; none of them knows this one, and nobody else reads the environment.

pub mod environment;
pub mod layers;
pub mod machine;
pub mod markdown;
pub mod options;
pub mod resolve;
pub mod row;
pub mod typed;
pub mod uri;

mod parse;
mod source;

pub use source::{Given, Source};
