//! The one integration test binary; each module is a subject.
//!
//! `support` starts servers, mounts and cleans up; a test should read like the sentence in its name.

mod architecture;
mod licences;
