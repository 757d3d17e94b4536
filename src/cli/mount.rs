//! `streamvol mount BUCKET MOUNTPOINT`.
//!
//! By default the program starts itself again in the background and returns when the mount answers; `--foreground` serves in
//! this process. Both go the same way from there: log, signals, start, ready, wait. Always true: whoever stops before the
//! mount is ready leaves nothing mounted, and a signal after that unmounts in good order.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::background::{self, Parent};
use super::command::device_number;
use super::error::CliError;
use super::exit_code::ExitCode;
use super::progress::{Counter, Display, REFRESH};
use super::{runtime, say};
use crate::config::resolve::{Host, MountSettings};
use crate::handoff;
use crate::telemetry::log::{self, Destination};
use crate::worker::{MountTarget, Volume};

/// Everything a mount needs.
#[derive(Debug)]
pub(super) struct Plan {
    settings: MountSettings,
    /// Absolute.
    mountpoint: PathBuf,
    cpus: usize,
    /// The effective configuration, for the log.
    effective: String,
}

impl Plan {
    /// A mount of `settings` on `mountpoint`.
    pub(super) fn new(settings: MountSettings, mountpoint: &Path, host: &Host, effective: String) -> Self {
        Plan { settings, mountpoint: host.directory.join(mountpoint), cpus: host.machine.cpus, effective }
    }
}

/// Mounts, in the way the plan says; `reports` in the process in the background.
pub(super) fn run(plan: Plan, reports: bool, arguments: &[OsString]) -> Result<ExitCode, CliError> {
    if reports {
        return in_background(plan);
    }
    if plan.settings.foreground {
        let display = Display::new(|line| tracing::info!("{line}"));
        init_log(&plan, Running::Foreground, || display.log_writer())?;
        let runtime = runtime::build(plan.cpus)?;
        let result = runtime.block_on(serve(plan, &mut Front::Foreground(display)));
        runtime::stop(runtime);
        return result.map(|()| ExitCode::Done);
    }
    if log_place(Running::Background, plan.settings.log_file.as_deref(), log::has_journal()) == LogPlace::Nowhere {
        say("warning: no journal on this machine: the log goes nowhere; name a file with --log-file");
    }
    let listed = background::start(arguments)?;
    say(&format!("{} is mounted on {} ({listed})", plan.settings.volume.source_name, plan.mountpoint.display()));
    Ok(ExitCode::Done)
}

/// The process in the background. Its errors are told to the one that waits; only when that cannot be done they are returned.
fn in_background(plan: Plan) -> Result<ExitCode, CliError> {
    let pipes = background::detach()?;
    let runtime = runtime::build(plan.cpus)?;
    let code = runtime.block_on(async {
        let parent = Parent::new(pipes).map_err(CliError::system("talk to the process that waits"))?;
        let mut front = Front::Background(parent);
        let result = match init_log(&plan, Running::Background, || BoxMakeWriter::new(std::io::sink)) {
            Ok(()) => serve(plan, &mut front).await,
            Err(error) => Err(error),
        };
        let Err(error) = result else { return Ok(ExitCode::Done) };
        tracing::error!("{error}");
        if let Front::Background(parent) = &mut front {
            parent.failed(&error).await;
        }
        Ok(error.exit_code())
    });
    runtime::stop(runtime);
    code
}

/// Who waits for the mount.
#[derive(Debug)]
enum Front {
    /// Whoever looks at this process.
    Foreground(Display),
    /// The process that started this one.
    Background(Parent),
}

impl Front {
    fn progress(&mut self, objects: u64) {
        match self {
            Front::Foreground(display) => display.show(objects),
            Front::Background(parent) => parent.progress(objects),
        }
    }

    /// Returns when nobody waits any more; never in the foreground. Safe to cancel.
    async fn given_up(&mut self) {
        match self {
            Front::Foreground(_) => std::future::pending().await,
            Front::Background(parent) => parent.gone().await,
        }
    }

    /// Tells that the mount is ready; false when nobody has heard it.
    async fn ready(&mut self, objects: u64, what: &str) -> bool {
        match self {
            Front::Foreground(display) => {
                let listed = display.finish(objects);
                tracing::info!("{what} ({listed})");
                notify(NotifyState::Ready);
                true
            }
            Front::Background(parent) => parent.ready(objects).await,
        }
    }

    fn stopping(&self) {
        if matches!(self, Front::Foreground(_)) {
            notify(NotifyState::Stopping);
        }
    }
}

