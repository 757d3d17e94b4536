//! System calls that the standard library does not offer, each behind a plain function.

use std::fs::{File, OpenOptions};
use std::io::{self, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};
use rustix::fs::{Advice, Mode, OFlags, RawDir};

/// Opens a file for reading with these flags on top.
///
/// # Errors
/// Those of open(2).
pub fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Makes the kernel forget the cached pages of one file, so that the next read asks the daemon.
pub fn forget_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Makes the kernel forget all names and inodes that are not in use, of all file systems.
pub fn drop_inodes() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// Maps the first `length` bytes' worth of pages of a file, which may lie beyond its end.
#[expect(unsafe_code, reason = "mapping a file is unsafe because it may change; nothing can write to these")]
pub fn map_file(file: &File, length: usize) -> Mmap {
    // SAFETY: the file is on a read-only mount and the mapping is only read.
    unsafe { MmapOptions::new().len(length).map(file).unwrap() }
}

/// The errno that ioctl TCGETS answers, which programs use to ask "is this a terminal?".
pub fn tcgets_errno(file: &File) -> i32 {
    ioctl_errno(file, libc::TCGETS)
}

/// The errno that an ioctl answers; panics when it succeeds.
pub fn ioctl_errno(file: &File, request: libc::Ioctl) -> i32 {
    let mut room = [0_u8; 16 * 1024];
    #[expect(unsafe_code, reason = "the standard library has no ioctl")]
    // SAFETY: the descriptor is open and `room` is larger than the argument of any request used here (at most 16,000 bytes).
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, room.as_mut_ptr()) };
    assert_eq!(result, -1, "ioctl {request:#x} succeeded");
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// One entry as getdents64(2) gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// Name, `.` and `..` included.
    pub name: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Where telldir(3) stands after it, and what seekdir(3) takes.
    pub cookie: u64,
}

/// Lists a directory from a cookie (0 is the start) with a buffer of `buffer_bytes`.
///
/// # Errors
/// Those of open(2), lseek(2) and getdents64(2).
pub fn list_in_pieces(path: &Path, from: u64, buffer_bytes: usize) -> io::Result<Vec<EntryRecord>> {
    let directory = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut file = File::from(directory);
    io::Seek::seek(&mut file, SeekFrom::Start(from))?;
    let mut buffer = vec![MaybeUninit::uninit(); buffer_bytes];
    let mut entries = Vec::new();
    let mut reader = RawDir::new(&file, &mut buffer);
    while let Some(entry) = reader.next() {
        let entry = entry?;
        entries.push(EntryRecord {
            name: entry.file_name().to_bytes().to_vec(),
            inode: entry.ino(),
            cookie: entry.next_entry_cookie(),
        });
    }
    Ok(entries)
}
