//! Where in a range keys may still lie, guessed from the keys of its last page.
//!
//! Keys that differ behind a common origin are read as fractions of a number whose digits are the bytes seen at each
//! position. A position's alphabet is completed to the class its bytes belong to (one digit stands for all ten, random
//! identifiers for all of theirs), because a page shows a sliver of the range. Wrong guesses cost requests, never keys.
//!
//! Two kinds of range differ. Where keys are known to follow both ends, distances are taken from the fraction (`even`). Where
//! nothing is known of the end, distances grow from what was seen (`gallop`), since "img_0001000" says nothing about how
//! far the numbers go. Only ASCII is guessed at; a cut through other text would not be a key that a store accepts.

use crate::namespace::format::shared_prefix_bytes;

/// A set of ASCII bytes, one bit each.
type Alphabet = u128;

const DIGITS: Alphabet = span(b'0', b'9');
const LOWER: Alphabet = span(b'a', b'z');
const UPPER: Alphabet = span(b'A', b'Z');
const LOWER_HEX: Alphabet = DIGITS | span(b'a', b'f');
const UPPER_HEX: Alphabet = DIGITS | span(b'A', b'F');
const ALPHANUMERIC: Alphabet = DIGITS | LOWER | UPPER;

/// So many different bytes at one position of a page mean that it is one where keys vary at random.
const VARIED: u32 = 3;
/// Positions before the first that differs on a page are taken for digits of the number while the range they span is not
/// more than so many pages; beyond, a double has no digits left to tell keys of one page apart.
const MOST_LEADING: f64 = 1e6;
/// Positions looked at: what differs further behind is closer together than any cut.
const MOST_POSITIONS: usize = 48;
/// An open range is taken to go on for at most so many times what is already known of it.
const OPEN_GROWTH: f64 = 8.0;
/// Less than so many times the first distance is not worth growing over: it is cut evenly.
const OPEN_SPREAD: f64 = 4.0;
/// A cut keeps clear of what the request in flight brings.
const CLEAR_PAGES: f64 = 2.0;

/// Keys of one page, evenly spaced, the first and the last among them.
#[derive(Debug, Default)]
pub(super) struct Sample {
    keys: Vec<Box<[u8]>>,
    /// Keys on the page for each distance between two of the sample.
    stride: f64,
}

impl Sample {
    /// About 32 of the `count` keys that `key` gives.
    pub(super) fn of<'k>(count: usize, key: impl Fn(usize) -> &'k [u8]) -> Self {
        const KEYS: usize = 32;
        if count == 0 {
            return Sample::default();
        }
        let distances = (count - 1).min(KEYS - 1);
        let keys = (0..=distances).map(|i| key(i * (count - 1) / distances.max(1)).into()).collect();
        Sample { keys, stride: count as f64 / distances.max(1) as f64 }
    }

    /// True without keys.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// What of a range is still to be listed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remainder<'a> {
    /// The last key seen.
    pub(super) last: &'a [u8],
    /// Where the range ends, or what is known to lie behind all its keys; `None` for the end of the listing.
    pub(super) end: Option<&'a [u8]>,
    /// Keys are known to follow right after `end`.
    pub(super) end_is_proven: bool,
    /// The first key of the whole listing.
    pub(super) first: &'a [u8],
    /// Length of the listing's prefix, which all keys have.
    pub(super) prefix_bytes: usize,
}

/// The fractions of one remainder.
#[derive(Debug)]
pub(super) struct KeySpace {
    /// All keys in question begin with it.
    origin: Vec<u8>,
    /// What may stand at each position behind the origin.
    alphabets: Vec<Alphabet>,
    /// Fraction at which the last key lies.
    last: f64,
    /// Fraction that the remainder is taken to reach to.
    end: f64,
    is_open: bool,
    /// How far the keys before `last` are known to reach back.
    known: f64,
    /// Keys per unit of the fraction.
    density: f64,
}

