//! Waiting for things, with deadlines that are there against hanging alone.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// When something is taken to hang. Generous: the machine may be busy with other tests.
pub const HANG: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Waits until `holds`; panics, naming `what`, when it does not within `deadline`.
#[track_caller]
pub fn eventually(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < deadline, "not within {deadline:?}: {what}");
        pause();
    }
}

/// What `run` returns, on a thread of its own; panics when it takes longer than `deadline`. The thread then stays behind.
#[track_caller]
pub fn within<T: Send + 'static>(deadline: Duration, what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more once the deadline has passed.
        let _ = answer.send(run());
    });
    match answered.recv_timeout(deadline) {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error} ({deadline:?})"),
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that polls")]
fn pause() {
    std::thread::sleep(POLL);
}
