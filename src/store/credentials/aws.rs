//! The providers of AWS, as the AWS SDK has them, built anew for every fetch: the SDK's keep what they read from files.
//!
//! The SDK reads the variables of AWS (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_SHARED_CREDENTIALS_FILE` ...) by itself.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::Region;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::imds;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError as SdkError;
use aws_sdk_s3::config::SharedHttpClient;
use aws_smithy_http_client::tls;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::provider::{Fetched, Provider, ProviderFailure};

/// Longest time for one question to the instance metadata service, answered in milliseconds where there is one. Elsewhere
/// packets to it vanish, and this is what its absence costs.
const METADATA_DEADLINE: Duration = Duration::from_secs(2);

/// The region whose STS is asked when nobody names one; every account has it.
const FALLBACK_REGION: &str = "us-east-1";

/// The region that environment or profile name; `profile` overrides the default one.
pub async fn region(profile: Option<&str>) -> Option<String> {
    let mut from_profile = ProfileFileRegionProvider::builder();
    if let Some(profile) = profile {
        from_profile = from_profile.profile_name(profile);
    }
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new()).or_else(from_profile.build());
    chain.region().await.map(|region| region.as_ref().to_owned())
}

/// One profile of the configuration files, and nothing else.
pub(super) fn named_profile(name: &str, region_hint: Option<&str>) -> Vec<Box<dyn Provider>> {
    let context = Context::new(Some(name), region_hint);
    vec![Box::new(AwsProvider { kind: Kind::Profile, context })]
}

/// Everything the SDK asks by default, in its order.
pub(super) fn default_chain(region_hint: Option<&str>) -> Vec<Box<dyn Provider>> {
    let context = Context::new(None, region_hint);
    let kinds = [Kind::Environment, Kind::Profile, Kind::WebIdentity, Kind::Container, Kind::InstanceMetadata];
    kinds.map(|kind| Box::new(AwsProvider { kind, context: Arc::clone(&context) }) as Box<dyn Provider>).into()
}

struct Context {
    profile: Option<String>,
    region_hint: Option<String>,
    http: SharedHttpClient,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Context {
    fn new(profile: Option<&str>, region_hint: Option<&str>) -> Arc<Self> {
        // The client is built by its first request, so that keys from a file cost no TLS set-up.
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .build_https();
        Arc::new(Context { profile: profile.map(str::to_owned), region_hint: region_hint.map(str::to_owned), http })
    }

    async fn provider_config(&self) -> ProviderConfig {
        let region = region(self.profile.as_deref()).await.or_else(|| self.region_hint.clone());
        let region = Region::new(region.unwrap_or_else(|| FALLBACK_REGION.to_owned()));
        ProviderConfig::without_region().with_region(Some(region)).with_http_client(self.http.clone())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Environment,
    /// Keys, role, SSO session or process of a profile.
    Profile,
    WebIdentity,
    Container,
    InstanceMetadata,
}

#[derive(Debug)]
struct AwsProvider {
    kind: Kind,
    context: Arc<Context>,
}

impl Provider for AwsProvider {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Environment => "environment",
            Kind::Profile => "profile",
            Kind::WebIdentity => "web identity",
            Kind::Container => "container",
            Kind::InstanceMetadata => "instance metadata",
        }
    }

    fn fetch(&self) -> BoxFuture<'_, Result<Fetched, ProviderFailure>> {
        async {
            let found = self.ask_sdk().await.map_err(|error| self.failure(&error))?;
            Ok(Fetched {
                access_key_id: found.access_key_id().to_owned(),
                secret_access_key: found.secret_access_key().to_owned(),
                session_token: found.session_token().map(str::to_owned),
                expires: found.expiry(),
            })
        }
        .boxed()
    }
}

impl AwsProvider {
    async fn ask_sdk(&self) -> Result<aws_credential_types::Credentials, SdkError> {
        if self.kind == Kind::Environment {
            return EnvironmentVariableCredentialsProvider::new().provide_credentials().await;
        }
        let config = self.context.provider_config().await;
        match self.kind {
            Kind::Environment | Kind::Profile => {
                let mut builder = ProfileFileCredentialsProvider::builder().configure(&config);
                if let Some(profile) = &self.context.profile {
                    builder = builder.profile_name(profile);
                }
                builder.build().provide_credentials().await
            }
            Kind::WebIdentity => {
                WebIdentityTokenCredentialsProvider::builder().configure(&config).build().provide_credentials().await
            }
            Kind::Container => EcsCredentialsProvider::builder().configure(&config).build().provide_credentials().await,
            Kind::InstanceMetadata => {
                let client = imds::Client::builder()
                    .configure(&config)
                    .connect_timeout(METADATA_DEADLINE / 2)
                    .read_timeout(METADATA_DEADLINE / 2)
                    .operation_attempt_timeout(METADATA_DEADLINE)
                    .operation_timeout(METADATA_DEADLINE)
                    .max_attempts(2)
                    .build();
                let builder = ImdsCredentialsProvider::builder().configure(&config).imds_client(client);
                builder.build().provide_credentials().await
            }
        }
    }

    fn failure(&self, error: &SdkError) -> ProviderFailure {
        let mut reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let mut cause = error.source().and_then(Error::source);
        while let Some(inner) = cause {
            reason = format!("{reason}: {inner}");
            cause = inner.source();
        }
        if let Some(profile) = &self.context.profile {
            reason = format!("\"{profile}\" has no credentials that can be used ({reason})");
        }
        // Nobody configures the metadata service: whatever goes wrong there, it was a guess.
        match (error, self.kind) {
            (SdkError::CredentialsNotLoaded(_), _) | (_, Kind::InstanceMetadata) => {
                ProviderFailure::NotConfigured(reason)
            }
            _ => ProviderFailure::Failed(reason),
        }
    }
}
