//! Data and programs not made by us, over servers not made by us.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::*;

/// Debian's package oxygen-icon-theme: PNG files of 8 to 256 pixels, many of them symbolic links.
const ICONS: &str = "/usr/share/icons/oxygen/base";

/// Copies a tree; links become what they lead to.
fn copy_of(tree: &str) -> TempDir {
    assert!(Path::new(tree).is_dir(), "{tree} is missing: run scripts/test, which installs oxygen-icon-theme");
    let folder = TempDir::with_prefix("streamvol-icons-").unwrap();
    let copied = output(Command::new("cp").arg("-rL").arg(format!("{tree}/.")).arg(folder.path()), HANG);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    folder
}

/// Asserts that two trees are the same, as diff(1) sees it.
fn same_trees(one: &Path, other: &Path) {
    let compared = output(Command::new("diff").arg("-r").arg(one).arg(other), HANG * 3);
    let text = String::from_utf8_lossy(&compared.stdout);
    let said = String::from_utf8_lossy(&compared.stderr);
    let first: Vec<&str> = text.lines().take(20).collect();
    assert!(compared.status.success() && text.is_empty(), "{said}{}", first.join("\n"));
}

/// Copies a folder into a bucket, with everything left out that only costs time.
fn upload(folder: &Path, address: &Address) {
    let target = format!("store:{}", address.bucket);
    let fast = [
        "--transfers=32",
        "--checkers=32",
        "--s3-no-check-bucket",
        "--s3-no-head",
        "--ignore-checksum",
        "--no-check-dest",
    ];
    rclone(address, &[&["copy", folder.to_str().unwrap(), &target][..], &fast].concat());
}

#[test]
fn an_icon_theme_on_seaweedfs_is_the_same_through_the_mount() {
    let icons = copy_of(ICONS);
    let files = output(Command::new("find").arg(icons.path()).args(["-type", "f"]), HANG);
    assert_eq!(files.stdout.split(|&byte| byte == b'\n').count() - 1, 8813);
    let address = Weed::bucket();
    upload(icons.path(), &address);
    let mount = Mount::start(&address, &[]);
    same_trees(icons.path(), mount.path());
    drop(mount);
    let mount = MountOptions::of(&address).prefix("22x22").args(["--direct-mode", "true"]).start();
    same_trees(&icons.path().join("22x22"), mount.path());
}

#[test]
fn an_icon_theme_on_rclone_is_the_same_through_the_mount() {
    let server = Rclone::start();
    let icons = copy_of(&format!("{ICONS}/32x32"));
    let copied = output(Command::new("cp").arg("-r").arg(icons.path()).arg(server.directory().join("icons")), HANG);
    assert!(copied.status.success());
    let mount = Mount::start(&server, &[]);
    same_trees(icons.path(), &mount.join("icons"));
}

#[test]
fn fio_reads_without_an_error() {
    let address = Weed::bucket();
    let bytes = content(1, 48 << 20);
    Uploader::of(&address).put("d/large", bytes.clone()).unwrap();
    for mode in ["false", "true"] {
        let mount = Mount::start(&address, &["--direct-mode", mode]);
        for (pattern, size) in [("read", "1m"), ("randread", "4k"), ("randread", "128k")] {
            let report = fio(&mount.join("d/large"), pattern, size, mount.folder());
            let jobs = report["jobs"].as_array().unwrap();
            assert_eq!(jobs.len(), 4, "{report}");
            for job in jobs {
                assert_eq!(job["error"], 0, "{pattern}: {job}");
                assert!(job["read"]["io_bytes"].as_u64().unwrap() >= 8 << 20, "{pattern}: {job}");
                assert_eq!(job["read"]["short_ios"], 0, "{pattern}: {job}");
            }
        }
        same_bytes(&mount.read("d/large"), &bytes, "after all that");
    }
}

/// Four jobs of fio over one file, and what it reports.
fn fio(file: &Path, pattern: &str, block: &str, folder: &Path) -> Value {
    let mut command = Command::new("fio");
    command.args(["--readonly", "--name=job", "--ioengine=psync", "--numjobs=4", "--io_size=8m", "--size=48m"]);
    command.args([&format!("--rw={pattern}"), &format!("--bs={block}"), "--invalidate=1", "--allow_file_create=0"]);
    command.arg(format!("--filename={}", file.display())).args(["--output-format=json", "--output=report.json"]);
    let run = output(command.current_dir(folder), HANG * 2);
    let report = fs::read_to_string(folder.join("report.json")).unwrap_or_default();
    assert!(run.status.success(), "{}\n{report}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_str(&report[report.find('{').unwrap()..]).unwrap()
}
