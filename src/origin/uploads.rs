//! Multipart uploads that have begun and not ended.
//!
//! Always true: an object made of parts is tagged as S3 does, with the MD5 of its parts' MD5s and their number.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use md5::{Digest, Md5};
use s3s::{S3ErrorCode, S3Result, dto};

use super::backend::error;
use super::bucket::{Content, ObjectHeaders, StoredObject};
use crate::model::{ETag, UnixMillis};

#[derive(Debug)]
struct Upload {
    bucket: String,
    key: String,
    headers: Option<Arc<ObjectHeaders>>,
    parts: BTreeMap<i32, (Bytes, [u8; 16])>,
}

/// Uploads by their id.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<(u64, HashMap<String, Upload>)>);

impl Uploads {
    pub(super) fn create(&self, bucket: &str, key: &str, headers: Option<Arc<ObjectHeaders>>) -> String {
        let mut uploads = self.lock();
        uploads.0 += 1;
        let id = format!("upload-{}", uploads.0);
        let upload = Upload { bucket: bucket.to_owned(), key: key.to_owned(), headers, parts: BTreeMap::new() };
        uploads.1.insert(id.clone(), upload);
        id
    }

    pub(super) fn add_part(&self, id: &str, number: i32, bytes: Bytes) -> S3Result<ETag> {
        let digest: [u8; 16] = Md5::digest(&bytes).into();
        let mut uploads = self.lock();
        let upload = uploads.1.get_mut(id).ok_or(S3ErrorCode::NoSuchUpload)?;
        upload.parts.insert(number, (bytes, digest));
        Ok(ETag::Digest(digest))
    }

    /// Joins the parts named; those not named are dropped.
    pub(super) fn complete(
        &self,
        id: &str,
        (bucket, key): (&str, &str),
        named: &[dto::CompletedPart],
        modified: UnixMillis,
    ) -> S3Result<StoredObject> {
        let mut uploads = self.lock();
        let upload = uploads.1.get(id).filter(|upload| upload.bucket == bucket && upload.key == key);
        let upload = upload.ok_or(S3ErrorCode::NoSuchUpload)?;
        if named.is_empty() {
            return Err(error(S3ErrorCode::MalformedXML, "no part is named"));
        }
        if !named.is_sorted_by(|a, b| a.part_number < b.part_number) {
            return Err(error(S3ErrorCode::InvalidPartOrder, "parts must be named in ascending order"));
        }
        let mut content = BytesMut::new();
        let mut digests = Md5::new();
        for part in named {
            let uploaded = part.part_number.and_then(|number| upload.parts.get(&number));
            let (bytes, digest) = uploaded.ok_or(S3ErrorCode::InvalidPart)?;
            if part.e_tag.as_ref().is_some_and(|etag| etag.value() != ETag::Digest(*digest).to_string()) {
                return Err(error(S3ErrorCode::InvalidPart, "a part has another ETag"));
            }
            content.extend_from_slice(bytes);
            digests.update(digest);
        }
        let count = u32::try_from(named.len()).unwrap_or(u32::MAX);
        let object = StoredObject {
            size_bytes: content.len() as u64,
            modified,
            etag: ETag::Multipart(digests.finalize().into(), count),
            headers: upload.headers.clone(),
            content: Content::Bytes(content.freeze()),
        };
        uploads.1.remove(id);
        Ok(object)
    }

    pub(super) fn abort(&self, id: &str) -> S3Result<()> {
        self.lock().1.remove(id).map(drop).ok_or_else(|| S3ErrorCode::NoSuchUpload.into())
    }

    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<String, Upload>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
