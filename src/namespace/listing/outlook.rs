//! What a range still has ahead of it, and where to cut it for idle workers.
//!
//! Two sources are combined: known folders ahead, each taken to hold as many keys as those listed so far, and the key space
//! behind the last key of the page, as far as the folder that key lies in reaches.

use crate::model::ObjectKey;

use super::folders::{Folders, end_of_folder};
use super::key_space::{KeySpace, Remainder, Sample};

/// A part is not made smaller than so many pages: its last page is cut off somewhere, so it costs half a page on average.
const SMALLEST_PART_PAGES: f64 = 1.5;

/// What is known about a range at some moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// The last key seen, or where the range starts.
    pub(super) last: &'a [u8],
    /// Where the range ends (inclusive).
    pub(super) end: Option<&'a [u8]>,
    /// Keys are known to follow right after `end`.
    pub(super) end_is_proven: bool,
    /// Keys of the last page.
    pub(super) sample: &'a Sample,
    /// Keys the range has had so far.
    pub(super) seen_keys: f64,
    /// What is known of the whole listing.
    pub(super) common: Common<'a>,
}

/// What is known about the whole listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common<'a> {
    /// First key of all.
    pub(super) first: &'a [u8],
    /// Length of the prefix that is listed.
    pub(super) prefix_bytes: usize,
    /// Known folders.
    pub(super) folders: &'a Folders,
    /// Keys in one of them, on average.
    pub(super) keys_per_folder: f64,
    /// Keys on a full page.
    pub(super) page_keys: f64,
}

/// What a range is expected to have ahead of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlook {
    /// How many keys.
    pub(super) keys: f64,
    /// Most of them are not in folders known ahead, so that cuts would be guesses.
    pub(super) is_guess: bool,
}

/// A place to cut a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Last key of the left part, which need not exist.
    pub(super) key: Vec<u8>,
    /// Keys are known to follow.
    pub(super) is_proven: bool,
}

impl View<'_> {
    /// What is ahead; `None` when nothing tells.
    pub(super) fn outlook(&self) -> Option<Outlook> {
        let (here, folders) = self.weights();
        if folders.is_empty() && self.sample.is_empty() {
            return None;
        }
        let in_folders = folders.len() as f64 * self.common.keys_per_folder;
        Some(Outlook { keys: here.keys + in_folders, is_guess: here.keys > in_folders })
    }

    /// At most `count` cuts, in order, that leave the page in flight alone and share out what is behind it.
    pub(super) fn cuts(&self, count: usize) -> Vec<Cut> {
        let (here, folders) = self.weights();
        let per_folder = self.common.keys_per_folder.max(1.0);
        let lead = self.common.page_keys;
        let total = here.keys + folders.len() as f64 * per_folder;
        let part = (total - lead).max(0.0) / (count + 1) as f64;
        let target = |i: usize| lead + part * i as f64;
        let inside = if self.sample.is_empty() { 0 } else { (1..=count).filter(|&i| target(i) < here.keys).count() };
        let mut cuts: Vec<Cut> = Vec::new();
        if let Some(space) = here.space.filter(|_| inside > 0) {
            cuts.extend(space.cuts(inside, lead).into_iter().map(|key| Cut { key, is_proven: false }));
        }
        let mut next_folder = 0.0;
        for i in inside + 1..=count {
            // The first folder that starts at or behind the target, and not one that was taken.
            let index = ((target(i) - here.keys) / per_folder).max(next_folder);
            if let Some(folder) = folders.get(whole(index)) {
                cuts.push(Cut { key: folder.as_bytes().to_vec(), is_proven: true });
            }
            next_folder = index.floor() + 1.0;
        }
        let mut before = self.last.to_vec();
        cuts.retain(|cut| {
            let is_inside = cut.key > before && self.end.is_none_or(|end| &cut.key[..] < end);
            if is_inside {
                before.clone_from(&cut.key);
            }
            is_inside && std::str::from_utf8(&cut.key).is_ok()
        });
        cuts
    }

    fn weights(&self) -> (Here, &[ObjectKey]) {
        let common = &self.common;
        let folders = common.folders.between(self.last, self.end);
        let folder_end = common.folders.innermost(self.last).map(end_of_folder);
        let ends = [self.end, folder_end.as_deref(), folders.first().map(ObjectKey::as_bytes)];
        let end = ends.into_iter().flatten().min();
        let space = KeySpace::new(
            self.sample,
            &Remainder {
                last: self.last,
                end,
                end_is_proven: self.end_is_proven && end == self.end,
                first: common.first,
                prefix_bytes: common.prefix_bytes,
            },
        );
        let keys = match &space {
            Some(space) => space.remaining_keys(),
            // Nothing to measure with: a part of a folder, or as much again as was seen.
            None if !folders.is_empty() => common.keys_per_folder / 2.0,
            None => self.seen_keys,
        };
        (Here { keys, space }, folders)
    }
}

/// How many cuts would pay for `keys` keys ahead, of which one page is in flight.
pub(super) fn worthwhile_cuts(keys: f64, page_keys: f64) -> usize {
    whole((keys - page_keys) / (SMALLEST_PART_PAGES * page_keys))
}

/// The rest of the folder that the last key lies in.
struct Here {
    keys: f64,
    space: Option<KeySpace>,
}

fn whole(value: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a small count; casts of floats saturate")]
    let whole = value as usize;
    whole
}
