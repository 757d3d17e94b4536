//! Puts objects into any S3 server with the AWS SDK, whose idea of a key is byte for byte ours.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Region, RequestChecksumCalculation};
use aws_sdk_s3::error::DisplayErrorContext;
use tokio::runtime::Runtime;

use super::servers::Address;

/// An upload that takes longer hangs.
const ATTEMPT: Duration = Duration::from_secs(20);

/// Writes to one bucket.
#[derive(Debug)]
pub struct Uploader {
    runtime: Runtime,
    client: Client,
    bucket: String,
}

impl Uploader {
    /// For the bucket of this address.
    pub fn of(address: &Address) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Uploader { runtime, client: sdk_client(address), bucket: address.bucket.clone() }
    }

    /// Makes the bucket.
    pub fn create_bucket(&self) {
        let made = self.runtime.block_on(self.client.create_bucket().bucket(&self.bucket).send());
        made.unwrap_or_else(|error| panic!("create bucket: {}", DisplayErrorContext(error)));
    }

    /// Stores an object.
    ///
    /// # Errors
    /// What the server says when it refuses.
    pub fn put(&self, key: &str, content: impl Into<Vec<u8>>) -> Result<(), String> {
        self.put_encoded(key, content, None)
    }

    /// Stores an object with a `Content-Encoding`.
    ///
    /// # Errors
    /// What the server says when it refuses.
    pub fn put_encoded(&self, key: &str, content: impl Into<Vec<u8>>, encoding: Option<&str>) -> Result<(), String> {
        let request = self.client.put_object().bucket(&self.bucket).key(key).body(content.into().into());
        let sent = self.runtime.block_on(request.set_content_encoding(encoding.map(str::to_owned)).send());
        sent.map(drop).map_err(|error| DisplayErrorContext(error).to_string())
    }
}

/// An SDK client for this address.
pub fn sdk_client(address: &Address) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(&address.endpoint)
        .region(Region::new("us-east-1"))
        .force_path_style(true)
        .credentials_provider(Credentials::new(&address.access_key, &address.secret_key, None, None, "tests"))
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        // What a server refuses once it refuses always.
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}
