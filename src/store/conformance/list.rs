//! The conformance cases about LIST: keys byte for byte, pages, prefixes, folding, sizes, entity tags.

use std::collections::BTreeSet;

use super::{Limit, Suite, Verdict, check};
use crate::model::{MAX_KEY_BYTES, ObjectKey};
use crate::store::{ListPage, ListRequest};

pub(super) async fn run(suite: &mut Suite<'_>) {
    // First, while the bucket is known to be empty.
    let verdict = an_empty_prefix_lists_the_whole_bucket(suite).await;
    suite.conclude("an empty prefix lists the whole bucket", verdict).await;
    let verdict = a_prefix_that_nothing_has_lists_nothing(suite).await;
    suite.conclude("a prefix that nothing has lists nothing", verdict).await;
    let verdict = keys_come_byte_for_byte(suite).await;
    suite.conclude("keys come byte for byte", verdict).await;
    let verdict = keys_come_in_byte_order(suite).await;
    suite.conclude("keys come in byte order", verdict).await;
    let verdict = pages_hold_every_key_once(suite).await;
    suite.conclude("pages hold every key once", verdict).await;
    let verdict = a_prefix_is_bytes_not_a_directory(suite).await;
    suite.conclude("a prefix is bytes, not a directory", verdict).await;
    let verdict = folding_rolls_up_at_the_first_slash(suite).await;
    suite.conclude("folding rolls up at the first slash after the prefix", verdict).await;
    let verdict = folded_pages_say_every_entry(suite).await;
    suite.conclude("folded pages say every entry", verdict).await;
    let verdict = a_listing_can_start_after_any_key(suite).await;
    suite.conclude("a listing can start after any key", verdict).await;
    let verdict = sizes_and_dates_are_listed(suite).await;
    suite.conclude("sizes and dates are listed", verdict).await;
    let verdict = entity_tags_differ_by_version(suite).await;
    suite.conclude("entity tags differ by version", verdict).await;
}

fn keys<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Vec<ObjectKey> {
    texts.into_iter().map(|text| ObjectKey::from(text.as_ref())).collect()
}

fn under(prefix: &str) -> ListRequest {
    ListRequest { prefix: prefix.into(), ..ListRequest::default() }
}

fn keys_of(pages: &[ListPage]) -> Vec<ObjectKey> {
    pages.iter().flat_map(|page| &page.objects).map(|object| object.key.clone()).collect()
}

fn prefixes_of(pages: &[ListPage]) -> Vec<ObjectKey> {
    pages.iter().flat_map(|page| &page.common_prefixes).cloned().collect()
}

/// Holds when exactly the expected keys came, each once.
fn same_keys(found: &[ObjectKey], expected: &BTreeSet<ObjectKey>) -> Verdict {
    let distinct: BTreeSet<ObjectKey> = found.iter().cloned().collect();
    check(distinct.len() == found.len(), || format!("a key is listed twice: {found:?}"))?;
    check(distinct == *expected, || {
        let missing: Vec<_> = expected.difference(&distinct).collect();
        let surplus: Vec<_> = distinct.difference(expected).collect();
        format!("missing {missing:?}, not expected {surplus:?}")
    })
}

async fn an_empty_prefix_lists_the_whole_bucket(suite: &mut Suite<'_>) -> Verdict {
    let held = suite.put_all(&keys(["root-file", "root/a", "root/b/c"])).await;
    same_keys(&keys_of(&suite.walk(&ListRequest::default()).await?), &held)
}

async fn a_prefix_that_nothing_has_lists_nothing(suite: &mut Suite<'_>) -> Verdict {
    let pages = suite.walk(&under("nothing-has-this/")).await?;
    check(keys_of(&pages).is_empty() && prefixes_of(&pages).is_empty(), || format!("found {pages:?}"))
}

/// Keys that broke clients: percent signs and plus (decoded twice), control characters (XML), `//` and dots (path cleaning),
/// composed and decomposed accents (normalisation), the longest key.
fn awkward_keys() -> Vec<ObjectKey> {
    let mut all = keys([
        "plain",
        "a b",
        "a+b",
        "a%20b",
        "a%2Fb",
        "a%2fb",
        "a%",
        "a&b<c>\"'",
        "&amp;",
        "#?",
        "?x=1",
        "a=b;c@d,e:f",
        "\u{e9}",
        "e\u{301}",
        "\u{1f600}",
        "\u{fffd}",
        "back\\slash",
        "trailing space ",
        "trailing dot.",
        " leading",
        "A",
        "a",
        "a!",
        "a-",
        "a.txt",
        "a0",
        "*",
        "(x)",
        "[y]",
        "{z}",
        "|",
        "~",
        "`",
        "^",
        "$",
        "a\tb",
        "a\nb",
        "a\rb",
        "a\x01b",
        "a\x7fb",
        "dir/",
        "/lead",
        "x//y",
        "x/./y",
        "x/../y",
        ".",
        "..",
        ".hidden",
    ])
    .iter()
    .map(|name| prefixed("names/", name.as_bytes()))
    .collect::<Vec<_>>();
    let component = "n".repeat(255);
    all.push(prefixed("names/", component.as_bytes()));
    let path: Vec<u8> =
        "names/".bytes().chain("0123456/".bytes().cycle()).take(MAX_KEY_BYTES - 1).chain([b'z']).collect();
    all.push(path.into());
    all
}

