//! streamvol mounts a prefix of an object-storage bucket as a read-only filesystem and makes it feel local.
//!
//! ```text
//!     kernel -> fuse -> read (scheduler, block cache, pool) -> store -> object storage
//!                  \-> namespace (names, sizes, versions)
//! ```
//!
//! The modules stand below from the ground up; each may name only those above it (`tests/architecture.rs` sees to that).
//!
//! One read, hop by hop: `fuse::filesystem` (the kernel's READ) -> `read::Reader::read` -> `read::block_cache` (a hit ends
//! here) -> `read::scheduler` (one GET for all who wait) -> `store::retry` -> `store::s3`.

// Nouns everybody shares: keys, names, node ids, versions, ranges, sizes.
pub mod model;
// Log and counters; listens only.
pub mod telemetry;
// The bucket: "list this key range", "get this byte range of this version".
pub mod store;
// An S3 server of our own on loopback, for the demo, tests and benchmarks.
pub mod origin;
// Names to nodes: the snapshot of the listing.
pub mod namespace;
// Bytes for (node, range): pool, cache, scheduler.
pub mod read;
// What outlives a worker: opening the device, mounting, unmounting.
pub mod handoff;
// The only place that knows the FUSE crate.
pub mod fuse;
// Wires store, namespace, read and fuse for one volume; stops them in reverse.
pub mod worker;
// Options and where their values come from.
pub mod config;
// One file per verb of the command line.
pub mod cli;
