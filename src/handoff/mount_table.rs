//! The kernel's list of mounts, read from /proc/self/mountinfo (proc_pid_mountinfo(5)).
//!
//! Reading it touches no mounted file system, so it is safe when one of them is hung. Which mount a path leads to is
//! computed from the list alone, with stacked and covered mounts seen as the kernel's path walk sees them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::FILE_SYSTEM_TYPE;

/// The device number of a file system (`st_dev`), as `major:minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// 0 for file systems without a block device, as ours.
    pub major: u32,
    /// Unique among the file systems that exist at one moment; reused later.
    pub minor: u32,
}

impl DeviceNumber {
    /// The name of a FUSE connection below /sys/fs/fuse/connections: the kernel's own packing of the device number, which
    /// for ours is the minor alone.
    #[must_use]
    pub fn connection_number(self) -> u32 {
        (self.major << 20) | self.minor
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Number of the mount; reused after it is gone.
    pub mount_id: u64,
    /// The mount that this one is mounted on.
    pub parent_id: u64,
    /// Its file system.
    pub device: DeviceNumber,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// File system type, with subtype, as `fuse.streamvol`.
    pub fs_type: String,
    /// What is mounted, as `s3://bucket/prefix`.
    pub source: String,
}

impl MountEntry {
    /// True for every file system that FUSE serves.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type == "fuseblk" || self.fs_type.starts_with("fuse.")
    }

    /// True for mounts of this program.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.fs_type == FILE_SYSTEM_TYPE
    }
}

/// All mounts that this process sees.
#[derive(Debug, Clone, Default)]
pub struct MountTable {
    entries: Vec<MountEntry>,
}

