//! Listings: against a naive model, against S3's bytes, and at ten million objects.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use proptest::prelude::*;

use super::super::listing::{ListQuery, encode_token};
use super::*;
use crate::model::UnixMillis;

/// Keys and common prefixes of a listing, in the order of keys.
fn all_pages(bucket: &dyn Bucket, query: &ListQuery) -> Vec<String> {
    let mut query = query.clone();
    let mut all = Vec::new();
    loop {
        let page = query.page(bucket).unwrap();
        let objects = page.objects.iter().map(|object| object.key.clone());
        let mut names: Vec<_> = objects.chain(page.common_prefixes.iter().cloned()).collect();
        assert!(names.len() <= query.max_keys);
        names.sort();
        all.extend(names.into_iter().map(|name| String::from_utf8(name).unwrap()));
        match page.next {
            None => return all,
            Some(next) => {
                assert!(!page.objects.is_empty() || !page.common_prefixes.is_empty(), "pages of S3 are not empty");
                query.continuation = Some(encode_token(&next));
            }
        }
    }
}

/// What S3 documents, in the simplest words.
fn model(keys: &BTreeSet<String>, prefix: &str, delimiter: &str, start_after: &str) -> Vec<String> {
    let mut names = BTreeSet::new();
    for key in keys.iter().filter(|key| key.starts_with(prefix) && key.as_str() > start_after) {
        let rest = &key[prefix.len()..];
        match rest.find(delimiter) {
            Some(at) if !delimiter.is_empty() => {
                let folded = &key[..prefix.len() + at + delimiter.len()];
                if folded != start_after {
                    names.insert(folded.to_owned());
                }
            }
            _ => {
                names.insert(key.clone());
            }
        }
    }
    names.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn pages_together_are_the_models_listing(
        keys in proptest::collection::btree_set("[ab/\u{e9}\u{10ffff}!]{1,6}", 0..40),
        prefix in "[ab/\u{e9}]{0,3}", delimiter in "(/|a|//|\u{e9}|)", start_after in "[ab/\u{e9}]{0,4}", max_keys in 1usize..9,
    ) {
        let bucket = MemoryBucket::new();
        for key in &keys {
            bucket.insert(key, "");
        }
        let expected = model(&keys, &prefix, &delimiter, &start_after);
        let start_after = Some(start_after).filter(|start| !start.is_empty());
        let query = ListQuery { prefix, delimiter, start_after, max_keys, ..ListQuery::default() };
        prop_assert_eq!(all_pages(&bucket, &query), expected);
    }
}

async fn listed(origin: &Origin, query: &str) -> String {
    let response = get(format!("{}/data?{query}", origin.endpoint())).await;
    assert_eq!(response.status(), 200);
    response.text().await.unwrap()
}

fn awkward_bucket() -> Arc<MemoryBucket> {
    let bucket = Arc::new(MemoryBucket::new());
    for key in ["a b+c/~*", "d/e&<\"\n", "d/f", "\u{e9}%"] {
        bucket.insert_modified(key, "x", UnixMillis(1_700_000_000_123));
    }
    bucket
}

#[tokio::test]
async fn a_page_is_written_as_s3_writes_it() {
    let origin = origin_of(awkward_bucket());
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2023-11-14T22:13:20.123Z</LastModified>\
             <ETag>&quot;9dd4e461268c8034f5c8564e155c67a6&quot;</ETag><Size>1</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>"
        )
    };
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>data</Name>";
    let expected = format!(
        "{head}<Prefix></Prefix><StartAfter>a+a</StartAfter><KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys>\
         <EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{}{}{}</ListBucketResult>",
        object("d/e%26%3C%22%0A"),
        object("d/f"),
        object("%C3%A9%25"),
    );
    // `a a` is before `a b+c/~*`, yet the plus in the query is a blank: the first key is left out only by a later start.
    let query = "list-type=2&encoding-type=url&start-after=a+c";
    assert_eq!(listed(&origin, query).await, expected.replace("a+a", "a+c"));
    let all = listed(&origin, "list-type=2&encoding-type=url").await;
    assert!(all.contains("<Key>a+b%2Bc/%7E*</Key>"), "{all}");
    let plain = listed(&origin, "list-type=2&prefix=d%2Fe").await;
    assert!(plain.contains(&object("d/e&amp;&lt;&quot;&#xa;")), "{plain}");
    let folded = listed(&origin, "list-type=2&delimiter=%2F&max-keys=2&encoding-type=url").await;
    assert!(folded.contains("<KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><Delimiter>/</Delimiter>"), "{folded}");
    assert!(folded.contains("<CommonPrefixes><Prefix>a+b%2Bc/</Prefix></CommonPrefixes>"), "{folded}");
    assert!(folded.contains("<IsTruncated>true</IsTruncated>") && folded.contains("<NextContinuationToken>"));
}

