//! The conformance cases about GET: whole and ranged bodies, awkward keys, versions, and what must not reach the sink.

use super::{Limit, Suite, Verdict, check, foreign_etag, get_of, version_of};
use crate::model::{ByteRange, ObjectKey, ObjectVersion};
use crate::store::{GetRequest, StoreErrorKind};

/// Larger than one read from a socket, and a multiple of nothing.
const BODY_BYTES: usize = 300_007;

pub(super) async fn run(suite: &mut Suite<'_>) {
    let verdict = a_body_comes_whole_and_in_ranges(suite).await;
    suite.conclude("a body comes whole and in ranges", verdict).await;
    let verdict = a_body_of_one_byte_comes(suite).await;
    suite.conclude("a body of one byte comes", verdict).await;
    let verdict = awkward_keys_are_read_as_they_are_listed(suite).await;
    suite.conclude("awkward keys are read as they are listed", verdict).await;
    let verdict = a_missing_object_is_not_found(suite).await;
    suite.conclude("a missing object is not found", verdict).await;
    let verdict = a_deleted_object_is_not_found(suite).await;
    suite.conclude("a deleted object is not found", verdict).await;
    let verdict = an_overwritten_object_of_the_same_size_is_refused(suite).await;
    suite.conclude("an overwritten object of the same size is refused", verdict).await;
    let verdict = an_overwritten_object_of_another_size_is_refused(suite).await;
    suite.conclude("an overwritten object of another size is refused", verdict).await;
    let verdict = a_foreign_entity_tag_is_refused(suite).await;
    suite.conclude("a foreign entity tag is refused", verdict).await;
}

/// Bytes of which no two neighbourhoods are alike.
fn content(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    (0..bytes)
        .map(|_| {
            // xorshift32: period 2^32 - 1.
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[1]
        })
        .collect()
}

async fn a_body_comes_whole_and_in_ranges(suite: &mut Suite<'_>) -> Verdict {
    let (key, body) = (ObjectKey::from("bodies/large"), content(BODY_BYTES, 1));
    if !suite.put(&key, body.clone()).await {
        return Ok(());
    }
    let object = suite.listed(&key).await?;
    let end = BODY_BYTES;
    for (first, after) in [
        (0, end),
        (0, 1),
        (end - 1, end),
        (1, end),
        (0, end - 1),
        (end / 2, end / 2 + 1),
        (4096, 8192),
        (65_535, 65_537),
        (end - 4097, end),
    ] {
        let request = get_of(&object, ByteRange::new(first as u64, after as u64));
        suite.expect_bytes(&request, &body[first..after]).await?;
    }
    Ok(())
}

async fn a_body_of_one_byte_comes(suite: &mut Suite<'_>) -> Verdict {
    let key = ObjectKey::from("bodies/one");
    if !suite.put(&key, "x").await {
        return Ok(());
    }
    let object = suite.listed(&key).await?;
    suite.expect_bytes(&get_of(&object, ByteRange::new(0, 1)), b"x").await
}

async fn awkward_keys_are_read_as_they_are_listed(suite: &mut Suite<'_>) -> Verdict {
    let keys: Vec<ObjectKey> = [
        "a b",
        "a+b",
        "a%20b",
        "a%2Fb",
        "a%",
        "a&b<c>\"'",
        "#?",
        "?x=1",
        "\u{e9}",
        "e\u{301}",
        "\u{1f600}",
        "back\\slash",
        "trailing space ",
        "A",
        "a",
        "*",
        "(x)",
        "[y]",
        "~",
        "a\tb",
        "a\nb",
        "a\x01b",
        "a=b;c@d,e:f",
        "x//y",
        "x/./y",
        "x/../y",
        "/lead",
        "!'()*",
        "$",
        "dir/",
    ]
    .iter()
    .map(|name| ObjectKey::from(format!("read/{name}").as_str()))
    .collect();
    let held = suite.put_all(&keys).await;
    for object in suite.objects(&"read/".into()).await? {
        if held.contains(&object.key) {
            let request = get_of(&object, ByteRange::new(0, object.size_bytes));
            suite.expect_bytes(&request, object.key.as_bytes()).await?;
        }
    }
    Ok(())
}

