//! Lists everything below a prefix, many requests at a time, into a compact ordered form.
//!
//! What comes out is complete, in strict byte order of the keys, each key once; a listing that cannot be complete is an error.
//! `ranges` is the usual way: the key space is cut where keys are expected (`folders`, `key_space`, `outlook`, `spread`), the
//! parts are listed side by side, and `seams` sees to it that nothing falls between them. `walk` is the slow way, for stores
//! that do not list in byte order. Both send their requests through `requests` and keep objects in a `run`. Which keys can be
//! names is not asked here.

mod folders;
mod key_space;
mod outlook;
mod ranges;
mod requests;
mod run;
mod seams;
mod spread;
mod walk;

#[cfg(test)]
mod fake_store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::model::ObjectKey;
use crate::namespace::ObjectEntry;
use crate::store::{ListPage, ObjectStore, StoreError};

use ranges::{Outcome, Ranges};
use requests::Requests;
use run::Run;
use walk::Walk;

/// Stores may send empty pages (deleted versions, filtered keys), but not for ever.
const MOST_EMPTY_PAGES: u32 = 1_000;

/// How a prefix is listed.
#[derive(Debug, Clone)]
pub struct ListingConfig {
    /// Requests in flight at most; throttling makes them fewer. At least 1.
    pub max_in_flight: usize,
    /// Keys asked for in one request; `None` leaves it to the store (usually 1,000).
    pub page_keys: Option<u16>,
}

impl Default for ListingConfig {
    fn default() -> Self {
        // 32 requests of 60 ms list half a million objects a second, more than one core can take in.
        ListingConfig { max_in_flight: 32, page_keys: None }
    }
}

/// Told about a listing's progress.
pub trait ListingProgress: Send + Sync {
    /// A page has come: what there is so far. When a listing has to start again, the number of objects does, too.
    fn page(&self, objects_so_far: u64, requests_so_far: u64);
}

/// Why a prefix could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// A request failed for good.
    #[error("cannot list \"{prefix}\": {source}")]
    Store {
        /// The prefix that was being listed.
        prefix: ObjectKey,
        /// The failed request.
        source: StoreError,
    },
    /// The store sends the same page or nothing but empty pages, and always says that there are more.
    #[error(
        "cannot list \"{prefix}\": the store repeats itself after {objects} objects and never ends the listing; it does not \
         follow the S3 protocol here"
    )]
    NoProgress {
        /// The prefix that was being listed.
        prefix: ObjectKey,
        /// Objects listed until then.
        objects: u64,
    },
}

/// Something odd about a listing that is complete all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListingWarning {
    /// The store ignores where a page is to start.
    StartAfterIgnored,
    /// The store does not list in byte order.
    Unordered,
    /// The store does not fold keys at `/`.
    DelimiterIgnored,
    /// Keys came more than once; one of each was kept.
    RepeatedKeys(u64),
    /// Keys came that do not begin with the prefix; they were left out.
    ForeignKeys {
        /// How many.
        count: u64,
        /// One of them.
        example: ObjectKey,
    },
}

impl fmt::Display for ListingWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartAfterIgnored => f.write_str("the store ignores start-after: it was listed folder by folder"),
            Self::Unordered => f.write_str(
                "the store does not list in byte order from where it is asked to: it was listed folder by folder",
            ),
            Self::DelimiterIgnored => {
                f.write_str("the store ignores the delimiter: its folders could not be seen beforehand")
            }
            Self::RepeatedKeys(count) => write!(f, "the store listed {count} keys more than once"),
            Self::ForeignKeys { count, example } => {
                write!(f, "the store listed {count} keys outside the prefix, as \"{example}\": they were left out")
            }
        }
    }
}

/// Everything below a prefix, in strict byte order of the keys.
#[derive(Debug)]
pub struct Listing {
    runs: Vec<Run>,
    objects: u64,
    requests: u64,
    warnings: Vec<ListingWarning>,
}