impl KeySpace {
    /// The space of what remains, as the sample suggests; `None` when it suggests nothing.
    pub(super) fn new(sample: &Sample, remainder: &Remainder<'_>) -> Option<Self> {
        let last = remainder.last;
        let shared =
            remainder.end.map_or(0, |end| shared_prefix_bytes(last, end)).max(remainder.prefix_bytes).min(last.len());
        let alike = |key: &&[u8]| key.len() >= shared && key[..shared] == last[..shared];
        let keys: Vec<&[u8]> = sample.keys.iter().map(|key| &**key).filter(alike).collect();
        let constant = keys.iter().map(|key| shared_prefix_bytes(key, last)).min()?.max(shared);
        // Where looking at positions starts: behind other text than ASCII, and not far before keys begin to differ.
        let text = last[..constant].iter().rposition(|byte| !byte.is_ascii()).map_or(0, |text| text + 1);
        let start = shared.max(text).max(constant.saturating_sub(MOST_POSITIONS / 2));
        let end = remainder.end.filter(|end| end.len() > start && end[..start] == last[..start]);
        let all = alphabets(&keys, end, start);
        let skipped = leading(&all, constant - start);
        let mut space = KeySpace {
            origin: last[..start + skipped].to_vec(),
            alphabets: all[skipped..].to_vec(),
            last: 0.0,
            end: 1.0,
            is_open: true,
            known: 0.0,
            density: 0.0,
        };
        space.last = space.fraction(last);
        if let Some(end) = end.filter(|end| end.starts_with(&space.origin)) {
            space.end = space.fraction(end);
            space.is_open = !remainder.end_is_proven;
        }
        let earliest = keys.iter().find(|key| key.starts_with(&space.origin))?;
        let seen = keys.iter().filter(|key| key.starts_with(&space.origin)).count() - 1;
        let reach = space.last - space.fraction(earliest);
        if seen == 0 || reach <= 0.0 || space.end <= space.last {
            return None;
        }
        space.density = seen as f64 * sample.stride / reach;
        space.known = reach;
        if remainder.first.starts_with(&space.origin) {
            space.known = space.known.max(space.last - space.fraction(remainder.first));
        }
        if space.is_open {
            space.end = space.end.min(space.last + OPEN_GROWTH * space.known);
        }
        Some(space)
    }

    /// How many keys remain, as far as the space reaches.
    pub(super) fn remaining_keys(&self) -> f64 {
        self.density * (self.end - self.last)
    }

    /// At most `count` keys that cut the remainder behind its first `lead_keys` keys into parts of one effort.
    pub(super) fn cuts(&self, count: usize, lead_keys: f64) -> Vec<Vec<u8>> {
        let lead = lead_keys / self.density;
        let start = self.last + lead;
        let width = self.end - start;
        let near = (CLEAR_PAGES * lead).max(self.known / OPEN_GROWTH);
        let place = |i: usize| {
            let part = i as f64 / (count + 1) as f64;
            if self.is_open && self.end - self.last > OPEN_SPREAD * near {
                self.last + near * ((self.end - self.last) / near).powf(part)
            } else {
                start + width * part
            }
        };
        let mut cuts = Vec::new();
        for i in 1..=count {
            let target = place(i);
            if target > self.last && target < self.end {
                cuts.push(self.key_at(target, width / (count + 1) as f64));
            }
        }
        cuts
    }

    /// The fraction at which a key lies that begins with the origin.
    fn fraction(&self, key: &[u8]) -> f64 {
        let mut fraction = 0.0;
        let mut unit = 1.0;
        for (&byte, &alphabet) in key[self.origin.len().min(key.len())..].iter().zip(&self.alphabets) {
            let size = f64::from(alphabet.count_ones());
            fraction += unit * f64::from(rank(alphabet, byte)) / size;
            unit /= size;
            if !contains(alphabet, byte) {
                break;
            }
        }
        fraction
    }