fn prefixed(prefix: &str, name: &[u8]) -> ObjectKey {
    [prefix.as_bytes(), name].concat().into()
}

async fn keys_come_byte_for_byte(suite: &mut Suite<'_>) -> Verdict {
    let held = suite.put_all(&awkward_keys()).await;
    check(held.len() > awkward_keys().len() / 2, || format!("the server holds only {} of them", held.len()))?;
    let pages = suite.walk(&under("names/")).await?;
    same_keys(&keys_of(&pages), &held)?;
    // Each one as the prefix too: it takes the same way through encoding and signing as a key of a GET.
    for key in &held {
        let expected = held.iter().filter(|other| other.as_bytes().starts_with(key.as_bytes())).cloned().collect();
        let pages = suite.walk(&ListRequest { prefix: key.clone(), ..ListRequest::default() }).await?;
        same_keys(&keys_of(&pages), &expected).map_err(|finding| format!("under \"{key}\": {finding}"))?;
    }
    Ok(())
}

/// Names around `/` in byte order, and beyond ASCII, where UTF-16 order differs (U+FFFD before U+1F600 in both, but U+E000
/// and above before surrogates only in UTF-8).
async fn keys_come_in_byte_order(suite: &mut Suite<'_>) -> Verdict {
    let held = suite
        .put_all(&keys([
            "order/a/x",
            "order/a!",
            "order/a-",
            "order/a.txt",
            "order/a0",
            "order/B",
            "order/b",
            "order/\u{e9}",
            "order/\u{ff5e}",
            "order/\u{1f600}",
        ]))
        .await;
    let found = keys_of(&suite.walk(&under("order/")).await?);
    same_keys(&found, &held)?;
    if suite.has(Limit::Unordered) {
        suite.unchecked("order of keys");
        return Ok(());
    }
    check(found.is_sorted(), || format!("found {found:?}"))
}

async fn pages_hold_every_key_once(suite: &mut Suite<'_>) -> Verdict {
    let held = suite.put_all(&keys((0..25).map(|n| format!("pages/{n:02}")))).await;
    for most in [1, 2, 7, 24, 25, 26, 1000] {
        let pages = suite.walk(&ListRequest { max_keys: Some(most), ..under("pages/") }).await?;
        same_keys(&keys_of(&pages), &held).map_err(|finding| format!("pages of {most}: {finding}"))?;
        if !suite.has(Limit::IgnoresMaxKeys) {
            check(pages.iter().all(|page| page.objects.len() <= usize::from(most)), || {
                format!("a page of {most} has more")
            })?;
        }
    }
    if suite.has(Limit::IgnoresMaxKeys) {
        suite.unchecked("length of pages");
    }
    Ok(())
}

async fn a_prefix_is_bytes_not_a_directory(suite: &mut Suite<'_>) -> Verdict {
    suite.put_all(&keys(["prefix/dir-1/foo", "prefix/dir/a", "prefix/dire", "prefix/di", "prefixed"])).await;
    for (prefix, expected) in [
        ("prefix/dir", &["prefix/dir-1/foo", "prefix/dir/a", "prefix/dire"][..]),
        ("prefix/dir/", &["prefix/dir/a"]),
        ("prefix/dir/a", &["prefix/dir/a"]),
        ("prefix/dir/a/", &[]),
    ] {
        let found = keys_of(&suite.walk(&under(prefix)).await?);
        same_keys(&found, &keys(expected).into_iter().collect()).map_err(|finding| format!("{prefix}: {finding}"))?;
    }
    Ok(())
}

const FOLDED: [&str; 9] = [
    "fold/a!",
    "fold/a-",
    "fold/a.txt",
    "fold/a/x",
    "fold/a/y/z",
    "fold/a0",
    "fold/b/1/2",
    "fold/c",
    "fold/d e/\u{e9}",
];

