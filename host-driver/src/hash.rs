// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places entries in the card's hash tables: four ways, each with a row of its own for a key,
//! picked by XOR masks (docs/tables.md, "Hash tables"). An entry that finds its four cells
//! taken moves others to one of their other cells, along the shortest way to a free one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Keys have at most 299 bits.
pub(crate) const KEY_WORDS: usize = 5;

/// A key, word 0 with its bits 63:0.
pub(crate) type Key = [u64; KEY_WORDS];

/// Entries that are looked at for one that can move before a table counts as full.
const SEARCH_LIMIT: usize = 4096;

/// 64-bit word `word` of the mask for bit `bit` of the row in way `way`.
const fn mask_word(way: u32, bit: u32, word: u32) -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15 ^ (way as u64) << 48 ^ (bit as u64) << 32 ^ word as u64;
    let mut round = 0;
    while round < 4 {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        round += 1;
    }
    x
}

/// Which entry is in which cell of a table. Cells are numbered `way << rows_log2 | row`, as
/// the table's index is.
pub(crate) struct Placement {
    rows_log2: u32,
    /// `masks[way * rows_log2 + bit]`.
    masks: Vec<Key>,
    ways: u32,
    keys: Vec<Key>,
    /// Entry in each cell that is taken.
    cells: HashMap<u32, usize>,
}

impl Placement {
    pub fn new(ways: u32, rows_log2: u32) -> Self {
        let masks = (0..ways)
            .flat_map(|way| (0..rows_log2).map(move |bit| (way, bit)))
            .map(|(way, bit)| std::array::from_fn(|word| mask_word(way, bit, word as u32)))
            .collect();
        Self {
            rows_log2,
            masks,
            ways,
            keys: Vec::new(),
            cells: HashMap::new(),
        }
    }

    fn cell(&self, way: u32, key: &Key) -> u32 {
        let masks = &self.masks[(way * self.rows_log2) as usize..][..self.rows_log2 as usize];
        let row = masks.iter().enumerate().fold(0, |row, (bit, mask)| {
            let folded = key.iter().zip(mask).fold(0, |sum, (k, m)| sum ^ (k & m));
            row | (folded.count_ones() & 1) << bit
        });
        way << self.rows_log2 | row
    }

    /// Places the next entry; false when the table has no room for it, and then nothing has
    /// changed. Entries are numbered from 0 in the order of their placement.
    pub fn insert(&mut self, key: Key) -> bool {
        // Breadth first over cells: each but the first ones remembers the cell whose entry
        // could move into it.
        let mut from: HashMap<u32, Option<u32>> = HashMap::new();
        let mut queue: Vec<u32> = Vec::new();
        for way in 0..self.ways {
            let cell = self.cell(way, &key);
            if from.insert(cell, None).is_none() {
                queue.push(cell);
            }
        }
        let mut looked = 0;
        let free = loop {
            let Some(&cell) = queue.get(looked) else {
                return false;
            };
            looked += 1;
            let Some(&entry) = self.cells.get(&cell) else {
                break cell;
            };
            if looked > SEARCH_LIMIT {
                return false;
            }
            for way in 0..self.ways {
                let other = self.cell(way, &self.keys[entry]);
                if let Entry::Vacant(vacant) = from.entry(other) {
                    vacant.insert(Some(cell));
                    queue.push(other);
                }
            }
        };
        let mut hole = free;
        while let Some(Some(source)) = from.get(&hole).copied() {
            if let Some(entry) = self.cells.remove(&source) {
                self.cells.insert(hole, entry);
            }
            hole = source;
        }
        self.cells.insert(hole, self.keys.len());
        self.keys.push(key);
        true
    }

    /// Index and entry of every cell that is taken, in order of the index.
    pub fn rows(&self) -> Vec<(u32, usize)> {
        let mut rows: Vec<_> = self.cells.iter().map(|(&cell, &e)| (cell, e)).collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of docs/tables.md.
    #[test]
    fn rows_are_those_of_the_card() {
        assert_eq!(mask_word(0, 0, 0), 0x3b1d_1ca4_5e57_8555);
        assert_eq!(mask_word(3, 14, 4), 0x7f68_c449_aab5_9ece);
        let rows = |log2, key: Key| {
            let table = Placement::new(4, log2);
            [0, 1, 2, 3].map(|way| table.cell(way, &key) - (way << log2))
        };
        let exact = [0x31_0000_0005, 0, 0, 0, 0];
        assert_eq!(rows(15, exact), [0x4ee7, 0x6936, 0x3967, 0x621c]);
        let page = [0x300_0001_2345, 0, 0, 0, 0];
        assert_eq!(rows(15, page), [0x5fd9, 0x1ab6, 0x012f, 0x0035]);
        // 0x2_0000000000000000_000000000a000001_0000000000000000_000000000a000002_9c40_001389
        // with 24 + 16 bits of ports at the low end.
        let digits = "20000000000000000000000000a0000010000000000000000000000000a0000029c40001389";
        let mut flow = [0u64; KEY_WORDS];
        for (n, digit) in digits.chars().rev().enumerate() {
            flow[n / 16] |= u64::from(digit.to_digit(16).expect("hex")) << (n % 16 * 4);
        }
        assert_eq!(rows(14, flow), [0x13a2, 0x1f67, 0x2099, 0x2238]);
    }

    fn fill(rows_log2: u32, keys: impl Iterator<Item = u64>) -> (Placement, usize) {
        let mut table = Placement::new(4, rows_log2);
        let mut fit = 0;
        for key in keys {
            if !table.insert([key, 0, 0, 0, 0]) {
                break;
            }
            fit += 1;
        }
        (table, fit)
    }

    /// Keys without a pattern (splitmix64).
    fn scattered() -> impl Iterator<Item = u64> {
        (1u64..).map(|n| {
            let x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 12
        })
    }

    #[test]
    fn a_table_fills_almost_to_the_brim() {
        let (table, fit) = fill(8, scattered());
        assert!(fit > 1024 * 95 / 100 && fit <= 1024, "{fit} of 1024");
        let rows = table.rows();
        assert_eq!(rows.len(), fit, "nothing is lost by moving");
        for (cell, entry) in rows {
            assert_eq!(table.cell(cell >> 8, &table.keys[entry]), cell);
        }
    }

    /// The hash is linear, so keys that differ in few bits may reach but half of a way.
    #[test]
    fn consecutive_positions_fill_three_quarters() {
        let (_, fit) = fill(15, (0..).map(|n| 7 << 36 | 1 << 32 | n));
        assert!(fit >= 3 << 15, "{fit} of {}", 4 << 15);
    }

    #[test]
    fn equal_keys_take_one_cell_of_each_way() {
        let (_, fit) = fill(8, std::iter::repeat(77));
        assert_eq!(fit, 4);
    }

    #[test]
    fn a_hundred_thousand_entries_fit_the_card() {
        let (_, fit) = fill(15, scattered().take(100_000));
        assert_eq!(fit, 100_000);
    }
}
