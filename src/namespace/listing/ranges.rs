//! The usual way to list: the key space as a chain of ranges, each listed page by page, busy ones cut for idle workers.
//!
//! One task owns the chain and decides; the requests are tasks of their own (`requests`). A range is listed from behind its
//! start until a key past its end comes, so every seam between two ranges is seen from both sides (`seams`). Where the sides
//! do not agree, or keys come that cannot, the store does not list in byte order from where it is asked to, and the listing
//! starts again in the slow way (`walk`).
//!
//! How much is cut is limited by what it has cost so far: requests beyond the pages that a listing needs stay below a small
//! share of them.

use crate::model::ObjectKey;
use crate::namespace::ObjectEntry;
use crate::store::{ListPage, ListRequest, ListedObject};

use super::folders::Folders;
use super::key_space::Sample;
use super::outlook::Outlook;
use super::requests::Requests;
use super::run::Run;
use super::{ListingError, ListingWarning, MOST_EMPTY_PAGES, Tally, drop_foreign_keys};

/// Pages after which ranges are cut although the first folded page has not come.
const PAGES_BEFORE_GUESSING: f64 = 4.0;

/// What a request is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The next page of a range.
    Page(usize),
    /// Folders: on which level below the prefix, and the how many-th page.
    Folders { level: u8, page: u8 },
    /// To look again at what follows a range.
    Seam(usize),
    /// To look again, from where the range on the right of a seam started, for the key that the one on the left has seen.
    Start(usize),
    /// To look by name for a key that the range on one side of a seam has seen and that on the other has not.
    Missing,
}

/// How a listing in ranges ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Runs in order that do not overlap.
    Complete(Vec<Run>),
    /// The store cannot be listed this way.
    Unsuitable(ListingWarning),
}

/// The keys behind `after` up to and including `through`.
#[derive(Debug, Default)]
pub(super) struct Range {
    pub(super) after: Option<ObjectKey>,
    pub(super) through: Option<ObjectKey>,
    /// Neighbours in key order.
    pub(super) previous: Option<usize>,
    pub(super) next: Option<usize>,
    pub(super) run: Run,
    pub(super) progress: Progress,
    /// The first key seen past the end; none when the store's listing ended first.
    pub(super) beyond: Option<ObjectKey>,
    /// The start was cut where keys are known to follow, or a page has shown some.
    pub(super) start_is_proven: bool,
    pub(super) end: End,
    pub(super) empty_pages: u32,
    pub(super) sample: Sample,
    /// Keys expected to come, those of the request in flight included.
    pub(super) outlook: Outlook,
}

/// How far a range is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    Listing,
    Listed,
    /// Listed, and what follows it is what its last page has shown, or is being looked at again.
    Joined,
}

/// What is known of a range's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing: keys may end long before it.
    #[default]
    Open,
    /// It was guessed, and what lies behind it is being asked for: until then another guess would be no better.
    Guessed,
    /// Keys follow right after it.
    Proven,
}

/// The listing of one prefix in ranges.
#[derive(Debug)]
pub(super) struct Ranges<'t, 'a> {
    pub(super) tally: &'t mut Tally<'a>,
    pub(super) requests: Requests<Purpose>,
    pub(super) ranges: Vec<Range>,
    /// Ranges not finished.
    pub(super) active: Vec<usize>,
    pub(super) folders: Folders,
    pub(super) folder_requests: usize,
    /// Nothing is cut before the first folded page has come: it knows more than any guess.
    pub(super) wants_folders: bool,
    /// Folders that ranges start at or have passed.
    pub(super) touched_folders: usize,
    pub(super) first_key: Vec<u8>,
    /// Most keys seen on one page.
    pub(super) page_keys: usize,
    pub(super) answers: u64,
    /// Seams being looked at again.
    pub(super) open_seams: usize,
    /// Answers counted by the part of each that was of use.
    pub(super) useful_pages: f64,
}

