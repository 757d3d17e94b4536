//! The seam between signing and whoever finds credentials.
//!
//! `S3Store` asks for the current credentials at every request and says when the store calls them expired; caching, files,
//! providers and refreshing before the end belong to the implementation (`store::credentials`). Secrets are never shown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;

/// Where the credentials of a store come from.
pub trait CredentialsSource: fmt::Debug + Send + Sync {
    /// The credentials to sign the next request with; `None` sends it unsigned, as to a public bucket.
    ///
    /// Asked for every request: it answers from memory whenever it can.
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>>;

    /// The store said that the current credentials have expired: the next `current` answers with others if there are any.
    fn refresh(&self) -> BoxFuture<'_, ()>;
}

/// One set of credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Public part: names the key in every signed request.
    pub access_key_id: String,
    /// Secret part: never sent, never shown.
    pub secret_access_key: String,
    /// Sent along with temporary credentials; never shown.
    pub session_token: Option<String>,
    /// Differs for every new set within this process: the signing key is cached under it.
    pub id: u64,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &"(secret)")
            .field("session_token", &self.session_token.as_ref().map(|_| "(secret)"))
            .field("id", &self.id)
            .finish()
    }
}

impl Credentials {
    /// A new set with an id that no other set of this process has.
    #[must_use]
    pub fn new(
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<String>,
        session_token: Option<String>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Credentials {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Why there are no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// No provider has any, or the one that should have failed; says which and what to do.
    #[error("no credentials: {0}")]
    Unavailable(String),
    /// There were some, they have expired, and others cannot be had at the moment; says why.
    #[error("the credentials have expired and cannot be renewed at the moment: {0}")]
    NotRenewed(String),
}

/// Credentials that never change.
#[derive(Debug, Clone)]
pub struct StaticCredentials(Arc<Credentials>);

impl StaticCredentials {
    /// Always answers with `credentials`.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        StaticCredentials(Arc::new(credentials))
    }
}

impl CredentialsSource for StaticCredentials {
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>> {
        let credentials = self.0.clone();
        Box::pin(async move { Ok(Some(credentials)) })
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// No credentials at all: requests go out unsigned.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anonymous;

impl CredentialsSource for Anonymous {
    fn current(&self) -> BoxFuture<'_, Result<Option<Arc<Credentials>>, CredentialsError>> {
        Box::pin(async { Ok(None) })
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let credentials = Credentials::new("AKID", "hunter2", Some("session".into()));
        let shown = format!("{credentials:?} {:?}", StaticCredentials::new(credentials.clone()));
        assert!(shown.contains("AKID"));
        assert!(!shown.contains("hunter2") && !shown.contains("session\""), "{shown}");
    }

    #[test]
    fn every_new_set_has_an_id_of_its_own() {
        assert_ne!(Credentials::new("a", "b", None).id, Credentials::new("a", "b", None).id);
    }
}
