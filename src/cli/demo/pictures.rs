//! Pictures made from nothing: ten kinds of texture, each with its own shapes, and grain as a camera's sensor leaves it.
//!
//! A picture is a pure function of a seed. Making one must cost little beside compressing it, so the irregular part comes from
//! a few tables of fractal noise that all pictures look into at different places and scales ([`Textures`]), and the loop over
//! pixels computes in integers: a coordinate is the fraction of a table's edge times 2^32, so that it wraps by itself.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The kinds of picture, which are the classes of the data set, in the order of their names.
pub(super) const KINDS: [&str; 10] =
    ["aurora", "bricks", "clouds", "dunes", "marble", "moss", "pebbles", "ripples", "weave", "wood"];

/// Edge of a noise table.
const TABLE_EDGE: usize = 1 << TABLE_EDGE_BITS;
const TABLE_EDGE_BITS: u32 = 9;
/// Different tables; every picture looks into two of them.
const TABLES: usize = 6;
/// Entries of the grain table: prime to every row length, so that no pattern shows.
const GRAIN_ENTRIES: usize = 65_537;
/// Entries of one period of the wave.
const WAVE_BITS: u32 = 10;

/// An RGB picture, 8 bits a channel, rows from the top.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) rgb: Vec<u8>,
}

/// Tables that all pictures share.
#[derive(Debug)]
pub(super) struct Textures {
    /// Fractal noise over the whole range of a byte, which wraps at its edges.
    noise: Vec<Vec<u8>>,
    /// Normally distributed with a standard deviation of 64.
    grain: Vec<i16>,
    /// One period of a sine, over the whole range of a byte.
    wave: Vec<u8>,
}

