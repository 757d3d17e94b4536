//! Servers not made by us: SeaweedFS, and rclone's S3 server over a local directory.
//!
//! `scripts/test` installs them and says where in `STREAMVOL_TEST_TOOLS`. Without it the tests that need them fail.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::process::{Guarded, output};
use super::uploads::Uploader;
use super::wait::{HANG, eventually};

const ACCESS_KEY: &str = "server-key";
const SECRET_KEY: &str = "server-secret-0123456789";

/// Where a bucket is and how to get in.
#[derive(Debug, Clone)]
pub struct Address {
    /// URL of the server.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// Access key.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
}

/// Something with a bucket that can be mounted.
pub trait Server {
    /// Where it is.
    fn address(&self) -> Address;
}

impl Server for Address {
    fn address(&self) -> Address {
        self.clone()
    }
}

/// What the test command says about its surroundings.
#[expect(clippy::disallowed_methods, reason = "the one place where the tests read the environment")]
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// True when the long forms of tests are wanted.
pub fn long_forms() -> bool {
    told("STREAMVOL_TEST_LONG").is_some_and(|value| value == "1")
}

/// A program that `scripts/test` installs.
fn tool(name: &str) -> PathBuf {
    let Some(folder) = told("STREAMVOL_TEST_TOOLS") else {
        panic!(
            "STREAMVOL_TEST_TOOLS is not set: run the tests with scripts/test, which installs {name} and says where it is"
        );
    };
    let path = Path::new(&folder).join(name);
    assert!(path.exists(), "{} is missing: run scripts/test, which installs it", path.display());
    path
}

/// Ports that nobody listens on, all different.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners: [TcpListener; COUNT] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The SeaweedFS server that all tests of this binary share; each takes a bucket of its own.
#[derive(Debug)]
pub struct Weed {
    endpoint: String,
    _process: Guarded,
}

impl Weed {
    /// A new bucket on the shared server, which is started when it is needed first.
    pub fn bucket() -> Address {
        static SHARED: OnceLock<Weed> = OnceLock::new();
        static BUCKETS: AtomicU64 = AtomicU64::new(0);
        let endpoint = SHARED.get_or_init(Weed::start).endpoint.clone();
        let bucket = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let address =
            Address { endpoint, bucket, access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
        Uploader::of(&address).create_bucket();
        address
    }

    fn start() -> Self {
        let program = tool("weed");
        let folder = TempDir::with_prefix("streamvol-weed-").unwrap().keep();
        let ports: [u16; 10] = free_ports();
        let names = [
            "s3.port",
            "s3.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "admin.port",
            "admin.port.grpc",
        ];
        let mut command = Command::new(program);
        command.arg("mini").arg(format!("-dir={}", folder.display())).args([
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-admin.ui=false",
            "-webdav=false",
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]);
        command.args(names.iter().zip(ports).map(|(name, port)| format!("-{name}={port}")));
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY).env("TMPDIR", &folder);
        command.current_dir(&folder);
        let log = folder.join("server.log");
        let sockets: Vec<String> = ports.iter().map(|port| format!("/tmp/seaweedfs-*-{port}.sock")).collect();
        let trash = format!("{} {}", folder.display(), sockets.join(" "));
        let process = Guarded::start(&command, &log, &trash);
        let endpoint = format!("http://127.0.0.1:{}", ports[0]);
        wait_until_it_answers(&endpoint, "/healthz", &log);
        Weed { endpoint, _process: process }
    }
}

/// rclone's S3 server over a directory: each of its folders is a bucket.
#[derive(Debug)]
pub struct Rclone {
    endpoint: String,
    _process: Guarded,
    folder: PathBuf,
}

impl Rclone {
    /// A server with an empty bucket.
    pub fn start() -> Self {
        let program = tool("rclone");
        let folder = TempDir::with_prefix("streamvol-rclone-").unwrap().keep();
        std::fs::create_dir_all(folder.join("data/bucket")).unwrap();
        let [port] = free_ports();
        let mut command = Command::new(program);
        command.args(["serve", "s3", "--addr", &format!("127.0.0.1:{port}")]);
        command.args(["--auth-key", &format!("{ACCESS_KEY},{SECRET_KEY}"), "--config", ""]);
        // Names in the directory are keys as they are.
        command.args(["--local-encoding", "None", "--vfs-cache-mode", "off"]).arg(folder.join("data"));
        let log = folder.join("server.log");
        let process = Guarded::start(&command, &log, &folder.display().to_string());
        let endpoint = format!("http://127.0.0.1:{port}");
        wait_until_it_answers(&endpoint, "/", &log);
        Rclone { endpoint, _process: process, folder }
    }

    /// The directory whose files are the bucket's objects: what is put there before the first request is seen.
    pub fn directory(&self) -> PathBuf {
        self.folder.join("data/bucket")
    }
}

impl Server for Rclone {
    fn address(&self) -> Address {
        Address {
            endpoint: self.endpoint.clone(),
            bucket: "bucket".to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
        }
    }
}

/// Any HTTP answer will do: a refusal is one, too.
fn wait_until_it_answers(endpoint: &str, path: &str, log: &Path) {
    use std::io::{Read, Write};
    let host = endpoint.trim_start_matches("http://");
    let answers = || -> std::io::Result<bool> {
        let mut stream = std::net::TcpStream::connect(host)?;
        stream.set_read_timeout(Some(HANG))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        Ok(&head == b"HTTP/")
    };
    let ready = std::panic::catch_unwind(|| {
        eventually(HANG, &format!("{endpoint} answers"), || answers().unwrap_or(false));
    });
    if let Err(panic) = ready {
        eprintln!("{}", std::fs::read_to_string(log).unwrap_or_default());
        std::panic::resume_unwind(panic);
    }
}

/// Runs rclone with `arguments` in which `store:` stands for the server; panics when it fails.
pub fn rclone(address: &Address, arguments: &[&str]) {
    let mut command = Command::new(tool("rclone"));
    command.args(["--config", ""]).args(arguments);
    for (name, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ENDPOINT", &address.endpoint),
        ("ACCESS_KEY_ID", &address.access_key),
        ("SECRET_ACCESS_KEY", &address.secret_key),
        ("FORCE_PATH_STYLE", "true"),
    ] {
        command.env(format!("RCLONE_CONFIG_STORE_{name}"), value);
    }
    let run = output(&mut command, HANG * 5);
    assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
}
