//! Why a read failed.

use std::sync::Arc;

use crate::namespace::Damaged;
use crate::store::StoreError;

/// Why a read failed. Cheap to clone, since everybody who waits for one GET gets it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The node is a directory.
    #[error("is a directory")]
    IsADirectory,
    /// No such node.
    #[error("no such node")]
    UnknownNode,
    /// The object was replaced or deleted since it was listed; a new open sees what is there now.
    #[error("the object has changed since it was listed")]
    Stale,
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] Damaged),
    /// The store did not deliver.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// The fetch ended without an answer: the volume is stopping, or the fetch failed in an unforeseen way.
    #[error("the read was abandoned")]
    Abandoned,
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        ReadError::Store(Arc::new(error))
    }
}
