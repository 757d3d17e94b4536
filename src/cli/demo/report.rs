//! What the demo tells: the table of passes and the commands to try.
//!
//! Pure text; megabytes are 1,000,000 bytes, as networks and stores count.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use super::dataset::Image;
use super::passes::{Outcome, Pass};

/// One line of the table.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// What was read how.
    pub(super) name: &'static str,
    /// How many readers at a time.
    pub(super) readers: usize,
    /// What came of it.
    pub(super) outcome: Outcome,
    /// GETs that the store was asked meanwhile.
    pub(super) get_requests: u64,
}

const HEADINGS: [&str; 7] = ["pass", "readers", "images", "images/s", "MB/s", "GETs per file", "errors"];

/// The table: a line of headings and one for each pass, columns aligned.
pub(super) fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; 7]> = std::iter::once(HEADINGS.map(str::to_owned)).chain(lines.iter().map(cells)).collect();
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let [first, others @ ..] = &row;
        let [first_width, other_widths @ ..] = &widths;
        text.push_str("  ");
        let _ = write!(text, "{first:<first_width$}");
        for (cell, width) in others.iter().zip(other_widths) {
            let _ = write!(text, "   {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn cells(line: &Line) -> [String; 7] {
    let Outcome { images, bytes, elapsed, errors, .. } = &line.outcome;
    [
        line.name.to_owned(),
        line.readers.to_string(),
        images.to_string(),
        per_second(*images, *elapsed, 1),
        per_second(*bytes, *elapsed, 1_000_000),
        ratio(line.get_requests, *images),
        errors.to_string(),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn per_second(count: u64, elapsed: Duration, unit: u64) -> String {
    let rate = count as f64 / unit as f64 / elapsed.as_secs_f64().max(1e-6);
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
fn ratio(count: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.2}", count as f64 / of as f64) }
}

/// What was made.
pub(super) fn dataset(images: &[Image], elapsed: Duration) -> String {
    let sizes = || images.iter().map(|image| image.bytes.len());
    let kilobytes = |bytes: usize| bytes / 1000;
    format!(
        "{} images, {} MB in all, {} to {} KB each, made in {:.1} s",
        images.len(),
        sizes().sum::<usize>() / 1_000_000,
        kilobytes(sizes().min().unwrap_or(0)),
        kilobytes(sizes().max().unwrap_or(0)),
        elapsed.as_secs_f64()
    )
}

/// A pass that begins; how long it will take when a single reader has to wait for every answer.
pub(super) fn announcement(pass: &Pass, images: usize, latency: Duration) -> String {
    let readers = if pass.readers == 1 { "1 reader".to_owned() } else { format!("{} readers", pass.readers) };
    let waits = latency.as_secs_f64() * f64::from(u32::try_from(images).unwrap_or(u32::MAX));
    if pass.readers == 1 && waits > LONG_PASS.as_secs_f64() {
        format!("Reading them {}, {readers} (about {waits:.0} s: {latency:?} for each) ...", pass.name)
    } else {
        format!("Reading them {}, {readers} ...", pass.name)
    }
}

/// A pass that takes longer than this is announced with the reason.
const LONG_PASS: Duration = Duration::from_secs(5);

/// What to type in another terminal while the demo stays mounted; `program` is how to call this program.
pub(super) fn commands_to_try(mountpoint: &Path, program: &Path) -> String {
    let root = quoted(mountpoint);
    let program = quoted(program);
    format!(
        "  ls {root}/train
  find {root} -name '*.jpg' | head
  python3 -c \"import glob,sys,time; t=time.time(); n=[len(open(f,'rb').read()) for f in glob.glob(sys.argv[1]+'/train/*/*')]; \
         print(len(n), 'files,', sum(n)//10**6, 'MB in', round(time.time()-t,2), 's')\" {root}
  {program} unmount {root}
"
    )
}

/// A path for a shell: as it is when plain, else in single quotes.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::passes::Order;
    use super::*;

    fn line(name: &'static str, images: u64, millis: u64, get_requests: u64) -> Line {
        let outcome = Outcome {
            images,
            bytes: images * 115_000,
            elapsed: Duration::from_millis(millis),
            errors: 0,
            first_error: None,
            stopped: false,
        };
        Line { name, readers: 16, outcome, get_requests }
    }

    #[test]
    fn the_table_shows_rates_and_requests_per_file_in_aligned_columns() {
        let text = table(&[line("in order", 1000, 33_333, 1000), line("shuffled", 1000, 2000, 1010)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "  pass       readers   images   images/s   MB/s   GETs per file   errors",
                "  in order        16     1000       30.0    3.5            1.00        0",
                "  shuffled        16     1000        500   57.5            1.01        0",
            ]
        );
    }

    #[test]
    fn a_pass_that_read_nothing_divides_by_nothing() {
        let text = table(&[line("none", 0, 0, 0)]);
        assert!(text.lines().nth(1).unwrap().ends_with("0.0    0.0               -        0"), "{text}");
    }

    #[test]
    fn the_data_set_is_told_in_megabytes_with_its_smallest_and_largest_file() {
        let image = |size: usize| Image { key: String::new(), bytes: vec![0; size].into() };
        let text = dataset(&[image(70_500), image(180_000), image(3_000_000)], Duration::from_millis(2340));
        assert_eq!(text, "3 images, 3 MB in all, 70 to 3000 KB each, made in 2.3 s");
    }

    #[test]
    fn a_long_pass_of_one_reader_is_announced_with_its_reason() {
        let latency = Duration::from_millis(30);
        let pass = |readers| Pass { name: "in order", order: Order::Sorted, readers };
        let long = announcement(&pass(1), 1000, latency);
        assert_eq!(long, "Reading them in order, 1 reader (about 30 s: 30ms for each) ...");
        assert_eq!(announcement(&pass(1), 100, latency), "Reading them in order, 1 reader ...");
        assert_eq!(announcement(&pass(16), 1000, latency), "Reading them in order, 16 readers ...");
    }

    #[test]
    fn commands_name_mount_point_and_program_fit_for_a_shell() {
        let text = commands_to_try(Path::new("/tmp/it's here"), Path::new("target/release/streamvol"));
        assert!(text.contains(r"  ls '/tmp/it'\''s here'/train"), "{text}");
        assert!(text.contains(r"  target/release/streamvol unmount '/tmp/it'\''s here'"), "{text}");
    }

    /// The Python line is run as it is printed, over files like the demo's.
    #[test]
    fn the_commands_run_as_printed() {
        let directory = tempfile::tempdir().unwrap();
        let class = directory.path().join("train/wood");
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join("wood_0001.jpg"), vec![0; 3_000_000]).unwrap();
        let text = commands_to_try(directory.path(), Path::new("/bin/true"));
        let output = std::process::Command::new("sh").args(["-ec", &text]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("wood_0001.jpg") && shown.contains("1 files, 3 MB in"), "{shown}");
    }
}
