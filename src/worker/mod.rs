//! One volume from configuration to end: store -> namespace -> read -> fuse, and back in reverse.
//!
//! A start that fails leaves nothing behind: the mount is made last and undone by dropping it. A volume counts as started only when
//! a stat through the mount was answered by this very mount.

mod bucket;

pub use bucket::{Bucket, StoreConfig};

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::fuse::{FuseConfig, KernelNotifier, MAX_REQUEST_BYTES, PendingNotifications, Session};
use crate::handoff::{
    AnswerError, DeviceNumber, MountError, MountOptions, Mounted, Mountpoint, UnmountError, UnmountMode, answers,
    mount, prepare, set_read_ahead_kb,
};
use crate::model::{ObjectKey, UnixMillis};
use crate::namespace::listing::{ListingConfig, ListingError, ListingProgress, list_prefix};
use crate::namespace::{BuildError, BuilderConfig, Destination, Namespace, ObjectEntry, SnapshotBuilder};
use crate::read::{ReadConfig, Reader};
use crate::store::diagnose::Diagnosis;
use crate::store::s3::S3ConfigError;
use crate::store::{ListRequest, StoreError};

/// Longest wait for an answer from a mount point: a healthy one takes microseconds, a loaded machine seconds.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// How often memory that is no longer needed is looked for.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// How long an unmounted session may take to end; readers that are still inside keep it alive, and are not waited for.
const SESSION_END: Duration = Duration::from_secs(1);

/// What to mount and how.
#[derive(Debug, Clone)]
pub struct VolumeConfig {
    /// The bucket.
    pub store: StoreConfig,
    /// What of it: empty, or ending in `/`.
    pub prefix: ObjectKey,
    /// How names are found.
    pub namespace: NamespaceConfig,
    /// How bytes are read.
    pub read: ReadConfig,
    /// How the mount looks.
    pub fuse: FuseConfig,
    /// What mount tables show, as `s3://bucket/prefix`.
    pub source_name: String,
}

/// How names are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// LIST requests under way at most.
    pub list_concurrency: usize,
    /// Shows an object hidden by a directory of its name under its name with this suffix.
    pub show_shadowed: Option<String>,
    /// Refuse to mount a prefix without objects.
    pub require_nonempty: bool,
}

/// Where to mount.
#[derive(Debug)]
pub enum MountTarget {
    /// A directory.
    Path(PathBuf),
    /// A FUSE device that somebody else has mounted.
    Device(OwnedFd),
}

