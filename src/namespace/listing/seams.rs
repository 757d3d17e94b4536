//! Seams between ranges: each is seen from both sides, and both must see the same.
//!
//! The first key past one range's end is the first of the next range that has any. Where it is not, an object has come or gone
//! meanwhile, or the store has left out keys, as one that orders keys in its own way does. The store is asked again to tell:
//! a key that one side has not seen must be gone, or must be what now follows.

use crate::model::ObjectKey;
use crate::store::{ListPage, ListRequest};

use super::ListingWarning;
use super::ranges::{Progress, Purpose, Ranges};

impl Ranges<'_, '_> {
    /// Looks at the seams that a page of range `id` may have completed.
    pub(super) fn check_seams(&mut self, id: usize) {
        self.check_seam(id);
        let mut left = self.ranges[id].previous;
        while let Some(seam) = left {
            self.check_seam(seam);
            // What lies further left has this range's keys to its right.
            left = self.ranges[seam].previous.filter(|_| self.ranges[seam].run.is_empty());
        }
    }

    fn check_seam(&mut self, id: usize) {
        let range = &self.ranges[id];
        if range.progress != Progress::Listed {
            return;
        }
        let Some(follower) = self.follower(id) else { return };
        let beyond = range.beyond.clone();
        self.ranges[id].progress = Progress::Joined;
        match (beyond, follower) {
            (beyond, follower) if beyond == follower => {}
            // Asked for by name: where the range on the right starts is what is in doubt.
            (Some(beyond), follower) if follower.as_ref().is_none_or(|follower| *follower > beyond) => {
                self.ask_for_missing(beyond);
            }
            _ => {
                let request = ListRequest {
                    prefix: self.tally.prefix.clone(),
                    start_after: self.ranges[id].position_key(),
                    max_keys: self.tally.config.page_keys,
                    ..ListRequest::default()
                };
                self.open_seams += 1;
                self.requests.ask(Purpose::Seam(id), request);
            }
        }
    }

    /// The range on the right had a key that the one on the left had not: has it come meanwhile, or gone?
    pub(super) fn accept_seam(&mut self, id: usize, page: &ListPage) {
        self.open_seams -= 1;
        let prefix = self.tally.prefix.as_bytes();
        let seen = page.objects.iter().map(|object| &object.key).find(|key| key.as_bytes().starts_with(prefix));
        if let Some(follower) = self.follower(id).flatten().filter(|follower| seen != Some(follower)) {
            self.ask_for_missing(follower);
        }
    }

    fn ask_for_missing(&mut self, key: ObjectKey) {
        let max_keys = self.tally.config.page_keys;
        self.open_seams += 1;
        self.requests.ask(Purpose::Missing, ListRequest { prefix: key, max_keys, ..ListRequest::default() });
    }

    /// What the store says about a key that only one side has seen.
    pub(super) fn accept_missing(&mut self, key: &ObjectKey, page: &ListPage) -> Option<ListingWarning> {
        self.open_seams -= 1;
        // It is gone only if what comes first behind it, or the end, comes in its place.
        let is_gone = match page.objects.first() {
            Some(first) => first.key.as_bytes().starts_with(key.as_bytes()) && first.key != *key,
            None => page.next.is_none(),
        };
        (!is_gone).then_some(ListingWarning::Unordered)
    }

    /// The first key behind range `id` as the ranges that follow have it: `None` while that is not known, then `Some(None)`
    /// when there is none.
    #[expect(clippy::option_option, reason = "unknown and known to be nothing are different answers")]
    fn follower(&self, id: usize) -> Option<Option<ObjectKey>> {
        let mut next = self.ranges[id].next;
        while let Some(id) = next {
            let range = &self.ranges[id];
            if let Some(first) = range.run.first_key() {
                return Some(Some(first.into()));
            }
            if range.progress == Progress::Listing {
                return None;
            }
            next = range.next;
        }
        Some(None)
    }
}