/// Holds when a GET fails in this way without a byte.
async fn expect_refusal(suite: &Suite<'_>, request: &GetRequest, kind: &StoreErrorKind) -> Verdict {
    let (result, bytes) = suite.fetch(request).await;
    let Err(error) = result else {
        return Err(format!("bytes {} came although {kind:?} was due", request.range));
    };
    check(error.kind() == kind, || format!("{:?} instead of {kind:?}: {error}", error.kind()))?;
    check(bytes.is_empty(), || format!("{} bytes reached the sink before {kind:?}", bytes.len()))
}

async fn a_missing_object_is_not_found(suite: &mut Suite<'_>) -> Verdict {
    let version = ObjectVersion { etag: Some(foreign_etag()), size_bytes: 10 };
    for key in ["missing", "missing/below/nothing", "missing/"] {
        for range in [ByteRange::new(0, 10), ByteRange::new(3, 4)] {
            let request = GetRequest { key: key.into(), version: version.clone(), range };
            expect_refusal(suite, &request, &StoreErrorKind::NotFound).await?;
        }
    }
    Ok(())
}

async fn a_deleted_object_is_not_found(suite: &mut Suite<'_>) -> Verdict {
    let key = ObjectKey::from("versions/deleted");
    if !suite.put(&key, "0123456789").await {
        return Ok(());
    }
    let object = suite.listed(&key).await?;
    suite.delete(&key).await?;
    let request = get_of(&object, ByteRange::new(0, 10));
    expect_refusal(suite, &request, &StoreErrorKind::NotFound).await
}

async fn an_overwritten_object_of_the_same_size_is_refused(suite: &mut Suite<'_>) -> Verdict {
    if suite.has(Limit::NoEtags) {
        suite.unchecked("versions of the same size");
        return Ok(());
    }
    overwritten(suite, "versions/same-size", content(BODY_BYTES, 3)).await
}

async fn an_overwritten_object_of_another_size_is_refused(suite: &mut Suite<'_>) -> Verdict {
    overwritten(suite, "versions/longer", content(BODY_BYTES + 1, 5)).await?;
    overwritten(suite, "versions/shorter", content(5000, 5)).await
}

/// Overwrites an object that is known by its listing; the old version is refused, the new one read.
async fn overwritten(suite: &mut Suite<'_>, key: &str, second: Vec<u8>) -> Verdict {
    let key = ObjectKey::from(key);
    if !suite.put(&key, content(BODY_BYTES, 2)).await {
        return Ok(());
    }
    let old = suite.listed(&key).await?;
    suite.put(&key, second.clone()).await;
    let end = old.size_bytes;
    for range in [ByteRange::new(0, end), ByteRange::new(0, 1), ByteRange::new(1000, 2000)] {
        expect_refusal(suite, &get_of(&old, range), &StoreErrorKind::Changed).await?;
    }
    // A range that only the old version had: still another version, not a bad request.
    expect_refusal(suite, &get_of(&old, ByteRange::new(end - 1, end)), &StoreErrorKind::Changed).await?;
    let new = suite.listed(&key).await?;
    suite.expect_bytes(&get_of(&new, ByteRange::new(0, new.size_bytes)), &second).await
}

async fn a_foreign_entity_tag_is_refused(suite: &mut Suite<'_>) -> Verdict {
    if suite.has(Limit::NoEtags) {
        suite.unchecked("foreign entity tags");
        return Ok(());
    }
    let key = ObjectKey::from("versions/foreign");
    if !suite.put(&key, "0123456789").await {
        return Ok(());
    }
    let object = suite.listed(&key).await?;
    let version = ObjectVersion { etag: Some(foreign_etag()), ..version_of(&object) };
    for range in [ByteRange::new(0, 10), ByteRange::new(4, 5)] {
        let request = GetRequest { key: key.clone(), version: version.clone(), range };
        expect_refusal(suite, &request, &StoreErrorKind::Changed).await?;
    }
    Ok(())
}
