//! Where log lines go and which ones.
//!
//! Always true: credentials and signatures are never logged. Our own code has no line that holds them; libraries, whose debug
//! lines show headers and signing input, are heard from `warn` up only, whatever the level. A panic is logged, since a
//! daemon has no standard error to print it on.

use std::fs::{File, OpenOptions};
use std::io;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// Where journald takes log entries.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// Targets of our own lines begin with the crate's name.
const OUR_TARGET: &str = "streamvol";

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// What somebody must look at.
    Error,
    /// What may need a look.
    Warn,
    /// What is normal even if unpleasant.
    #[default]
    Info,
    /// What helps to find out why.
    Debug,
    /// Every step.
    Trace,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Where log lines go.
#[derive(Debug)]
pub enum Destination {
    /// Lines of text, one an event.
    Lines(BoxMakeWriter),
    /// The journal, with levels and fields.
    Journal,
    /// Nowhere.
    Nowhere,
}

/// True when a journal is there to log to.
#[must_use]
pub fn has_journal() -> bool {
    Path::new(JOURNAL_SOCKET).exists()
}

/// A file to append lines to; made if it is not there.
///
/// # Errors
/// When it cannot be opened.
pub fn open_file(path: &Path) -> io::Result<Arc<File>> {
    OpenOptions::new().create(true).append(true).open(path).map(Arc::new)
}

/// Sends the log of the whole process to `destination` from now on. Has an effect once: the first call holds.
///
/// # Errors
/// When the journal does not answer.
pub fn init(level: LogLevel, destination: Destination) -> io::Result<()> {
    let registry = tracing_subscriber::registry();
    // An error here says that a log is set up already.
    let _already = match destination {
        Destination::Lines(writer) => {
            tracing::subscriber::set_global_default(registry.with(lines_layer(level, writer)))
        }
        Destination::Journal => {
            let layer = tracing_journald::layer()?.with_syslog_identifier(OUR_TARGET.to_owned());
            tracing::subscriber::set_global_default(registry.with(layer.with_filter(filter_fn(heard(level)))))
        }
        Destination::Nowhere => Ok(()),
    };
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        print(panic);
    }));
    Ok(())
}

/// Lines of text: time, level, where from, message, fields. No colours: the same on a terminal, in a file and in a container.
fn lines_layer<S, W>(level: LogLevel, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer).with_filter(filter_fn(heard(level)))
}

/// Which events are heard: ours from `level` up, those of libraries from `warn` up.
fn heard(level: LogLevel) -> impl Fn(&Metadata<'_>) -> bool {
    let ours = level.filter();
    let theirs = ours.min(LevelFilter::WARN);
    move |metadata| {
        let target = metadata.target();
        let is_ours = target == OUR_TARGET || target.starts_with("streamvol::");
        *metadata.level() <= if is_ours { ours } else { theirs }
    }
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("(no message)");
    tracing::error!(location, "panic: {message}");
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A writer whose lines can be looked at.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LogLevel, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let written = Arc::clone(&lines.0);
        let subscriber = tracing_subscriber::registry().with(lines_layer(level, move || lines.clone()));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn our_lines_are_heard_from_the_level_up() {
        let log = || {
            tracing::debug!("fine print");
            tracing::info!(objects = 7, "listed");
            tracing::warn!("odd");
        };
        let text = logged(LogLevel::Info, log);
        assert!(text.contains("INFO") && text.contains("listed") && text.contains("objects=7"), "{text}");
        assert!(text.contains("odd") && !text.contains("fine print"), "{text}");
        assert!(logged(LogLevel::Debug, log).contains("fine print"));
        assert_eq!(logged(LogLevel::Error, log), "");
    }

    #[test]
    fn libraries_are_heard_from_warn_up_so_that_no_header_is_logged() {
        let log = || {
            tracing::trace!(target: "aws_sigv4::http_request", "canonical request with a signature");
            tracing::debug!(target: "hyper::proto", "Authorization: secret");
            tracing::info!(target: "streamvolume", "another crate");
            tracing::warn!(target: "aws_config", "odd profile");
        };
        for level in [LogLevel::Info, LogLevel::Trace] {
            let text = logged(level, log);
            assert!(text.contains("odd profile"), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        assert_eq!(logged(LogLevel::Error, log), "");
    }

    #[test]
    fn lines_have_no_colours() {
        assert!(!logged(LogLevel::Info, || tracing::error!("red")).contains('\x1b'));
    }

    #[test]
    fn a_panic_becomes_a_line_with_its_place() {
        // The hook is the process's: taken for one panic on this thread only, and put back.
        let text = logged(LogLevel::Info, || {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(log_panic));
            let caught = std::panic::catch_unwind(|| panic!("no way out"));
            std::panic::set_hook(before);
            assert!(caught.is_err());
        });
        assert!(text.contains("panic: no way out") && text.contains("log.rs"), "{text}");
    }

    #[test]
    fn a_log_file_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for line in ["one", "two"] {
            writeln!(&*open_file(&path).unwrap(), "{line}").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert!(open_file(&folder.path().join("no/such/folder")).is_err());
    }
}
