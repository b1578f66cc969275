// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decisions by chance, as the card takes them: functions of a seed and a packet's identity
//! alone, so that they repeat, and that software can take them again.
//!
//! A draw is Threefry-2x32 with 13 rounds (Salmon et al., "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011), the fewest with which it passes all of BigCrush. The seed and the place of
//! a packet's numbers (connection, lane, kind) make the key, its position the counter.

use crate::units::{Kind, Lane};
use serde::{Deserialize, Serialize};

/// A probability as the card compares with it: in 2^32nds, 2^32 - 1 being certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chance(pub u32);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(u32::MAX);

    /// The chance nearest to a probability; `None` when it is not in 0 to 1.
    pub fn of(probability: f64) -> Option<Self> {
        let all = 2f64.powi(32);
        // Saturates: what rounds to 2^32 is certain.
        (0.0..=1.0)
            .contains(&probability)
            .then(|| Self((probability * all).round() as u32))
    }

    /// The probability.
    pub fn probability(self) -> f64 {
        match self {
            Self::ALWAYS => 1.0,
            Self(chance) => f64::from(chance) / 2f64.powi(32),
        }
    }

    /// Whether it happens at a draw.
    pub fn falls(self, draw: u32) -> bool {
        draw < self.0 || self == Self::ALWAYS
    }
}

/// The draw for a packet: of its connection, the position by which it was chosen and that
/// position's kind, and the how-manieth packet of its connection and lane it is that begins
/// below the highest seen (0: it does not).
pub fn packet(
    seed: u64,
    (connection, lane, kind): (Option<u16>, Lane, Kind),
    position: u32,
    again: u32,
) -> u32 {
    let [draw, _] = draw(seed, (connection, lane, kind), [position, again]);
    draw
}

/// The draws for the n-th packet of a chain of bursts: whether it falls, and whether the chain
/// changes its state.
pub fn burst(seed: u64, lane: Lane, n: u32) -> [u32; 2] {
    draw(seed, (None, lane, Kind::Other), [n, u32::MAX])
}

/// A seed of its own for each of a sequence, from a common one (SplitMix64).
pub fn derive(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The finalizer of SplitMix64: each bit of the result depends upon all bits.
pub const fn mix(value: u64) -> u64 {
    let x = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Numbers that look random, one after the other, from a seed.
#[derive(Clone, Debug)]
pub struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        derive(self.seed, self.drawn - 1)
    }

    /// The next number, of those below `end`; 0 when there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }
}

fn draw(
    seed: u64,
    (connection, lane, kind): (Option<u16>, Lane, Kind),
    counter: [u32; 2],
) -> [u32; 2] {
    let connection = u32::from(connection.unwrap_or(u16::MAX));
    let stream = connection << 16 | (lane.index() as u32) << 4 | u32::from(kind.number());
    threefry([seed as u32 ^ stream, (seed >> 32) as u32], counter)
}

fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATE: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    let schedule = [key[0], key[1], 0x1bd1_1bda ^ key[0] ^ key[1]];
    let [mut a, mut b] = counter;
    for round in 0..13 {
        if round % 4 == 0 {
            let turn = round / 4;
            a = a.wrapping_add(schedule[turn % 3]);
            b = b.wrapping_add(schedule[(turn + 1) % 3]);
            b = b.wrapping_add(turn as u32);
        }
        a = a.wrapping_add(b);
        b = b.rotate_left(ROTATE[round % 8]) ^ a;
    }
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random123, examples/kat_vectors.
    #[test]
    fn threefry_is_the_published_one() {
        let f = u32::MAX;
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        for (counter, key, random) in [
            ([0, 0], [0, 0], [0x9d1c_5ec6, 0x8bd5_0731]),
            ([f, f], [f, f], [0xfd36_d048, 0x2d17_272c]),
            ([pi[0], pi[1]], [pi[2], pi[3]], [0xba3e_4725, 0xf27d_669e]),
        ] {
            assert_eq!(threefry(key, counter), random);
        }
    }

    #[test]
    fn chances_are_exact_at_both_ends() {
        assert_eq!(Chance::of(0.0), Some(Chance::NEVER));
        assert_eq!(Chance::of(1.0), Some(Chance::ALWAYS));
        assert_eq!(Chance::of(0.5), Some(Chance(1 << 31)));
        assert_eq!(Chance::of(-0.1).or(Chance::of(1.1)), None);
        assert_eq!(Chance::of(f64::NAN), None);
        assert!(Chance::ALWAYS.falls(u32::MAX) && !Chance::NEVER.falls(0));
        assert!(Chance(5).falls(4) && !Chance(5).falls(5));
        assert!((Chance(1 << 30).probability() - 0.25).abs() < 1e-12);
    }

    /// Pearson's statistic of counts that are expected to be equal, as the number of standard
    /// deviations by which it differs from its mean.
    fn deviation(counts: &[u32]) -> f64 {
        let total: u32 = counts.iter().sum();
        let expected = f64::from(total) / counts.len() as f64;
        let square = |&n: &u32| (f64::from(n) - expected).powi(2) / expected;
        let freedom = counts.len() as f64 - 1.0;
        (counts.iter().map(square).sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
    }

    const N: u32 = 1 << 18;
    const CONNECTION: (Option<u16>, Lane, Kind) = (Some(0), Lane::AtoB, Kind::Data);

    /// Draws of identities that lie close together, one after the other.
    fn rows() -> Vec<(&'static str, Vec<u32>)> {
        let of = |f: &dyn Fn(u32) -> u32| (1..=N).map(f).collect();
        vec![
            ("positions", of(&|n| packet(7, CONNECTION, n, 0))),
            (
                "every 64th position",
                of(&|n| packet(7, CONNECTION, n << 6, 0)),
            ),
            ("retransmissions", of(&|n| packet(7, CONNECTION, 0, n))),
            (
                "connections",
                of(&|n| {
                    let connection = (Some((n % 16_384) as u16), Lane::BtoA, Kind::Ack);
                    packet(7, connection, 1 + n / 16_384, 0)
                }),
            ),
            ("seeds", of(&|n| packet(n.into(), CONNECTION, 1, 0))),
            (
                "derived seeds",
                of(&|n| packet(derive(1, n.into()), CONNECTION, 1, 0)),
            ),
            ("bursts", of(&|n| burst(7, Lane::AtoB, n)[0])),
            ("changes of state", of(&|n| burst(7, Lane::AtoB, n)[1])),
        ]
    }

    #[test]
    fn draws_are_spread_evenly() {
        for (name, draws) in rows() {
            // High bits decide; low ones should be no worse.
            for shift in [22, 11, 0] {
                let mut counts = vec![0; 1024];
                draws
                    .iter()
                    .for_each(|draw| counts[(draw >> shift & 1023) as usize] += 1);
                let by = deviation(&counts);
                assert!(by.abs() < 4.0, "{name}, bits from {shift}: {by}");
            }
            // As many fall as should, at chances as in plans.
            for p in [0.001, 0.01, 0.1, 0.5] {
                let chance = Chance::of(p).expect("a probability");
                let fell = draws.iter().filter(|&&draw| chance.falls(draw)).count() as f64;
                let (mean, n) = (p * f64::from(N), f64::from(N));
                let by = (fell - mean) / (n * p * (1.0 - p)).sqrt();
                assert!(by.abs() < 4.0, "{name} at {p}: {fell} of {mean}");
            }
        }
    }

    /// A draw says nothing of that of another identity: pairs fill a square evenly.
    #[test]
    fn draws_are_independent() {
        let rows = rows();
        let pairs = |name: &str, pairs: &mut dyn Iterator<Item = (u32, u32)>| {
            let mut counts = vec![0; 1024];
            pairs.for_each(|(a, b)| counts[((a >> 27) << 5 | b >> 27) as usize] += 1);
            let by = deviation(&counts);
            assert!(by.abs() < 4.0, "{name}: {by}");
        };
        for (name, draws) in &rows {
            for step in [1, 2, 16, 1000] {
                let later = draws.iter().skip(step);
                let mut both = draws.iter().copied().zip(later.copied());
                pairs(&format!("{name}, {step} on"), &mut both);
            }
        }
        for (i, (one, a)) in rows.iter().enumerate() {
            for (other, b) in &rows[i + 1..] {
                let mut both = a.iter().copied().zip(b.iter().copied());
                pairs(&format!("{one} and {other}"), &mut both);
            }
        }
        // Identities that differ in one thing alone.
        let base = |n| packet(7, CONNECTION, n, 0);
        let others: [(&str, &dyn Fn(u32) -> u32); 5] = [
            ("lane", &|n| {
                packet(7, (Some(0), Lane::BtoA, Kind::Data), n, 0)
            }),
            ("kind", &|n| {
                packet(7, (Some(0), Lane::AtoB, Kind::Any), n, 0)
            }),
            ("connection", &|n| {
                packet(7, (Some(1), Lane::AtoB, Kind::Data), n, 0)
            }),
            ("again", &|n| packet(7, CONNECTION, n, 1)),
            ("seed", &|n| packet(8, CONNECTION, n, 0)),
        ];
        for (name, other) in others {
            pairs(name, &mut (1..=N).map(|n| (base(n), other(n))));
        }
    }

    /// Every bit of an identity turns every bit of the draw in half of all cases.
    #[test]
    fn each_bit_counts() {
        let draw = |bits: u128| {
            let connection = Some((bits >> 64) as u16);
            let kind = Kind::ALL[(bits >> 80) as usize & 7];
            let lane = Lane::ALL[(bits >> 83) as usize & 1];
            let seed = (bits >> 84) as u64 & 0xfff_ffff_ffff;
            packet(
                seed,
                (connection, lane, kind),
                bits as u32,
                (bits >> 32) as u32,
            )
        };
        let tries = 1 << 12;
        for bit in 0..128 {
            let mut turned = [0u32; 32];
            for n in 0..tries {
                let low = u128::from(derive(1, n));
                let start = low | u128::from(derive(2, n)) << 64;
                let change = draw(start) ^ draw(start ^ 1 << bit);
                (0..32).for_each(|out| turned[out] += change >> out & 1);
            }
            for (out, turned) in turned.into_iter().enumerate() {
                let by = (f64::from(turned) - tries as f64 / 2.0) / (tries as f64 / 4.0).sqrt();
                assert!(by.abs() < 5.0, "bit {bit} turns bit {out} {turned} times");
            }
        }
    }
}
