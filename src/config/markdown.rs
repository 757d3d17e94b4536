//! The options table as Markdown, for the README.

use std::fmt::Write;

use super::options;
use super::row::{Kind, OptionRow, Section};

/// One table for each section: option, environment variable, default, meaning.
#[must_use]
pub fn options_markdown() -> String {
    let mut text = String::new();
    for section in Section::ALL {
        let separator = if text.is_empty() { "" } else { "\n" };
        let _infallible = write!(
            text,
            "{separator}### {}\n\n| Option | Environment | Default | |\n| --- | --- | --- | --- |\n",
            section.title()
        );
        for row in options::all().filter(|row| row.section == section) {
            text.push_str(&line(row));
        }
    }
    text
}

fn line(row: &OptionRow) -> String {
    let value = match row.kind {
        Kind::Switch => String::new(),
        Kind::Value(name) => format!(" {name}"),
        Kind::Choice(words) => format!(" {}", words.join("\\|")),
    };
    let short = row.short.map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    let mut names = format!("{short}`--{}{value}`", row.name);
    for alias in row.aliases {
        let _infallible = write!(names, ", `--{alias}`");
    }
    let mut variables = format!("`{}`", row.environment);
    for variable in row.ambient {
        let _infallible = write!(variables, ", `{variable}`");
    }
    format!("| {names} | {variables} | {} | {} |\n", row.default.shown(), row.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_one_line_under_its_section() {
        let text = options_markdown();
        assert!(text.starts_with(
            "### Store\n\n| Option | Environment | Default | |\n| --- | --- | --- | --- |\n| `--endpoint-url URL` |"
        ));
        assert!(text.contains("\n\n### Listing\n\n"));
        for row in options::all() {
            assert_eq!(text.matches(&format!("`{}`", row.environment)).count(), 1, "--{}", row.name);
        }
        assert!(text.contains(
            "| `--path-style`, `--force-path-style` | `STREAMVOL_PATH_STYLE` | false | Put the bucket into the path of requests \
             (default: as the store needs it) |\n"
        ));
        assert!(text.contains("| `--direct-mode true\\|false` |"));
    }

    #[test]
    fn no_cell_breaks_the_table() {
        for line in options_markdown().lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 5, "{line}");
        }
    }
}
