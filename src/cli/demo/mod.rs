//! `streamvol demo`: everything on one machine that has nothing but FUSE.
//!
//! Makes a data set of JPEG files in memory, serves it with the S3 server of our own, mounts it with signed requests, reads it
//! as a training job would and compares every byte, then stays mounted until a signal or an unmount. Leaves nothing behind: the
//! data is memory, and a mount point that was not given is a new directory that goes away again.

mod dataset;
mod passes;
mod pictures;
mod place;
mod report;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::error::CliError;
use super::exit_code::ExitCode;
use super::mount::Signals;
use super::progress::Counter;
use super::runtime;
use crate::config::resolve::DemoConfig;
use crate::model::ObjectKey;
use crate::origin::{Latency, MemoryBucket, Origin, OriginConfig};
use crate::store::credentials::CredentialsConfig;
use crate::store::retry::RetryConfig;
use crate::store::s3::auth::Credentials;
use crate::store::s3::{Addressing, S3Config};
use crate::worker::{MountTarget, StoreConfig, Volume, VolumeConfig};

use dataset::Image;
use passes::{Order, Outcome, Pass};
use place::Place;

const BUCKET: &str = "demo";
const REGION: &str = "us-east-1";
/// Keys for a server that only this process knows of; they exist so that requests are signed and checked as elsewhere.
const ACCESS_KEY_ID: &str = "demo";
const SECRET_ACCESS_KEY: &str = "made-up-for-the-demo";
/// Any number: it makes the demo show the same pictures every time.
const SEED: u64 = 20_260;

/// What a training job does: a first look through everything, then an epoch with several loaders, then another. Each row is a
/// mount of its own, so that its first pass finds nothing cached.
const MOUNTS: [&[Pass]; 2] = [
    &[Pass { name: "in order", order: Order::Sorted, readers: 1 }],
    &[
        Pass { name: "shuffled", order: Order::Shuffled(1), readers: 16 },
        Pass { name: "shuffled again", order: Order::Shuffled(2), readers: 16 },
    ],
];

/// Shows the demo until it is told to stop.
///
/// # Errors
/// No data set, server or mount could be made, or files were read wrong.
pub fn run(config: DemoConfig) -> Result<(), CliError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let images = make_images(config.images, cpus)?;
    let origin = serve(&images, config.latency)?;
    let runtime = runtime::build(cpus)?;
    let result = runtime.block_on(show(config, images, &origin));
    runtime::stop(runtime);
    result
}

fn make_images(count: u32, threads: usize) -> Result<Arc<Vec<Image>>, CliError> {
    say(&format!("Making {count} JPEG images ..."));
    let started = Instant::now();
    let images = dataset::generate(count, SEED, threads)
        .map_err(|error| CliError::Failed { message: error.to_string(), code: ExitCode::Usage })?;
    say(&report::dataset(&images, started.elapsed()));
    Ok(Arc::new(images))
}

/// The data set as a bucket, on a free port of the loopback interface.
fn serve(images: &[Image], latency: Duration) -> Result<Origin, CliError> {
    let bucket = MemoryBucket::new();
    for image in images {
        bucket.insert(&image.key, image.bytes.clone());
    }
    let origin = Origin::start(OriginConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        credentials: Some((ACCESS_KEY_ID.to_owned(), SECRET_ACCESS_KEY.to_owned())),
        region: REGION.to_owned(),
        buckets: vec![(BUCKET.to_owned(), Arc::new(bucket))],
        ..OriginConfig::default()
    })
    .map_err(|error| CliError::Failed { message: error.to_string(), code: ExitCode::Unexpected })?;
    origin.conditions().set_get_latency(Latency::fixed(latency));
    origin.conditions().set_list_latency(Latency::fixed(latency));
    say(&format!("Serving them over S3 at {}, every answer {latency:?} late", origin.endpoint()));
    Ok(origin)
}

fn volume(config: &DemoConfig, origin: &Origin) -> VolumeConfig {
    let s3 = S3Config {
        endpoint: Some(origin.endpoint().to_owned()),
        region: Some(REGION.to_owned()),
        addressing: Addressing::Path,
        ..S3Config::new(BUCKET)
    };
    let credentials = CredentialsConfig {
        fixed: Some(Credentials::new(ACCESS_KEY_ID, SECRET_ACCESS_KEY, None)),
        ..CredentialsConfig::default()
    };
    VolumeConfig {
        store: StoreConfig { s3, credentials, retry: RetryConfig::default() },
        prefix: ObjectKey::default(),
        namespace: config.namespace.clone(),
        read: config.read.clone(),
        fuse: config.fuse.clone(),
        source_name: format!("s3://{BUCKET}"),
    }
}

/// Mounts, reads, tells, and waits for the end.
async fn show(config: DemoConfig, images: Arc<Vec<Image>>, origin: &Origin) -> Result<(), CliError> {
    let mut signals = Signals::new()?;
    // Made before the volumes and dropped after them, so that the directory is free when it is removed.
    let place = Place::new(config.mountpoint.as_deref())?;
    let mut demo = Demo { config, origin, images, root: place.path().to_owned(), lines: Vec::new() };
    let [others @ .., last] = MOUNTS;
    for passes in others {
        if demo.mounted(passes, Afterwards::Unmount, &mut signals).await? == Ended::Early {
            return Ok(());
        }
    }
    demo.mounted(last, Afterwards::Stay, &mut signals).await?;
    verdict(&demo.lines)
}

