//! A FUSE device that the process was started with: somebody else has mounted it, as a supervisor or a CSI node does.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{FileType, fstat, major, minor};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

/// Device numbers of /dev/fuse: the kernel's misc devices, and FUSE_MINOR among them.
const FUSE_DEVICE: (u32, u32) = (10, 229);

/// A copy of descriptor `number`, which was inherited and stays open; the copy is not passed on to other programs.
///
/// # Errors
/// `EBADF` when no such descriptor is open, `ENODEV` when it is not a FUSE device.
pub fn inherited_device(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the number is only passed to the kernel, which answers EBADF when it is not open; nothing here closes it, and
    // the borrow ends before this function does.
    #[expect(unsafe_code, reason = "a descriptor known by its number alone has no safe constructor")]
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let device = fcntl_dupfd_cloexec(borrowed, 3)?;
    let stat = fstat(&device)?;
    let is_fuse = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == FUSE_DEVICE;
    if is_fuse { Ok(device) } else { Err(Errno::NODEV.into()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_an_open_fuse_device_is_taken() {
        let other = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(inherited_device(other.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        for number in [-1, 1_000_000] {
            assert_eq!(inherited_device(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
        let fuse = std::fs::File::open("/dev/fuse").unwrap();
        let copy = inherited_device(fuse.as_raw_fd()).unwrap();
        assert_ne!(copy.as_raw_fd(), fuse.as_raw_fd());
    }
}