/// Why a volume did not start or did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The store's configuration makes no sense.
    #[error(transparent)]
    Config(#[from] S3ConfigError),
    /// The store refused or could not be reached.
    #[error("{}: {}", .diagnosis.problem, .diagnosis.advice)]
    Store {
        /// What the store answered.
        error: StoreError,
        /// What that means, and what to do.
        diagnosis: Diagnosis,
    },
    /// The listing made no sense.
    #[error("listing {source_name}: {error}")]
    Listing {
        /// What was listed.
        source_name: String,
        /// What went wrong.
        error: ListingError,
    },
    /// The prefix names an object.
    #[error(
        "s3://{bucket}/{key} is an object, not a prefix: mount the prefix above it, or a prefix that ends in \"/\""
    )]
    PrefixIsObject {
        /// The bucket.
        bucket: String,
        /// The object.
        key: ObjectKey,
    },
    /// There is nothing under the prefix, and that was to be refused.
    #[error("{0} holds no objects: check the prefix, or mount without --require-nonempty")]
    Empty(String),
    /// The snapshot could not be built.
    #[error("building the index failed: {0}")]
    Snapshot(#[from] BuildError),
    /// The mount could not be made.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The mount was made and does not answer.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The mount could not be taken back.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// The conversation with the kernel failed.
    #[error("serving the FUSE device failed: {0}")]
    Session(#[source] io::Error),
}

/// A mounted volume.
#[derive(Debug)]
pub struct Volume {
    mounted: Option<Mounted>,
    session_end: oneshot::Receiver<io::Result<()>>,
    maintenance: AbortOnDrop,
    namespace: Arc<Namespace>,
    reader: Reader,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lists the prefix and builds its namespace.
///
/// # Errors
/// The store refuses, the prefix is an object, or nothing is there and `require_nonempty` is set.
pub async fn build_namespace(
    bucket: &Bucket,
    config: &VolumeConfig,
    progress: &dyn ListingProgress,
) -> Result<Namespace, VolumeError> {
    let store = bucket.starting_store();
    let listed_at = UnixMillis::from(SystemTime::now());
    let listing_config = ListingConfig { max_in_flight: config.namespace.list_concurrency, ..ListingConfig::default() };
    let listing = match list_prefix(Arc::clone(&store), &config.prefix, &listing_config, progress).await {
        Ok(listing) => listing,
        Err(ListingError::Store { source, .. }) => return Err(bucket.explain(source, &config.prefix).await),
        Err(error) => return Err(VolumeError::Listing { source_name: config.source_name.clone(), error }),
    };
    for warning in listing.warnings() {
        tracing::warn!("listing: {warning}");
    }
    if listing.objects() == 0 {
        refuse_or_warn_empty(bucket, config).await?;
    }
    let builder_config = BuilderConfig {
        destination: Destination::Memory,
        listed_at,
        show_shadowed: config.namespace.show_shadowed.clone(),
    };
    let prefix = config.prefix.clone();
    let built = tokio::task::spawn_blocking(move || {
        let mut builder = SnapshotBuilder::new(&prefix, builder_config)?;
        listing.for_each(&mut |entry: ObjectEntry<'_>| builder.push(entry))?;
        builder.finish()
    });
    let snapshot = built.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
    let namespace = Namespace::new(snapshot);
    report(&namespace, &config.source_name);
    Ok(namespace)
}

/// An empty prefix mounts empty with a warning, unless it was to be refused or is an object's key.
async fn refuse_or_warn_empty(bucket: &Bucket, config: &VolumeConfig) -> Result<(), VolumeError> {
    let bytes = config.prefix.as_bytes();
    let key = ObjectKey::from(bytes.strip_suffix(b"/").unwrap_or(bytes));
    if !key.is_empty() {
        let request = ListRequest { prefix: key.clone(), max_keys: Some(1), ..ListRequest::default() };
        match bucket.starting_store().list(&request).await {
            Ok(page) if page.objects.iter().any(|object| object.key == key) => {
                return Err(VolumeError::PrefixIsObject { bucket: config.store.s3.bucket.clone(), key });
            }
            Ok(_) => {}
            Err(error) => return Err(bucket.explain(error, &config.prefix).await),
        }
    }
    if config.namespace.require_nonempty {
        return Err(VolumeError::Empty(config.source_name.clone()));
    }
    tracing::warn!("{} holds no objects: the mount is empty", config.source_name);
    Ok(())
}

/// Says what was listed, and what of it is not shown.
fn report(namespace: &Namespace, source_name: &str) {
    let statistics = namespace.statistics();
    tracing::info!(
        objects = statistics.objects,
        directories = statistics.directories,
        bytes = statistics.total_bytes,
        index_bytes = statistics.image_bytes,
        "indexed {source_name}"
    );
    for warning in namespace.warnings() {
        tracing::warn!("{warning}");
    }
}

impl Volume {
    /// Lists, mounts and serves a volume.
    ///
    /// # Errors
    /// What stood in the way; nothing is left mounted.
    pub async fn start(
        config: VolumeConfig,
        target: MountTarget,
        progress: Arc<dyn ListingProgress>,
    ) -> Result<Self, VolumeError> {
        // What can be seen to fail without the store fails first.
        let place = match target {
            MountTarget::Path(path) => Place::Mountpoint(blocking(move || prepare(&path, ANSWER_DEADLINE)).await?),
            MountTarget::Device(device) => Place::Device(device),
        };
        let bucket = Bucket::open(&config.store)?;
        let namespace = Arc::new(build_namespace(&bucket, &config, &*progress).await?);
        bucket.report();
        let (notifier, notifications) = KernelNotifier::new();
        let reader = Reader::new(
            bucket.store(),
            Arc::clone(&namespace),
            &config.read,
            Handle::current(),
            Box::new(move |change| notifier.name_changed(change)),
        );
        let serving = Serving { namespace: Arc::clone(&namespace), reader: reader.clone(), notifications };
        let runtime = Handle::current();
        let (mounted, session) = to_the_end(move || serve(place, &config, serving, runtime)).await?;
        Ok(Volume {
            mounted,
            session_end: end_of(session)?,
            maintenance: AbortOnDrop(tokio::spawn(maintain(reader.clone()))),
            namespace,
            reader,
        })
    }

    /// The names of the volume.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The reader of the volume.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Serves until `shutdown` resolves or somebody unmounts, then takes the mount back.
    ///
    /// Readers that are still inside are not waited for: the mount is detached lazily then.
    ///
    /// # Errors
    /// The session broke off, or the mount cannot be taken back.
    pub async fn wait(mut self, shutdown: impl Future<Output = ()>) -> Result<(), VolumeError> {
        tokio::select! {
            ended = &mut self.session_end => return session_result(ended),
            () = shutdown => {}
        }
        if let Some(mounted) = self.mounted.take() {
            blocking(move || take_back(mounted)).await?;
            if let Ok(ended) = tokio::time::timeout(SESSION_END, &mut self.session_end).await {
                return session_result(ended);
            }
        }
        drop(self.maintenance);
        Ok(())
    }
}

/// Where to serve, once it is known to be usable.
enum Place {
    Mountpoint(Mountpoint),
    Device(OwnedFd),
}

/// What a session serves.
struct Serving {
    namespace: Arc<Namespace>,
    reader: Reader,
    notifications: PendingNotifications,
}

/// Mounts, answers the kernel, and makes sure that it works. Blocks.
fn serve(
    place: Place,
    config: &VolumeConfig,
    serving: Serving,
    runtime: Handle,
) -> Result<(Option<Mounted>, Session), VolumeError> {
    let (mounted, device) = match place {
        Place::Device(device) => (None, device),
        Place::Mountpoint(mountpoint) => {
            for note in mountpoint.notes() {
                tracing::warn!("{note}");
            }
            let options = MountOptions {
                source: config.source_name.clone(),
                allow_other: config.fuse.allow_other,
                max_read_bytes: MAX_REQUEST_BYTES,
            };
            let mounted = mount(&mountpoint, &options)?;
            let device = mounted.device().try_clone_to_owned().map_err(VolumeError::Session)?;
            (Some(mounted), device)
        }
    };
    let Serving { namespace, reader, notifications } = serving;
    let session = Session::start(device, &config.fuse, namespace, reader, notifications, runtime)
        .map_err(VolumeError::Session)?;
    if let Some(mounted) = &mounted {
        let identity = mounted.identity();
        raise_read_ahead(identity.device, config.fuse.read_ahead_kb);
        answers(&identity.mountpoint, identity.device, ANSWER_DEADLINE)?;
    }
    Ok((mounted, session))
}

/// Not being permitted costs speed, not correctness: a hint in the log.
fn raise_read_ahead(device: DeviceNumber, read_ahead_kb: u32) {
    if let Err(error) = set_read_ahead_kb(device, read_ahead_kb) {
        tracing::info!("{error}");
    }
}

/// Takes the mount out of the tree, at once when nobody is inside, else lazily.
fn take_back(mounted: Mounted) -> Result<(), UnmountError> {
    match mounted.unmount(UnmountMode::Orderly) {
        Err(UnmountError::Busy { .. }) => {
            tracing::info!("files are open: the mount is detached and ends with its last reader");
            mounted.unmount(UnmountMode::Lazy)
        }
        other => other,
    }
}

/// Resolves when the kernel ends the session. Joining blocks, so a thread does it.
fn end_of(session: Session) -> Result<oneshot::Receiver<io::Result<()>>, VolumeError> {
    let (ended, session_end) = oneshot::channel();
    std::thread::Builder::new()
        .name("fuse-session-end".into())
        .spawn(move || {
            let _nobody_waits = ended.send(session.join());
        })
        .map_err(VolumeError::Session)?;
    Ok(session_end)
}

fn session_result(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> Result<(), VolumeError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(VolumeError::Session(error)),
        Err(_) => Err(VolumeError::Session(io::Error::other("the thread that watched the session is gone"))),
    }
}

/// Like `blocking`, for work whose result must not be lost: whoever gives up waiting is held up until the result is dropped (a
/// mount is taken back then), since the process may be about to end.
async fn to_the_end<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = oneshot::channel();
    let (running, ended) = mpsc::channel::<()>();
    let _held_up = WaitOnDrop(ended);
    let task = tokio::task::spawn_blocking(move || {
        drop(sender.send(work()));
        drop(running);
    });
    match receiver.await {
        Ok(result) => result,
        Err(_panicked) => match task.await {
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            Ok(()) => unreachable!("the result is sent unless the work panics"),
        },
    }
}

/// Dropped, waits until the other end is gone. For work on another thread, so that the runtime goes on meanwhile.
struct WaitOnDrop(mpsc::Receiver<()>);

impl Drop for WaitOnDrop {
    fn drop(&mut self) {
        let _gone_or_hung = self.0.recv_timeout(ANSWER_DEADLINE);
    }
}

async fn maintain(reader: Reader) {
    let mut tick = tokio::time::interval(MAINTENANCE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        reader.maintain();
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Undone(Arc<AtomicBool>);

    impl Drop for Undone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// A signal between mount(2) and the first answer ended the process before the mount was taken back.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_gives_up_a_start_is_held_up_until_it_is_undone() {
        let undone = Arc::new(AtomicBool::new(false));
        let made = Undone(Arc::clone(&undone));
        let (started, has_started) = oneshot::channel();
        let (go_on, held) = mpsc::channel::<()>();
        let (_silent, never) = mpsc::channel::<()>();
        let start = to_the_end(move || {
            let _ = started.send(());
            let _gone = held.recv();
            // Long enough that who does not wait is seen not to.
            let _never = never.recv_timeout(Duration::from_millis(200));
            made
        });
        {
            tokio::pin!(start);
            assert!(futures::poll!(&mut start).is_pending());
            has_started.await.unwrap();
            drop(go_on);
        }
        assert!(undone.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn work_that_is_waited_for_gives_its_result() {
        assert_eq!(to_the_end(|| 7).await, 7);
    }
}
