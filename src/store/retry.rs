//! (being built)
#![allow(missing_docs)]
use std::time::Duration;
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryConfig {
    pub deadline: Duration,
    pub first_backoff: Duration,
    pub max_backoff: Duration,
}
