//! The command line: made from the options table, and read back into texts by option.
//!
//! Only verbs, their arguments and one hidden switch are written here; everything about an option stands in its row.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::exit_code::ExitCode;
use crate::config::layers::Layers;
use crate::config::options;
use crate::config::row::{Kind, OptionRow, Verb};
use crate::config::{Source, layers::OptionError};

/// Hidden switch of `mount`: this process is the one in the background, and its parent listens on its standard output.
pub(super) const REPORT_ON_STDOUT: &str = "report-on-stdout";

/// What to type first.
const EXAMPLES: &str = "\
Examples:
  streamvol demo                                       try it, without a bucket
  streamvol ls s3://my-bucket/train                    look before you mount
  streamvol mount s3://my-bucket/train /mnt/train      credentials as for the AWS tools
  streamvol unmount /mnt/train";

const ADDRESS: &str = "BUCKET";
const MOUNTPOINT: &str = "MOUNTPOINT";

/// What was typed.
#[derive(Debug)]
pub(super) struct Invocation {
    /// What to do.
    pub(super) verb: Verb,
    /// The bucket's address, for verbs that have one.
    pub(super) address: Option<OsString>,
    /// The mount point, for verbs that have one.
    pub(super) mountpoint: Option<PathBuf>,
    /// True in the background process that `mount` starts.
    pub(super) reports: bool,
    /// Texts of all options.
    pub(super) layers: Layers,
}

/// Reads a command line, and the environment for what it leaves open.
///
/// # Errors
/// What is wrong, as clap says it (also its answers to `--help` and `--version`), or a variable that cannot be read.
pub(super) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Invocation, ParseError> {
    let matches = command().try_get_matches_from(arguments)?;
    let chosen = matches.subcommand().and_then(|(name, matches)| Some((verb(name)?, matches)));
    let Some((verb, matches)) = chosen else {
        return Err(command().error(clap::error::ErrorKind::MissingSubcommand, "a verb is missing").into());
    };
    let mut layers = Layers::new(verb);
    layers.add_environment(environment)?;
    for row in options::of_verb(verb) {
        if matches.value_source(row.name) == Some(ValueSource::CommandLine)
            && let Some(text) = matches.get_one::<String>(row.name)
        {
            layers.add(row, text.clone(), Source::Flag);
        }
    }
    Ok(Invocation {
        verb,
        address: argument(matches, ADDRESS),
        mountpoint: argument(matches, MOUNTPOINT),
        reports: matches.try_get_one(REPORT_ON_STDOUT).ok().flatten().copied().unwrap_or(false),
        layers,
    })
}

/// Why a command line cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    /// In clap's words; also help and version, which are no errors.
    #[error(transparent)]
    Clap(#[from] clap::Error),
    /// A wrong variable.
    #[error(transparent)]
    Option(#[from] OptionError),
}

fn argument<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.try_get_one(name).ok().flatten().cloned()
}

fn verb(name: &str) -> Option<Verb> {
    match name {
        "mount" => Some(Verb::Mount),
        "unmount" => Some(Verb::Unmount),
        "demo" => Some(Verb::Demo),
        "ls" => Some(Verb::Ls),
        "stat" => Some(Verb::Stat),
        _ => None,
    }
}

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    Command::new("streamvol")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Mounts a prefix of an object-storage bucket read-only and streams it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(format!("{EXAMPLES}\n\n{}", ExitCode::table()))
        .subcommands([mount(), unmount(), demo(), ls(), stat()])
}

fn mount() -> Command {
    let mountpoint = Arg::new(MOUNTPOINT)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Directory to mount on, or /dev/fd/N for a FUSE device that is mounted already");
    let reports = Arg::new(REPORT_ON_STDOUT).long(REPORT_ON_STDOUT).action(ArgAction::SetTrue).hide(true);
    with_options(Verb::Mount, Command::new("mount"))
        .about("Mount a bucket, or a prefix of one, read-only; returns when the mount answers")
        .args([address("Bucket, and prefix in it: s3://BUCKET[/PREFIX], also oss:// and gs://"), mountpoint, reports])
        .after_help(ExitCode::table())
}

fn unmount() -> Command {
    let mountpoint =
        Arg::new(MOUNTPOINT).required(true).value_parser(value_parser!(PathBuf)).help("Directory that is mounted");
    with_options(Verb::Unmount, Command::new("unmount"))
        .visible_alias("umount")
        .about("Unmount, and end the process that serves the mount")
        .arg(mountpoint)
}

fn demo() -> Command {
    let mountpoint =
        Arg::new(MOUNTPOINT).value_parser(value_parser!(PathBuf)).help("Directory to mount on [default: a new one]");
    with_options(Verb::Demo, Command::new("demo"))
        .about("Mount a made-up bucket on this machine and read it")
        .arg(mountpoint)
}

fn ls() -> Command {
    with_options(Verb::Ls, Command::new("ls"))
        .about("List what a mount would show, without mounting")
        .arg(address("Bucket, and directory or file in it: s3://BUCKET[/PATH]"))
}

