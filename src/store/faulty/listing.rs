//! Test support: the odd ways in which real stores list, laid over a store that lists well.
//!
//! Every quirk was seen in the wild; none loses an object. What a quirk must carry from page to page travels in the token.

use md5::{Digest, Md5};

use crate::model::ObjectKey;
use crate::store::{ListPage, ListRequest, ListedObject, ObjectStore, StoreError, StoreErrorKind};

/// One odd habit; several add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListQuirk {
    /// Pages are as long as the store likes.
    IgnoresMaxKeys,
    /// Every key is listed although directories were to be folded.
    IgnoresFolding,
    /// Begins at the prefix, wherever it was to begin.
    IgnoresStartAfter,
    /// Before every page comes an empty one with a token.
    EmptyPages,
    /// A common prefix comes twice on its page, and again on the next.
    RepeatsCommonPrefixes,
    /// Keys and common prefixes come in no order, as from directory buckets.
    Unordered,
    /// Pages of these many entries (1 or more each), in turn. Not empty.
    PageSizes(Vec<u16>),
}

/// What a token of a store with quirks carries: the store's own token and where the quirks stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct QuirkToken {
    /// Pages with content so far; also the offset of an unordered listing's next entry.
    position: usize,
    /// The empty page that comes before this one has been sent.
    was_empty: bool,
    repeated_prefix: Option<ObjectKey>,
    inner: Option<String>,
}

impl QuirkToken {
    fn encode(&self) -> String {
        let prefix = self
            .repeated_prefix
            .as_ref()
            .map_or(String::from("-"), |prefix| prefix.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect());
        let inner = self.inner.as_ref().map_or(String::from("-"), |inner| format!("={inner}"));
        format!("{};{};{prefix};{inner}", self.position, self.was_empty)
    }

    fn decode(token: &str) -> Option<Self> {
        let mut fields = token.splitn(4, ';');
        let position = fields.next()?.parse().ok()?;
        let was_empty = fields.next()?.parse().ok()?;
        let repeated_prefix = match fields.next()? {
            "-" => None,
            hex => {
                let pairs = (0..hex.len()).step_by(2);
                let bytes: Option<Vec<u8>> =
                    pairs.map(|at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok())).collect();
                Some(bytes?.into())
            }
        };
        let inner = fields.next()?.strip_prefix('=').map(str::to_owned);
        Some(QuirkToken { position, was_empty, repeated_prefix, inner })
    }
}

/// One page of `inner`, as a store with `quirks` would give it.
pub(super) async fn list_with_quirks(
    inner: &dyn ObjectStore,
    request: &ListRequest,
    quirks: &[ListQuirk],
) -> Result<ListPage, StoreError> {
    if quirks.is_empty() {
        return inner.list(request).await;
    }
    let token = match &request.continuation {
        None => QuirkToken::default(),
        Some(text) => QuirkToken::decode(text).ok_or_else(|| {
            let message = "the continuation token is none of this store's";
            StoreError::new(StoreErrorKind::InvalidRequest, "list", &request.prefix, message)
        })?,
    };
    if quirks.contains(&ListQuirk::EmptyPages) && !token.was_empty {
        let next = QuirkToken { was_empty: true, ..token }.encode();
        return Ok(ListPage { next: Some(next), ..ListPage::default() });
    }
    let mut asked = request.clone();
    asked.continuation.clone_from(&token.inner);
    apply_to_request(&mut asked, quirks, token.position);
    let (mut page, position) = if quirks.contains(&ListQuirk::Unordered) {
        unordered_page(inner, asked, token.position).await?
    } else {
        (inner.list(&asked).await?, token.position + 1)
    };
    let mut repeated_prefix = None;
    if quirks.contains(&ListQuirk::RepeatsCommonPrefixes) {
        repeated_prefix = page.common_prefixes.last().cloned();
        let twice: Vec<_> = page.common_prefixes.iter().flat_map(|prefix| [prefix.clone(), prefix.clone()]).collect();
        page.common_prefixes = token.repeated_prefix.into_iter().chain(twice).collect();
    }
    page.next =
        page.next.map(|inner| QuirkToken { position, was_empty: false, repeated_prefix, inner: Some(inner) }.encode());
    Ok(page)
}

fn apply_to_request(asked: &mut ListRequest, quirks: &[ListQuirk], position: usize) {
    for quirk in quirks {
        match quirk {
            ListQuirk::IgnoresMaxKeys => asked.max_keys = None,
            ListQuirk::IgnoresFolding => asked.fold_directories = false,
            ListQuirk::IgnoresStartAfter => asked.start_after = None,
            ListQuirk::PageSizes(sizes) => {
                let size = sizes[position % sizes.len()].max(1);
                asked.max_keys = Some(asked.max_keys.map_or(size, |most| most.min(size)));
            }
            ListQuirk::EmptyPages | ListQuirk::RepeatsCommonPrefixes | ListQuirk::Unordered => {}
        }
    }
}

