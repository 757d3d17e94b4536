//! A bucket of real bytes in memory, which tests fill and change while it is being served.
//!
//! Always true: the entity tag of an object put here is the MD5 of its bytes, as in S3.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use md5::{Digest, Md5};

use super::bucket::{Bucket, BucketError, Content, Listed, StoredObject};
use crate::model::{ETag, UnixMillis};

type Objects = BTreeMap<Bytes, StoredObject>;

/// A bucket of real bytes in memory.
#[derive(Debug, Default)]
pub struct MemoryBucket {
    objects: RwLock<Objects>,
}

impl MemoryBucket {
    /// An empty bucket.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores `content` under `key`, modified now; returns its entity tag.
    pub fn insert(&self, key: impl AsRef<[u8]>, content: impl Into<Bytes>) -> ETag {
        self.insert_modified(key, content, now())
    }

    /// Stores `content` under `key` with a given time of modification; returns its entity tag.
    pub fn insert_modified(&self, key: impl AsRef<[u8]>, content: impl Into<Bytes>, modified: UnixMillis) -> ETag {
        let object = StoredObject::of_bytes(content.into(), modified);
        let etag = object.etag.clone();
        self.insert_object(key, object);
        etag
    }

    /// Stores an object made by hand: with headers, or with an entity tag of another form.
    pub fn insert_object(&self, key: impl AsRef<[u8]>, object: StoredObject) {
        self.write().insert(Bytes::copy_from_slice(key.as_ref()), object);
    }

    /// Removes `key`; true when it was there.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.write().remove(key.as_ref()).is_some()
    }

    /// The object under `key`.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<StoredObject> {
        self.read().get(key.as_ref()).cloned()
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// True when there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A panic elsewhere cannot leave the map half changed, so a poisoned lock is as good as any.
    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket for MemoryBucket {
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(Listed<'_>) -> ControlFlow<()>) -> Result<(), BucketError> {
        let objects = self.read();
        for (key, object) in objects.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            let listed =
                Listed { key, size_bytes: object.size_bytes, modified: object.modified, etag: object.etag.clone() };
            if visit(listed).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, key: &str) -> Result<Option<StoredObject>, BucketError> {
        Ok(self.get(key))
    }

    fn put(&self, key: &str, object: StoredObject) -> Result<(), BucketError> {
        self.insert_object(key, object);
        Ok(())
    }

    fn delete(&self, key: &str) -> Result<(), BucketError> {
        self.remove(key);
        Ok(())
    }
}

impl StoredObject {
    /// An object of these bytes, tagged with their MD5.
    #[must_use]
    pub fn of_bytes(content: Bytes, modified: UnixMillis) -> Self {
        StoredObject {
            size_bytes: content.len() as u64,
            modified,
            etag: ETag::Digest(Md5::digest(&content).into()),
            headers: None,
            content: Content::Bytes(content),
        }
    }
}

/// The present moment, at the resolution that stores list.
pub(super) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
