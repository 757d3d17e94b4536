//! Entity tags of one version that differ between LIST and GET: what counts as form, and what as another version.
//!
//! Quotes, `W/` and the case of hex digits are form. Stores that form the whole tag differently (a suffix from a gateway, another
//! hash for uploads in parts) are learnt: [`Verdict::Ask`] means that only the store can tell, by listing the object again.
//! What it confirms is kept, so that a store is asked once when the forms are related, else once for each object. As soon as a
//! shape of tag has been answered as it was listed, any other tag of that shape is another version, and nothing is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::{ETag, ObjectKey};

/// Most pairs kept for stores whose forms are unrelated, about a MiB; beyond, all are forgotten and asked for again.
const MAX_PAIRS: usize = 4096;

/// Shortest tag that is taken for a part of the other form: shorter ones may be found in it by chance.
const MIN_RELATED_BYTES: usize = 16;

/// Whether an answer is of the version that was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is.
    Same,
    /// It is not.
    Other,
    /// It may be: the store must be asked.
    Ask,
}

/// What one store's tags have taught.
#[derive(Debug, Default)]
pub(super) struct EtagForms {
    /// Bit by shape: tags of it have been answered as listed.
    agreeing_shapes: AtomicU8,
    /// `If-Match` with the listed tag is refused although nothing has changed.
    if_match_misleads: AtomicBool,
    learnt: Mutex<Learnt>,
}

#[derive(Debug, Default)]
struct Learnt {
    affix: Option<Affix>,
    pairs: HashMap<(ObjectKey, ETag), ETag>,
}

/// The longer of the two forms is the shorter one between two constant texts.
#[derive(Debug, PartialEq, Eq)]
struct Affix {
    longer_is_listed: bool,
    before: String,
    after: String,
}

impl EtagForms {
    /// A store that is known to have one form only.
    pub(super) fn one_form() -> Self {
        EtagForms { agreeing_shapes: AtomicU8::new(u8::MAX), ..EtagForms::default() }
    }

    /// Judges the tag of an answer.
    pub(super) fn judge(&self, key: &ObjectKey, listed: &ETag, answered: Option<&ETag>) -> Verdict {
        let shape = shape_of(listed);
        let Some(answered) = answered else { return Verdict::Ask };
        if listed == answered {
            if self.agreeing_shapes.load(Ordering::Relaxed) & shape == 0 {
                self.agreeing_shapes.fetch_or(shape, Ordering::Relaxed);
            }
            return Verdict::Same;
        }
        if same_but_for_form(listed, answered) {
            return Verdict::Same;
        }
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        let related =
            learnt.affix.as_ref().is_some_and(|affix| affix.relates(&listed.to_string(), &answered.to_string()));
        // A pair is the word of the store itself, about this very version.
        if related || learnt.pairs.get(&(key.clone(), listed.clone())) == Some(answered) {
            return Verdict::Same;
        }
        if self.agreeing_shapes.load(Ordering::Relaxed) & shape != 0 { Verdict::Other } else { Verdict::Ask }
    }

    /// The store has confirmed that `answered` is how GET forms `listed`.
    pub(super) fn learn(&self, key: &ObjectKey, listed: &ETag, answered: Option<&ETag>) {
        // Without a tag there is nothing to recognise the version by: the next answer is asked about again.
        let Some(answered) = answered else { return };
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(affix) = Affix::between(&listed.to_string(), &answered.to_string()) {
            learnt.affix = Some(affix);
            return;
        }
        if learnt.pairs.len() >= MAX_PAIRS {
            learnt.pairs.clear();
        }
        learnt.pairs.insert((key.clone(), listed.clone()), answered.clone());
    }

    /// True when a 412 for the listed tag proves nothing yet.
    pub(super) fn may_be_refused_by_form(&self, listed: &ETag) -> bool {
        self.agreeing_shapes.load(Ordering::Relaxed) & shape_of(listed) == 0
    }

    /// Whether `If-Match` with the listed tag is of use.
    pub(super) fn sends_if_match(&self) -> bool {
        !self.if_match_misleads.load(Ordering::Relaxed)
    }

    /// The store refused `If-Match` for a version that it then served as the one listed.
    pub(super) fn distrust_if_match(&self) {
        self.if_match_misleads.store(true, Ordering::Relaxed);
    }
}

fn shape_of(tag: &ETag) -> u8 {
    match tag {
        ETag::Digest(_) => 1,
        ETag::Multipart(..) => 2,
        ETag::Verbatim(_) => 4,
    }
}

