//! Everything that speaks S3: addressing, dialects, signing, LIST and GET over HTTP/1.1.

pub mod auth;