async fn folding_rolls_up_at_the_first_slash(suite: &mut Suite<'_>) -> Verdict {
    suite.put_all(&keys(FOLDED)).await;
    if suite.has(Limit::IgnoresFolding) {
        suite.unchecked("folding");
        return Ok(());
    }
    let pages = suite.walk(&ListRequest { fold_directories: true, ..under("fold/") }).await?;
    same_keys(
        &keys_of(&pages),
        &keys(["fold/a!", "fold/a-", "fold/a.txt", "fold/a0", "fold/c"]).into_iter().collect(),
    )?;
    folded_prefixes(suite, &pages, &["fold/a/", "fold/b/", "fold/d e/"])?;
    let pages = suite.walk(&ListRequest { fold_directories: true, ..under("fold/a") }).await?;
    same_keys(&keys_of(&pages), &keys(["fold/a!", "fold/a-", "fold/a.txt", "fold/a0"]).into_iter().collect())?;
    folded_prefixes(suite, &pages, &["fold/a/"])
}

fn folded_prefixes(suite: &mut Suite<'_>, pages: &[ListPage], expected: &[&str]) -> Verdict {
    let mut found = prefixes_of(pages);
    if suite.has(Limit::RepeatsCommonPrefixes) {
        suite.unchecked("that a common prefix comes once");
        found = found.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    }
    same_keys(&found, &keys(expected).into_iter().collect())
}

async fn folded_pages_say_every_entry(suite: &mut Suite<'_>) -> Verdict {
    suite.put_all(&keys(FOLDED)).await;
    if suite.has(Limit::IgnoresFolding) {
        suite.unchecked("pages of folded listings");
        return Ok(());
    }
    for most in 1..=9 {
        let request = ListRequest { fold_directories: true, max_keys: Some(most), ..under("fold/") };
        let pages = suite.walk(&request).await?;
        let expected = keys(["fold/a!", "fold/a-", "fold/a.txt", "fold/a0", "fold/c"]).into_iter().collect();
        same_keys(&keys_of(&pages), &expected)
            .and_then(|()| folded_prefixes(suite, &pages, &["fold/a/", "fold/b/", "fold/d e/"]))
            .map_err(|finding| format!("pages of {most}: {finding}"))?;
    }
    Ok(())
}

async fn a_listing_can_start_after_any_key(suite: &mut Suite<'_>) -> Verdict {
    let held = suite.put_all(&keys(["after/a", "after/a b", "after/a%", "after/b/c", "after/d", "after/\u{e9}"])).await;
    let not_stored = keys(["after/", "after/a\u{1f600}", "after/b/", "after/zzz", "after/\u{ff5e}"]);
    for start in held.iter().cloned().chain(not_stored) {
        let request = ListRequest { start_after: Some(start.clone()), max_keys: Some(2), ..under("after/") };
        let found = keys_of(&suite.walk(&request).await?);
        let (expected, found): (BTreeSet<_>, Vec<_>) = if suite.has(Limit::IgnoresStartAfter) {
            (held.clone(), found)
        } else {
            (held.iter().filter(|key| **key > start).cloned().collect(), found)
        };
        same_keys(&found, &expected).map_err(|finding| format!("after \"{start}\": {finding}"))?;
    }
    if suite.has(Limit::IgnoresStartAfter) {
        suite.unchecked("where a listing starts");
    }
    Ok(())
}

async fn sizes_and_dates_are_listed(suite: &mut Suite<'_>) -> Verdict {
    for size in [0, 1, 4096, 1_048_577] {
        let key = ObjectKey::from(format!("sizes/{size}").as_str());
        if !suite.put(&key, vec![7; size]).await {
            continue;
        }
        let listed = suite.listed(&key).await?;
        check(listed.size_bytes == size as u64, || format!("\"{key}\" is listed with {} bytes", listed.size_bytes))?;
        // 2020-01-01: any date of a server that has just stored it is later; 0 would be "none that can be read".
        check(listed.modified.0 > 1_577_836_800_000, || format!("\"{key}\" is dated {:?}", listed.modified))?;
    }
    Ok(())
}

async fn entity_tags_differ_by_version(suite: &mut Suite<'_>) -> Verdict {
    if suite.has(Limit::NoEtags) {
        suite.unchecked("entity tags in listings");
        return Ok(());
    }
    let key = ObjectKey::from("tags/object");
    if !suite.put(&key, "one").await {
        return Ok(());
    }
    let first = suite.listed(&key).await?.etag;
    let again = suite.listed(&key).await?.etag;
    suite.put(&key, "two").await;
    let second = suite.listed(&key).await?.etag;
    check(first.is_some() && second.is_some(), || "no entity tag is listed".to_owned())?;
    check(first == again, || format!("{first:?}, then {again:?} for the same version"))?;
    check(first != second, || format!("{first:?} for both versions"))
}