    /// A short key close to `fraction`: no digits that are worth less than a small part of `width`.
    fn key_at(&self, mut fraction: f64, width: f64) -> Vec<u8> {
        const PRECISION: f64 = 1.0 / 64.0;
        let mut key = self.origin.clone();
        let mut length = key.len();
        let mut unit = 1.0;
        for &alphabet in &self.alphabets {
            let size = alphabet.count_ones();
            let scaled = fraction * f64::from(size);
            let digit = whole(scaled).min(size - 1);
            key.push(member(alphabet, digit));
            fraction = scaled - f64::from(digit);
            unit /= f64::from(size);
            if size > 1 {
                // What stands at a position without choice is said only where more follows.
                length = key.len();
            }
            if unit < width * PRECISION {
                break;
            }
        }
        key.truncate(length);
        key
    }
}

/// The alphabets of the positions from `start` on, as far as they are ASCII.
fn alphabets(keys: &[&[u8]], end: Option<&[u8]>, start: usize) -> Vec<Alphabet> {
    let mut seen = Vec::new();
    for position in start..start + MOST_POSITIONS {
        let here = keys.iter().filter_map(|key| key.get(position)).copied();
        let bytes = here.chain(end.filter(|_| position == start).map(|end| end[start]));
        let Some(alphabet) = bytes.map(single).try_fold(0, |all: Alphabet, one| Some(all | one?)) else { break };
        if alphabet == 0 {
            break;
        }
        seen.push(alphabet);
    }
    complete(&mut seen);
    seen
}

/// Adds to each position what else may stand there.
fn complete(seen: &mut [Alphabet]) {
    for word in seen.chunk_by_mut(|a, b| (a | b) & !ALPHANUMERIC == 0) {
        let varied = word.iter().filter(|alphabet| alphabet.count_ones() >= VARIED).fold(0, |all, one| all | one);
        let identifier = match varied {
            _ if varied & DIGITS == 0 || varied & (LOWER | UPPER) == 0 || varied & !ALPHANUMERIC != 0 => 0,
            _ if varied & !LOWER_HEX == 0 => LOWER_HEX,
            _ if varied & !UPPER_HEX == 0 => UPPER_HEX,
            _ => classes(varied),
        };
        for alphabet in word {
            if *alphabet & !identifier == 0 {
                *alphabet = identifier;
            } else {
                // A single letter is part of a name ("img_"); a single digit may be a leading zero.
                let letters = if (*alphabet & (LOWER | UPPER)).count_ones() > 1 { LOWER | UPPER } else { 0 };
                *alphabet |= classes(*alphabet & (DIGITS | letters));
            }
        }
    }
}

/// All classes of which `alphabet` has a member.
fn classes(alphabet: Alphabet) -> Alphabet {
    [DIGITS, LOWER, UPPER].iter().filter(|&&class| alphabet & class != 0).fold(0, |all, class| all | class)
}

/// How many of the first `constant` positions to leave out so that the rest of them spans no more than `MOST_LEADING`.
fn leading(alphabets: &[Alphabet], constant: usize) -> usize {
    let mut span = 1.0;
    let mut start = constant.min(alphabets.len());
    while start > 0 {
        span *= f64::from(alphabets[start - 1].count_ones());
        if span > MOST_LEADING {
            break;
        }
        start -= 1;
    }
    start
}

const fn span(first: u8, last: u8) -> Alphabet {
    (u128::MAX >> (127 - last)) & (u128::MAX << first)
}

fn single(byte: u8) -> Option<Alphabet> {
    byte.is_ascii().then(|| 1 << byte)
}

fn contains(alphabet: Alphabet, byte: u8) -> bool {
    single(byte).is_some_and(|one| alphabet & one != 0)
}

/// How many members come before `byte`.
fn rank(alphabet: Alphabet, byte: u8) -> u32 {
    if byte.is_ascii() { (alphabet & ((1 << byte) - 1)).count_ones() } else { alphabet.count_ones() }
}

/// The member of that rank.
fn member(mut alphabet: Alphabet, rank: u32) -> u8 {
    for _ in 0..rank {
        alphabet &= alphabet - 1;
    }
    alphabet.trailing_zeros().to_le_bytes()[0]
}

