// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capture files whole, cut off, damaged and untrue.

use std::fs;
use std::path::PathBuf;

use midwire_trace::block::Counters;
use midwire_trace::{
    Accounting, Actions, BlockBuilder, Capture, Error, Flags, Kind, Lane, Nanos, Record, Tap,
};

const BLOCK: usize = 4096;

/// Times of the story: from below to above the wrap of a record's 32 bits.
const START: u64 = 3_000_000_000;
const STEP: u64 = 10_000_000;

struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn file(bytes: &[u8]) -> File {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture.mwc");
    fs::write(&path, bytes).unwrap();
    File { _dir: dir, path }
}

fn frame(lane: Lane, id: u32, ns: u64) -> Record {
    Record {
        lane,
        packet_id: id,
        time: Nanos(ns),
        ..Record::default()
    }
}

/// `change` sees every record before it is written, `false` leaves it out; `settle` the counters.
fn write(
    records: impl IntoIterator<Item = Record>,
    snapshot: Option<&[u8]>,
    settle: impl FnOnce(&mut Counters),
) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BLOCK as u32, 64).unwrap();
    let mut bytes = Vec::new();
    for record in records {
        if !builder.push(record, snapshot) {
            bytes.extend(builder.finish(false, Nanos(0)));
            assert!(builder.push(record, snapshot));
        }
        let (counters, lane) = (builder.counters(), record.lane.index());
        if record.tap == Tap::Ingress {
            counters.rx_frames[lane] += 1;
            if record.actions.contains(Actions::DROP) {
                counters.dropped[lane] += 1;
            } else {
                counters.tx_frames[lane] += 1;
            }
        } else if record.kind == Kind::Injected {
            counters.injected[lane] += 1;
            counters.tx_frames[lane] += 1;
        } else if record.actions.contains(Actions::DUPLICATE) {
            counters.copied[lane] += 1;
            counters.tx_frames[lane] += 1;
        }
    }
    settle(builder.counters());
    bytes.extend(builder.finish(true, Nanos(0)));
    bytes
}

/// Both lanes, packet 7 of A to B dropped, packet 9 delayed; packet 11 sent twice, and answered.
fn story() -> Vec<Record> {
    let mut records = Vec::new();
    for id in 0..200u32 {
        let at = START + u64::from(id) * STEP;
        let mut there = frame(Lane::AtoB, id.wrapping_sub(100), at);
        let back = frame(Lane::BtoA, id, at + 7);
        match id {
            7 => there.actions = Actions::DROP,
            9 => there.actions = Actions::DELAY,
            11 => there.actions = Actions::DUPLICATE,
            _ => {}
        }
        records.extend([there, back]);
        if id == 9 {
            records.push(Record {
                tap: Tap::Egress,
                time: Nanos(at + 5_000),
                ..there
            });
        }
        if id == 11 {
            let left = |lane, kind, actions, after| Record {
                tap: Tap::Egress,
                lane,
                kind,
                actions,
                time: Nanos(at + after),
                ..there
            };
            records.extend([
                left(Lane::AtoB, there.kind, Actions(0), 100),
                left(Lane::AtoB, there.kind, Actions::DUPLICATE, 200),
                left(Lane::BtoA, Kind::Injected, Actions(0), 300),
            ]);
        }
    }
    records
}

fn account(bytes: &[u8]) -> Accounting {
    Accounting::of(&Capture::open(&file(bytes).path).unwrap())
}

const SNAPSHOT: Option<&[u8]> = Some(&[0x55; 60]);

#[test]
fn a_true_capture_is_complete() {
    let whole = account(&write(story(), SNAPSHOT, |_| {}));
    assert_eq!(whole.problems, [""; 0]);
    assert!(whole.accounted_for && whole.complete);
    assert_eq!(whole.records, 404);
    let a = whole.ports[0];
    assert_eq!(
        (a.frames_received, a.ingress_records, a.tx_frames),
        (200, 200, 200)
    );
    assert_eq!((a.dropped, a.egress_records, a.copied), (1, 3, 1));
    assert_eq!(
        (whole.ports[1].tx_frames, whole.ports[1].injected),
        (201, 1)
    );
    assert_eq!(whole.first, Some(Nanos(START)));
    assert_eq!(whole.last, Some(Nanos(START + 199 * STEP + 7)));
}

