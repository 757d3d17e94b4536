//! An S3 server of our own on loopback, for the demo, tests and benchmarks.
//!
//! The S3 library (`s3s`) speaks the protocol and checks signatures; everything behind it is ours. A request goes
//! `server` (socket, threads) -> `service` (counters, [`Conditions`], faults) -> S3 library -> `backend` (objects) or `listing`
//! (pages) -> a [`Bucket`]: [`MemoryBucket`], [`DirectoryBucket`] or [`SyntheticBucket`]. The answer goes back through `body` and
//! `connection`, where it is counted, paced and, on request, broken in ways that no HTTP library would.
//!
//! Always true: entity tags, conditions and ranges are those of S3; no request hashes an object; the server has threads of its
//! own. Nothing here knows the store, the mount or the command line: it is the other side of the wire.

mod auth;
mod backend;
mod body;
mod bucket;
mod conditions;
mod connection;
mod content;
mod counters;
mod directory;
mod error_xml;
mod faults;
mod list_xml;
mod listing;
mod memory;
mod pattern;
mod request;
mod server;
mod service;
mod synthetic;
mod uploads;

#[cfg(test)]
mod tests;

pub use bucket::{Bucket, BucketError, Content, Listed, ObjectHeaders, StoredObject};
pub use conditions::{Conditions, Latency, Quirk};
pub use counters::CounterSnapshot;
pub use directory::DirectoryBucket;
pub use faults::{Fault, FaultId, FaultRule, KeyPattern};
pub use memory::MemoryBucket;
pub use pattern::{seed_of_key, synthetic_bytes};
pub use request::Verb;
pub use server::{Origin, OriginConfig, OriginError, TlsFiles};
pub use synthetic::{MAX_OBJECT_BYTES, SyntheticBucket, SyntheticError, SyntheticKeys};
