//! How ranges are cut for idle workers: which, where, and how many cuts the listing can afford.
//!
//! Every range costs about half a page (its last one is cut off somewhere) and a guess may cost a whole one. What has been
//! spent beyond the needed pages is known at any time, so new cuts are made only while that stays small: a key space that
//! defies all guesses makes the listing less parallel, not more expensive.

use crate::model::ObjectKey;
use crate::store::{ListPage, ListRequest};

use super::ListingWarning;
use super::folders::end_of_folder;
use super::outlook::{Common, Cut, Outlook, View, worthwhile_cuts};
use super::ranges::{End, Purpose, Range, Ranges};

/// Requests beyond the needed pages that any listing may spend, and the share of the pages that it may spend in addition.
const SPARE_REQUESTS: f64 = 48.0;
const SPARE_SHARE: f64 = 0.12;
/// Guesses start slower: one request for each page that was of use, and these.
const SPARE_GUESSES: f64 = 3.0;
/// What a range is expected to spend: half a page, or a whole one where it may turn out empty.
const PROVEN_COST: f64 = 0.5;
const GUESS_COST: f64 = 1.0;
/// Folded pages asked for in all, and in one folder.
const MOST_FOLDED_PAGES: usize = 16;
const MOST_FOLDED_PAGES_OF_ONE: u8 = 8;
/// Levels of folders looked at, and up to how many siblings are few enough to look into each.
const MOST_LEVELS: u8 = 3;
const FEW_FOLDERS: usize = 12;
/// With no more pages than this expected, deeper levels are not worth a look.
const SMALL_PAGES: f64 = 4.0;

/// A range that may be cut.
struct Candidate {
    id: usize,
    keys: f64,
    is_guess: bool,
    cuts: usize,
    most_cuts: usize,
}

impl Ranges<'_, '_> {
    /// Cuts ranges until every worker has one, or no cut pays.
    pub(super) fn spread(&mut self) {
        let mut idle = self.requests.idle();
        if idle == 0 || self.wants_folders {
            return;
        }
        let (mut spare, mut spare_guesses) = self.spare();
        let mut busy: Vec<Candidate> = self.active.iter().filter_map(|&id| self.candidate(id)).collect();
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        while idle > 0 {
            let part = |candidate: &Candidate| candidate.keys / (candidate.cuts + 1) as f64;
            let Some(best) = (0..busy.len()).max_by(|&a, &b| part(&busy[a]).total_cmp(&part(&busy[b]))) else { break };
            let candidate = &mut busy[best];
            let cost = if candidate.is_guess { GUESS_COST } else { PROVEN_COST };
            let is_affordable = cost <= spare && (!candidate.is_guess || cost <= spare_guesses);
            if candidate.cuts < candidate.most_cuts && is_affordable {
                candidate.cuts += 1;
                spare -= cost;
                spare_guesses -= cost;
                idle -= 1;
            } else {
                let done = busy.swap_remove(best);
                chosen.push((done.id, done.cuts));
            }
        }
        chosen.extend(busy.iter().map(|candidate| (candidate.id, candidate.cuts)));
        for (id, count) in chosen.into_iter().filter(|&(_, count)| count > 0) {
            let cuts = self.view(id).cuts(count);
            if cuts.is_empty() {
                // Leaves the workers to other ranges, until its next page tells more.
                self.ranges[id].outlook.keys = 0.0;
            }
            self.cut(id, cuts);
        }
    }

    /// Works out anew what range `id` has ahead.
    pub(super) fn estimate(&mut self, id: usize) {
        if let Some(outlook) = self.view(id).outlook() {
            self.ranges[id].outlook = outlook;
        }
    }

