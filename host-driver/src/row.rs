// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row of a table: 512 bits in which docs/tables.md names ranges.

/// A row, bit 0 in bit 0 of word 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row(pub [u32; 16]);

impl Row {
    /// Sets `width` bits from `low` to `value`; they must be 0 before.
    pub fn with(mut self, low: usize, width: usize, value: u128) -> Self {
        debug_assert!(width == 128 || value >> width == 0, "{value:#x}:{width}");
        let mut value = value;
        let mut at = low;
        let end = low + width;
        while at < end {
            let n = (32 - at % 32).min(end - at);
            self.0[at / 32] |= ((value & ((1 << n) - 1)) as u32) << (at % 32);
            value >>= n;
            at += n;
        }
        self
    }

    /// Sets bit `at` when `on`.
    pub fn with_bit(self, at: usize, on: bool) -> Self {
        self.with(at, 1, on.into())
    }

    /// `width` bits from `low`.
    pub fn get(&self, low: usize, width: usize) -> u128 {
        let end = low + width;
        let mut at = low;
        let mut value = 0u128;
        while at < end {
            let n = (32 - at % 32).min(end - at);
            let part = u128::from(self.0[at / 32] >> (at % 32)) & ((1 << n) - 1);
            value |= part << (at - low);
            at += n;
        }
        value
    }

    /// Bit `at`.
    pub fn bit(&self, at: usize) -> bool {
        self.get(at, 1) == 1
    }

    /// The low `width` bits as a key.
    pub fn key(&self, width: usize) -> crate::hash::Key {
        std::array::from_fn(|word| {
            let low = word * 64;
            match width.saturating_sub(low).min(64) {
                0 => 0,
                n => self.get(low, n) as u64,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_back_as_they_were_put() {
        let row = Row::default()
            .with(0, 24, 0xabcdef)
            .with(40, 128, u128::MAX - 5)
            .with_bit(300, true)
            .with(448, 64, 7);
        assert_eq!(row.get(0, 24), 0xabcdef);
        assert_eq!(row.get(24, 16), 0);
        assert_eq!(row.get(40, 128), u128::MAX - 5);
        assert!(row.bit(300) && !row.bit(299) && !row.bit(301));
        assert_eq!(row.get(448, 64), 7);
        assert_eq!(row.0[14], 7);
        assert_eq!(row.key(45)[0], 0xabcdef | 0x1a << 40);
        assert_eq!(row.key(45)[1], 0);
    }
}
