//! (being built)
#![allow(missing_docs)]
use crate::model::{NodeId, ObjectKey, ObjectVersion, UnixMillis};
use std::ops::ControlFlow;
pub mod listing {
    #[derive(Debug, thiserror::Error)]
    pub enum ListingError {
        #[error("cannot list \"{prefix}\": {source}")]
        Store { prefix: crate::model::ObjectKey, source: crate::store::StoreError },
        #[error("no progress")]
        NoProgress,
    }

    pub trait ListingProgress: Send + Sync {
        fn page(&self, objects_so_far: u64, requests_so_far: u64);
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    Directory,
    File { size_bytes: u64 },
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    pub kind: NodeKind,
    pub modified: UnixMillis,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    pub key: ObjectKey,
    pub version: ObjectVersion,
}
#[derive(Debug, Clone, Copy)]
pub struct DirectoryEntry<'a> {
    pub name: &'a [u8],
    pub node: Node,
    pub cookie: u64,
}
#[derive(Debug)]
pub struct ReadDirError;
impl std::fmt::Display for ReadDirError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("x")
    }
}
#[derive(Debug)]
pub struct Namespace;
impl Namespace {
    pub fn read_dir(
        &self,
        _id: NodeId,
        _offset: u64,
        _add: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadDirError> {
        Ok(())
    }
}
