//! What the tests stand on: servers, mounts and users that clean up after themselves, so that a test is its sentence.
//!
//! Always true: everything a test starts ends with it, also when it panics; servers shared by tests end with the test binary,
//! however that ends. Only loopback is talked to.

mod files;
mod kernel;
mod mount;
mod mount_table;
mod origin;
mod process;
mod recorder;
mod servers;
mod uploads;
mod wait;

pub use files::{content, read_at, same_bytes, synthetic_content, tree_of};
pub use kernel::{
    EntryRecord, drop_inodes, forget_pages, ioctl_errno, list_in_pieces, map_file, open_with, tcgets_errno,
};
pub use mount::{Mount, MountOptions, PROGRAM};
pub use mount_table::{is_mounted, mount_line};
pub use origin::TestOrigin;
pub use process::{NOBODY, as_user, finish, output, signal};
pub use recorder::Recorder;
pub use servers::{Address, Rclone, Server, Weed, long_forms, rclone};
pub use uploads::{Uploader, sdk_client};
pub use wait::{HANG, eventually, within};