/// Starts the volume and serves it until it is stopped or unmounted.
async fn serve(plan: Plan, front: &mut Front) -> Result<(), CliError> {
    let Plan { settings, mountpoint, effective, .. } = plan;
    let what = format!("{} is mounted on {}", settings.volume.source_name, mountpoint.display());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), bucket = settings.volume.source_name, "start: {effective}");
    let mut signals = Signals::new()?;
    let counter = Arc::new(Counter::default());
    let target = target(mountpoint)?;
    let volume = {
        let mut start = std::pin::pin!(Volume::start(settings.volume, target, Arc::clone(&counter) as _));
        let mut refresh = interval(REFRESH);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                started = &mut start => break started?,
                _ = refresh.tick() => front.progress(counter.objects()),
                () = signals.stop() => return Err(CliError::Interrupted),
                () = front.given_up() => return Err(CliError::Interrupted),
            }
        }
    };
    let in_background = matches!(front, Front::Background(_));
    if in_background {
        // Before the word is given: whoever waits for the end of a pipe behind it is not kept any longer than the command.
        background::let_go_of_stderr().map_err(CliError::system("let go of standard error"))?;
    }
    if !front.ready(counter.objects(), &what).await {
        volume.wait(std::future::ready(())).await?;
        return Err(CliError::Interrupted);
    }
    if in_background {
        tracing::info!("{what}");
    }
    let stopped = async {
        signals.stop().await;
        tracing::info!("stopping on a signal");
        front.stopping();
    };
    volume.wait(stopped).await?;
    tracing::info!("unmounted");
    Ok(())
}

fn target(mountpoint: PathBuf) -> Result<MountTarget, CliError> {
    let Some(number) = device_number(mountpoint.as_os_str()) else { return Ok(MountTarget::Path(mountpoint)) };
    let device = handoff::inherited_device(number).map_err(|error| CliError::Failed {
        message: format!(
            "{} is no mounted FUSE device ({error}): open /dev/fuse, mount it, and pass that descriptor on",
            mountpoint.display()
        ),
        code: ExitCode::Mountpoint,
    })?;
    Ok(MountTarget::Device(device))
}

/// The signals that stop a mount. Hang-up is one: a closed terminal must not leave a dead mount.
#[derive(Debug)]
pub(super) struct Signals([Signal; 3]);

impl Signals {
    pub(super) fn new() -> Result<Self, CliError> {
        let on = |kind| signal(kind).map_err(CliError::system("listen for signals"));
        Ok(Signals([on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?]))
    }

    /// Returns when one of them has come. Safe to cancel.
    pub(super) async fn stop(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Tells a service manager, if there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("tell the service manager: {error}");
    }
}

/// Where a mount runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    Foreground,
    Background,
}

/// Where the log of a mount goes.
#[derive(Debug, PartialEq, Eq)]
enum LogPlace<'a> {
    Stderr,
    Journal,
    File(&'a Path),
    Nowhere,
}

/// A file that was asked for comes first; else standard error in the foreground, the journal in the background.
fn log_place(running: Running, file: Option<&Path>, has_journal: bool) -> LogPlace<'_> {
    match (file, running, has_journal) {
        (Some(path), _, _) => LogPlace::File(path),
        (None, Running::Foreground, _) => LogPlace::Stderr,
        (None, Running::Background, true) => LogPlace::Journal,
        (None, Running::Background, false) => LogPlace::Nowhere,
    }
}

fn init_log(plan: &Plan, running: Running, stderr: impl FnOnce() -> BoxMakeWriter) -> Result<(), CliError> {
    let place = log_place(running, plan.settings.log_file.as_deref(), log::has_journal());
    let (name, destination) = match place {
        LogPlace::Stderr => ("standard error".to_owned(), Ok(Destination::Lines(stderr()))),
        LogPlace::Journal => ("the journal".to_owned(), Ok(Destination::Journal)),
        LogPlace::File(path) => {
            let file = log::open_file(path);
            (path.display().to_string(), file.map(|file| Destination::Lines(BoxMakeWriter::new(file))))
        }
        LogPlace::Nowhere => (String::new(), Ok(Destination::Nowhere)),
    };
    let outcome = destination.and_then(|destination| log::init(plan.settings.log_level, destination));
    outcome.map_err(|error| CliError::Log { place: name, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_that_was_asked_for_is_used_wherever_the_mount_runs() {
        let file = Path::new("/var/log/x");
        for running in [Running::Foreground, Running::Background] {
            for has_journal in [false, true] {
                assert_eq!(log_place(running, Some(file), has_journal), LogPlace::File(file));
            }
        }
        assert_eq!(log_place(Running::Foreground, None, true), LogPlace::Stderr);
        assert_eq!(log_place(Running::Background, None, true), LogPlace::Journal);
        assert_eq!(log_place(Running::Background, None, false), LogPlace::Nowhere);
    }

    #[test]
    fn a_descriptor_that_is_no_fuse_device_is_a_matter_of_the_mount_point() {
        let error = target("/dev/fd/1000000".into()).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Mountpoint);
        assert_eq!(
            error.to_string(),
            "/dev/fd/1000000 is no mounted FUSE device (Bad file descriptor (os error 9)): open /dev/fuse, mount it, and pass \
             that descriptor on"
        );
        assert!(matches!(target("/mnt".into()), Ok(MountTarget::Path(path)) if path == Path::new("/mnt")));
    }
}
