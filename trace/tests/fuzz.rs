// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any bytes as a block or a capture: an error, or what was truly written; never a panic.

use std::fs;

use midwire_trace::{Accounting, Block, BlockBuilder, BlockHeader, Capture, Nanos, Record};
use proptest::prelude::*;

/// The polynomial of CRC-32C, a bit at a time: gives damaged blocks a right checksum.
fn seal(block: &mut [u8], used: usize) {
    let mut crc = !0u32;
    for byte in block[160..used].iter().chain(&block[..156]) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    block[156..160].copy_from_slice(&(!crc).to_le_bytes());
}

fn blocks(snapshot: u32, lengths: &[usize]) -> Vec<u8> {
    let mut builder = BlockBuilder::new(4096, snapshot).unwrap();
    let mut bytes = Vec::new();
    for (i, length) in lengths.iter().enumerate() {
        let record = Record {
            time: Nanos(i as u64 * 10),
            packet_id: i as u32,
            ..Record::default()
        };
        let frame = vec![i as u8; *length];
        if !builder.push(record, Some(&frame)) {
            bytes.extend(builder.finish(false, Nanos(0)));
            assert!(builder.push(record, Some(&frame)));
        }
    }
    bytes.extend(builder.finish(true, Nanos(0)));
    bytes
}

proptest! {
    #[test]
    fn noise(noise in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(Block::parse(&noise).is_err());
        let _ = BlockHeader::peek(&noise);
    }

    /// Damage behind a right checksum: what a faulty card could write.
    #[test]
    fn sealed_damage(
        lengths in prop::collection::vec(0usize..300, 1..40),
        flips in prop::collection::vec((0usize..600, any::<u8>()), 1..5),
    ) {
        let mut bytes = blocks(64, &lengths);
        bytes.truncate(4096);
        for (at, value) in flips {
            bytes[at] = value;
        }
        let used = u32::from_le_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]) as usize;
        seal(&mut bytes, used.clamp(160, 4096));
        if let Ok(block) = Block::parse(&bytes) {
            prop_assert_eq!(block.records().count(), block.header.records as usize);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture.mwc");
        fs::write(&path, &bytes).unwrap();
        let capture = Capture::open(&path).unwrap();
        Accounting::of(&capture);
        let mut merged = capture.by_time();
        let mut count = 0;
        while merged.next_entry().is_some() {
            count += 1;
        }
        prop_assert!(count <= 124);
    }

    /// One flipped bit and a cut, anywhere: the blocks before both are read, and nothing else.
    #[test]
    fn a_flipped_bit_and_a_cut(
        lengths in prop::collection::vec(0usize..1500, 1..60),
        flip in any::<prop::sample::Index>(),
        bit in 0..8,
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = blocks(10240, &lengths);
        let flip = flip.index(whole.len());
        let cut = cut.index(whole.len());
        let mut bytes = whole.clone();
        bytes[flip] ^= 1u8 << bit;
        bytes.truncate(cut);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture.mwc");
        fs::write(&path, &bytes).unwrap();
        let capture = Capture::open(&path).unwrap();
        let mut reader = capture.blocks();
        let mut count = 0;
        while reader.next_block().is_some() {
            count += 1;
        }
        // What lies behind the used part is not covered by the checksum, and harms nothing.
        let used = Block::parse(&whole[flip / 4096 * 4096..]).unwrap().header.used_bytes as usize;
        let damaged = if flip % 4096 < used { flip / 4096 } else { usize::MAX };
        prop_assert_eq!(count, damaged.min(cut / 4096));
        prop_assert_eq!(reader.stop().is_none(), cut / 4096 * 4096 == cut && damaged >= cut / 4096);

        let mut entries = capture.entries();
        let mut seq = 0;
        while let Some(entry) = entries.next_entry() {
            prop_assert_eq!(entry.seq, seq);
            prop_assert_eq!(entry.snapshot.len(), lengths[seq as usize]);
            prop_assert!(entry.snapshot.iter().all(|byte| *byte == seq as u8));
            seq += 1;
        }
        prop_assert!(!Accounting::of(&capture).accounted_for);
    }
}
