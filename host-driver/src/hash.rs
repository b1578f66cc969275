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

/// Seeds of the ways' masks, chosen so that keys in a row reach the rows of a way evenly.
const SEEDS: [u64; 4] = [0xbc_031f, 0xb2_da6f, 0x8b_c8f6, 0xc0_bb07];

/// Ways that a table can have.
pub(crate) const MAX_WAYS: u32 = SEEDS.len() as u32;

/// 64-bit word `word` of the mask for bit `bit` of the row in way `way`.
const fn mask_word(way: u32, bit: u32, word: u32) -> u64 {
    let seed = SEEDS[way as usize];
    let mut x = 0x9e37_79b9_7f4a_7c15 ^ seed << 40 ^ (bit as u64) << 32 ^ word as u64;
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
#[derive(Debug)]
pub(crate) struct Placement {
    rows_log2: u32,
    /// `masks[way * rows_log2 + bit]`.
    masks: Vec<Key>,
    ways: u32,
    /// By entry.
    keys: Vec<Key>,
    /// Entry in each cell that is taken.
    cells: HashMap<u32, usize>,
    /// Entries that have gone; their numbers are given again.
    free: Vec<usize>,
}

impl Placement {
    /// A table of at most [`MAX_WAYS`] ways.
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
            free: Vec::new(),
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

    /// Places an entry: its number, and the cells that change with what they hold then, in an
    /// order in which every entry is somewhere at any time. `None` when the table has no room
    /// for it, and then nothing has changed.
    pub fn insert(&mut self, key: Key) -> Option<(usize, Vec<(u32, usize)>)> {
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
            let &cell = queue.get(looked)?;
            looked += 1;
            let Some(&entry) = self.cells.get(&cell) else {
                break cell;
            };
            if looked > SEARCH_LIMIT {
                return None;
            }
            for way in 0..self.ways {
                let other = self.cell(way, &self.keys[entry]);
                if let Entry::Vacant(vacant) = from.entry(other) {
                    vacant.insert(Some(cell));
                    queue.push(other);
                }
            }
        };
        let mut changes = Vec::new();
        let mut hole = free;
        while let Some(Some(source)) = from.get(&hole).copied() {
            if let Some(entry) = self.cells.remove(&source) {
                self.cells.insert(hole, entry);
                changes.push((hole, entry));
            }
            hole = source;
        }
        let entry = self.free.pop().unwrap_or(self.keys.len());
        self.keys.resize(self.keys.len().max(entry + 1), key);
        self.keys[entry] = key;
        self.cells.insert(hole, entry);
        changes.push((hole, entry));
        Some((entry, changes))
    }

    /// Takes an entry away: the cell that it leaves.
    pub fn remove(&mut self, entry: usize) -> Option<u32> {
        let key = self.keys.get(entry)?;
        let mut cells = (0..self.ways).map(|way| self.cell(way, key));
        let cell = cells.find(|cell| self.cells.get(cell) == Some(&entry))?;
        self.cells.remove(&cell);
        self.free.push(entry);
        Some(cell)
    }

    /// Entries that it holds.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Index and entry of every cell that is taken, in order of the index.
    pub fn cells(&self) -> Vec<(u32, usize)> {
        let mut cells: Vec<_> = self.cells.iter().map(|(&cell, &e)| (cell, e)).collect();
        cells.sort_unstable();
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of docs/tables.md.
    #[test]
    fn rows_are_those_of_the_card() {
        assert_eq!(mask_word(0, 0, 0), 0xd273_c281_b848_bda1);
        assert_eq!(mask_word(3, 14, 4), 0xc161_8570_a100_f271);
        let rows = |log2, key: Key| {
            let table = Placement::new(4, log2);
            [0, 1, 2, 3].map(|way| table.cell(way, &key) - (way << log2))
        };
        let exact = [0x31_0000_0005, 0, 0, 0, 0];
        assert_eq!(rows(15, exact), [0x54ea, 0x00aa, 0x0470, 0x2dd6]);
        let page = [0x300_0001_2345, 0, 0, 0, 0];
        assert_eq!(rows(15, page), [0x754c, 0x3939, 0x031b, 0x4af1]);
        // 0x2_0000000000000000_000000000a000001_0000000000000000_000000000a000002_9c40_001389
        // with 24 + 16 bits of ports at the low end.
        let digits = "20000000000000000000000000a0000010000000000000000000000000a0000029c40001389";
        let mut flow = [0u64; KEY_WORDS];
        for (n, digit) in digits.chars().rev().enumerate() {
            flow[n / 16] |= u64::from(digit.to_digit(16).expect("hex")) << (n % 16 * 4);
        }
        assert_eq!(rows(14, flow), [0x294f, 0x3657, 0x20ed, 0x33b5]);
    }

    fn fill(rows_log2: u32, keys: impl Iterator<Item = u64>) -> (Placement, usize) {
        let mut table = Placement::new(4, rows_log2);
        let mut fit = 0;
        for key in keys {
            if table.insert([key, 0, 0, 0, 0]).is_none() {
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
        let cells = table.cells();
        assert_eq!(cells.len(), fit, "nothing is lost by moving");
        for (cell, entry) in cells {
            assert_eq!(table.cell(cell >> 8, &table.keys[entry]), cell);
        }
    }

    /// Rows of a way that keys reach when the bits that `runs` name (first, count) of them run
    /// through all values, log2. The hash is linear, so each of these rows is reached equally
    /// often.
    fn rank(rows_log2: u32, way: u32, runs: &[(usize, usize)]) -> usize {
        let table = Placement::new(4, rows_log2);
        let mut basis: Vec<u32> = Vec::new();
        for bit in runs.iter().flat_map(|&(first, count)| first..first + count) {
            let mut key = [0; KEY_WORDS];
            key[bit / 64] = 1 << (bit % 64);
            let row = table.cell(way, &key) - (way << rows_log2);
            let row = basis.iter().fold(row, |row, b| row.min(row ^ b));
            if row != 0 {
                basis.push(row);
            }
        }
        basis.len()
    }

    /// Whether keys of a pattern find room for each in a table that they fill by half: what
    /// they reach of all ways must hold them.
    fn patterns(rows_log2: u32, runs: &[&[(usize, usize)]], reach: f64) {
        for runs in runs {
            let ranks = [0, 1, 2, 3].map(|way| rank(rows_log2, way, runs));
            let rows: u32 = ranks.iter().map(|&rank| 1 << rank).sum();
            let of = f64::from(rows) / f64::from(4 << rows_log2);
            assert!(of >= reach, "{runs:?} reach {of} of the table: {ranks:?}");
        }
    }

    #[test]
    fn keys_in_a_row_reach_most_of_a_table() {
        const CONNECTION: usize = 36;
        const PAGE_CONNECTION: usize = 40;
        // Consecutive positions, also every 2nd to 256th, reach every row of three ways.
        for stride in 0..3 {
            patterns(15, &[&[(stride, 15)]], 1.0);
        }
        for stride in 3..9 {
            patterns(15, &[&[(stride, 15)]], 0.62);
        }
        for positions in 0..15 {
            let connections = 15 - positions;
            for low in [CONNECTION, PAGE_CONNECTION] {
                patterns(15, &[&[(0, positions), (low, connections)]], 0.62);
            }
        }
        // Positions of two kinds: data and read request.
        patterns(15, &[&[(0, 14), (34, 1)]], 1.0);
        // Ports, queue pairs and addresses in a row.
        let fields = [0, 24, 40, 168];
        for (n, &one) in fields.iter().enumerate() {
            patterns(14, &[&[(one, 14)]], 0.5);
            for &other in &fields[n + 1..] {
                for bits in [2, 4, 7, 10, 12] {
                    patterns(14, &[&[(one, bits), (other, 14 - bits)]], 0.5);
                }
            }
        }
    }

    #[test]
    fn a_lane_takes_65536_positions_however_they_are_spread() {
        const ALL: u64 = 1 << 16;
        for connections_log2 in [0, 1, 4, 8, 10, 12, 14] {
            let connections = 1 << connections_log2;
            let keys = (0..ALL).map(|n| {
                let (connection, position) = (n % connections, n / connections);
                connection << 36 | 1 << 32 | (position + 1)
            });
            let (_, fit) = fill(15, keys);
            assert_eq!(fit as u64, ALL, "of {connections} connections");
        }
    }

    #[test]
    fn a_hundred_thousand_consecutive_positions_fit() {
        let (_, fit) = fill(15, (1..=100_000).map(|n| 7 << 36 | 1 << 32 | n));
        assert_eq!(fit, 100_000);
    }

    /// What a card sees of a table that changes: every entry is in one of its cells at any time.
    #[test]
    fn entries_are_never_away_while_they_move() {
        let mut table = Placement::new(4, 5);
        let mut memory: HashMap<u32, Key> = HashMap::new();
        let mut entries: Vec<usize> = Vec::new();
        let mut moves = 0;
        for (n, key) in scattered().take(3000).enumerate() {
            let key = [key, 0, 0, 0, 0];
            let present: Vec<Key> = entries.iter().map(|&entry| table.keys[entry]).collect();
            if let Some((entry, changes)) = table.insert(key) {
                moves += changes.len() - 1;
                for (cell, entry) in changes {
                    memory.insert(cell, table.keys[entry]);
                    for key in &present {
                        let found = |way| memory.get(&table.cell(way, key)) == Some(key);
                        assert!((0..4).any(found), "{key:?} is away");
                    }
                }
                entries.push(entry);
            }
            if entries.len() > 120 {
                let entry = entries.swap_remove(n % entries.len());
                let cell = table.remove(entry).expect("an entry");
                assert_eq!(memory.remove(&cell), Some(table.keys[entry]));
            }
        }
        assert_eq!(table.len(), entries.len());
        assert!(moves > 1000, "{moves} moves");
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
