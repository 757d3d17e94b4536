//! What was typed, parsed but not interpreted: one field per option, nothing derived.
//!
//! An `Option` field is one whose default is worked out in `resolve`.

use std::path::PathBuf;
use std::time::Duration;

use super::source::Given;
use crate::model::ByteSize;
use crate::store::s3::Dialect;
use crate::telemetry::log::LogLevel;

/// The value of every option, in the order of the table.
///
/// `Default` is an empty form: `Layers::typed` fills in the table's defaults.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "each field is the option of the same name; the table explains it")]
pub struct Typed {
    pub endpoint_url: Given<Option<String>>,
    pub region: Given<Option<String>>,
    pub path_style: Given<bool>,
    pub virtual_hosted: Given<bool>,
    pub dialect: Given<Option<Dialect>>,
    pub ca_bundle: Given<Option<PathBuf>>,
    pub no_sign_request: Given<bool>,
    pub profile: Given<Option<String>>,
    pub requester_pays: Given<bool>,
    pub retry_deadline: Given<Duration>,

    pub list_concurrency: Given<usize>,
    pub show_shadowed: Given<Option<String>>,
    pub require_nonempty: Given<bool>,
    pub recursive: Given<bool>,

    pub umask: Given<u16>,
    pub file_mode: Given<Option<u16>>,
    pub dir_mode: Given<Option<u16>>,
    pub uid: Given<Option<u32>>,
    pub gid: Given<Option<u32>>,
    pub allow_other: Given<bool>,

    pub direct_mode: Given<bool>,
    pub read_ahead_kb: Given<Option<u32>>,
    pub memory_limit: Given<Option<ByteSize>>,
    pub max_gets_in_flight: Given<Option<usize>>,

    pub foreground: Given<bool>,
    pub log_level: Given<LogLevel>,
    pub log_file: Given<Option<PathBuf>>,

    pub latency: Given<Duration>,
    pub images: Given<u32>,

    pub lazy: Given<bool>,
    pub force: Given<bool>,
}
