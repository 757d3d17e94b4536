//! Who may ask: the key pair that requests must be signed with, and the region they must be signed for.
//!
//! The S3 library does the arithmetic of signatures; here is what it compares with. The pair can be changed while the server
//! runs, as it changes under clients whose credentials are rotated.

use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, Response};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::backend::error;
use super::error_xml::error_response;

/// The access key and secret in force.
#[derive(Debug, Clone)]
pub(super) struct KeyPair(Arc<RwLock<(String, SecretKey)>>);

impl KeyPair {
    pub(super) fn new((access_key, secret): (String, String)) -> Self {
        KeyPair(Arc::new(RwLock::new((access_key, secret.into()))))
    }

    pub(super) fn replace(&self, access_key: String, secret: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (access_key, secret.into());
    }
}

#[async_trait::async_trait]
impl S3Auth for KeyPair {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let pair = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if pair.0 == access_key {
            return Ok(pair.1.clone());
        }
        let message = "The AWS Access Key Id you provided does not exist in our records.";
        Err(error(S3ErrorCode::InvalidAccessKeyId, message))
    }
}

/// S3's answer to a request signed for another region than `region`; `None` when there is nothing to refuse.
pub(super) fn wrong_region(headers: &HeaderMap, region: &str) -> Option<Response<s3s::Body>> {
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    // `Credential=KEY/DATE/REGION/s3/aws4_request`; anything else is for the S3 library to refuse.
    let scope = authorization.split_once("Credential=")?.1.split(',').next()?;
    let signed_for = scope.rsplit('/').nth(2)?;
    if signed_for == region {
        return None;
    }
    let message =
        format!("The authorization header is malformed; the region '{signed_for}' is wrong; expecting '{region}'");
    let mut response = error_response(400, "AuthorizationHeaderMalformed", &message, Some(region));
    if let Ok(region) = HeaderValue::from_str(region) {
        response.headers_mut().insert("x-amz-bucket-region", region);
    }
    Some(response)
}
