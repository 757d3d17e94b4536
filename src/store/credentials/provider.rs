//! One place where credentials may be, and a chain of such places.

use std::fmt;
use std::time::SystemTime;

use futures::future::BoxFuture;

use crate::store::s3::auth::CredentialsError;

/// One place where credentials may be. Reads files and asks services anew at every fetch, so that what was rotated is seen.
pub(super) trait Provider: fmt::Debug + Send + Sync {
    /// Name for people, lower case.
    fn name(&self) -> &'static str;

    /// What is there now.
    fn fetch(&self) -> BoxFuture<'_, Result<Fetched, ProviderFailure>>;
}

/// Credentials as a provider gives them. Without `Debug`: it holds secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) session_token: Option<String>,
    /// When they end; `None` when that is not said, as of keys in a file.
    pub(super) expires: Option<SystemTime>,
}

/// Why a provider has none. The text must hold no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProviderFailure {
    /// Nothing points to this provider: the next one is asked.
    NotConfigured(String),
    /// It was meant to have some: another provider's would not be what its user wants.
    Failed(String),
}

/// Providers in the order in which they are asked.
#[derive(Debug)]
pub(super) struct Chain {
    providers: Vec<Box<dyn Provider>>,
    /// What to do when none has any.
    advice: &'static str,
}

impl Chain {
    pub(super) fn new(providers: Vec<Box<dyn Provider>>, advice: &'static str) -> Self {
        Chain { providers, advice }
    }

    /// The first credentials, and the name of who had them.
    pub(super) async fn fetch(&self) -> Result<(Fetched, &'static str), CredentialsError> {
        let mut tried = Vec::new();
        for provider in &self.providers {
            let name = provider.name();
            match provider.fetch().await {
                Ok(fetched) => return Ok((fetched, name)),
                Err(ProviderFailure::NotConfigured(reason)) => {
                    tracing::debug!(provider = name, reason, "no credentials here");
                    tried.push((name, reason));
                }
                Err(ProviderFailure::Failed(reason)) => {
                    let message = format!("{name}: {reason}; repair this, or {}", self.advice);
                    return Err(CredentialsError::Unavailable(message));
                }
            }
        }
        let tried = match &tried[..] {
            [(name, reason)] => format!("{name}: {reason}"),
            tried => format!("tried {}", tried.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
        };
        Err(CredentialsError::Unavailable(format!("{tried}; {}", self.advice)))
    }
}
