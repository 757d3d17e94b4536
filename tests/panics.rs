//! A panic while one request is served costs that request alone.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use streamvol::fuse::{AttributeConfig, FuseConfig, KernelNotifier, MAX_REQUEST_BYTES, Session};
use streamvol::handoff::{self, Mounted};
use streamvol::model::{MIB, ObjectKey, UnixMillis};
use streamvol::namespace::{BuilderConfig, Destination, Namespace, ObjectEntry, SnapshotBuilder};
use streamvol::read::{ReadConfig, Reader};
use streamvol::store::memory::MemoryStore;
use streamvol::store::{BodySink, GetRequest, ListPage, ListRequest, ObjectStore, StoreError};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::support::*;

const SIZE: usize = 1 << 20;

/// A store whose GETs panic as long as it is told to.
#[derive(Debug)]
struct PanickingStore {
    store: MemoryStore,
    panics: AtomicBool,
}

impl ObjectStore for PanickingStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        self.store.list(request)
    }

    fn get<'a>(&'a self, request: &'a GetRequest, body: &'a mut dyn BodySink) -> BoxFuture<'a, Result<(), StoreError>> {
        assert!(!self.panics.load(Ordering::SeqCst), "as a test");
        self.store.get(request, body)
    }
}

fn namespace_of(store: &MemoryStore, runtime: &Runtime) -> Namespace {
    let config = BuilderConfig { destination: Destination::Memory, listed_at: UnixMillis(0), show_shadowed: None };
    let mut builder = SnapshotBuilder::new(&ObjectKey::default(), config).unwrap();
    for object in runtime.block_on(store.list(&ListRequest::default())).unwrap().objects {
        let entry = ObjectEntry {
            key: object.key.as_bytes(),
            size_bytes: object.size_bytes,
            modified: object.modified,
            etag: object.etag.as_ref(),
        };
        builder.push(entry).unwrap();
    }
    Namespace::new(builder.finish().unwrap())
}

/// The parts of a volume, put together over `store`.
fn serve(store: &Arc<PanickingStore>, at: &TempDir, direct: bool, runtime: &Runtime) -> (Mounted, Session) {
    let options =
        handoff::MountOptions { source: "panics".to_owned(), allow_other: false, max_read_bytes: MAX_REQUEST_BYTES };
    let mounted = handoff::mount(&handoff::prepare(at.path(), HANG).unwrap(), &options).unwrap();
    let namespace = Arc::new(namespace_of(&store.store, runtime));
    let (notifier, notifications) = KernelNotifier::new();
    let reader = Reader::new(
        Arc::clone(store) as _,
        Arc::clone(&namespace),
        &ReadConfig { pool_bytes: 16 * MIB, direct, max_gets_in_flight: 4 },
        runtime.handle().clone(),
        Box::new(move |change| notifier.name_changed(change)),
    );
    let config = FuseConfig {
        attributes: AttributeConfig { uid: 0, gid: 0, file_mode: 0o644, dir_mode: 0o755 },
        reader_threads: 2,
        read_ahead_kb: 128,
        allow_other: false,
    };
    let device = mounted.device().try_clone_to_owned().unwrap();
    let session = Session::start(device, &config, namespace, reader, notifications, runtime.handle().clone()).unwrap();
    (mounted, session)
}

#[test]
fn a_panic_in_one_request_is_an_io_error_and_the_mount_lives() {
    let runtime = Runtime::new().unwrap();
    // In cached mode the GET runs in a task of the scheduler, in direct mode in the task that holds the reply.
    for direct in [false, true] {
        let store = MemoryStore::new();
        store.put("file", content(7, SIZE));
        let store = Arc::new(PanickingStore { store, panics: true.into() });
        let folder = TempDir::with_prefix("streamvol-test-").unwrap();
        let (mounted, session) = serve(&store, &folder, direct, &runtime);
        let path = folder.path().join("file");
        let after = within(HANG, "reads of a mount whose requests panic", move || {
            let file = File::open(&path).unwrap();
            for _ in 0..10 {
                let error = file.read_at(&mut [0; 4096], 0).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "direct={direct}");
            }
            assert_eq!(fs::metadata(&path).unwrap().size(), SIZE as u64, "the mount answers");
            store.panics.store(false, Ordering::SeqCst);
            fs::read(&path).unwrap()
        });
        assert!(after == content(7, SIZE), "direct={direct}");
        drop(mounted);
        within(HANG, "the end of the session", move || session.join()).unwrap();
    }
    runtime.shutdown_timeout(Duration::from_secs(5));
}