impl MountTable {
    /// The mounts as they are now.
    ///
    /// # Errors
    /// /proc is not mounted, or not readable.
    pub fn read() -> io::Result<Self> {
        Ok(MountTable::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Lines that cannot be understood are left out: one odd mount must not hide the others.
    fn parse(text: &[u8]) -> Self {
        MountTable { entries: text.split(|&b| b == b'\n').filter_map(parse_line).collect() }
    }

    /// The mount whose root the absolute, symlink-free `path` is, if it is one: the topmost when several are stacked.
    #[must_use]
    pub fn mounted_at(&self, path: &Path) -> Option<&MountEntry> {
        self.leading_to(path).filter(|entry| entry.mountpoint == path)
    }

    /// The mount with this number.
    #[must_use]
    pub fn by_id(&self, mount_id: u64) -> Option<&MountEntry> {
        self.entries.iter().find(|entry| entry.mount_id == mount_id)
    }

    /// The mount that a walk along `path` ends in.
    ///
    /// From each mount the walk enters the child mount that it meets first. Only one child can sit on one directory of a
    /// mount, so the shortest mount point wins; longer ones are covered by it.
    fn leading_to(&self, path: &Path) -> Option<&MountEntry> {
        let ids: HashSet<u64> = self.entries.iter().map(|entry| entry.mount_id).collect();
        let mut current =
            self.first_met(path, |entry| entry.parent_id == entry.mount_id || !ids.contains(&entry.parent_id))?;
        // A walk passes each mount once at most; the bound is for a list that changed while it was read.
        for _ in 0..self.entries.len() {
            let here = current.mount_id;
            match self.first_met(path, |entry| entry.parent_id == here && entry.mount_id != here) {
                Some(next) => current = next,
                None => break,
            }
        }
        Some(current)
    }

    fn first_met(&self, path: &Path, among: impl Fn(&MountEntry) -> bool) -> Option<&MountEntry> {
        self.entries
            .iter()
            .filter(|entry| among(entry) && path.starts_with(&entry.mountpoint))
            .min_by_key(|entry| entry.mountpoint.as_os_str().len())
    }
}

/// One line: `36 35 98:0 /root /mount/point options [optional ...] - type source super-options`.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let mount_id = number(fields.next()?)?;
    let parent_id = number(fields.next()?)?;
    let mut device = fields.next()?.split(|&b| b == b':');
    let device = DeviceNumber {
        major: number(device.next()?)?.try_into().ok()?,
        minor: number(device.next()?)?.try_into().ok()?,
    };
    let mountpoint = unescape(fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let fs_type = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    Some(MountEntry {
        mount_id,
        parent_id,
        device,
        mountpoint: PathBuf::from(OsString::from_vec(mountpoint)),
        fs_type: String::from_utf8_lossy(&fs_type).into_owned(),
        source: String::from_utf8_lossy(&source).into_owned(),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The kernel writes space, tab, newline, backslash and (in some fields) `#` as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                plain.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> MountTable {
        MountTable::parse(text.as_bytes())
    }

    #[test]
    fn a_line_gives_ids_device_mount_point_type_and_source() {
        let table =
            table("36 35 0:98 / /mnt/data rw,noatime shared:1 master:2 - fuse.streamvol s3://b/p ro,user_id=0\n");
        assert_eq!(
            table.entries,
            [MountEntry {
                mount_id: 36,
                parent_id: 35,
                device: DeviceNumber { major: 0, minor: 98 },
                mountpoint: "/mnt/data".into(),
                fs_type: "fuse.streamvol".to_owned(),
                source: "s3://b/p".to_owned(),
            }]
        );
        assert!(table.entries[0].is_fuse() && table.entries[0].is_ours());
    }

    #[test]
    fn octal_escapes_are_resolved_once_and_in_every_field() {
        let table = table(r"9 1 0:7 / /a\040b\011c\012d\134040 rw - fuse.x s3://b/\040\043 rw");
        assert_eq!(table.entries[0].mountpoint, Path::new("/a b\tc\nd\\040"));
        assert_eq!(table.entries[0].source, "s3://b/ #");
    }

    #[test]
    fn bytes_that_only_look_like_escapes_are_kept() {
        for (raw, plain) in
            [(r"\04", r"\04"), (r"\477", r"\477"), (r"\08a", r"\08a"), ("\\", "\\"), (r"\377", "\u{ff}")]
        {
            let got: String = unescape(raw.as_bytes()).iter().map(|&b| char::from(b)).collect();
            assert_eq!(got, plain, "{raw}");
        }
    }

    #[test]
    fn lines_that_cannot_be_understood_hide_no_others() {
        let table = table("nonsense\n\n1 x 0:1 / / rw - t s o\n2 0 0:2 / /two rw - tmpfs  rw\n3 0 0:3 / /three rw\n");
        assert_eq!(table.entries.len(), 1);
        assert_eq!((table.entries[0].mount_id, table.entries[0].source.as_str()), (2, ""));
    }

    /// `/stack` carries two mounts, `/cover` hides `/cover/inner`, which was mounted before.
    const LAYERS: &str = "27 1 254:0 / / rw - ext4 /dev/vda rw
30 25 0:27 / /stack rw - tmpfs upper rw
25 27 0:23 / /stack rw - tmpfs lower rw
40 27 0:40 / /cover/inner rw - fuse.streamvol hidden rw
41 27 0:41 / /cover rw - tmpfs cover rw
42 41 0:42 / /cover/seen rw - tmpfs seen rw
";

    #[test]
    fn of_stacked_mounts_the_topmost_is_found_in_any_order() {
        assert_eq!(table(LAYERS).mounted_at(Path::new("/stack")).map(|e| e.mount_id), Some(30));
    }

    #[test]
    fn a_mount_below_a_covering_one_is_not_found() {
        let table = table(LAYERS);
        assert_eq!(table.mounted_at(Path::new("/cover/inner")), None);
        assert_eq!(table.mounted_at(Path::new("/cover/seen")).map(|e| e.mount_id), Some(42));
        assert_eq!(table.mounted_at(Path::new("/cover")).map(|e| e.mount_id), Some(41));
    }

    #[test]
    fn a_path_inside_a_mount_is_not_a_mount_point_and_names_are_compared_whole() {
        let table = table(LAYERS);
        for path in ["/stack/below", "/stac", "/stacked", "/elsewhere"] {
            assert_eq!(table.mounted_at(Path::new(path)), None, "{path}");
        }
        assert_eq!(table.leading_to(Path::new("/stacked")).map(|e| e.mount_id), Some(27));
    }

    #[test]
    fn a_root_that_is_no_mount_of_its_own_still_leads_to_the_mounts_below() {
        let table = table("50 9 0:50 / /proc rw - proc proc rw\n51 50 0:51 / /proc/fs rw - tmpfs t rw\n");
        assert_eq!(table.mounted_at(Path::new("/proc/fs")).map(|e| e.mount_id), Some(51));
        assert_eq!(table.mounted_at(Path::new("/")), None);
    }

    #[test]
    fn the_machines_own_list_is_understood() {
        let table = MountTable::read().unwrap();
        assert_eq!(table.mounted_at(Path::new("/proc")).map(|e| e.fs_type.as_str()), Some("proc"));
    }

    #[test]
    fn a_connection_is_named_by_the_packed_device_number() {
        assert_eq!(DeviceNumber { major: 0, minor: 52 }.connection_number(), 52);
        assert_eq!(DeviceNumber { major: 8, minor: 1 }.connection_number(), (8 << 20) + 1);
    }
}
