//! (being built)
#![allow(missing_docs)]
#[derive(Debug, Clone, Default)]
pub struct CredentialsConfig { pub anonymous: bool, pub profile: Option<String> }
