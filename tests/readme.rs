//! What README.md promises is what the program has.

use std::fs;
use std::path::Path;
use std::process::Command;

use streamvol::cli::ExitCode;
use streamvol::config::markdown::options_markdown;

use crate::support::*;

const BEGIN: &str = "<!-- options: made from src/config/options -->\n\n";
const END: &str = "\n<!-- end of options -->";

/// Set, the table in README.md is written anew instead of compared.
const REFRESH: &str = "STREAMVOL_REFRESH_README";

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The indented lines of a page that call the program, without comments and without what stands before and behind.
fn commands(page: &str) -> Vec<Vec<String>> {
    page.lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter_map(|line| line.split(" #").next()?.trim().strip_prefix("streamvol "))
        .map(|words| words.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "asks whether to write what it would compare")]
fn the_options_table_is_the_programs() {
    let readme = text("README.md");
    let (before, rest) = readme.split_once(BEGIN).expect("the table's beginning");
    let (shown, after) = rest.split_once(END).expect("the table's end");
    let table = options_markdown();
    if std::env::var_os(REFRESH).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert!(
        shown == table,
        "README.md shows other options than the program has; write it anew with\n    \
         {REFRESH}=1 cargo test --release --test streamvol-tests readme::"
    );
}

#[test]
fn the_exit_codes_are_the_programs() {
    let table: String = ExitCode::table().lines().skip(1).map(|line| format!("  {line}\n")).collect();
    assert!(text("README.md").contains(&table), "README.md should show these exit codes:\n{table}");
}

#[test]
fn every_command_shown_is_one_that_the_program_understands() {
    let readme = commands(&text("README.md"));
    assert!(readme.len() >= 5, "the commands are found: {readme:?}");
    for words in readme {
        // Help asked for last: what stands before it is read, and nothing is done.
        let run = output(Command::new(PROGRAM).args(&words).arg("--help").env_clear(), HANG);
        assert!(run.status.success(), "streamvol {}: {}", words.join(" "), String::from_utf8_lossy(&run.stderr));
    }
}

#[test]
fn every_page_that_is_linked_is_there() {
    for page in ["README.md", "CONTRIBUTING.md"] {
        for link in text(page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(link);
            assert!(link.starts_with("https://") || path.exists(), "{page} links {link}");
        }
    }
}

#[test]
fn the_map_of_modules_has_every_module_once_and_in_order() {
    let map = text("docs/architecture.md");
    let shown: Vec<&str> = map.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let modules = text("src/lib.rs");
    let modules: Vec<&str> =
        modules.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(shown, modules);
}
