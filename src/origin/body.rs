//! The body of an answer on its way out: counted, paced, and broken off where a fault says so.
//!
//! Always true: without pacing and faults, frames pass as they are. A body that ends early does so only after all bytes before
//! the break have gone to the socket, so that a client sees exactly as many as the script says.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::Connection;
use super::counters::InFlight;
use crate::model::KIB;

/// How a body breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    Close,
    Reset,
    Stall,
}

/// What is done to a body.
#[derive(Debug, Default)]
pub(super) struct Treatment {
    pub(super) bytes_per_second: Option<u64>,
    /// Bytes that still pass, and what comes then.
    pub(super) break_after: Option<(u64, Break)>,
    pub(super) surplus_bytes: usize,
    pub(super) hide_length: bool,
}

/// The answer was broken off on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the answer is broken off by the script of faults")]
pub(super) struct BrokenOff;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct ResponseBody {
    inner: s3s::Body,
    treatment: Treatment,
    connection: Arc<Connection>,
    in_flight: InFlight,
    /// Bytes that came from `inner` and have not gone out yet.
    held: Bytes,
    wait: Option<Pin<Box<Sleep>>>,
    /// Flushes of the connection when the break was reached.
    flushes_at_break: Option<u64>,
}

impl ResponseBody {
    pub(super) fn new(
        inner: s3s::Body,
        treatment: Treatment,
        connection: Arc<Connection>,
        in_flight: InFlight,
    ) -> Self {
        ResponseBody { inner, treatment, connection, in_flight, held: Bytes::new(), wait: None, flushes_at_break: None }
    }

    /// Breaks off once the bytes before have left.
    fn poll_break(&mut self, context: &Context<'_>, kind: Break) -> Poll<Option<Result<Frame<Bytes>, s3s::StdError>>> {
        if kind == Break::Stall {
            return Poll::Pending;
        }
        let flushes = self.connection.flushes();
        if flushes == *self.flushes_at_break.get_or_insert(flushes) {
            self.connection.wake_when_flushed(context);
            return Poll::Pending;
        }
        if kind == Break::Reset {
            self.connection.reset_on_close();
        }
        Poll::Ready(Some(Err(BrokenOff.into())))
    }

    /// How many of the held bytes may go now.
    fn portion(&self) -> usize {
        let mut portion = self.held.len();
        if let Some((left, _)) = self.treatment.break_after {
            portion = portion.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        if let Some(rate) = self.treatment.bytes_per_second {
            // A hundredth of a second's worth: smooth, yet longer than the timer's resolution.
            let paced = (rate / 100).clamp(KIB, 256 * KIB);
            portion = portion.min(usize::try_from(paced).unwrap_or(usize::MAX));
        }
        portion
    }

    fn release(&mut self, portion: usize) -> Bytes {
        let bytes = self.held.split_to(portion);
        let length = bytes.len() as u64;
        self.in_flight.sent(length);
        if let Some((left, _)) = &mut self.treatment.break_after {
            *left -= length;
        }
        if let Some(rate) = self.treatment.bytes_per_second {
            let nanos = u128::from(length) * 1_000_000_000 / u128::from(rate);
            let duration = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.connection.delay_next(Instant::now(), duration);
        }
        if self.treatment.surplus_bytes > 0 && self.held.is_empty() && self.inner.is_end_stream() {
            self.connection.append_surplus(self.treatment.surplus_bytes);
        }
        bytes
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, s3s::StdError>>> {
        let this = &mut *self;
        loop {
            if let Some(wait) = &mut this.wait {
                ready!(wait.as_mut().poll(context));
                this.wait = None;
            }
            if let Some((0, kind)) = this.treatment.break_after {
                return this.poll_break(context, kind);
            }
            if this.held.is_empty() {
                match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => this.held = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    end => return Poll::Ready(end),
                }
            }
            if this.treatment.bytes_per_second.is_some()
                && let Some(until) = this.connection.paced_until(Instant::now())
            {
                this.wait = Some(Box::pin(sleep_until(until)));
                continue;
            }
            let portion = this.portion();
            return Poll::Ready(Some(Ok(Frame::data(this.release(portion)))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.treatment.break_after.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.treatment.hide_length { SizeHint::default() } else { self.inner.size_hint() }
    }
}
