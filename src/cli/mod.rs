//! The command line: one file per verb, and what verbs share.
//!
//! - `command` makes the command line from the options table and reads it; `error` and `exit_code` say how it ended.
//! - `mount` serves in the foreground, or starts itself again in the background (`background`, `report`).
//! - `ls` and `stat` look at a bucket without mounting (`browse`), `unmount` and `demo` do what they say.
//!
//! Always true: what a user meets is one line that says what was wrong and what to do, and an exit code from the table.

mod background;
mod browse;
mod command;
pub mod demo;
mod error;
mod exit_code;
mod ls;
mod mount;
mod progress;
mod report;
pub mod runtime;
mod stat;
mod unmount;

pub use command::command;
pub use error::CliError;
pub use exit_code::ExitCode;

use std::ffi::OsString;
use std::io::{self, Write};

use command::{Invocation, ParseError};

use crate::config::environment;
use crate::config::layers::{Layers, OptionError};
use crate::config::machine::Machine;
use crate::config::resolve::{self, Host};
use crate::config::row::Verb;
use crate::config::typed::Typed;
use crate::config::uri::BucketUri;
use crate::store::credentials::AlibabaEnvironment;
use crate::telemetry::log::{self, Destination, LogLevel};

/// Runs a command line; what there is to say is printed.
#[must_use]
pub fn run(arguments: &[OsString]) -> ExitCode {
    let invocation = match command::parse(arguments.iter().cloned(), &environment::variable) {
        Ok(invocation) => invocation,
        Err(ParseError::Clap(answer)) => {
            // Help and version go to standard output and are no errors. A closed output is nobody's business here.
            let _closed = answer.print();
            return if answer.use_stderr() { ExitCode::Usage } else { ExitCode::Done };
        }
        Err(ParseError::Option(error)) => return fail(&error.into()),
    };
    dispatch(invocation, arguments).unwrap_or_else(|error| fail(&error))
}

fn dispatch(invocation: Invocation, arguments: &[OsString]) -> Result<ExitCode, CliError> {
    let Invocation { verb, address, mountpoint, reports, mut layers } = invocation;
    let typed = layers.typed()?;
    let host = host()?;
    let uri = address.as_deref().map(BucketUri::parse).transpose()?;
    // Both are required by the verbs that have them, so clap has seen to it that they are there.
    let missing = |what: &str| OptionError::Meaning(format!("{what} is missing"));
    let uri = || uri.as_ref().ok_or_else(|| missing("the bucket's address"));
    let mountpoint_or_missing = || mountpoint.as_deref().ok_or_else(|| missing("the mount point"));
    match verb {
        Verb::Mount => {
            let settings = resolve::mount(&typed, uri()?, &host)?;
            let plan = mount::Plan::new(settings, mountpoint_or_missing()?, &host, effective(&layers));
            return mount::run(plan, reports, arguments);
        }
        Verb::Unmount => unmount::run(mountpoint_or_missing()?, resolve::unmount(&typed))?,
        Verb::Demo => {
            let config = resolve::demo(&typed, mountpoint.as_deref(), &host);
            log_to_stderr(config.log_level)?;
            demo::run(config)?;
        }
        Verb::Ls => browse(uri()?, &typed, &host, ls::run)?,
        Verb::Stat => browse(uri()?, &typed, &host, stat::run)?,
    }
    Ok(ExitCode::Done)
}

/// Runs a verb that looks at a bucket.
fn browse(
    uri: &BucketUri,
    typed: &Typed,
    host: &Host,
    verb: impl AsyncFnOnce(&BucketUri, &resolve::BrowseSettings) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let settings = resolve::browse(typed, uri, host)?;
    log_to_stderr(settings.log_level)?;
    let runtime = runtime::build(host.machine.cpus)?;
    let result = runtime.block_on(verb(uri, &settings));
    runtime::stop(runtime);
    result
}

fn log_to_stderr(level: LogLevel) -> Result<(), CliError> {
    let writer = tracing_subscriber::fmt::writer::BoxMakeWriter::new(io::stderr);
    log::init(level, Destination::Lines(writer))
        .map_err(|error| CliError::Log { place: "standard error".to_owned(), error })
}

fn host() -> Result<Host, CliError> {
    Ok(Host {
        machine: Machine::detect(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        directory: std::env::current_dir().map_err(CliError::system("find the current directory"))?,
        alibaba: AlibabaEnvironment::from_lookup(&environment::text_variable),
    })
}

/// The effective configuration on one line, for the log: each option, its value and where that is from.
fn effective(layers: &Layers) -> String {
    let options = layers.effective().map(|(row, given)| format!("{}={} ({})", row.name, given.value, given.source));
    options.collect::<Vec<_>>().join(", ")
}

fn fail(error: &CliError) -> ExitCode {
    say(&format!("error: {error}"));
    error.exit_code()
}

/// A line on standard error. Nothing can be done when that is closed, and it is no reason to fail.
fn say(line: &str) {
    let _closed = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;
    use crate::config::options;

    #[test]
    fn the_effective_configuration_names_value_and_source_of_each_option() {
        let mut layers = Layers::new(Verb::Unmount);
        layers.add(options::find("lazy").unwrap(), "true".to_owned(), Source::Flag);
        assert_eq!(effective(&layers), "force=false (default), lazy=true (command line)");
    }

    #[test]
    fn wrong_arguments_end_with_the_code_for_usage() {
        for words in [
            &["streamvol"][..],
            &["streamvol", "mount", "bucket", "/mnt"],
            &["streamvol", "mount", "s3://bucket", "/mnt", "--umask", "9"],
            &["streamvol", "ls", "oss://bucket", "--endpoint-url", "ftp://x"],
            &["streamvol", "frobnicate"],
        ] {
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(run(&arguments), ExitCode::Usage, "{words:?}");
        }
        let version = ["streamvol", "--version"].map(OsString::from);
        assert_eq!(run(&version), ExitCode::Done);
    }
}