impl<'t, 'a> Ranges<'t, 'a> {
    /// A listing that asks nothing yet.
    pub(super) fn new(tally: &'t mut Tally<'a>) -> Self {
        let requests = tally.requests();
        Ranges {
            tally,
            requests,
            ranges: vec![Range { start_is_proven: true, ..Range::default() }],
            active: vec![0],
            folders: Folders::default(),
            folder_requests: 0,
            wants_folders: true,
            touched_folders: 0,
            first_key: Vec::new(),
            page_keys: 0,
            answers: 0,
            open_seams: 0,
            useful_pages: 0.0,
        }
    }

    /// Lists everything. Requests that are still open at the end are stopped and gone when this returns.
    pub(super) async fn list(mut self) -> Result<Outcome, ListingError> {
        let outcome = self.run().await;
        self.requests.stop().await;
        self.tally.requests = self.requests.sent();
        if let Some(odd) = outcome? {
            return Ok(Outcome::Unsuitable(odd));
        }
        let mut runs = Vec::with_capacity(self.ranges.len());
        let mut next = Some(0);
        while let Some(id) = next {
            runs.push(std::mem::take(&mut self.ranges[id].run));
            next = self.ranges[id].next;
        }
        Ok(Outcome::Complete(runs))
    }

    async fn run(&mut self) -> Result<Option<ListingWarning>, ListingError> {
        self.ask_page(0, None);
        while let Some((purpose, request, answer)) = self.requests.next().await {
            self.answers += 1;
            // Folders only guide; without them the listing takes longer.
            if let Purpose::Folders { level, page } = purpose {
                self.accept_folders(&request, answer.unwrap_or_default(), level, page);
                self.spread();
                continue;
            }
            let page = answer.map_err(|error| self.tally.failed(error))?;
            let odd = match purpose {
                Purpose::Page(id) => self.accept(id, page, request.continuation.as_deref())?,
                Purpose::Seam(id) => {
                    self.accept_seam(id, &page);
                    None
                }
                Purpose::Start(id) => {
                    self.accept_start(id, &request, &page);
                    None
                }
                Purpose::Missing | Purpose::Folders { .. } => self.accept_missing(&request.prefix, &page),
            };
            if odd.is_some() {
                return Ok(odd);
            }
            if self.active.is_empty() && self.open_seams == 0 {
                break;
            }
            self.spread();
        }
        Ok(None)
    }

    pub(super) fn ask_page(&mut self, id: usize, continuation: Option<String>) {
        let request = ListRequest {
            prefix: self.tally.prefix.clone(),
            start_after: self.ranges[id].after.clone(),
            continuation,
            fold_directories: false,
            max_keys: self.tally.config.page_keys,
        };
        self.requests.ask(Purpose::Page(id), request);
    }

    /// Takes in one page of a range; the request for the next one is sent before this one is stored.
    fn accept(
        &mut self,
        id: usize,
        mut page: ListPage,
        token: Option<&str>,
    ) -> Result<Option<ListingWarning>, ListingError> {
        drop_foreign_keys(&mut page, self.tally);
        let objects = &page.objects;
        if !objects.is_sorted_by(|a, b| a.key <= b.key) {
            return Ok(Some(ListingWarning::Unordered));
        }
        let through = self.ranges[id].through.as_ref();
        let is_past_end = objects.last().is_some_and(|last| through.is_some_and(|through| last.key > *through));
        let next = page.next.filter(|_| !is_past_end);
        let is_finished = next.is_none();
        if let Some(next) = next {
            if token == Some(&*next) {
                return Err(self.tally.stuck());
            }
            self.ask_page(id, Some(next));
        }
        let before = self.ranges[id].position().to_vec();
        let stored = match self.store(id, objects) {
            Ok(stored) => stored,
            Err(odd) => return Ok(Some(odd)),
        };
        let range = &mut self.ranges[id];
        range.empty_pages = if stored == 0 { range.empty_pages + 1 } else { 0 };
        if range.empty_pages > MOST_EMPTY_PAGES {
            return Err(self.tally.stuck());
        }
        self.page_keys = self.page_keys.max(objects.len());
        self.useful_pages += stored as f64 / objects.len().max(1) as f64;
        self.touched_folders += self.folders.between(&before, Some(self.ranges[id].position())).len();
        if is_finished {
            self.finish(id);
        } else if stored > 0 {
            self.look_ahead(id, stored, objects);
        }
        // Some stores take long to fold; then the listing does not wait.
        self.wants_folders &= self.useful_pages < PAGES_BEFORE_GUESSING;
        if !is_finished && self.folder_requests == 0 {
            self.ask_folders(self.tally.prefix.clone(), None, 0, 0);
        }
        self.tally.report(self.requests.sent());
        self.check_seams(id);
        Ok(None)
    }

