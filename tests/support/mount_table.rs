//! What the kernel says is mounted.

use std::path::Path;

/// The line of /proc/self/mountinfo for what is mounted last on exactly this path.
pub fn mount_line(path: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let escaped = path.to_str().unwrap().replace('\\', r"\134").replace(' ', r"\040");
    table.lines().rfind(|line| line.split(' ').nth(4) == Some(escaped.as_str())).map(str::to_owned)
}

/// True when something is mounted on exactly this path.
pub fn is_mounted(path: &Path) -> bool {
    mount_line(path).is_some()
}