fn whole(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a rank within an alphabet; casts of floats saturate")]
    let whole = value as u32;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(keys: &[String], end: Option<&str>, end_is_proven: bool) -> Option<KeySpace> {
        let sample = Sample::of(keys.len(), |i| keys[i].as_bytes());
        let remainder = Remainder {
            last: keys.last().unwrap().as_bytes(),
            end: end.map(str::as_bytes),
            end_is_proven,
            first: keys[0].as_bytes(),
            prefix_bytes: 0,
        };
        KeySpace::new(&sample, &remainder)
    }

    fn cuts(keys: &[String], end: Option<&str>, count: usize) -> Vec<String> {
        let space = space(keys, end, true).unwrap();
        space.cuts(count, keys.len() as f64).into_iter().map(|cut| String::from_utf8(cut).unwrap()).collect()
    }

    fn page(from: usize, key: impl Fn(usize) -> String) -> Vec<String> {
        (from..from + 1000).map(key).collect()
    }

    #[test]
    fn what_lies_between_two_known_ends_is_cut_evenly() {
        let numbers = page(0, |i| format!("img_{i:07}.jpg"));
        let space = space(&numbers, Some("img_04"), true).unwrap();
        assert!((space.remaining_keys() / 399_000.0 - 1.0).abs() < 0.05, "{}", space.remaining_keys());
        let cut = &cuts(&numbers, Some("img_04"), 1)[0];
        assert!(&cut[..6] == "img_02" || &cut[..6] == "img_01" && cut.as_str() > "img_019", "{cut}");

        // One page of a million hashes: the first digits do not vary on it.
        let hashes = page(0, |i| format!("{:04x}{:012x}.bin", i * 65 / 1000, i * 0x9e37_79b9 % 0xffff_ffff_ffff));
        let parts = cuts(&hashes, Some("f"), 3);
        assert!(parts[0].starts_with(['3', '4']) && parts[1].starts_with(['7', '8']), "{parts:?}");
        assert!(parts[2].starts_with(['b', 'c']), "{parts:?}");
    }

    #[test]
    fn an_open_end_is_approached_in_growing_steps() {
        let numbers = page(0, |i| format!("img_{i:07}.jpg"));
        let parts = cuts(&numbers, None, 2);
        assert!(parts[0].as_str() > "img_0003" && parts[1].as_str() < "img_0009", "{parts:?}");
        // What is known reaches back to the first key of all, and so does the step ahead.
        let later = page(900_000, |i| format!("img_{i:07}.jpg"));
        let sample = Sample::of(later.len(), |i| later[i].as_bytes());
        let remainder = Remainder {
            last: later[999].as_bytes(),
            end: None,
            end_is_proven: false,
            first: b"img_0000000.jpg",
            prefix_bytes: 0,
        };
        let keys = KeySpace::new(&sample, &remainder).unwrap().remaining_keys();
        assert!((7_000_000.0..7_500_000.0).contains(&keys), "{keys}");
    }

    #[test]
    fn letters_of_a_name_are_not_taken_for_digits() {
        let numbers = page(5_000, |i| format!("cafe{i:07}"));
        for cut in cuts(&numbers, None, 3) {
            assert!(cut.starts_with("cafe00"), "{cut}");
        }
    }

    #[test]
    fn nothing_is_guessed_at_behind_other_text_than_ascii() {
        let text =
            |i: usize| format!("\u{56fe}\u{7247}/{}{i}", char::from_u32(0x4e00 + u32::try_from(i).unwrap()).unwrap());
        assert!(space(&page(0, text), None, false).is_none());
        let numbers = page(0, |i| format!("\u{56fe}\u{7247}/{i:06}"));
        for cut in cuts(&numbers, None, 3) {
            assert!(cut.starts_with("\u{56fe}\u{7247}/00"), "{cut}");
        }
    }

    #[test]
    fn one_key_tells_nothing() {
        assert!(space(&["a".to_string()], None, false).is_none());
    }
}
