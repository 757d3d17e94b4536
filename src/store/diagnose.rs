//! stub
#![allow(missing_docs)]
use super::StoreError;
use crate::model::ObjectKey;
#[derive(Debug)] pub struct Target { pub bucket: String, pub prefix: ObjectKey, pub endpoint: Option<String>, pub region: Option<String> }
#[derive(Debug)] pub struct Diagnosis { pub problem: String, pub advice: String }
pub async fn explain(error: &StoreError, _t: &Target) -> Diagnosis { Diagnosis { problem: error.to_string(), advice: String::new() } }