/// Entries from `position` on of the whole listing, shuffled by a hash of their keys; and the position after them.
async fn unordered_page(
    inner: &dyn ObjectStore,
    mut asked: ListRequest,
    position: usize,
) -> Result<(ListPage, usize), StoreError> {
    let most = usize::from(asked.max_keys.take().unwrap_or(1000));
    asked.continuation = None;
    let mut entries: Vec<(ObjectKey, Option<ListedObject>)> = Vec::new();
    loop {
        let page = inner.list(&asked).await?;
        entries.extend(page.objects.into_iter().map(|object| (object.key.clone(), Some(object))));
        entries.extend(page.common_prefixes.into_iter().map(|prefix| (prefix, None)));
        match page.next {
            None => break,
            next => asked.continuation = next,
        }
    }
    entries.sort_by_cached_key(|(key, _)| <[u8; 16]>::from(Md5::digest(key.as_bytes())));
    let after = (position + most).min(entries.len());
    let mut page = ListPage { next: (after < entries.len()).then(String::new), ..ListPage::default() };
    for (key, object) in entries.into_iter().skip(position).take(most) {
        match object {
            Some(object) => page.objects.push(object),
            None => page.common_prefixes.push(key),
        }
    }
    Ok((page, after))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::memory::MemoryStore;

    /// Every page of the listing under these quirks: keys and common prefixes.
    async fn pages(quirks: &[ListQuirk], request: ListRequest) -> Vec<(Vec<String>, Vec<String>)> {
        let memory = MemoryStore::new();
        for key in ["a/1", "a/2", "b", "c/1", "d", "e"] {
            memory.put(key, "");
        }
        let mut request = ListRequest { fold_directories: true, ..request };
        let mut pages = Vec::new();
        loop {
            let page = list_with_quirks(&memory, &request, quirks).await.unwrap();
            let text = |keys: Vec<ObjectKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
            pages.push((text(page.objects.into_iter().map(|o| o.key).collect()), text(page.common_prefixes)));
            request.continuation = page.next;
            if request.continuation.is_none() {
                return pages;
            }
        }
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[tokio::test]
    async fn empty_pages_come_before_each_page() {
        let request = ListRequest { max_keys: Some(3), ..ListRequest::default() };
        let pages = pages(&[ListQuirk::EmptyPages], request).await;
        let entries: Vec<usize> = pages.iter().map(|(keys, prefixes)| keys.len() + prefixes.len()).collect();
        assert_eq!(entries, [0, 3, 0, 2]);
    }

    #[tokio::test]
    async fn page_sizes_come_in_turn() {
        let pages = pages(&[ListQuirk::PageSizes(vec![1, 3])], ListRequest::default()).await;
        let entries: Vec<usize> = pages.iter().map(|(keys, prefixes)| keys.len() + prefixes.len()).collect();
        assert_eq!(entries, [1, 3, 1]);
    }

    #[tokio::test]
    async fn common_prefixes_are_repeated_on_their_page_and_the_next() {
        let request = ListRequest { max_keys: Some(1), ..ListRequest::default() };
        let pages = pages(&[ListQuirk::RepeatsCommonPrefixes], request).await;
        assert_eq!(pages[0].1, strings(&["a/", "a/"]));
        assert_eq!(pages[1], (strings(&["b"]), strings(&["a/"])));
        assert_eq!(pages[2].1, strings(&["c/", "c/"]));
        assert_eq!(pages[3], (strings(&["d"]), strings(&["c/"])));
        assert_eq!(pages[4], (strings(&["e"]), Vec::new()));
    }

    #[tokio::test]
    async fn an_unordered_listing_has_every_entry_once() {
        let request = ListRequest { max_keys: Some(2), ..ListRequest::default() };
        let pages = pages(&[ListQuirk::Unordered, ListQuirk::EmptyPages], request).await;
        let found: Vec<String> = pages.into_iter().flat_map(|(keys, prefixes)| [keys, prefixes].concat()).collect();
        assert!(!found.is_sorted(), "{found:?}");
        assert_eq!(found.len(), 5);
        assert_eq!(
            found.into_iter().collect::<BTreeSet<_>>(),
            strings(&["a/", "b", "c/", "d", "e"]).into_iter().collect()
        );
    }

    #[tokio::test]
    async fn what_is_ignored_has_no_effect() {
        let request = ListRequest { max_keys: Some(1), start_after: Some("b".into()), ..ListRequest::default() };
        let quirks = [ListQuirk::IgnoresMaxKeys, ListQuirk::IgnoresFolding, ListQuirk::IgnoresStartAfter];
        let pages = pages(&quirks, request).await;
        assert_eq!(pages, [(strings(&["a/1", "a/2", "b", "c/1", "d", "e"]), Vec::new())]);
    }

    #[test]
    fn a_token_is_read_back_as_written() {
        for token in [
            QuirkToken::default(),
            QuirkToken { position: 7, was_empty: true, repeated_prefix: Some("a/".into()), inner: Some(String::new()) },
            QuirkToken { inner: Some("-;=;x".into()), ..QuirkToken::default() },
        ] {
            assert_eq!(QuirkToken::decode(&token.encode()), Some(token));
        }
        assert_eq!(QuirkToken::decode("o61"), None);
    }
}