#[tokio::test]
async fn the_first_version_pages_by_marker() {
    let origin = origin_of(awkward_bucket());
    let first = listed(&origin, "delimiter=/&max-keys=2").await;
    assert!(first.contains("<Marker></Marker><NextMarker>d/</NextMarker><MaxKeys>2</MaxKeys>"), "{first}");
    assert!(first.contains("<IsTruncated>true</IsTruncated>") && !first.contains("KeyCount"));
    let second = listed(&origin, "delimiter=/&max-keys=2&marker=d/").await;
    assert!(second.contains("<Key>\u{e9}%</Key>") && !second.contains("<CommonPrefixes>"), "{second}");
    assert!(second.contains("<IsTruncated>false</IsTruncated>"));
}

#[tokio::test]
async fn limits_and_bad_arguments_are_those_of_s3() {
    let bucket = Arc::new(MemoryBucket::new());
    for number in 0..1001 {
        bucket.insert(format!("{number:04}"), "");
    }
    let origin = origin_of(bucket);
    let none = listed(&origin, "list-type=2&max-keys=0").await;
    assert!(none.contains("<KeyCount>0</KeyCount><MaxKeys>0</MaxKeys><IsTruncated>false</IsTruncated>"), "{none}");
    let many = listed(&origin, "list-type=2&max-keys=5000").await;
    assert!(many.contains("<KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys>"));
    for bad in ["max-keys=-1", "max-keys=x", "encoding-type=utf", "continuation-token=zz"] {
        let response = get(format!("{}/data?list-type=2&{bad}", origin.endpoint())).await;
        assert_eq!(response.status(), 400, "{bad}");
        assert!(response.text().await.unwrap().contains("<Code>InvalidArgument</Code>"), "{bad}");
    }
    let response = get(format!("{}/other?list-type=2", origin.endpoint())).await;
    assert_eq!(response.status(), 404);
    assert!(response.text().await.unwrap().contains("<Code>NoSuchBucket</Code>"));
}

#[tokio::test]
async fn each_oddity_of_other_stores_can_be_imitated() {
    let origin = origin_of(awkward_bucket());
    let query = "list-type=2&encoding-type=url&start-after=c&max-keys=1&delimiter=/";
    let etag = "<ETag>&quot;9dd4e461268c8034f5c8564e155c67a6&quot;</ETag>";
    let calm = listed(&origin, query).await;
    assert!(!calm.contains("<Key>"));
    let odd = async |quirks: &[Quirk], query: &str| {
        origin.conditions().set_quirks(quirks.iter().copied());
        listed(&origin, query).await
    };
    let page = odd(&[Quirk::IgnoreStartAfter], query).await;
    assert!(page.contains("<Prefix>a+b%2Bc/</Prefix>"));
    let page = odd(&[Quirk::IgnoreMaxKeys], query).await;
    assert!(page.contains("<KeyCount>2</KeyCount>"));
    let page = odd(&[Quirk::IgnoreDelimiter], query).await;
    assert!(page.contains("<Key>d/e%26%3C%22%0A</Key>"));
    let page = odd(&[Quirk::IgnoreEncodingType], "list-type=2&encoding-type=url").await;
    assert!(page.contains("<Key>d/e&amp;&lt;&quot;&#xa;</Key>") && !page.contains("<EncodingType>"));
    let page = odd(&[Quirk::EmptyFirstPage], query).await;
    assert!(page.contains("<IsTruncated>true") && page.contains("<KeyCount>0") && !page.contains("<Prefix>d/"));
    let token = page.split("<NextContinuationToken>").nth(1).unwrap().split('<').next().unwrap();
    let page = odd(&[Quirk::EmptyFirstPage], &format!("{query}&continuation-token={token}")).await;
    assert!(page.contains("<Prefix>d/</Prefix>"));
    let page = odd(&[Quirk::Unordered], "list-type=2").await;
    assert!(page.find("<Key>d/f").unwrap() < page.find("<Key>a b").unwrap());
    let page = odd(&[Quirk::RepeatedPrefixes], query).await;
    assert_eq!(page.matches("<Prefix>d/</Prefix>").count(), 2);
    let page = odd(&[Quirk::NoListEtag], "list-type=2").await;
    assert!(!page.contains("ETag"));
    let page = odd(&[Quirk::UnquotedListEtag], "list-type=2").await;
    assert!(page.contains(&etag.replace("&quot;", "")));
    let page = odd(&[Quirk::WeakListEtag], "list-type=2").await;
    assert!(page.contains(&etag.replace("<ETag>", "<ETag>W/")));
    let page = odd(&[Quirk::OtherListEtag], "list-type=2").await;
    assert!(page.contains("<ETag>&quot;") && !page.contains(etag));
    let page = odd(&[Quirk::NoLastModified], "list-type=2").await;
    assert!(page.contains("<Key>") && !page.contains("LastModified"));
    let page = odd(&[Quirk::WholeSeconds, Quirk::NoNamespace], "list-type=2").await;
    assert!(page.contains("<LastModified>2023-11-14T22:13:20Z<") && page.contains("<ListBucketResult><Name>"));
    origin.conditions().reset();
    assert_eq!(listed(&origin, query).await, calm);
}

fn ten_million() -> SyntheticBucket {
    SyntheticBucket::new(SyntheticKeys::ImageClasses {
        prefix: "train/".to_owned(),
        objects: 10_000_000,
        classes: 999,
        mean_bytes: 115_000,
        spread_percent: 50,
    })
    .unwrap()
}

