//! The HTTP client: one pool of HTTP/1.1 connections for a store.
//!
//! S3 speaks HTTP/1.1; many connections side by side are what gives throughput. Nothing is followed, unpacked or tried again by
//! the client: all of that would hide from the checks above it.

use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, redirect, retry};

use super::address::Endpoint;
use super::{S3Config, S3ConfigError};

/// More than the GETs ever in flight: a connection is closed for being old, not for being one too many.
const MAX_IDLE_CONNECTIONS: usize = 1024;

/// Less than the 60 s after which load balancers close idle connections, so that the closing is ours and meets no request. The pool
/// looks once in this time, so a connection lives up to twice as long; with it goes its buffer of up to 400 KiB, and memory is to
/// fall within a minute after load.
const IDLE_TIMEOUT: Duration = Duration::from_secs(25);

/// Connections that a firewall has forgotten are found while idle.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// Builds the client. Proxies are taken from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, but never for this machine itself.
pub(super) fn build(config: &S3Config, endpoint: &Endpoint) -> Result<Client, S3ConfigError> {
    let mut builder = Client::builder()
        .user_agent(concat!("streamvol/", env!("CARGO_PKG_VERSION")))
        .http1_only()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(TCP_KEEPALIVE)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .connect_timeout(config.timeouts.connect);
    if endpoint.is_loopback() {
        builder = builder.no_proxy();
    }
    // The provider is the process's; should one be set already, it serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = config.ca_bundle.as_deref().map(read_certificates).transpose()?.unwrap_or_default();
    builder = if endpoint.https {
        builder.tls_certs_merge(certificates)
    } else {
        // Without TLS the system's certificates are neither read nor needed: slim images have none.
        builder.tls_certs_only(certificates)
    };
    builder.build().map_err(|error| S3ConfigError::Tls(super::error::last_cause(&error)))
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate>, S3ConfigError> {
    let refuse = |reason: String| S3ConfigError::CaBundle { path: path.display().to_string(), reason };
    let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|error| refuse(format!("not a PEM file of certificates: {}", super::error::last_cause(&error))))?;
    if certificates.is_empty() {
        return Err(refuse("it holds no certificate in PEM form".to_owned()));
    }
    Ok(certificates)
}