fn stat() -> Command {
    with_options(Verb::Stat, Command::new("stat"))
        .about("Show what a mount would say about one file or directory, without mounting")
        .arg(address("Bucket, and directory or file in it: s3://BUCKET[/PATH]"))
}

fn address(help: &'static str) -> Arg {
    Arg::new(ADDRESS).required(true).value_parser(value_parser!(OsString)).help(help)
}

fn with_options(verb: Verb, command: Command) -> Command {
    let arguments = options::of_verb(verb).enumerate().map(|(order, row)| option(row).display_order(order));
    command.args(arguments)
}

/// One row as an argument. Its default is shown, but given by `Layers`: so clap's value is always one that was typed.
fn option(row: &OptionRow) -> Arg {
    // Given twice, the last one holds: scripts append to a list of options that they did not write.
    let argument = Arg::new(row.name)
        .long(row.name)
        .visible_aliases(row.aliases.iter().copied())
        .help(help(row))
        .help_heading(row.section.title())
        .overrides_with(row.name);
    let argument = match row.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    match row.kind {
        Kind::Switch => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false")
            .hide_possible_values(true)
            .value_parser(value_parser!(String)),
        Kind::Value(name) => argument.value_name(name).value_parser(value_parser!(String)),
        Kind::Choice(words) => argument
            .value_name(words.join("|"))
            .hide_possible_values(true)
            .ignore_case(true)
            .value_parser(PossibleValuesParser::new(words)),
    }
}

fn help(row: &OptionRow) -> String {
    let variables: Vec<&str> = [row.environment].iter().chain(row.ambient).copied().collect();
    let default = if row.kind == Kind::Switch { String::new() } else { format!(" [default: {}]", row.default.shown()) };
    format!("{}{default} [env: {}]", row.help, variables.join(", "))
}

/// The arguments for the background process: those of this one and the hidden switch, which goes before anything that
/// could be taken for an argument.
pub(super) fn background_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let verb_end = arguments.len().min(2);
    let mut all = arguments[verb_end.min(1)..verb_end].to_vec();
    all.push(format!("--{REPORT_ON_STDOUT}").into());
    all.extend_from_slice(&arguments[verb_end..]);
    all
}

