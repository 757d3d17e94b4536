//! How far the listing is: a spinner on a terminal, a line every ten seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::namespace::listing::ListingProgress;

/// How often the display is brought up to date.
pub(super) const REFRESH: Duration = Duration::from_millis(200);

/// How often a line is written where there is no spinner.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Over less time than this a rate is an accident.
const SHORTEST_RATED: Duration = Duration::from_millis(100);

/// Counts what is listed.
#[derive(Debug, Default)]
pub(super) struct Counter {
    objects: AtomicU64,
}

impl Counter {
    /// Objects listed so far.
    pub(super) fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }
}

impl ListingProgress for Counter {
    fn page(&self, objects_so_far: u64, _requests_so_far: u64) {
        // Stored, not added: a listing that has to start again counts from nothing.
        self.objects.store(objects_so_far, Ordering::Relaxed);
    }
}

/// Shows progress.
#[derive(Debug)]
pub(super) struct Display {
    started: Instant,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Spinner(ProgressBar),
    Lines { write: fn(&str), next: Duration },
}

impl Display {
    /// A spinner on standard error when that is a terminal; else lines, which `write` gets.
    pub(super) fn new(write: fn(&str)) -> Self {
        let shown = if io::stderr().is_terminal() {
            let spinner = ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner());
            spinner.enable_steady_tick(REFRESH);
            Shown::Spinner(spinner)
        } else {
            Shown::Lines { write, next: LINE_INTERVAL }
        };
        Display { started: Instant::now(), shown }
    }

    /// Shows that so many objects are listed.
    pub(super) fn show(&mut self, objects: u64) {
        let elapsed = self.started.elapsed();
        match &mut self.shown {
            Shown::Spinner(spinner) => spinner.set_message(line(objects, elapsed)),
            Shown::Lines { write, next } => {
                if is_due(next, elapsed) {
                    write(&line(objects, elapsed));
                }
            }
        }
    }

    /// Takes the spinner away, and says what was listed in how long.
    pub(super) fn finish(&self, objects: u64) -> String {
        if let Shown::Spinner(spinner) = &self.shown {
            spinner.finish_and_clear();
        }
        line(objects, self.started.elapsed())
    }

    /// A writer for log lines that does not tear the spinner.
    pub(super) fn log_writer(&self) -> BoxMakeWriter {
        match &self.shown {
            Shown::Spinner(spinner) => {
                let spinner = spinner.clone();
                BoxMakeWriter::new(move || BesideSpinner(spinner.clone()))
            }
            Shown::Lines { .. } => BoxMakeWriter::new(io::stderr),
        }
    }
}

/// An error leaves through here, too: the spinner must not stay on the terminal.
impl Drop for Display {
    fn drop(&mut self) {
        if let Shown::Spinner(spinner) = &self.shown {
            spinner.finish_and_clear();
        }
    }
}

struct BesideSpinner(ProgressBar);

impl Write for BesideSpinner {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// True once every interval; `next` is when.
fn is_due(next: &mut Duration, elapsed: Duration) -> bool {
    let due = elapsed >= *next;
    if due {
        *next = elapsed + LINE_INTERVAL;
    }
    due
}

/// `listed 12,345 objects in 3.2 s (3,857/s)`; without a rate when the time is too short to give one.
fn line(objects: u64, elapsed: Duration) -> String {
    let listed = format!("listed {} objects in {:.1} s", with_thousands(objects), elapsed.as_secs_f64());
    if elapsed < SHORTEST_RATED {
        return listed;
    }
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    format!("{listed} ({}/s)", with_thousands(objects.saturating_mul(1000) / millis))
}

fn with_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_many_how_long_and_how_fast() {
        assert_eq!(line(12_345, Duration::from_millis(3200)), "listed 12,345 objects in 3.2 s (3,857/s)");
        assert_eq!(line(0, Duration::ZERO), "listed 0 objects in 0.0 s");
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(with_thousands(number), text);
        }
    }

    #[test]
    fn lines_come_every_ten_seconds() {
        let mut next = LINE_INTERVAL;
        let due: Vec<u64> = (0..=31).filter(|&second| is_due(&mut next, Duration::from_secs(second))).collect();
        assert_eq!(due, [10, 20, 30]);
    }

    #[test]
    fn the_count_starts_again_with_the_listing() {
        let counter = Counter::default();
        counter.page(1000, 1);
        counter.page(2000, 2);
        assert_eq!(counter.objects(), 2000);
        counter.page(10, 3);
        assert_eq!(counter.objects(), 10);
    }
}