/// What to do with a mount when its passes are through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Unmount,
    /// Show what has been measured, and wait for a signal or an unmount.
    Stay,
}

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    AsPlanned,
    /// By a signal or an unmount, before everything was read.
    Early,
}

/// A demo under way.
struct Demo<'a> {
    config: DemoConfig,
    origin: &'a Origin,
    images: Arc<Vec<Image>>,
    root: PathBuf,
    lines: Vec<report::Line>,
}

impl Demo<'_> {
    /// Mounts for these passes.
    async fn mounted(
        &mut self,
        passes: &[Pass],
        afterwards: Afterwards,
        signals: &mut Signals,
    ) -> Result<Ended, CliError> {
        let target = MountTarget::Path(self.root.clone());
        let started = Instant::now();
        let volume = tokio::select! {
            started = Volume::start(volume(&self.config, self.origin), target, Arc::new(Counter::default())) => started?,
            () = signals.stop() => return Err(CliError::Interrupted),
        };
        say(&format!("Mounted on {} in {:.2} s", self.root.display(), started.elapsed().as_secs_f64()));
        let (finish, finished) = oneshot::channel::<()>();
        let mut served = std::pin::pin!(volume.wait(async {
            tokio::select! {
                () = signals.stop() => {}
                _ = finished => {}
            }
        }));
        // Tells the readers when it goes out of scope, however this ends.
        let stop = StopOnDrop::default();
        tokio::select! {
            ended = &mut served => {
                ended?;
                say("Stopped and unmounted; nothing is left behind.");
                return Ok(Ended::Early);
            }
            done = self.read(passes, &stop) => done?,
        }
        if afterwards == Afterwards::Unmount {
            drop(finish);
            served.await?;
        } else {
            self.tell();
            served.await?;
            say("Unmounted; nothing is left behind.");
        }
        Ok(Ended::AsPlanned)
    }

    async fn read(&mut self, passes: &[Pass], stop: &StopOnDrop) -> Result<(), CliError> {
        for &pass in passes {
            say(&report::announcement(&pass, self.images.len(), self.config.latency));
            let gets_before = self.origin.counters().get_requests;
            let outcome = self.read_on_threads(pass, stop).await?;
            if let Some(error) = &outcome.first_error {
                say(&format!("  {error}"));
            }
            let get_requests = self.origin.counters().get_requests - gets_before;
            self.lines.push(report::Line { name: pass.name, readers: pass.readers, outcome, get_requests });
        }
        Ok(())
    }

    /// Readers block as a program's do, so they have threads of their own. Nobody joins them: when the demo is stopped meanwhile,
    /// one of them may wait for an answer that takes as long as `--latency` says.
    async fn read_on_threads(&self, pass: Pass, stop: &StopOnDrop) -> Result<Outcome, CliError> {
        let (done, outcome) = oneshot::channel();
        let (images, stop, root) = (Arc::clone(&self.images), Arc::clone(&stop.0), self.root.clone());
        std::thread::Builder::new()
            .name("demo-readers".to_owned())
            .spawn(move || {
                let _stopped_meanwhile = done.send(passes::read_all(&root, &images, &pass, &stop));
            })
            .map_err(CliError::system("start the readers"))?;
        outcome.await.map_err(|_| CliError::Failed {
            message: "the demo's readers ended without a result".to_owned(),
            code: ExitCode::Unexpected,
        })
    }

    fn tell(&self) {
        let program = std::env::current_exe().unwrap_or_else(|_| "streamvol".into());
        say(&format!("\n{}", report::table(&self.lines)));
        say("It stays mounted until Ctrl-C. In another terminal try:\n");
        say(&report::commands_to_try(&self.root, &program));
    }
}

/// A flag that is set when its owner goes away.
#[derive(Debug, Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn verdict(lines: &[report::Line]) -> Result<(), CliError> {
    match lines.iter().map(|line| line.outcome.errors).sum::<u64>() {
        0 => Ok(()),
        errors => Err(CliError::Failed {
            message: format!("{errors} reads went wrong; the table says in which pass"),
            code: ExitCode::Unexpected,
        }),
    }
}

/// A line for the user. A closed output is no reason to leave a mount behind.
fn say(line: &str) {
    let _closed = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_went_wrong_make_the_demo_fail() {
        let line = |errors| report::Line {
            name: "in order",
            readers: 1,
            outcome: Outcome {
                images: 5,
                bytes: 5,
                elapsed: Duration::ZERO,
                errors,
                first_error: None,
                stopped: false,
            },
            get_requests: 5,
        };
        assert!(verdict(&[line(0), line(0)]).is_ok());
        let error = verdict(&[line(0), line(2), line(1)]).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().contains("3 reads")), (ExitCode::Unexpected, true));
    }
}
