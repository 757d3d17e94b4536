//! The script of faults: which request goes wrong, how, and how often.
//!
//! Always true: rules are tried in the order they were added; the first that applies is played and counted. What a fault does
//! to the answer is the business of `service` and `body`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::request::Verb;

/// What goes wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This HTTP status with this S3 error code, as in `Status(503, "SlowDown")`; the request is not looked at.
    Status(u16, &'static str),
    /// The connection is closed before any byte of an answer.
    CloseBeforeAnswer,
    /// The connection is reset (RST) before any byte of an answer.
    ResetConnection,
    /// No answer ever; the connection stays open.
    NoAnswer,
    /// The body stops for ever after this many bytes; the connection stays open.
    Stall(u64),
    /// The connection is closed after this many bytes of the body, all of which arrive.
    EarlyEnd(u64),
    /// The connection is reset (RST) after this many bytes of the body; the last of them may be lost.
    EarlyReset(u64),
    /// This many bytes follow the body beyond its Content-Length.
    ExtraBytes(usize),
    /// The Range header is not looked at: status 200 and the whole object.
    Status200ForRange,
    /// Content-Range (of a 206) speaks of a range that begins and ends one byte later than what is sent.
    WrongContentRange,
    /// Another ETag than the object's.
    OtherETag,
    /// No ETag.
    NoETag,
    /// The body comes chunked, without Content-Length.
    ChunkedNoLength,
    /// The answer begins this much later.
    SlowFirstByte(Duration),
}

/// Which keys a rule is for; of a listing, its prefix counts as key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPattern {
    /// All, and requests that have no key.
    Any,
    /// This key.
    Exact(String),
    /// Keys with this text in them.
    Containing(String),
}

impl KeyPattern {
    fn matches(&self, key: &str) -> bool {
        match self {
            KeyPattern::Any => true,
            KeyPattern::Exact(exact) => key == exact,
            KeyPattern::Containing(part) => key.contains(part.as_str()),
        }
    }
}

/// A fault and the requests it is for: to begin with all, always.
#[derive(Debug, Clone)]
pub struct FaultRule {
    fault: Fault,
    verb: Option<Verb>,
    key: KeyPattern,
    probability: f64,
    skip: u64,
    times: u64,
}

impl FaultRule {
    /// This fault for every request.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        FaultRule { fault, verb: None, key: KeyPattern::Any, probability: 1.0, skip: 0, times: u64::MAX }
    }

    /// Only for requests of this verb.
    #[must_use]
    pub fn verb(self, verb: Verb) -> Self {
        FaultRule { verb: Some(verb), ..self }
    }

    /// Only for these keys.
    #[must_use]
    pub fn key(self, key: KeyPattern) -> Self {
        FaultRule { key, ..self }
    }

    /// Only for this share (0 to 1) of the requests it would be for.
    #[must_use]
    pub fn probability(self, probability: f64) -> Self {
        FaultRule { probability, ..self }
    }

    /// Lets the first `skip` of them pass.
    #[must_use]
    pub fn skip(self, skip: u64) -> Self {
        FaultRule { skip, ..self }
    }

    /// At most this often.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        FaultRule { times, ..self }
    }
}

/// Names a fault of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Played {
    id: FaultId,
    rule: FaultRule,
    hits: u64,
}

/// The faults in force.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// False spares requests the lock.
    any: AtomicBool,
    rules: Mutex<(u64, Vec<Played>)>,
}

impl Script {
    pub(super) fn add(&self, rule: FaultRule) -> FaultId {
        let mut rules = self.lock();
        rules.0 += 1;
        let id = FaultId(rules.0);
        rules.1.push(Played { id, rule, hits: 0 });
        self.any.store(true, Ordering::Release);
        id
    }

    pub(super) fn hits(&self, id: FaultId) -> u64 {
        self.lock().1.iter().find(|played| played.id == id).map_or(0, |played| played.hits)
    }

    pub(super) fn clear(&self) {
        self.lock().1.clear();
        self.any.store(false, Ordering::Release);
    }

    /// The fault for a request; `draw` gives a number in 0..1.
    pub(super) fn pick(
        &self,
        verb: Verb,
        key: impl FnOnce() -> String,
        mut draw: impl FnMut() -> f64,
    ) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let key = key();
        let mut rules = self.lock();
        for Played { rule, hits, .. } in &mut rules.1 {
            let applies = rule.times > 0 && rule.verb.is_none_or(|wanted| wanted == verb) && rule.key.matches(&key);
            if !applies || (rule.probability < 1.0 && draw() >= rule.probability) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            *hits += 1;
            return Some(rule.fault.clone());
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Played>)> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_played_for_its_verb_and_key_after_skips_and_as_often_as_said() {
        let script = Script::default();
        let rule = FaultRule::new(Fault::CloseBeforeAnswer).verb(Verb::Get);
        let id = script.add(rule.key(KeyPattern::Containing("b".into())).skip(1).times(2));
        let pick = |verb, key: &str| script.pick(verb, || key.to_owned(), || 0.0).is_some();
        assert!(!pick(Verb::Head, "abc") && !pick(Verb::Get, "ac"));
        let played: Vec<bool> = (0..5).map(|_| pick(Verb::Get, "abc")).collect();
        assert_eq!(played, [false, true, true, false, false]);
        assert_eq!(script.hits(id), 2);
        script.clear();
        assert_eq!(script.hits(id), 0);
    }

    #[test]
    fn probability_decides_by_the_number_drawn() {
        let script = Script::default();
        script.add(FaultRule::new(Fault::NoAnswer).probability(0.25));
        let pick = |drawn| script.pick(Verb::Get, String::new, || drawn).is_some();
        assert!(pick(0.24) && !pick(0.25) && !pick(0.9));
    }
}