impl Textures {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let noise = (0..TABLES).map(|_| fractal_table(&mut rng)).collect();
        // The sum of four uniform numbers is as normal as grain needs to be; each has a variance of 1/12.
        let grain = (0..GRAIN_ENTRIES)
            .map(|_| whole((0..4).map(|_| rng.random::<f32>() - 0.5).sum::<f32>() * 1.73 * 64.0))
            .collect();
        let turn = |i: u16| f32::from(i) / f32::from(1_u16 << WAVE_BITS) * std::f32::consts::TAU;
        let wave = (0..1 << WAVE_BITS).map(|i| byte(127.5 + 127.5 * turn(i).sin())).collect();
        Textures { noise, grain, wave }
    }

    /// Noise from 0 to 255.
    fn noise(&self, table: usize, u: u32, v: u32) -> u32 {
        let (column, row) = (u >> (32 - TABLE_EDGE_BITS), v >> (32 - TABLE_EDGE_BITS));
        u32::from(self.noise[table][((row << TABLE_EDGE_BITS) | column) as usize])
    }

    /// A sine from 0 to 255 over a phase whose period is 2^32.
    fn wave(&self, phase: u32) -> u32 {
        u32::from(self.wave[(phase >> (32 - WAVE_BITS)) as usize])
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float is cast saturating")]
fn byte(value: f32) -> u8 {
    value.round() as u8
}

#[expect(clippy::cast_possible_truncation, reason = "a float is cast saturating")]
fn whole(value: f32) -> i16 {
    value.round() as i16
}

/// A fraction of a turn or of a table's edge, whole turns left out.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole turns are left out on purpose")]
fn fraction(turns: f64) -> u32 {
    (turns.rem_euclid(1.0) * 4_294_967_296.0) as u64 as u32
}

fn as_f32(small: usize) -> f32 {
    u16::try_from(small).map_or(f32::MAX, f32::from)
}

/// Octaves of smooth noise, each twice as fine and a little more than half as strong as the one before.
fn fractal_table(rng: &mut SmallRng) -> Vec<u8> {
    let mut table = vec![0.0_f32; TABLE_EDGE * TABLE_EDGE];
    let mut strength = 1.0;
    let mut cell = TABLE_EDGE / 4;
    while cell >= 2 {
        add_octave(&mut table, rng, cell, strength);
        strength *= 0.55;
        cell /= 2;
    }
    let (low, high) = table.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    table.iter().map(|value| byte((value - low) / (high - low) * 255.0)).collect()
}

/// Random values on a lattice `cell` wide, interpolated smoothly between.
fn add_octave(table: &mut [f32], rng: &mut SmallRng, cell: usize, strength: f32) {
    let points = TABLE_EDGE / cell;
    let lattice: Vec<f32> = (0..points * points).map(|_| rng.random()).collect();
    let smooth: Vec<f32> = (0..cell)
        .map(|i| {
            let t = as_f32(i) / as_f32(cell);
            t * t * (3.0 - 2.0 * t)
        })
        .collect();
    for (y, row) in table.chunks_exact_mut(TABLE_EDGE).enumerate() {
        let (above, below) = (y / cell * points, (y / cell + 1) % points * points);
        let down = smooth[y % cell];
        for (x, value) in row.iter_mut().enumerate() {
            let (left, right) = (x / cell, (x / cell + 1) % points);
            let across = smooth[x % cell];
            let top = lattice[above + left] + across * (lattice[above + right] - lattice[above + left]);
            let bottom = lattice[below + left] + across * (lattice[below + right] - lattice[below + left]);
            *value += strength * (top + down * (bottom - top));
        }
    }
}

/// Where and how one picture looks into the textures.
struct View {
    kind: usize,
    tables: (usize, usize),
    origin: (u32, u32),
    /// From one pixel to the next along a row; along a column it is the same turned by a quarter.
    step: (u32, u32),
    /// How often the regular part of a pattern repeats across a table's edge.
    frequency: u32,
    /// How far the irregular part bends the regular one: phase per unit of noise.
    bend: u32,
    /// Strength of the grain, of 256.
    grain: i32,
}

impl View {
    fn random(kind: usize, rng: &mut SmallRng) -> Self {
        let turn = rng.random_range(0.0..std::f64::consts::TAU);
        let cells_per_pixel = rng.random_range(0.5..1.4) / f64::from(1_u32 << TABLE_EDGE_BITS);
        View {
            kind,
            tables: (rng.random_range(0..TABLES), rng.random_range(0..TABLES)),
            origin: (rng.random(), rng.random()),
            step: (fraction(cells_per_pixel * turn.cos()), fraction(cells_per_pixel * turn.sin())),
            frequency: rng.random_range(6..18),
            bend: fraction(rng.random_range(0.6..2.2) / 256.0),
            grain: rng.random_range(50..105),
        }
    }

    /// Brightness from 0 to 255 of the pattern at a place.
    fn pattern(&self, textures: &Textures, u: u32, v: u32) -> u32 {
        let first = textures.noise(self.tables.0, u, v);
        let second = textures.noise(self.tables.1, v.wrapping_mul(2), u.wrapping_mul(2));
        let (x, y) = (u.wrapping_mul(self.frequency), v.wrapping_mul(self.frequency));
        let row = (u64::from(v) * u64::from(self.frequency)) >> 32;
        let bent = self.bend.wrapping_mul(first);
        let wave = |phase: u32| textures.wave(phase);
        let mixed = |a: u32, b: u32, share_of_a: u32| (a * share_of_a + b * (256 - share_of_a)) >> 8;
        match self.kind {
            0 => (wave(u.wrapping_mul(3).wrapping_add(bent)) * (100 + second * 3 / 5)) >> 8,
            1 => mixed(brick(x, y, row), mixed(first, second, 128), 190),
            2 => mixed(first, second, 160).pow(2) >> 8,
            3 => mixed(y.wrapping_add(bent) >> 24, second, 170),
            4 => mixed(wave(x.wrapping_add(y).wrapping_add(bent.wrapping_mul(2))).pow(2) >> 8, second, 200),
            5 => ((first * second) >> 7).min(255),
            6 => ((255 - (first.abs_diff(128) * 2).min(255)).pow(2) / 255 * (255 - second.abs_diff(128))) >> 8,
            7 => mixed(wave(ring(u, v).wrapping_mul(self.frequency).wrapping_add(bent)), second, 180),
            8 => mixed((wave(x.wrapping_mul(2)) * wave(y.wrapping_mul(2))) >> 8, first, 160),
            _ => mixed(wave(y.wrapping_add(u.wrapping_mul(self.frequency / 4)).wrapping_add(bent)), second, 165),
        }
    }
}

/// 255 on a brick, 50 in the mortar; every other row is shifted by half a brick.
fn brick(x: u32, y: u32, row: u64) -> u32 {
    const MORTAR: u32 = u32::MAX / 9;
    let shifted = if row.is_multiple_of(2) { x } else { x.wrapping_add(1 << 31) };
    if shifted < MORTAR || y < MORTAR { 50 } else { 255 }
}

/// Distance from the middle of the table, of 2^31.
fn ring(u: u32, v: u32) -> u32 {
    let centred = |coordinate: u32| f64::from(coordinate.cast_signed()) / 4_294_967_296.0;
    fraction(centred(u).hypot(centred(v)))
}

/// 256 colours from dark to light through three random ones that the kind favours.
fn palette(kind: usize, rng: &mut SmallRng) -> [[i32; 3]; 256] {
    let favoured = as_f32(kind) / as_f32(KINDS.len());
    let stops: [[f32; 3]; 3] = std::array::from_fn(|i| {
        let hue = favoured + rng.random_range(-0.12..0.12);
        let light = [45.0, 130.0, 215.0][i] + rng.random_range(-25.0..25.0);
        std::array::from_fn(|channel| light + 45.0 * ((hue + as_f32(channel) / 3.0) * std::f32::consts::TAU).sin())
    });
    std::array::from_fn(|i| {
        let place = as_f32(i) / 127.5;
        let (from, to, t) = if place < 1.0 { (0, 1, place) } else { (1, 2, place - 1.0) };
        std::array::from_fn(|c| i32::from(whole(stops[from][c] + t * (stops[to][c] - stops[from][c]))))
    })
}

/// The picture of `kind` (an index into [`KINDS`]) that belongs to `seed`.
pub(super) fn paint(textures: &Textures, kind: usize, seed: u64) -> Picture {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (width, height) = (rng.random_range(336..=448_u16), rng.random_range(252..=336_u16));
    let view = View::random(kind, &mut rng);
    let colours = palette(kind, &mut rng);
    let mut rgb = vec![0; usize::from(width) * usize::from(height) * 3];
    let (mut row_u, mut row_v) = view.origin;
    for row in rgb.chunks_exact_mut(usize::from(width) * 3) {
        let (mut u, mut v) = (row_u, row_v);
        let mut grain = rng.random_range(0..GRAIN_ENTRIES);
        for pixel in row.chunks_exact_mut(3) {
            let colour = &colours[view.pattern(textures, u, v).min(255) as usize];
            let noise = (view.grain * i32::from(textures.grain[grain])) >> 8;
            for (channel, value) in pixel.iter_mut().zip(colour) {
                *channel = u8::try_from((value + noise).clamp(0, 255)).unwrap_or(u8::MAX);
            }
            grain = if grain + 1 == GRAIN_ENTRIES { 0 } else { grain + 1 };
            (u, v) = (u.wrapping_add(view.step.0), v.wrapping_add(view.step.1));
        }
        (row_u, row_v) = (row_u.wrapping_sub(view.step.1), row_v.wrapping_add(view.step.0));
    }
    Picture { width, height, rgb }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_depends_on_its_seed_alone() {
        let textures = Textures::new(1);
        for kind in 0..KINDS.len() {
            let picture = paint(&textures, kind, 5);
            assert_eq!(picture.rgb, paint(&textures, kind, 5).rgb);
            assert_ne!(picture.rgb, paint(&textures, kind, 6).rgb);
            assert_eq!(picture.rgb.len(), usize::from(picture.width) * usize::from(picture.height) * 3);
        }
    }

    #[test]
    fn every_kind_is_a_picture_with_contrast_and_not_a_flat_field() {
        let textures = Textures::new(1);
        for (kind, name) in KINDS.iter().enumerate() {
            let picture = paint(&textures, kind, 9);
            let greens: Vec<f64> = picture.rgb.chunks_exact(3).map(|pixel| f64::from(pixel[1])).collect();
            let count = f64::from(u32::try_from(greens.len()).unwrap());
            let mean = greens.iter().sum::<f64>() / count;
            let deviation = (greens.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / count).sqrt();
            assert!(deviation > 20.0 && (25.0..230.0).contains(&mean), "{name}: {mean:.0} +- {deviation:.0}");
        }
    }

    #[test]
    fn noise_spans_a_byte_and_has_no_seam_where_it_wraps() {
        let textures = Textures::new(3);
        let table = &textures.noise[0];
        assert_eq!((table.iter().min(), table.iter().max()), (Some(&0), Some(&255)));
        let jumps = |a: usize, b: usize| -> u32 {
            (0..TABLE_EDGE).map(|y| u32::from(table[y * TABLE_EDGE + a].abs_diff(table[y * TABLE_EDGE + b]))).sum()
        };
        assert!(jumps(TABLE_EDGE - 1, 0) < 2 * jumps(100, 101) + 500);
    }

    #[test]
    fn a_fraction_leaves_whole_turns_out_on_both_sides_of_zero() {
        assert_eq!([fraction(0.0), fraction(0.25), fraction(3.5), fraction(-0.25)], [0, 1 << 30, 1 << 31, 3 << 30]);
    }

    #[test]
    fn a_wave_starts_in_the_middle_and_reaches_both_ends() {
        let textures = Textures::new(1);
        assert_eq!([0, 1 << 30, 3 << 30].map(|phase| textures.wave(phase)), [128, 255, 0]);
    }
}
