//! (being built)
#![allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct ReadConfig {
    pub pool_bytes: u64,
    pub direct: bool,
    pub max_gets_in_flight: usize,
}
