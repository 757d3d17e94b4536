//! Seams between ranges: each is seen from both sides, and both must see the same.
//!
//! The first key past one range's end is the first of the next range that has any. Where it is not, an object has come or gone
//! meanwhile, or the store has left out keys, as one that orders keys in its own way does. The store is asked again to tell,
//! as the side that has not seen a key was asked: the key must be what now follows, or must be gone.

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
            (Some(beyond), follower) if follower.as_ref().is_none_or(|follower| *follower > beyond) => {
                let start = self.start_of_range_with(id, &beyond);
                self.look_again(Purpose::Start(id), start);
            }
            _ => self.look_again(Purpose::Seam(id), self.ranges[id].position_key()),
        }
    }

    fn look_again(&mut self, purpose: Purpose, start_after: Option<ObjectKey>) {
        let request = ListRequest {
            prefix: self.tally.prefix.clone(),
            start_after,
            max_keys: self.tally.config.page_keys,
            ..ListRequest::default()
        };
        self.open_seams += 1;
        self.requests.ask(purpose, request);
    }

    /// Where the range right of `id` that `key` belongs to was told to start.
    fn start_of_range_with(&self, id: usize, key: &ObjectKey) -> Option<ObjectKey> {
        let mut right = self.ranges[id].next;
        while let Some(id) = right {
            let range = &self.ranges[id];
            if range.through.as_ref().is_none_or(|through| key <= through) {
                return range.after.clone();
            }
            right = range.next;
        }
        None
    }

    /// The range on the right had a key that the one on the left had not: has it come meanwhile, or gone?
    pub(super) fn accept_seam(&mut self, id: usize, page: &ListPage) {
        self.open_seams -= 1;
        let position = self.ranges[id].position_key();
        let seen = self.first_after(position.as_ref(), page);
        if let Some(follower) = self.follower(id).flatten().filter(|follower| seen != Some(follower)) {
            self.ask_for_missing(follower);
        }
    }

    /// The range on the left had a key that the one on the right had not: has it come meanwhile, or gone?
    pub(super) fn accept_start(&mut self, id: usize, request: &ListRequest, page: &ListPage) {
        self.open_seams -= 1;
        let seen = self.first_after(request.start_after.as_ref(), page);
        if let Some(beyond) = self.ranges[id].beyond.clone().filter(|beyond| seen != Some(beyond)) {
            self.ask_for_missing(beyond);
        }
    }

    /// The first key of a page that was to start after `after`, which some stores send, too.
    fn first_after<'p>(&self, after: Option<&ObjectKey>, page: &'p ListPage) -> Option<&'p ObjectKey> {
        let prefix = self.tally.prefix.as_bytes();
        let mut keys = page.objects.iter().map(|object| &object.key);
        keys.find(|&key| key.as_bytes().starts_with(prefix) && after.is_none_or(|after| key > after))
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
