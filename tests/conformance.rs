//! The suite that every store passes, run against our S3 client over three servers.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::DisplayErrorContext;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use streamvol::model::ObjectKey;
use streamvol::store::ObjectStore;
use streamvol::store::conformance::{Fixture, Limit, Report, run};
use streamvol::store::s3::auth::{Credentials, StaticCredentials};
use streamvol::store::s3::{S3Config, S3Store};

use crate::support::*;

/// A bucket of a server, written with the AWS SDK and read with our client.
struct ServerFixture {
    store: Arc<dyn ObjectStore>,
    client: Client,
    bucket: String,
    limits: Vec<Limit>,
    refuses: fn(&str) -> Option<&'static str>,
}

/// Keys that cannot be read over HTTP, whatever the server: no URL keeps such a component. A mount does not show them anyway.
fn unreadable(key: &str) -> Option<&'static str> {
    let dots = key.starts_with("read/") && key.split('/').any(|part| part == "." || part == "..");
    dots.then_some("a URL cannot hold it")
}

impl ServerFixture {
    fn new(server: &impl Server, limits: &[Limit], refuses: fn(&str) -> Option<&'static str>) -> Self {
        let address = server.address();
        let credentials = Credentials::new(address.access_key.clone(), address.secret_key.clone(), None);
        let mut config = S3Config::new(address.bucket.clone());
        config.endpoint = Some(address.endpoint.clone());
        let store = S3Store::new(config, Arc::new(StaticCredentials::new(credentials))).unwrap();
        ServerFixture {
            store: Arc::new(store),
            client: sdk_client(&address),
            bucket: address.bucket,
            limits: limits.to_vec(),
            refuses,
        }
    }
}

impl Fixture for ServerFixture {
    fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    fn put<'a>(&'a self, key: &'a ObjectKey, content: Bytes) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let text = std::str::from_utf8(key.as_bytes()).map_err(|error| error.to_string())?;
            if let Some(reason) = unreadable(text).or_else(|| (self.refuses)(text)) {
                return Err(reason.to_owned());
            }
            let request = self.client.put_object().bucket(&self.bucket).key(text).body(content.into());
            let sent = request.send().await;
            sent.map(drop).map_err(|error| DisplayErrorContext(error).to_string())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let text = std::str::from_utf8(key.as_bytes()).map_err(|error| error.to_string())?;
            let sent = self.client.delete_object().bucket(&self.bucket).key(text).send().await;
            sent.map(drop).map_err(|error| DisplayErrorContext(error).to_string())
        }
        .boxed()
    }

    fn limits(&self) -> &[Limit] {
        &self.limits
    }
}

fn report_of(fixture: &ServerFixture) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(fixture))
}

/// Everything holds, and exactly these keys are refused by the server itself.
#[track_caller]
fn conforms(report: &Report, refused: &[&str]) {
    assert!(report.failures.is_empty(), "{report}");
    let expected: BTreeSet<ObjectKey> = refused.iter().map(|&key| ObjectKey::from(key)).collect();
    assert_eq!(report.refused(), expected, "{report}");
    assert!(report.passed.len() >= 15, "{report}");
}

#[test]
fn our_client_conforms_over_our_own_server() {
    let origin = TestOrigin::empty();
    let report = report_of(&ServerFixture::new(&origin, &[], |_| None));
    assert!(report.unchecked.is_empty(), "{report}");
    conforms(&report, &["read/x/./y", "read/x/../y"]);
}

#[test]
fn our_client_conforms_over_seaweedfs() {
    // It keeps objects in directories: their names are made clean, and a directory comes where its name does.
    let renamed = |key: &str| {
        let other = key.contains("//") || key.contains('\\') || key == "read/dir/";
        other.then_some("stored under another name")
    };
    let report = report_of(&ServerFixture::new(&Weed::bucket(), &[Limit::Unordered], renamed));
    let refused = [
        "names//lead",
        "names/.",
        "names/..",
        "names/back\\slash",
        "names/x/../y",
        "names/x/./y",
        "names/x//y",
        "read//lead",
        "read/back\\slash",
        "read/dir/",
        "read/x/../y",
        "read/x/./y",
        "read/x//y",
    ];
    conforms(&report, &refused);
}

#[test]
fn our_client_conforms_over_rclone() {
    // Keys are paths of a local directory, and what has bytes is a file there.
    let no_path = |key: &str| {
        let odd = key.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        odd.then_some("no path of a file")
    };
    let refused = [
        "names//lead",
        "names/.",
        "names/..",
        "names/dir/",
        "names/x/../y",
        "names/x/./y",
        "names/x//y",
        "read//lead",
        "read/dir/",
        "read/x/../y",
        "read/x/./y",
        "read/x//y",
    ];
    conforms(&report_of(&ServerFixture::new(&Rclone::start(), &[], no_path)), &refused);
}
