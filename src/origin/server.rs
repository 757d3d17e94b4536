//! The running server: a listener, threads of its own, and how they end.
//!
//! Always true: the server shares no thread and no runtime with the client under test. When `stop` returns, its connections
//! are closed and its threads are gone; dropping does the same.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::auth::KeyPair;
use super::backend::{Backend, Buckets, ListRoute};
use super::bucket::Bucket;
use super::conditions::Conditions;
use super::connection::{Connection, ConnectionIo, Transport};
use super::counters::{CounterSnapshot, Counters};
use super::request::DomainHost;
use super::service::{ConnectionService, Shared};
use super::uploads::Uploads;

/// Connections that may wait to be accepted: clients open hundreds at once, and a refused one comes back a second later.
const LISTEN_BACKLOG: i32 = 4096;

/// Wait after a failed accept (out of descriptors, mostly) before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The access key and secret that requests must be signed with; `None` answers unsigned requests (only).
    pub credentials: Option<(String, String)>,
    /// Region of the buckets; signatures must be for it.
    pub region: String,
    /// The buckets and their names.
    pub buckets: Vec<(String, Arc<dyn Bucket>)>,
    /// Domain under which each bucket has a host name of its own (`BUCKET.DOMAIN`); addresses with a path work as well.
    pub domain: Option<String>,
    /// Certificate and key for TLS; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Threads that serve.
    pub worker_threads: usize,
    /// Count GETs by key.
    pub count_by_key: bool,
    /// Seed of jitter, tails and probabilities.
    pub seed: u64,
}

/// Files in PEM form for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain.
    pub certificates: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

impl Default for OriginConfig {
    /// On a free port of 127.0.0.1, unsigned, without buckets, one thread.
    fn default() -> Self {
        OriginConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            credentials: None,
            region: "us-east-1".to_owned(),
            buckets: Vec::new(),
            domain: None,
            tls: None,
            worker_threads: 1,
            count_by_key: false,
            seed: 0,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// The address cannot be listened on.
    #[error("listen on {address}: {source}; choose another address, or port 0 for any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// No runtime or thread could be made.
    #[error("start the server's threads: {0}")]
    Threads(#[source] std::io::Error),
    /// Certificate or key cannot be used.
    #[error("read TLS certificate or key {path}: {reason}; give PEM files that belong together")]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// A running S3 server.
pub struct Origin {
    endpoint: String,
    address: SocketAddr,
    counters: Arc<Counters>,
    conditions: Conditions,
    key_pair: Option<KeyPair>,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Origin {
    /// Starts a server; it answers when this returns.
    ///
    /// # Errors
    /// When the address is taken, the TLS files cannot be used, or threads cannot be made.
    pub fn start(config: OriginConfig) -> Result<Origin, OriginError> {
        let tls = config.tls.as_ref().map(tls_acceptor).transpose()?;
        let (listener, address) =
            listen(config.listen).map_err(|source| OriginError::Listen { address: config.listen, source })?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let runtime = runtime(config.worker_threads).map_err(OriginError::Threads)?;
        let key_pair = config.credentials.clone().map(KeyPair::new);
        let shared = Arc::new(shared(config, key_pair.clone()));
        let (counters, conditions) = (Arc::clone(&shared.counters), shared.conditions.clone());
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, tls, shared) => {}
                }
            });
            // Dropping the runtime here ends every connection where it stands.
        };
        let thread =
            std::thread::Builder::new().name("origin".to_owned()).spawn(serve).map_err(OriginError::Threads)?;
        let running = Mutex::new(Some(Running { stop, thread }));
        Ok(Origin { endpoint: format!("{scheme}://{address}"), address, counters, conditions, key_pair, running })
    }

    /// The URL to give to clients, as in `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The address that is listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked and sent since the start or the last reset.
    #[must_use]
    pub fn counters(&self) -> CounterSnapshot {
        self.counters.snapshot()
    }

    /// GETs by `BUCKET/KEY`; empty unless [`OriginConfig::count_by_key`].
    #[must_use]
    pub fn gets_by_key(&self) -> BTreeMap<String, u64> {
        self.counters.gets_by_key()
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&self) {
        self.counters.reset();
    }

    /// The handle to change latency, limits, faults and oddities.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// From now on requests must be signed with this pair and no other. A server that asks for no signature keeps to that.
    pub fn set_credentials(&self, access_key: &str, secret: &str) {
        if let Some(key_pair) = &self.key_pair {
            key_pair.replace(access_key.to_owned(), secret.to_owned());
        }
    }

    /// Closes all connections, whatever is being sent, and waits until the threads are gone.
    pub fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { stop, thread }) = running {
            // The thread may have ended by itself; then there is nobody to tell.
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// One thread needs no scheduler that moves tasks between threads.
fn runtime(worker_threads: usize) -> std::io::Result<Runtime> {
    let mut builder = if worker_threads <= 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if worker_threads > 1 {
        builder.worker_threads(worker_threads).thread_name("origin-worker");
    }
    builder.enable_all().build()
}

fn shared(config: OriginConfig, key_pair: Option<KeyPair>) -> Shared {
    let buckets = Buckets::new(config.buckets);
    let signed_region = key_pair.is_some().then(|| config.region.clone());
    let backend = Backend { buckets: buckets.clone(), region: config.region, uploads: Uploads::default() };
    let mut builder = S3ServiceBuilder::new(backend);
    builder.set_route(ListRoute { buckets, domain: config.domain.clone(), anonymous: key_pair.is_none() });
    if let Some(key_pair) = key_pair {
        builder.set_auth(key_pair);
    }
    if let Some(domain) = &config.domain {
        builder.set_host(DomainHost(domain.clone()));
    }
    Shared {
        s3: builder.build(),
        conditions: Conditions::new(config.seed),
        counters: Arc::new(Counters::new(config.count_by_key)),
        domain: config.domain,
        signed_region,
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        shared.counters.connection();
        // A socket that cannot be told so only answers later.
        let _ = stream.set_nodelay(true);
        tokio::spawn(handle(stream, tls.clone(), Arc::clone(&shared)));
    }
}

async fn handle(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    match tls {
        None => serve(stream, shared).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, shared).await;
            }
        }
    }
}

async fn serve<S: Transport + Send + 'static>(stream: S, shared: Arc<Shared>) {
    let connection = Arc::new(Connection::default());
    let io = TokioIo::new(ConnectionIo::new(stream, Arc::clone(&connection)));
    // An error here is a client that went away or a fault that was played; both are what they are.
    let _ = http1::Builder::new().serve_connection(io, ConnectionService { shared, connection }).await;
}

fn tls_acceptor(files: &TlsFiles) -> Result<TlsAcceptor, OriginError> {
    let refuse =
        |path: &Path, reason: &dyn fmt::Display| OriginError::Tls { path: path.to_owned(), reason: reason.to_string() };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect)
        .map_err(|error| refuse(&files.certificates, &error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| refuse(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| refuse(&files.certificates, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