#[test]
fn ten_million_computed_keys_are_sorted_and_distinct_across_page_borders() {
    let bucket = ten_million();
    assert!(bucket.row(0).unwrap().0.starts_with("train/n01440764/n01440764_1"));
    let mut last = Vec::new();
    let mut count = 0u64;
    let mut bytes = 0u64;
    bucket
        .scan(b"", &mut |entry| {
            assert!(entry.key > last.as_slice());
            last.clear();
            last.extend_from_slice(entry.key);
            count += 1;
            bytes += entry.size_bytes;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(count, 10_000_000);
    assert!((114_000..116_000).contains(&(bytes / count)), "mean size {}", bytes / count);
    // Pages around a border, by token and by start-after, continue without gap or repetition.
    let mut query = ListQuery { max_keys: 1000, ..ListQuery::default() };
    query.start_after = Some(bucket.row(4_999_499).unwrap().0);
    let page = query.page(&bucket).unwrap();
    assert_eq!(page.objects[0].key, bucket.row(4_999_500).unwrap().0.into_bytes());
    query.continuation = page.next.as_deref().map(encode_token);
    let next = query.page(&bucket).unwrap();
    assert_eq!(next.objects[0].key, bucket.row(5_000_500).unwrap().0.into_bytes());
}

#[test]
fn a_page_of_ten_million_costs_no_more_than_a_page_of_ten_thousand() {
    let small = SyntheticBucket::new(SyntheticKeys::ImageClasses {
        prefix: "train/".to_owned(),
        objects: 10_000,
        classes: 10,
        mean_bytes: 115_000,
        spread_percent: 50,
    })
    .unwrap();
    let pages = |bucket: &SyntheticBucket| {
        let begin = Instant::now();
        for number in 0..100u64 {
            let row = bucket.len() / 100 * number;
            let start_after = bucket.row(row).map(|(key, _)| key);
            let query = ListQuery { start_after, max_keys: 100, ..ListQuery::default() };
            assert!(!query.page(bucket).unwrap().objects.is_empty());
        }
        begin.elapsed()
    };
    let (small, large) = (pages(&small), pages(&ten_million()));
    assert!(large < small * 20 + Duration::from_millis(50), "{large:?} for ten million, {small:?} for ten thousand");
}

#[test]
fn descriptions_that_contradict_themselves_are_refused() {
    let explicit = |rows: &[(&str, u64)]| {
        SyntheticBucket::new(SyntheticKeys::Explicit(rows.iter().map(|&(key, size)| (key.to_owned(), size)).collect()))
    };
    assert_eq!(explicit(&[("a", 1), ("b", 2), ("a", 3)]).unwrap_err(), SyntheticError::RepeatedKey("a".to_owned()));
    assert!(matches!(explicit(&[("a", MAX_OBJECT_BYTES + 1)]), Err(SyntheticError::TooLarge(_))));
    assert!(explicit(&[("a", MAX_OBJECT_BYTES)]).is_ok() && explicit(&[]).unwrap().is_empty());
    let classes =
        SyntheticKeys::ImageClasses { prefix: String::new(), objects: 5, classes: 6, mean_bytes: 1, spread_percent: 0 };
    assert!(matches!(SyntheticBucket::new(classes), Err(SyntheticError::Classes { .. })));
}

#[tokio::test]
async fn a_directory_tree_is_listed_in_the_order_of_keys_not_of_names() {
    let tree = tempfile::tempdir().unwrap();
    let keys = ["a-b", "a/x", "a/y/z", "a0", "b"];
    for key in keys {
        let path = tree.path().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, key).unwrap();
    }
    std::os::unix::fs::symlink("/", tree.path().join("a/root")).unwrap();
    let bucket = Arc::new(DirectoryBucket::new(tree.path()).unwrap());
    for max_keys in 1..6 {
        let query = ListQuery { max_keys, ..ListQuery::default() };
        assert_eq!(all_pages(&*bucket, &query), keys);
        let folded = ListQuery { delimiter: "/".to_owned(), ..query };
        assert_eq!(all_pages(&*bucket, &folded), ["a-b", "a/", "a0", "b"]);
    }
    let origin = origin_of(bucket);
    let url = |key: &str| format!("{}/data/{key}", origin.endpoint());
    let response = get(url("a/y/z")).await;
    let etag = header(&response, "etag").unwrap().to_owned();
    assert_eq!(response.text().await.unwrap(), "a/y/z");
    assert!(listed(&origin, "list-type=2").await.contains(etag.trim_matches('"')));
    std::fs::write(tree.path().join("a/y/z"), "other").unwrap();
    assert_ne!(header(&get(url("a/y/z")).await, "etag").unwrap(), etag);
    for absent in ["a", "a/", "a/root", "a//x", "none", "%2e%2e/a-b", "a/y/z/b"] {
        let (answer, _) = raw(&origin, &raw_get(absent, "Connection: close\r\n")).await;
        assert!(answer.starts_with(b"HTTP/1.1 404"), "{absent}");
    }
}
