//! The one integration test binary; each module is a subject.
//!
//! `support` starts servers, mounts and cleans up; a test should read like the sentence in its name.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, in its helpers, too")]

#[expect(unreachable_pub, reason = "what the tests share is public in one crate that nobody uses")]
mod support;

mod architecture;
mod conformance;
mod costs;
mod faults;
mod keys;
mod licences;
mod memory;
mod mounting;
mod panics;
mod reading;
mod readme;
mod real_data;
mod regression;
mod semantics;
mod tree_model;
