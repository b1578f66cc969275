// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes that built-in traffic carries: a seeded stream that can be made from any offset, so
//! that the receiver checks every byte without having the sender's copy.

use midwire_trace::chance::mix;

/// A stream of pseudo-random bytes.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of one direction of one connection.
    pub fn new(seed: u64, connection: u32, from_opener: bool) -> Stream {
        let name = u64::from(connection) << 1 | u64::from(from_opener);
        Stream {
            key: mix(seed ^ mix(name)),
        }
    }

    /// Fills `bytes` with the stream from `offset` on.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let head = ((8 - offset % 8) % 8).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at_mut(head);
        let skip = (offset % 8) as usize;
        for (byte, value) in first
            .iter_mut()
            .zip(self.word(offset / 8).into_iter().skip(skip))
        {
            *byte = value;
        }
        for (index, word) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            word.copy_from_slice(&self.word(index)[..word.len()]);
        }
    }

    /// The eight bytes at `8 * index`.
    fn word(self, index: u64) -> [u8; 8] {
        mix(self
            .key
            .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_a_piece_of_the_whole() {
        let stream = Stream::new(7, 3, true);
        let mut whole = [0; 100];
        stream.fill(0, &mut whole);
        for from in 0..40 {
            for length in 0..40 {
                let mut piece = vec![0; length];
                stream.fill(from as u64, &mut piece);
                assert_eq!(
                    piece,
                    whole[from..from + length],
                    "{length} bytes from {from}"
                );
            }
        }
    }

    #[test]
    fn streams_differ_by_seed_connection_and_direction() {
        let first = |stream: Stream| stream.word(0);
        let base = first(Stream::new(1, 0, true));
        assert_ne!(base, first(Stream::new(2, 0, true)));
        assert_ne!(base, first(Stream::new(1, 1, true)));
        assert_ne!(base, first(Stream::new(1, 0, false)));
        assert_eq!(base, first(Stream::new(1, 0, true)));
    }
}
