//! (being built)
#![allow(missing_docs)]
use std::path::PathBuf;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    #[default]
    Auto,
    Path,
    VirtualHosted,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Aws,
    Oss,
    Gcs,
    R2,
    Ceph,
    MinIo,
    SeaweedFs,
    Generic,
}
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeouts {}
#[derive(Debug, Clone)]
pub struct S3Config {
    pub endpoint: Option<String>,
    pub bucket: String,
    pub region: Option<String>,
    pub addressing: Addressing,
    pub dialect: Option<Dialect>,
    pub requester_pays: bool,
    pub ca_bundle: Option<PathBuf>,
    pub timeouts: Timeouts,
}
#[derive(Debug, thiserror::Error)]
#[error("config")]
pub struct S3ConfigError;