/// Digests in upper and lower case are one; any other text is compared exactly.
pub(super) fn same_but_for_form(one: &ETag, other: &ETag) -> bool {
    if one == other {
        return true;
    }
    let (one, other) = (one.to_string(), other.to_string());
    let is_digest = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    one.eq_ignore_ascii_case(&other) && is_digest(&one)
}

impl Affix {
    fn between(listed: &str, answered: &str) -> Option<Affix> {
        let longer_is_listed = listed.len() > answered.len();
        let (longer, shorter) = if longer_is_listed { (listed, answered) } else { (answered, listed) };
        let at = longer.find(shorter).filter(|_| shorter.len() >= MIN_RELATED_BYTES)?;
        Some(Affix {
            longer_is_listed,
            before: longer[..at].to_owned(),
            after: longer[at + shorter.len()..].to_owned(),
        })
    }

    fn relates(&self, listed: &str, answered: &str) -> bool {
        let (longer, shorter) = if self.longer_is_listed { (listed, answered) } else { (answered, listed) };
        let middle = longer.strip_prefix(&self.before).and_then(|rest| rest.strip_suffix(&self.after));
        middle == Some(shorter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> ETag {
        ETag::parse(text).unwrap()
    }

    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";
    const OTHER_MD5: &str = "098f6bcd4621d373cade4e832627b4f6";

    #[test]
    fn the_case_of_a_digest_is_form_and_of_other_tags_is_not() {
        let forms = EtagForms::one_form();
        let key = ObjectKey::from("k");
        let upper = tag(&MD5.to_ascii_uppercase());
        assert_eq!(forms.judge(&key, &tag(MD5), Some(&upper)), Verdict::Same);
        assert_eq!(forms.judge(&key, &tag("Xyz"), Some(&tag("xyz"))), Verdict::Other);
    }

    #[test]
    fn a_store_is_asked_until_its_forms_are_known_to_agree() {
        let forms = EtagForms::default();
        let key = ObjectKey::from("k");
        let (listed, other) = (tag(MD5), tag(OTHER_MD5));
        assert_eq!(forms.judge(&key, &listed, Some(&other)), Verdict::Ask);
        assert_eq!(forms.judge(&key, &listed, Some(&listed)), Verdict::Same);
        assert_eq!(forms.judge(&key, &listed, Some(&other)), Verdict::Other);
        let multipart = tag(&format!("{MD5}-2"));
        assert_eq!(
            forms.judge(&key, &multipart, Some(&other)),
            Verdict::Ask,
            "another shape may still be formed otherwise"
        );
    }

    #[test]
    fn related_forms_are_learnt_once_for_all_objects() {
        let forms = EtagForms::default();
        let gzip = |text: &str| tag(&format!("{text}-gzip"));
        forms.learn(&"a".into(), &tag(MD5), Some(&gzip(MD5)));
        assert_eq!(forms.judge(&"b".into(), &tag(OTHER_MD5), Some(&gzip(OTHER_MD5))), Verdict::Same);
        assert_eq!(forms.judge(&"b".into(), &tag(OTHER_MD5), Some(&gzip(MD5))), Verdict::Ask);
    }

    #[test]
    fn unrelated_forms_are_learnt_for_one_version_of_one_object() {
        let forms = EtagForms::default();
        // The first holds the second by chance; that is no relation.
        forms.learn(&"a".into(), &tag("1"), Some(&tag("x1")));
        assert_eq!(forms.judge(&"a".into(), &tag("1"), Some(&tag("x1"))), Verdict::Same);
        assert_eq!(forms.judge(&"a".into(), &tag("1"), Some(&tag("y"))), Verdict::Ask);
        assert_eq!(forms.judge(&"b".into(), &tag("1"), Some(&tag("x1"))), Verdict::Ask);
        assert_eq!(forms.judge(&"b".into(), &tag("2"), Some(&tag("x2"))), Verdict::Ask);
    }

    #[test]
    fn an_answer_without_a_tag_is_always_asked_about() {
        let forms = EtagForms::default();
        forms.learn(&"a".into(), &tag(MD5), None);
        assert_eq!(forms.judge(&"a".into(), &tag(MD5), None), Verdict::Ask);
    }

    #[test]
    fn pairs_do_not_grow_without_bound() {
        let forms = EtagForms::default();
        for index in 0..=MAX_PAIRS {
            forms.learn(&format!("key{index}").as_str().into(), &tag("1"), Some(&tag("x")));
        }
        assert!(forms.learnt.lock().unwrap().pairs.len() <= MAX_PAIRS);
    }
}
