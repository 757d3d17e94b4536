//! (being built)
#![allow(missing_docs)]
use super::error::CliError;
use crate::config::resolve::DemoConfig;
pub fn run(_config: DemoConfig) -> Result<(), CliError> {
    Ok(())
}
