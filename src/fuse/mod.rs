//! The only place that knows the FUSE crate: kernel requests in, replies out.
//!
//! - `session` negotiates with the kernel over a device that `handoff` opened and mounted, and runs the reader threads;
//! - `filesystem` has one short method per operation and decides nothing;
//! - `attributes` turns nodes into what stat(2) shows, `errno` errors into numbers, `notify` tells the kernel what to forget.
//!
//! Requests that memory can answer are answered on the thread that took them; the others move to the runtime.

mod attributes;
mod errno;
mod filesystem;
mod notify;
mod session;

pub use attributes::AttributeConfig;
pub use notify::{KernelNotifier, PendingNotifications};
pub use session::{FuseConfig, MAX_REQUEST_BYTES, Session};
