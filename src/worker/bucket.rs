//! A bucket as a volume uses it: the S3 store with its credentials, behind retries.
//!
//! There are two patiences. A reader that meets an outage waits for it to end, up to the retry deadline; somebody who just typed
//! a wrong endpoint does not want to wait that long for the answer, so what happens before a mount is up is given up sooner.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::model::ObjectKey;
use crate::store::clock::SystemClock;
use crate::store::credentials::{CredentialsConfig, StoreCredentials, http_client};
use crate::store::diagnose::{Target, explain};
use crate::store::retry::{RetryConfig, RetryStore};
use crate::store::s3::auth::{Credentials, CredentialsSource};
use crate::store::s3::{S3Config, S3ConfigError, S3Store};
use crate::store::{ObjectStore, StoreError};

use super::VolumeError;

/// Longest time without an answer before a mount is up: a page of a listing that begins with many deleted versions takes up to the
/// 30 s that the store has for its first byte, and may have to be asked for twice.
const START_DEADLINE: Duration = Duration::from_secs(75);

/// Longest time without a connection before a mount is up: outlasts a restart of the store, not the patience of somebody who has
/// mistyped its address.
const START_CONNECTION_DEADLINE: Duration = Duration::from_secs(15);

/// How to reach a bucket.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Endpoint, bucket, region, dialect.
    pub s3: S3Config,
    /// Where credentials come from.
    pub credentials: CredentialsConfig,
    /// How long and how often to try.
    pub retry: RetryConfig,
}

/// An opened bucket. Nothing has been asked of it yet.
#[derive(Debug)]
pub struct Bucket {
    s3: Arc<S3Store>,
    credentials: Arc<StoreCredentials>,
    reading: Arc<dyn ObjectStore>,
    starting: Arc<dyn ObjectStore>,
    config: S3Config,
}

impl Bucket {
    /// The bucket that `config` describes.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn open(config: &StoreConfig) -> Result<Self, VolumeError> {
        let http = http_client().map_err(|error| S3ConfigError::Tls(error.to_string()))?;
        let rng = SmallRng::from_os_rng;
        let credentials = Arc::new(StoreCredentials::new(&config.credentials, Arc::new(SystemClock), rng(), &http));
        let s3 = Arc::new(S3Store::new(config.s3.clone(), Arc::clone(&credentials) as Arc<dyn CredentialsSource>)?);
        let retrying = |retry: RetryConfig| -> Arc<dyn ObjectStore> {
            Arc::new(RetryStore::new(Arc::clone(&s3) as Arc<dyn ObjectStore>, retry, Arc::new(SystemClock), rng()))
        };
        let start = RetryConfig {
            deadline: config.retry.deadline.min(START_DEADLINE),
            no_connection_deadline: Some(START_CONNECTION_DEADLINE),
            ..config.retry.clone()
        };
        Ok(Bucket {
            reading: retrying(config.retry.clone()),
            starting: retrying(start),
            s3,
            credentials,
            config: config.s3.clone(),
        })
    }

    /// The store for reading: patient.
    #[must_use]
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.reading)
    }

    /// The store for what happens before a mount is up.
    #[must_use]
    pub fn starting_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.starting)
    }

    /// Says in the log where requests go.
    pub fn report(&self) {
        tracing::info!(store = %self.s3.describe(), credentials = self.credentials.describe(), "bucket");
    }

    /// What it means that the first questions ended with `error`, and what to do about it.
    pub async fn explain(&self, error: StoreError, prefix: &ObjectKey) -> VolumeError {
        let used = self.credentials.current().await.ok().flatten();
        let target = Target {
            bucket: self.config.bucket.clone(),
            prefix: prefix.clone(),
            endpoint: self.config.endpoint.clone(),
            region: self.config.region.clone(),
            is_virtual_hosted: self.s3.describe().style == "virtual-hosted",
            credentials: used.map(|used| sdk_credentials(&used)),
        };
        let diagnosis = explain(&error, &target).await;
        VolumeError::Store { error, diagnosis }
    }
}

fn sdk_credentials(used: &Credentials) -> aws_credential_types::Credentials {
    aws_credential_types::Credentials::new(
        &used.access_key_id,
        &used.secret_access_key,
        used.session_token.clone(),
        None,
        "streamvol",
    )
}
