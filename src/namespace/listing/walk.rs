//! The slow way to list, for stores whose order or start-after cannot be trusted: folder by folder, each in a chain of
//! continuation tokens.
//!
//! Folders found on folded pages are listed side by side: the first few again folded, so that their children spread out, too,
//! the others with everything in them. Nothing is assumed of the order of keys: pages are sorted, packed into as few runs as
//! their order allows, and merged at the end. A chain in which a token or a page comes again ends the listing with an error.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::model::ObjectKey;
use crate::namespace::ObjectEntry;
use crate::store::{ListPage, ListRequest, ListedObject};

use super::requests::Requests;
use super::run::{Run, merge};
use super::{ListingError, MOST_EMPTY_PAGES, Tally, drop_foreign_keys};

/// Levels of folders that are folded, and how many chains there must be for each worker before further ones are not.
const MOST_FOLDED_LEVELS: u8 = 3;
const FOLDED_CHAINS_PER_WORKER: usize = 2;
/// Runs that a page may be appended to. In byte order one is enough; a few absorb folders that are listed side by side.
const OPEN_RUNS: usize = 64;

/// One folder, listed from its first page to its last.
#[derive(Debug)]
struct Chain {
    prefix: ObjectKey,
    level: u8,
    is_folded: bool,
    empty_pages: u32,
    /// Tokens and pages seen, hashed.
    seen: HashSet<u64>,
}

/// The listing of one prefix, folder by folder.
#[derive(Debug)]
pub(super) struct Walk<'t, 'a> {
    tally: &'t mut Tally<'a>,
    requests: Requests<usize>,
    chains: Vec<Chain>,
    folders: HashSet<ObjectKey>,
    runs: Vec<Run>,
    hasher: RandomState,
}

impl<'t, 'a> Walk<'t, 'a> {
    /// A listing that asks nothing yet.
    pub(super) fn new(tally: &'t mut Tally<'a>) -> Self {
        let requests = tally.requests();
        let (chains, folders, runs) = (Vec::new(), HashSet::new(), Vec::new());
        Walk { tally, requests, chains, folders, runs, hasher: RandomState::new() }
    }

    /// Lists everything into one run. Requests still open at the end are stopped and gone when this returns.
    pub(super) async fn list(mut self) -> Result<Run, ListingError> {
        let outcome = self.run().await;
        self.requests.stop().await;
        self.tally.requests = self.requests.sent();
        outcome?;
        let (run, repeated_keys) = merge(&self.runs);
        self.tally.repeated_keys += repeated_keys;
        self.tally.objects = run.objects();
        Ok(run)
    }

    async fn run(&mut self) -> Result<(), ListingError> {
        self.begin(self.tally.prefix.clone(), 0);
        while let Some((id, request, answer)) = self.requests.next().await {
            let page = answer.map_err(|error| self.tally.failed(error))?;
            self.accept(id, page, request.continuation)?;
            self.tally.report(self.requests.sent());
        }
        Ok(())
    }

    fn begin(&mut self, prefix: ObjectKey, level: u8) {
        let workers = self.tally.config.max_in_flight.max(1);
        let is_folded = level < MOST_FOLDED_LEVELS && self.chains.len() < FOLDED_CHAINS_PER_WORKER * workers;
        self.chains.push(Chain { prefix, level, is_folded, empty_pages: 0, seen: HashSet::new() });
        self.ask(self.chains.len() - 1, None);
    }

    fn ask(&mut self, id: usize, continuation: Option<String>) {
        let chain = &self.chains[id];
        let request = ListRequest {
            prefix: chain.prefix.clone(),
            start_after: None,
            continuation,
            fold_directories: chain.is_folded,
            max_keys: self.tally.config.page_keys,
        };
        self.requests.ask(id, request);
    }

    fn accept(&mut self, id: usize, mut page: ListPage, token: Option<String>) -> Result<(), ListingError> {
        let (prefix, level) = (self.chains[id].prefix.clone(), self.chains[id].level);
        let mut is_empty = page.objects.is_empty();
        for folder in std::mem::take(&mut page.common_prefixes) {
            let is_below = folder.as_bytes().starts_with(prefix.as_bytes()) && folder != prefix;
            if is_below && self.folders.insert(folder.clone()) {
                is_empty = false;
                self.begin(folder, level + 1);
            }
        }
        match page.next.take() {
            Some(next) => {
                if token.as_ref() == Some(&next) || !self.goes_on(id, &next, &page.objects, is_empty) {
                    return Err(self.tally.stuck());
                }
                self.ask(id, Some(next));
            }
            None => self.chains[id].seen = HashSet::new(),
        }
        drop_foreign_keys(&mut page, self.tally);
        self.store(page.objects);
        Ok(())
    }

    /// False when a chain has come back to where it was, or brings nothing for too long.
    fn goes_on(&mut self, id: usize, next: &str, objects: &[ListedObject], is_empty: bool) -> bool {
        // A page that comes again does so whatever its token is.
        let ends = (objects.first().map(|object| &object.key), objects.last().map(|object| &object.key));
        let (token, content) = (self.hasher.hash_one(next), self.hasher.hash_one((ends, objects.len())));
        let chain = &mut self.chains[id];
        chain.empty_pages = if is_empty { chain.empty_pages + 1 } else { 0 };
        chain.empty_pages <= MOST_EMPTY_PAGES
            && chain.seen.insert(token)
            && (objects.is_empty() || chain.seen.insert(content))
    }

    /// Packs one page, in whatever order it came.
    fn store(&mut self, mut objects: Vec<ListedObject>) {
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        let listed = objects.len();
        objects.dedup_by(|a, b| a.key == b.key);
        self.tally.repeated_keys += (listed - objects.len()) as u64;
        self.tally.objects += objects.len() as u64;
        let Some(first) = objects.first().map(|object| object.key.as_bytes()) else { return };
        let open = self.runs.len().saturating_sub(OPEN_RUNS);
        // The run that ends closest before the page, so that the others stay open for earlier keys.
        let fitting = (open..self.runs.len()).filter(|&id| self.runs[id].last_key() < first);
        let id = fitting.max_by(|&a, &b| self.runs[a].last_key().cmp(self.runs[b].last_key())).unwrap_or_else(|| {
            self.runs.push(Run::default());
            self.runs.len() - 1
        });
        for object in &objects {
            self.runs[id].push(ObjectEntry {
                key: object.key.as_bytes(),
                size_bytes: object.size_bytes,
                modified: object.modified,
                etag: object.etag.as_ref(),
            });
        }
    }
}
