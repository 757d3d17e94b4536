//! The bytes of synthetic objects: computed from a seed and an offset, fast enough never to be the bottleneck.
//!
//! Always true: the byte at an offset does not depend on how a range was cut, so any part can be checked on its own.

/// Odd, with well mixed bits (2^64 divided by the golden ratio): consecutive multiples share no bytes at the same place.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_BYTES: usize = 8;
/// Words computed side by side.
const LANES: usize = 8;

/// Fills `buffer` with the bytes at `offset..` of the object that `seed` stands for.
///
/// Word `n` (8 bytes, little-endian) of an object is `n * STEP ^ seed`: distinct at every aligned offset, and cheap enough to be
/// limited by memory rather than arithmetic.
pub fn synthetic_bytes(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut word = offset / WORD_BYTES as u64;
    let mut rest = buffer;
    #[expect(clippy::cast_possible_truncation, reason = "below 8")]
    let skipped = (offset % WORD_BYTES as u64) as usize;
    if skipped > 0 {
        let length = rest.len().min(WORD_BYTES - skipped);
        let (head, tail) = rest.split_at_mut(length);
        head.copy_from_slice(&bytes_of(seed, word)[skipped..skipped + length]);
        rest = tail;
        word += 1;
    }
    // Lanes that do not wait for one another are what lets the compiler use vector registers.
    let mut product = word.wrapping_mul(STEP);
    let mut blocks = rest.chunks_exact_mut(LANES * WORD_BYTES);
    for block in blocks.by_ref() {
        for (lane, slot) in block.chunks_exact_mut(WORD_BYTES).enumerate() {
            let value = product.wrapping_add(STEP.wrapping_mul(lane as u64)) ^ seed;
            slot.copy_from_slice(&value.to_le_bytes());
        }
        product = product.wrapping_add(STEP.wrapping_mul(LANES as u64));
    }
    for slot in blocks.into_remainder().chunks_mut(WORD_BYTES) {
        slot.copy_from_slice(&(product ^ seed).to_le_bytes()[..slot.len()]);
        product = product.wrapping_add(STEP);
    }
}

fn bytes_of(seed: u64, word: u64) -> [u8; WORD_BYTES] {
    (word.wrapping_mul(STEP) ^ seed).to_le_bytes()
}

/// The seed of a key's bytes in one generation: 64 bits of FNV-1a over the key, mixed with the generation.
#[must_use]
pub fn seed_of_key(key: &[u8], generation: u64) -> u64 {
    const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = key.iter().fold(FNV_OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    mix(hash ^ mix(generation))
}

/// Spreads every bit over the whole word (the finaliser of splitmix64).
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_is_the_same_however_it_is_cut(
            seed in any::<u64>(), offset in 0u64..(5 << 40), length in 0usize..300, cut in 0usize..300,
        ) {
            let cut = cut.min(length);
            let mut whole = vec![0; length];
            synthetic_bytes(seed, offset, &mut whole);
            let mut parts = vec![0; length];
            let (first, second) = parts.split_at_mut(cut);
            synthetic_bytes(seed, offset, first);
            synthetic_bytes(seed, offset + cut as u64, second);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn bytes_move_with_the_offset_and_differ_between_keys_and_generations() {
        let read = |seed, offset| {
            let mut bytes = vec![0; 64];
            synthetic_bytes(seed, offset, &mut bytes);
            bytes
        };
        let seed = seed_of_key(b"a", 0);
        for other in [read(seed, 8), read(seed, 4096), read(seed, 1 << 20), read(seed, 1 << 40)] {
            assert_ne!(read(seed, 0), other);
        }
        assert_ne!(read(seed, 0), read(seed_of_key(b"b", 0), 0));
        assert_ne!(read(seed, 0), read(seed_of_key(b"a", 1), 0));
    }
}
