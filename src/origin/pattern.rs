//! The bytes of synthetic objects: computed from a seed and an offset, fast enough never to be the bottleneck.
//!
//! Always true: the byte at an offset does not depend on how a range was cut, so any part can be checked on its own.

/// Odd, with well mixed bits (2^64 divided by the golden ratio): consecutive multiples share no bytes at the same place.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_BYTES: usize = 8;
/// Words computed side by side.
const LANES: usize = 8;
const BLOCK_BYTES: usize = LANES * WORD_BYTES;

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
    // Lanes of their own, in blocks of known size, are what makes the compiler use vector registers.
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| word.wrapping_add(lane as u64).wrapping_mul(STEP));
    let (blocks, tail) = rest.as_chunks_mut::<BLOCK_BYTES>();
    for block in blocks {
        let (slots, _) = block.as_chunks_mut::<WORD_BYTES>();
        for (slot, lane) in slots.iter_mut().zip(&mut lanes) {
            *slot = (*lane ^ seed).to_le_bytes();
            *lane = lane.wrapping_add(STEP.wrapping_mul(LANES as u64));
        }
    }
    for (slot, lane) in tail.chunks_mut(WORD_BYTES).zip(lanes) {
        slot.copy_from_slice(&(lane ^ seed).to_le_bytes()[..slot.len()]);
    }
}

fn bytes_of(seed: u64, word: u64) -> [u8; WORD_BYTES] {
    (word.wrapping_mul(STEP) ^ seed).to_le_bytes()
}

/// The seed of a key's bytes in one generation.
#[must_use]
pub fn seed_of_key(key: &[u8], generation: u64) -> u64 {
    seed_of_hash(hash_of_key(key), generation)
}

/// FNV-1a of a key, 64 bits.
pub(super) fn hash_of_key(key: &[u8]) -> u64 {
    const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
    key.iter().fold(FNV_OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

pub(super) fn seed_of_hash(hash: u64, generation: u64) -> u64 {
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
