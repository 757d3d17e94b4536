//! (being built)
#![allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeConfig {
    pub uid: u32,
    pub gid: u32,
    pub file_mode: u16,
    pub dir_mode: u16,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuseConfig {
    pub attributes: AttributeConfig,
    pub reader_threads: usize,
    pub read_ahead_kb: u32,
    pub allow_other: bool,
}