#[test]
fn counted_losses_are_accounted_for_but_not_complete() {
    let records: Vec<_> = story()
        .into_iter()
        .filter(|r| !(r.lane == Lane::BtoA && [20, 21, 22].contains(&r.packet_id)))
        .collect();
    let counted = account(&write(records.clone(), SNAPSHOT, |c| {
        c.rx_frames[1] += 3;
        c.tx_frames[1] += 2;
        c.lost_ingress[1] = 2;
        c.rx_lost[1] = 1;
    }));
    assert!(counted.accounted_for && !counted.complete);
    assert_eq!(
        counted.problems,
        [
            "Port B: 1 frames were lost, the lane was full.",
            "Lane b-to-a: 2 ingress records were lost."
        ]
    );
    let silent = account(&write(records, SNAPSHOT, |_| {}));
    assert!(!silent.accounted_for);
    assert_eq!(
        silent.problems,
        ["Lane b-to-a: 3 packet ids have no record, but only 0 losses are counted."]
    );
}

fn problem(records: Vec<Record>, settle: impl FnOnce(&mut Counters)) -> String {
    let account = account(&write(records, SNAPSHOT, settle));
    assert!(!account.accounted_for && !account.complete);
    assert_eq!(account.problems.len(), 1, "{:?}", account.problems);
    account.problems[0].clone()
}

#[test]
fn every_untruth_is_told() {
    let told = problem(story(), |c| {
        c.rx_frames[0] += 1;
        c.tx_frames[0] += 1;
    });
    assert!(
        told.starts_with("Port A: 201 frames came in, but there are 200 records"),
        "{told}"
    );
    let told = problem(story(), |c| c.tx_frames[1] -= 1);
    assert!(
        told.starts_with(
            "Port B: 200 frames came in, 0 copies and 1 injected ones were added, but 200 left"
        ),
        "{told}"
    );
    let told = problem(story(), |c| (c.copied[0], c.tx_frames[0]) = (2, 201));
    assert!(
        told.contains("2 copies and 0 injected frames left, but there are 1 and 0 records"),
        "{told}"
    );
    let told = problem(story(), |c| (c.injected[1], c.tx_frames[1]) = (0, 200));
    assert!(
        told.contains("0 copies and 0 injected frames left, but there are 0 and 1 records"),
        "{told}"
    );

    let mut swapped = story();
    let (i, j) = (40, 42);
    let (early, late) = (swapped[i].time, swapped[j].time);
    (swapped[i].time, swapped[j].time) = (late, early);
    assert!(problem(swapped, |_| {}).contains("time goes back 1 times at ingress"));

    let mut same = story();
    same[42].time = same[40].time;
    assert!(
        problem(same, |_| {}).contains("time goes back 1 times at ingress, first at record 42")
    );

    let mut back = story();
    back[41].packet_id -= 1;
    let back = account(&write(back, SNAPSHOT, |_| {}));
    assert!(
        back.problems[0].contains("packet ids go back at record 41"),
        "{back:?}"
    );

    let no_egress = story()
        .into_iter()
        .filter(|r| r.tap == Tap::Ingress || r.packet_id != 9u32.wrapping_sub(100))
        .collect();
    assert!(problem(no_egress, |_| {}).contains("events changed 2 frames, but only 1 records"));

    let mut not_asked = story();
    not_asked[14].actions = Actions(0);
    let told = problem(not_asked, |c| (c.dropped[0], c.tx_frames[0]) = (1, 200));
    assert!(
        told.contains("1 frames were dropped, but 0 records ask for it"),
        "{told}"
    );

    let bare = account(&write(story(), None, |_| {}));
    assert!(bare.problems[0].contains("203 records have no snapshot, but 0 are counted"));
}

