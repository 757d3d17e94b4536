//! S3 operations over buckets: what the S3 library parsed and whose signature it checked, answered from a [`Bucket`].
//!
//! Always true: an answer's entity tag, length and bytes are of one version, since the object is looked up once. Listings do
//! not come through here but through [`ListRoute`], which writes its own XML.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue};
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, Uri};
use s3s::dto;
use s3s::route::S3Route;
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use time::OffsetDateTime;

use super::bucket::{Bucket, ObjectHeaders, StoredObject};
use super::conditions::Quirk;
use super::content::body_of;
use super::list_xml::write_page;
use super::listing::{ListQuery, MAX_PAGE_KEYS, Page, internal};
use super::memory::now;
use super::request::{Target, Verb};
use super::service::Overrides;
use super::uploads::Uploads;
use crate::model::{ByteRange, ETag, UnixMillis};

/// The buckets of a server by name.
#[derive(Debug, Clone)]
pub(super) struct Buckets(Arc<BTreeMap<String, Arc<dyn Bucket>>>);

impl Buckets {
    pub(super) fn new(buckets: Vec<(String, Arc<dyn Bucket>)>) -> Self {
        Buckets(Arc::new(buckets.into_iter().collect()))
    }

    fn find(&self, name: &str) -> S3Result<&dyn Bucket> {
        let bucket = self.0.get(name).ok_or_else(|| error(S3ErrorCode::NoSuchBucket, "no bucket of this name"))?;
        Ok(bucket.as_ref())
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<StoredObject> {
        let found = self.find(bucket)?.find(key).map_err(internal)?;
        found.ok_or_else(|| error(S3ErrorCode::NoSuchKey, "The specified key does not exist."))
    }
}

/// The operations of S3 that the server knows.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) buckets: Buckets,
    pub(super) region: String,
    pub(super) uploads: Uploads,
}