    /// Appends to the range's run what belongs to it: how many objects, or why this cannot be.
    fn store(&mut self, id: usize, objects: &[ListedObject]) -> Result<usize, ListingWarning> {
        let range = &mut self.ranges[id];
        let before = range.run.objects();
        for object in objects {
            let key = &object.key;
            if range.through.as_ref().is_some_and(|through| key > through) {
                range.beyond = Some(key.as_bytes().into());
                break;
            }
            if range.run.is_empty() && range.after.as_ref().is_some_and(|after| key <= after) {
                if range.after.as_ref() == Some(key) {
                    continue;
                }
                return Err(ListingWarning::StartAfterIgnored);
            }
            if !range.run.is_empty() && key.as_bytes() <= range.run.last_key() {
                if key.as_bytes() < range.run.last_key() {
                    return Err(ListingWarning::Unordered);
                }
                self.tally.repeated_keys += 1;
                continue;
            }
            range.run.push(ObjectEntry {
                key: key.as_bytes(),
                size_bytes: object.size_bytes,
                modified: object.modified,
                etag: object.etag.as_ref(),
            });
        }
        let stored = range.run.objects() - before;
        self.tally.objects += stored;
        if stored > 0 && before == 0 {
            range.start_is_proven = true;
            match range.previous {
                Some(previous) => self.settle_end(previous, End::Proven),
                None => self.first_key = range.run.first_key().unwrap_or_default().to_vec(),
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the length of a slice")]
        let stored = stored as usize;
        Ok(stored)
    }

    fn finish(&mut self, id: usize) {
        self.active.retain(|&active| active != id);
        let range = &mut self.ranges[id];
        range.progress = Progress::Listed;
        range.sample = Sample::default();
        range.run.seal();
        if let (true, Some(previous)) = (range.run.is_empty(), range.previous) {
            // Nothing lay here: what is known of this end is now what is known of that one.
            let end = range.end;
            self.settle_end(previous, end);
        }
    }

    /// What lies behind the end of range `id` is known now; what is known of an empty range's end holds for the one before.
    fn settle_end(&mut self, id: usize, end: End) {
        let mut settled = Some(id);
        while let Some(id) = settled {
            let range = &mut self.ranges[id];
            range.end = end;
            settled = range.previous.filter(|_| range.run.is_empty() && range.progress != Progress::Listing);
            if !range.sample.is_empty() {
                self.estimate(id);
            }
        }
    }

    /// Takes the page's keys as a sample of what comes.
    fn look_ahead(&mut self, id: usize, stored: usize, objects: &[ListedObject]) {
        let range = &mut self.ranges[id];
        // The range may begin with a few that were not stored; what the sample tells does not change by that.
        range.sample = Sample::of(stored, |i| objects[i].key.as_bytes());
        self.estimate(id);
    }
}

impl Range {
    /// How far it is listed: everything up to here is known.
    pub(super) fn position(&self) -> &[u8] {
        match &self.after {
            Some(after) if self.run.is_empty() => after.as_bytes(),
            _ => self.run.last_key(),
        }
    }

    /// The same, as something to start after.
    pub(super) fn position_key(&self) -> Option<ObjectKey> {
        if self.run.is_empty() { self.after.clone() } else { Some(self.run.last_key().into()) }
    }
}