/// Cuts here and there; the fuzz test cuts anywhere.
#[test]
fn a_file_cut_off_reads_up_to_its_last_whole_block() {
    let bytes = write(story(), SNAPSHOT, |_| {});
    assert!(bytes.len() > 5 * BLOCK);
    for cut in (0..bytes.len()).step_by(509) {
        let file = file(&bytes[..cut]);
        let capture = Capture::open(&file.path).unwrap();
        let mut blocks = capture.blocks();
        let mut count = 0;
        while blocks.next_block().is_some() {
            count += 1;
        }
        assert_eq!(count, cut / BLOCK);
        match blocks.stop() {
            None => assert_eq!(cut % BLOCK, 0),
            Some(stop) => {
                assert_eq!(stop.block, (cut / BLOCK) as u64);
                assert_eq!(stop.offset, (cut / BLOCK * BLOCK) as u64);
                assert!(matches!(stop.reason, Error::CutOff { .. }), "{stop}");
            }
        }
        assert!(!Accounting::of(&capture).accounted_for);
    }
}

/// What a program leaves that made room for more blocks than it came to write.
#[test]
fn room_that_was_not_used_ends_reading_and_is_told() {
    for blocks in [0, 3] {
        let mut bytes = write(story(), SNAPSHOT, |_| {});
        bytes.truncate(blocks * BLOCK);
        bytes.resize((blocks + 4) * BLOCK, 0);
        let file = file(&bytes);
        let capture = Capture::open(&file.path).unwrap();
        let mut read = capture.blocks();
        while read.next_block().is_some() {}
        let stop = read.stop().unwrap();
        assert_eq!(stop.block, blocks as u64);
        assert!(matches!(stop.reason, Error::Unwritten), "{stop}");
        assert!(!Accounting::of(&capture).accounted_for);
    }
}

#[test]
fn damage_ends_reading_where_it_is() {
    let bytes = write(story(), SNAPSHOT, |_| {});
    let mut broken = bytes.clone();
    broken[2 * BLOCK + 700] ^= 0x10;
    let file = file(&broken);
    let capture = Capture::open(&file.path).unwrap();
    let mut entries = capture.entries();
    let mut next = 0;
    while let Some(entry) = entries.next_entry() {
        assert_eq!(entry.seq, next);
        next += 1;
    }
    let stop = entries.stop().unwrap();
    assert_eq!((stop.block, stop.offset), (2, 2 * BLOCK as u64));
    assert!(matches!(stop.reason, Error::Crc { .. }));
    let account = Accounting::of(&capture);
    assert_eq!((account.blocks, account.records), (2, next));
    assert!(
        account.problems[0].contains("block 2 at byte 8192"),
        "{:?}",
        account.problems
    );
}

#[test]
fn a_missing_block_and_one_too_many_end_reading() {
    let bytes = write(story(), SNAPSHOT, |_| {});
    let mut hole = bytes.clone();
    hole.drain(BLOCK..2 * BLOCK);
    let stop = |bytes: &[u8]| {
        let file = file(bytes);
        let capture = Capture::open(&file.path).unwrap();
        let mut blocks = capture.blocks();
        while blocks.next_block().is_some() {}
        let stop = blocks.stop().unwrap();
        (stop.block, stop.to_string())
    };
    assert_eq!(
        stop(&hole),
        (
            1,
            "block 1 at byte 4096: block number is 2, 1 follows".into()
        )
    );
    let mut twice = bytes.clone();
    twice.extend(&bytes);
    let (block, text) = stop(&twice);
    assert_eq!(block as usize, bytes.len() / BLOCK);
    assert!(text.ends_with("data follows the final block"), "{text}");
}

#[test]
fn records_merge_into_the_order_of_time() {
    let mut records = story();
    // As the card may write them: one lane later than the other.
    records.sort_by_key(|r| (r.time.0 / (8 * STEP), r.lane, r.tap, r.time));
    let file = file(&write(records.clone(), SNAPSHOT, |_| {}));
    let capture = Capture::open(&file.path).unwrap();
    let mut merged = capture.by_time();
    let mut found = Vec::new();
    while let Some(entry) = merged.next_entry() {
        assert_eq!(entry.snapshot, SNAPSHOT.unwrap());
        found.push(entry.record);
    }
    assert!(merged.next_entry().is_none());
    records.sort_by_key(|r| r.time);
    for record in &mut records {
        record.flags = record.flags | Flags::SNAPSHOT;
    }
    assert_eq!(found, records);
}

#[test]
fn a_missing_file_is_named() {
    let error = Capture::open("/nowhere/capture.mwc").unwrap_err();
    assert!(
        error.to_string().starts_with("/nowhere/capture.mwc: "),
        "{error}"
    );
}