impl Listing {
    /// Shows every object exactly once, in byte order of the full keys, until `visit` fails.
    ///
    /// # Errors
    /// That of `visit`.
    pub fn for_each<E>(&self, visit: &mut dyn FnMut(ObjectEntry<'_>) -> Result<(), E>) -> Result<(), E> {
        for run in &self.runs {
            let mut cursor = run.cursor();
            while cursor.advance() {
                visit(cursor.entry())?;
            }
        }
        Ok(())
    }

    /// Number of objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Requests that it took.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// What was odd about the store's answers.
    #[must_use]
    pub fn warnings(&self) -> &[ListingWarning] {
        &self.warnings
    }

    /// Memory it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.memory_bytes() + size_of::<Run>()).sum()
    }
}

/// Lists everything below `prefix`.
///
/// A prefix of one page costs one request. Dropping the future ends all requests; so does an error, before it is returned.
///
/// # Errors
/// When a request fails (the store retries as it sees fit), or the store's answers never end. There are no partial results.
pub async fn list_prefix(
    store: Arc<dyn ObjectStore>,
    prefix: &ObjectKey,
    config: &ListingConfig,
    progress: &dyn ListingProgress,
) -> Result<Listing, ListingError> {
    let mut tally = Tally::new(store, prefix, config, progress);
    let runs = match Ranges::new(&mut tally).list().await? {
        Outcome::Complete(runs) => runs,
        Outcome::Unsuitable(why) => {
            tracing::info!(%prefix, "listing again folder by folder: {why}");
            tally.start_again(why);
            vec![Walk::new(&mut tally).list().await?]
        }
    };
    Ok(tally.listing(runs))
}

/// What both ways of listing count and report.
struct Tally<'a> {
    store: Arc<dyn ObjectStore>,
    prefix: &'a ObjectKey,
    config: &'a ListingConfig,
    progress: &'a dyn ListingProgress,
    objects: u64,
    requests: u64,
    repeated_keys: u64,
    foreign_keys: u64,
    foreign_example: Option<ObjectKey>,
    warnings: Vec<ListingWarning>,
}

impl fmt::Debug for Tally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("prefix", self.prefix).field("objects", &self.objects).finish_non_exhaustive()
    }
}

impl<'a> Tally<'a> {
    fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &'a ObjectKey,
        config: &'a ListingConfig,
        progress: &'a dyn ListingProgress,
    ) -> Self {
        Tally {
            store,
            prefix,
            config,
            progress,
            objects: 0,
            requests: 0,
            repeated_keys: 0,
            foreign_keys: 0,
            foreign_example: None,
            warnings: Vec::new(),
        }
    }

    fn requests<T: Copy + Send + 'static>(&self) -> Requests<T> {
        Requests::new(Arc::clone(&self.store), self.config.max_in_flight, self.requests)
    }

    fn report(&self, requests: u64) {
        self.progress.page(self.objects, requests);
    }

    fn warn(&mut self, warning: ListingWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn failed(&self, source: StoreError) -> ListingError {
        ListingError::Store { prefix: self.prefix.clone(), source }
    }

    fn stuck(&self) -> ListingError {
        ListingError::NoProgress { prefix: self.prefix.clone(), objects: self.objects }
    }

    /// Forgets what was listed, but not what it took.
    fn start_again(&mut self, why: ListingWarning) {
        self.warn(why);
        self.objects = 0;
        self.repeated_keys = 0;
        self.foreign_keys = 0;
    }

    fn listing(mut self, runs: Vec<Run>) -> Listing {
        if self.repeated_keys > 0 {
            self.warnings.push(ListingWarning::RepeatedKeys(self.repeated_keys));
        }
        if let (1.., Some(example)) = (self.foreign_keys, self.foreign_example) {
            self.warnings.push(ListingWarning::ForeignKeys { count: self.foreign_keys, example });
        }
        Listing { runs, objects: self.objects, requests: self.requests, warnings: self.warnings }
    }
}

/// Drops what does not begin with the prefix: some stores treat it as a hint.
fn drop_foreign_keys(page: &mut ListPage, tally: &mut Tally<'_>) {
    let prefix = tally.prefix.as_bytes();
    let listed = page.objects.len();
    page.objects.retain(|object| {
        let is_ours = object.key.as_bytes().starts_with(prefix);
        if !is_ours && tally.foreign_example.is_none() {
            tally.foreign_example = Some(object.key.as_bytes().into());
        }
        is_ours
    });
    tally.foreign_keys += (listed - page.objects.len()) as u64;
}