#[async_trait::async_trait]
impl S3 for Backend {
    async fn get_object(&self, request: S3Request<dto::GetObjectInput>) -> S3Result<S3Response<dto::GetObjectOutput>> {
        let input = request.input;
        let object = self.buckets.object(&input.bucket, &input.key)?;
        let overrides = request.extensions.get::<Overrides>();
        let ignores_match = overrides.is_some_and(|o| o.quirks.has(Quirk::IgnoreIfMatch));
        check_conditions(&object, input.if_match.filter(|_| !ignores_match), input.if_none_match)?;
        let range = input.range.filter(|_| !overrides.is_some_and(|o| o.ignore_range));
        let part = match range {
            Some(range) => Some(satisfied(range, object.size_bytes)?),
            None => None,
        };
        let sent = part.unwrap_or(ByteRange::new(0, object.size_bytes));
        let mut output = dto::GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(length(sent.len())),
            content_range: part.map(|part| format!("bytes {}-{}/{}", part.start, part.end - 1, object.size_bytes)),
            e_tag: Some(strong(&object.etag)),
            last_modified: Some(timestamp(object.modified)),
            ..dto::GetObjectOutput::default()
        };
        if let Some(headers) = &object.headers {
            output.content_type.clone_from(&headers.content_type);
            output.metadata = Some(headers.metadata.iter().cloned().collect());
        }
        output.body = Some(body_of(object.content, sent).into());
        Ok(S3Response::new(output))
    }

    async fn head_object(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        let input = request.input;
        let object = self.buckets.object(&input.bucket, &input.key)?;
        check_conditions(&object, input.if_match, input.if_none_match)?;
        let mut output = dto::HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(length(object.size_bytes)),
            e_tag: Some(strong(&object.etag)),
            last_modified: Some(timestamp(object.modified)),
            ..dto::HeadObjectOutput::default()
        };
        if let Some(headers) = &object.headers {
            output.content_type.clone_from(&headers.content_type);
            output.metadata = Some(headers.metadata.iter().cloned().collect());
        }
        Ok(S3Response::new(output))
    }

    async fn put_object(&self, request: S3Request<dto::PutObjectInput>) -> S3Result<S3Response<dto::PutObjectOutput>> {
        let input = request.input;
        let bucket = self.buckets.find(&input.bucket)?;
        let bytes = collected(input.body).await?;
        if matches!(input.if_none_match, Some(dto::ETagCondition::Any))
            && bucket.find(&input.key).map_err(internal)?.is_some()
        {
            return Err(error(S3ErrorCode::PreconditionFailed, "there is an object of this key"));
        }
        let mut object = StoredObject::of_bytes(bytes, now());
        object.headers = headers(input.content_type, input.metadata);
        let e_tag = Some(strong(&object.etag));
        bucket.put(&input.key, object).map_err(internal)?;
        Ok(S3Response::new(dto::PutObjectOutput { e_tag, ..dto::PutObjectOutput::default() }))
    }

    async fn delete_object(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        self.buckets.find(&request.input.bucket)?.delete(&request.input.key).map_err(internal)?;
        Ok(S3Response::new(dto::DeleteObjectOutput::default()))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CreateMultipartUploadOutput>> {
        let input = request.input;
        self.buckets.find(&input.bucket)?;
        let upload_id = self.uploads.create(&input.bucket, &input.key, headers(input.content_type, input.metadata));
        Ok(S3Response::new(dto::CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload_id),
            ..dto::CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        request: S3Request<dto::UploadPartInput>,
    ) -> S3Result<S3Response<dto::UploadPartOutput>> {
        let input = request.input;
        let bytes = collected(input.body).await?;
        let etag = self.uploads.add_part(&input.upload_id, input.part_number, bytes)?;
        Ok(S3Response::new(dto::UploadPartOutput { e_tag: Some(strong(&etag)), ..dto::UploadPartOutput::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::CompleteMultipartUploadOutput>> {
        let input = request.input;
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let object = self.uploads.complete(&input.upload_id, (&input.bucket, &input.key), &parts, now())?;
        let e_tag = Some(strong(&object.etag));
        self.buckets.find(&input.bucket)?.put(&input.key, object).map_err(internal)?;
        Ok(S3Response::new(dto::CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag,
            ..dto::CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<dto::AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<dto::AbortMultipartUploadOutput>> {
        self.uploads.abort(&request.input.upload_id)?;
        Ok(S3Response::new(dto::AbortMultipartUploadOutput::default()))
    }

    async fn head_bucket(
        &self,
        request: S3Request<dto::HeadBucketInput>,
    ) -> S3Result<S3Response<dto::HeadBucketOutput>> {
        self.buckets.find(&request.input.bucket)?;
        Ok(S3Response::new(dto::HeadBucketOutput {
            bucket_region: Some(self.region.clone()),
            ..dto::HeadBucketOutput::default()
        }))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<dto::GetBucketLocationInput>,
    ) -> S3Result<S3Response<dto::GetBucketLocationOutput>> {
        self.buckets.find(&request.input.bucket)?;
        // The first region is older than the operation, and has no name in it.
        let named = Some(self.region.clone()).filter(|region| region != "us-east-1");
        let location_constraint = named.map(dto::BucketLocationConstraint::from);
        Ok(S3Response::new(dto::GetBucketLocationOutput { location_constraint }))
    }

    async fn create_bucket(
        &self,
        request: S3Request<dto::CreateBucketInput>,
    ) -> S3Result<S3Response<dto::CreateBucketOutput>> {
        match self.buckets.find(&request.input.bucket) {
            // Tools that create a bucket before they upload take this for success.
            Ok(_) => Err(error(S3ErrorCode::BucketAlreadyOwnedByYou, "the bucket is there")),
            Err(_) => Err(error(S3ErrorCode::AccessDenied, "buckets are given when the server starts")),
        }
    }

    async fn list_buckets(
        &self,
        _request: S3Request<dto::ListBucketsInput>,
    ) -> S3Result<S3Response<dto::ListBucketsOutput>> {
        let bucket = |name: &String| dto::Bucket {
            name: Some(name.clone()),
            creation_date: Some(timestamp(UnixMillis(0))),
            ..dto::Bucket::default()
        };
        Ok(S3Response::new(dto::ListBucketsOutput {
            buckets: Some(self.buckets.0.keys().map(bucket).collect()),
            ..dto::ListBucketsOutput::default()
        }))
    }
}

/// Answers both versions of ListObjects; the S3 library has checked the signature before.
#[derive(Debug)]
pub(super) struct ListRoute {
    pub(super) buckets: Buckets,
    pub(super) domain: Option<String>,
    /// Unsigned requests are answered, too.
    pub(super) anonymous: bool,
}

#[async_trait::async_trait]
impl S3Route for ListRoute {
    fn is_match(&self, method: &Method, uri: &Uri, headers: &HeaderMap, _extensions: &mut Extensions) -> bool {
        Target::of(method, uri, headers, self.domain.as_deref()).verb == Verb::List
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        if self.anonymous || request.credentials.is_some() {
            return Ok(());
        }
        Err(error(S3ErrorCode::AccessDenied, "Access Denied"))
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let target = Target::of(&request.method, &request.uri, &request.headers, self.domain.as_deref());
        let bucket = self.buckets.find(&target.bucket)?;
        let overrides = request.extensions.get::<Overrides>().cloned().unwrap_or_default();
        let quirks = overrides.quirks;
        let mut query = ListQuery::parse(request.uri.query().unwrap_or_default())?;
        if quirks.has(Quirk::IgnoreStartAfter) {
            query.start_after = None;
        }
        if quirks.has(Quirk::IgnoreMaxKeys) {
            query.max_keys = MAX_PAGE_KEYS;
        }
        if quirks.has(Quirk::IgnoreDelimiter) {
            query.delimiter.clear();
        }
        let page = if quirks.has(Quirk::EmptyFirstPage) && query.continuation.is_none() {
            Page::empty_before(&query)?
        } else {
            query.page(bucket)?
        };
        let mut response = S3Response::new(Body::from(write_page(&target.bucket, &query, &page, &quirks)));
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        Ok(response)
    }
}

/// The conditions of RFC 9110 that S3 knows, in their order.
fn check_conditions(
    object: &StoredObject,
    if_match: Option<dto::ETagCondition>,
    if_none_match: Option<dto::ETagCondition>,
) -> S3Result<()> {
    let holds = |condition: &dto::ETagCondition| match condition.as_etag() {
        None => true,
        Some(etag) => etag.value() == object.etag.to_string(),
    };
    if if_match.is_some_and(|condition| !holds(&condition)) {
        let message = "At least one of the pre-conditions you specified did not hold";
        return Err(error(S3ErrorCode::PreconditionFailed, message));
    }
    if if_none_match.is_some_and(|condition| holds(&condition)) {
        let mut unchanged = error(S3ErrorCode::NotModified, "Not Modified");
        unchanged.set_status_code(hyper::StatusCode::NOT_MODIFIED);
        let mut headers = HeaderMap::new();
        if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", object.etag)) {
            headers.insert(ETAG, etag);
        }
        unchanged.set_headers(headers);
        return Err(unchanged);
    }
    Ok(())
}

/// The bytes that a Range header asks for, or 416.
fn satisfied(range: dto::Range, size_bytes: u64) -> S3Result<ByteRange> {
    let part = match range {
        dto::Range::Int { first, last } => {
            let end = last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes));
            ByteRange::new(first.min(size_bytes), end)
        }
        dto::Range::Suffix { length } => ByteRange::new(size_bytes.saturating_sub(length), size_bytes),
    };
    if !part.is_empty() {
        return Ok(part);
    }
    let mut unsatisfied = error(S3ErrorCode::InvalidRange, "The requested range is not satisfiable");
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{size_bytes}")) {
        headers.insert(CONTENT_RANGE, value);
    }
    unsatisfied.set_headers(headers);
    Err(unsatisfied)
}

/// All bytes of an upload.
async fn collected(body: Option<dto::StreamingBlob>) -> S3Result<Bytes> {
    let Some(body) = body else { return Ok(Bytes::new()) };
    let mut body = body.map_err(|source| S3Error::with_source(S3ErrorCode::IncompleteBody, source));
    let mut all = BytesMut::new();
    while let Some(chunk) = body.try_next().await? {
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

fn headers(content_type: Option<String>, metadata: Option<dto::Metadata>) -> Option<Arc<ObjectHeaders>> {
    let headers = ObjectHeaders { content_type, metadata: metadata.into_iter().flatten().collect() };
    (headers != ObjectHeaders::default()).then(|| Arc::new(headers))
}

pub(super) fn error(code: S3ErrorCode, message: &'static str) -> S3Error {
    S3Error::with_message(code, message)
}

fn strong(etag: &ETag) -> dto::ETag {
    dto::ETag::Strong(etag.to_string())
}

fn length(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn timestamp(moment: UnixMillis) -> dto::Timestamp {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(moment.0) * 1_000_000);
    time.unwrap_or(OffsetDateTime::UNIX_EPOCH).into()
}