    fn view(&self, id: usize) -> View<'_> {
        let range = &self.ranges[id];
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (seen_keys, objects) = (range.run.objects() as f64, self.tally.objects as f64);
        View {
            last: range.position(),
            end: range.through.as_ref().map(ObjectKey::as_bytes),
            end_is_proven: range.end == End::Proven,
            sample: &range.sample,
            seen_keys,
            common: Common {
                first: &self.first_key,
                prefix_bytes: self.tally.prefix.as_bytes().len(),
                folders: &self.folders,
                keys_per_folder: objects / self.touched_folders.max(1) as f64,
                page_keys: self.page_keys as f64,
            },
        }
    }

    /// What may still be spent beyond the needed pages: on any cut, and on guesses.
    fn spare(&self) -> (f64, f64) {
        let spent = self.answers as f64 - self.useful_pages;
        let cost = |&id: &usize| if self.ranges[id].start_is_proven { PROVEN_COST } else { GUESS_COST };
        let committed: f64 = self.active.iter().map(cost).sum();
        let spare = SPARE_REQUESTS + SPARE_SHARE * self.useful_pages - spent - committed;
        (spare, SPARE_GUESSES + self.useful_pages - spent - committed)
    }

    fn candidate(&self, id: usize) -> Option<Candidate> {
        let range = &self.ranges[id];
        let Outlook { keys, is_guess } = range.outlook;
        if is_guess && (range.sample.is_empty() || range.end == End::Guessed) {
            return None;
        }
        let most_cuts = worthwhile_cuts(keys, self.page_keys as f64);
        (most_cuts > 0).then_some(Candidate { id, keys, is_guess, cuts: 0, most_cuts })
    }

    /// Cuts range `id`, whose request in flight goes on, and has the new ones listed.
    fn cut(&mut self, id: usize, cuts: Vec<Cut>) {
        let keys = self.ranges[id].outlook.keys / (cuts.len() + 1) as f64;
        let mut left = id;
        for cut in cuts {
            let new = self.ranges.len();
            let key = ObjectKey::from(cut.key);
            let range = &mut self.ranges[left];
            let right = Range {
                after: Some(key.clone()),
                through: range.through.replace(key),
                previous: Some(left),
                next: range.next.replace(new),
                end: std::mem::replace(&mut range.end, if cut.is_proven { End::Proven } else { End::Guessed }),
                start_is_proven: cut.is_proven,
                outlook: Outlook { keys, is_guess: range.outlook.is_guess },
                ..Range::default()
            };
            range.outlook.keys = keys;
            if let Some(next) = right.next {
                self.ranges[next].previous = Some(new);
            }
            self.ranges.push(right);
            self.active.push(new);
            self.touched_folders += usize::from(cut.is_proven);
            self.ask_page(new, None);
            left = new;
        }
    }

    /// Asks for the folders in `prefix`.
    pub(super) fn ask_folders(&mut self, prefix: ObjectKey, continuation: Option<String>, level: u8, page: u8) {
        self.folder_requests += 1;
        let max_keys = self.tally.config.page_keys;
        let request = ListRequest { prefix, start_after: None, continuation, fold_directories: true, max_keys };
        self.requests.ask(Purpose::Folders { level, page }, request);
    }

    /// Takes in one folded page, and asks for more where that promises cuts.
    pub(super) fn accept_folders(&mut self, request: &ListRequest, answer: ListPage, level: u8, page: u8) {
        let prefix = request.prefix.as_bytes();
        let is_folder = |key: &ObjectKey| {
            let key = key.as_bytes();
            key.starts_with(prefix) && key.len() > prefix.len() && key.ends_with(b"/")
        };
        let folders: Vec<ObjectKey> = answer.common_prefixes.into_iter().filter(is_folder).collect();
        self.wants_folders = false;
        let is_deep = |key: &[u8]| key.starts_with(prefix) && key[prefix.len()..].contains(&b'/');
        // A key ending in the only slash may be shown by stores that fold the rest.
        if answer.objects.iter().any(|object| is_deep(object.key.as_bytes()) && !object.key.as_bytes().ends_with(b"/"))
        {
            self.tally.warn(ListingWarning::DelimiterIgnored);
            return;
        }
        let is_mostly_folders = folders.len() >= answer.objects.len();
        self.folders.add(folders.iter().cloned());
        self.measure_folders();
        let is_new = answer.next != request.continuation;
        if let Some(next) = answer.next.filter(|_| is_new && is_mostly_folders) {
            if page + 1 < MOST_FOLDED_PAGES_OF_ONE && self.folder_requests < MOST_FOLDED_PAGES {
                self.ask_folders(request.prefix.clone(), Some(next), level, page + 1);
            }
            return;
        }
        let expected: f64 = self.active.iter().map(|&id| self.ranges[id].outlook.keys).sum();
        if level + 1 == MOST_LEVELS || folders.len() > FEW_FOLDERS || expected < SMALL_PAGES * self.page_keys as f64 {
            return;
        }
        for folder in folders {
            if self.folder_requests < MOST_FOLDED_PAGES && self.is_ahead(&folder) {
                self.ask_folders(folder, None, level + 1, 0);
            }
        }
    }

    /// Counts the folders that ranges have come to, and estimates anew what is ahead of each.
    fn measure_folders(&mut self) {
        let folders = &self.folders;
        let touched = |range: &Range| {
            let after = range.after.as_ref().map_or(&b""[..], ObjectKey::as_bytes);
            let starts_at_one =
                usize::from(after.ends_with(b"/") && folders.innermost(after).is_some_and(|it| it.as_bytes() == after));
            folders.between(after, Some(range.position())).len() + starts_at_one
        };
        self.touched_folders = self.ranges.iter().map(touched).sum();
        for id in self.active.clone() {
            self.estimate(id);
        }
    }

    /// True when some range has still to come through the folder.
    fn is_ahead(&self, folder: &ObjectKey) -> bool {
        let end = end_of_folder(folder);
        self.active
            .iter()
            .map(|&id| &self.ranges[id])
            .any(|range| range.position() < &end[..] && range.through.as_ref().is_none_or(|through| through > folder))
    }
}
