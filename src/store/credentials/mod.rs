//! Finds the credentials that requests are signed with, and keeps them fresh.
//!
//! Providers are asked in order until one has credentials: those of AWS (environment, profile, web identity, container, instance
//! metadata) and those of Alibaba Cloud, which of the two first depends on the store. What was found stays in memory, is fetched
//! again before it expires, and stays in use when that fails. Always true: one fetch at a time; secrets are in no log and no error;
//! an anonymous store asks no provider. How a request is signed is `s3`'s.

mod alibaba;
mod aws;
mod cache;
mod provider;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rand::rngs::SmallRng;

pub use alibaba::AlibabaEnvironment;
pub use aws::region;

use super::clock::Clock;
use super::s3::auth::{Credentials, CredentialsError, CredentialsSource};
use cache::CredentialsCache;
use provider::{Chain, Provider};

/// Longest wait for an answer of Alibaba Cloud's services.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whose providers are asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderOrder {
    /// AWS, then Alibaba Cloud if it is configured.
    #[default]
    AwsFirst,
    /// Alibaba Cloud, then AWS: for OSS.
    AlibabaFirst,
}

/// Where to look for credentials.
#[derive(Debug, Clone, Default)]
pub struct CredentialsConfig {
    /// Sign nothing and look nowhere (`--no-sign-request`).
    pub anonymous: bool,
    /// Take them from this profile of the AWS configuration files, and from nowhere else (`--profile`).
    pub profile: Option<String>,
    /// Region of the bucket, for asking STS when neither environment nor profile names one.
    pub region_hint: Option<String>,
    /// Whose providers come first.
    pub order: ProviderOrder,
    /// The variables of Alibaba Cloud.
    pub alibaba: AlibabaEnvironment,
    /// Use these and look nowhere: for a server whose keys are known, as that of the demo.
    pub fixed: Option<Credentials>,
}

/// The credentials of one store.
#[derive(Debug)]
pub struct StoreCredentials(Source);

#[derive(Debug)]
enum Source {
    Anonymous,
    Fixed(Arc<Credentials>),
    Found(CredentialsCache),
}

impl StoreCredentials {
    /// Looks where `config` says, when first asked. `rng` spreads the refreshes of many machines; `http` asks Alibaba Cloud's
    /// services (a proxy must leave out 100.100.100.200, as `NO_PROXY` can say).
    #[must_use]
    pub fn new(config: &CredentialsConfig, clock: Arc<dyn Clock>, rng: SmallRng, http: &reqwest::Client) -> Self {
        if config.anonymous {
            return StoreCredentials(Source::Anonymous);
        }
        if let Some(credentials) = &config.fixed {
            return StoreCredentials(Source::Fixed(Arc::new(credentials.clone())));
        }
        let chain = Chain::new(providers(config, &clock, http), advice(config));
        StoreCredentials(Source::Found(CredentialsCache::new(chain, clock, rng)))
    }

    /// Name of the provider whose credentials are in use, for people: "anonymous", "environment", "profile" ...
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match &self.0 {
            Source::Anonymous => "anonymous",
            Source::Fixed(_) => "fixed",
            Source::Found(cache) => cache.provider().unwrap_or("none found yet"),
        }
    }
}

impl CredentialsSource for StoreCredentials {
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>> {
        match &self.0 {
            Source::Anonymous => async { Ok(None) }.boxed(),
            Source::Fixed(credentials) => {
                let credentials = Arc::clone(credentials);
                async { Ok(Some(credentials)) }.boxed()
            }
            Source::Found(cache) => cache.current().map(|found| found.map(Some)).boxed(),
        }
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        match &self.0 {
            Source::Anonymous | Source::Fixed(_) => async {}.boxed(),
            Source::Found(cache) => cache.refresh().boxed(),
        }
    }
}

/// A client for asking Alibaba Cloud's services; they answer within milliseconds or not at all.
///
/// # Errors
/// TLS cannot be set up.
pub fn http_client() -> reqwest::Result<reqwest::Client> {
    // The provider is the process's; should one be set already, it serves as well.
    let _set_already = rustls::crypto::ring::default_provider().install_default();
    let builder = || reqwest::Client::builder().timeout(SERVICE_TIMEOUT);
    // Without certificates on the machine, what needs none (metadata, a URI on loopback) can still be asked.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

fn providers(config: &CredentialsConfig, clock: &Arc<dyn Clock>, http: &reqwest::Client) -> Vec<Box<dyn Provider>> {
    if let Some(profile) = &config.profile {
        return aws::named_profile(profile, config.region_hint.as_deref());
    }
    let aws = aws::default_chain(config.region_hint.as_deref());
    let alibaba = alibaba::providers(&config.alibaba, clock, http);
    match config.order {
        ProviderOrder::AwsFirst => aws.into_iter().chain(alibaba).collect(),
        ProviderOrder::AlibabaFirst => alibaba.into_iter().chain(aws).collect(),
    }
}

/// What to do when nothing is found.
fn advice(config: &CredentialsConfig) -> &'static str {
    match (&config.profile, config.order) {
        (Some(_), _) => "name a profile that has credentials, or use --no-sign-request for a public bucket",
        (None, ProviderOrder::AwsFirst) => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, use --profile, or --no-sign-request for a public bucket"
        }
        (None, ProviderOrder::AlibabaFirst) => {
            "set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, use --profile, or --no-sign-request for a \
             public bucket"
        }
    }
}

#[cfg(test)]
mod tests;
