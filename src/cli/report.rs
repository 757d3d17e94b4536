//! What the background process tells the one that started it: one line each, over a pipe.

use super::exit_code::ExitCode;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// So many objects are listed.
    Progress {
        /// Objects so far.
        objects: u64,
    },
    /// The mount answers.
    Ready {
        /// Objects listed in all.
        objects: u64,
    },
    /// It failed, and the process ends.
    Failed {
        /// Its exit code.
        code: ExitCode,
        /// Its error, in one or more lines.
        message: String,
    },
}

impl Report {
    /// The line, with its end.
    pub(super) fn to_line(&self) -> String {
        match self {
            Report::Progress { objects } => format!("progress {objects}\n"),
            Report::Ready { objects } => format!("ready {objects}\n"),
            Report::Failed { code, message } => {
                let message = message.replace('\\', "\\\\").replace('\n', "\\n");
                format!("failed {} {message}\n", code.number())
            }
        }
    }

    /// Reads a line back; `None` for one that no background process writes.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.strip_suffix('\n').unwrap_or(line).split_once(' ')?;
        match word {
            "progress" => Some(Report::Progress { objects: rest.parse().ok()? }),
            "ready" => Some(Report::Ready { objects: rest.parse().ok()? }),
            "failed" => {
                let (number, message) = rest.split_once(' ')?;
                Some(Report::Failed { code: ExitCode::from_number(number.parse().ok()?), message: unescape(message) })
            }
            _ => None,
        }
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => plain.push(if characters.next() == Some('n') { '\n' } else { '\\' }),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_is_one_line_and_read_back_as_it_was() {
        for report in [
            Report::Progress { objects: 0 },
            Report::Ready { objects: u64::MAX },
            Report::Failed { code: ExitCode::NotFound, message: "no such\nbucket \\n \\\\\n".into() },
            Report::Failed { code: ExitCode::Unexpected, message: String::new() },
        ] {
            let line = report.to_line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Report::parse(&line), Some(report));
        }
    }

    #[test]
    fn other_lines_are_no_reports() {
        for line in ["", "ready", "ready x", "failed", "failed 3", "thread main panicked"] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }
}