/// True for a mount point that is a device somebody has mounted already: `/dev/fd/N`.
pub(super) fn device_number(mountpoint: &OsStr) -> Option<i32> {
    let digits = mountpoint.to_str()?.strip_prefix("/dev/fd/")?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::typed::Typed;

    fn no_environment(_name: &str) -> Option<OsString> {
        None
    }

    fn parse_words(words: &[&str]) -> Result<Invocation, ParseError> {
        let arguments = ["streamvol"].iter().chain(words).map(OsString::from);
        parse(arguments, &no_environment)
    }

    fn typed(words: &[&str]) -> Typed {
        parse_words(words).unwrap().layers.typed().unwrap()
    }

    fn refusal(words: &[&str]) -> String {
        parse_words(words).unwrap_err().to_string()
    }

    const MOUNT: [&str; 3] = ["mount", "s3://bucket", "/mnt"];

    fn mount_with<'a>(words: &[&'a str]) -> Vec<&'a str> {
        MOUNT.into_iter().chain(words.iter().copied()).collect()
    }

    #[test]
    fn clap_finds_no_fault_with_the_table() {
        command().debug_assert();
    }

    #[test]
    fn every_verb_and_its_arguments_are_read() {
        let mount = parse_words(&["mount", "s3://b/%20", "rel/mnt"]).unwrap();
        assert_eq!((mount.verb, mount.reports), (Verb::Mount, false));
        assert_eq!(mount.address.as_deref(), Some(OsStr::new("s3://b/%20")));
        assert_eq!(mount.mountpoint.as_deref(), Some(std::path::Path::new("rel/mnt")));
        for name in ["unmount", "umount"] {
            let unmount = parse_words(&[name, "/mnt", "--lazy"]).unwrap();
            assert_eq!((unmount.verb, unmount.address.is_none()), (Verb::Unmount, true));
        }
        assert_eq!(parse_words(&["demo"]).unwrap().mountpoint, None);
        assert_eq!(parse_words(&["ls", "s3://b"]).unwrap().verb, Verb::Ls);
        assert_eq!(parse_words(&["stat", "s3://b/x"]).unwrap().verb, Verb::Stat);
    }

    #[test]
    fn an_address_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt;
        let address = OsStr::from_bytes(b"s3://b/\xff");
        let arguments = [OsStr::new("streamvol"), OsStr::new("ls"), address].map(OsStr::to_owned);
        assert_eq!(parse(arguments, &no_environment).unwrap().address.as_deref(), Some(address));
    }

    #[test]
    fn switches_stand_alone_or_say_true_or_false() {
        assert!(typed(&mount_with(&["--allow-other"])).allow_other.value);
        assert!(!typed(&mount_with(&["--allow-other=false"])).allow_other.value);
        assert!(typed(&["mount", "--allow-other", "s3://bucket", "/mnt"]).allow_other.value);
        assert!(typed(&mount_with(&["--force-path-style"])).path_style.value);
        assert!(typed(&["ls", "-R", "s3://b"]).recursive.value);
    }

    #[test]
    fn values_follow_after_a_space_or_an_equals_sign_and_the_last_one_holds() {
        let typed = typed(&mount_with(&["--umask", "077", "--umask=027", "--direct-mode", "true"]));
        assert_eq!((typed.umask.value, typed.umask.source), (0o27, Source::Flag));
        assert!(typed.direct_mode.value);
    }

    #[test]
    fn the_environment_gives_what_the_command_line_leaves_open() {
        let environment = |name: &str| match name {
            "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:9000".into()),
            "STREAMVOL_UMASK" => Some("077".into()),
            _ => None,
        };
        let arguments = ["streamvol", "mount", "s3://bucket", "/mnt", "--umask", "000"].map(OsString::from);
        let typed = parse(arguments, &environment).unwrap().layers.typed().unwrap();
        assert_eq!(typed.endpoint_url.source, Source::Ambient("AWS_ENDPOINT_URL"));
        assert_eq!((typed.umask.value, typed.umask.source), (0, Source::Flag));
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_nearest_known_one() {
        let error = refusal(&mount_with(&["--endpont-url", "x"]));
        assert!(error.contains("unexpected argument '--endpont-url' found"), "{error}");
        assert!(error.contains("a similar argument exists: '--endpoint-url'"), "{error}");
        let error = refusal(&["unmount", "/mnt", "--region", "x"]);
        assert!(error.contains("unexpected argument '--region' found"), "{error}");
        let error = refusal(&["mout", "s3://bucket", "/mnt"]);
        assert!(error.contains("similar subcommand"), "{error}");
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        assert!(refusal(&["mount"]).contains("<BUCKET>\n  <MOUNTPOINT>"));
        assert!(refusal(&["mount", "s3://bucket"]).contains("<MOUNTPOINT>"));
        assert!(refusal(&mount_with(&["more"])).contains("unexpected argument 'more'"));
        assert!(refusal(&mount_with(&["--umask"])).contains("a value is required for '--umask <MODE>'"));
        let error = refusal(&mount_with(&["--dialect", "azure"]));
        assert!(
            error.contains("[possible values: auto, aws, oss, gcs, r2, ceph, minio, seaweedfs, generic]"),
            "{error}"
        );
    }

    #[test]
    fn an_unreadable_value_is_refused_with_what_would_be_accepted() {
        let typed = |words: &[&str]| parse_words(&mount_with(words)).unwrap().layers.typed().unwrap_err().to_string();
        assert_eq!(
            typed(&["--retry-deadline", "5"]),
            "invalid value \"5\" for --retry-deadline: write a number and a unit, as in 500ms, 30s, 5m or 1h"
        );
        assert_eq!(
            typed(&["--path-style", "--virtual-hosted"]),
            "--path-style and --virtual-hosted exclude each other: give only one of them"
        );
    }

    #[test]
    fn help_shows_each_option_with_default_and_variable_and_the_exit_codes() {
        let help = refusal(&["mount", "--help"]).replace('\n', " ");
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        for row in options::of_verb(Verb::Mount) {
            assert!(help.contains(&format!("--{}", row.name)) && help.contains(row.environment), "--{}", row.name);
        }
        assert!(help.contains("[default: 022] [env: STREAMVOL_UMASK]"), "{help}");
        assert!(help.contains("Exit codes: 0 done"), "{help}");
        assert!(!help.contains(REPORT_ON_STDOUT), "{help}");
        let overview = refusal(&["--help"]);
        assert!(overview.contains("streamvol demo ") && overview.contains("Exit codes:\n"), "{overview}");
    }

    #[test]
    fn the_background_process_gets_the_same_arguments_and_one_more() {
        let arguments = ["streamvol", "mount", "--", "s3://b", "/mnt"].map(OsString::from);
        let background = background_arguments(&arguments);
        assert_eq!(background, ["mount", "--report-on-stdout", "--", "s3://b", "/mnt"]);
        let all = [OsString::from("streamvol")].into_iter().chain(background);
        assert!(parse(all, &no_environment).unwrap().reports);
    }

    #[test]
    fn only_dev_fd_names_a_device() {
        for (text, number) in [
            ("/dev/fd/3", Some(3)),
            ("/dev/fd/0", Some(0)),
            ("/dev/fd/", None),
            ("/dev/fd/+3", None),
            ("/dev/fd/3/x", None),
            ("/mnt/dev/fd/3", None),
            ("/dev/fd/99999999999", None),
        ] {
            assert_eq!(device_number(OsStr::new(text)), number, "{text}");
        }
    }
}
