// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures from the model's ring to files.

mod model;

use midwire_driver::{CaptureConfig, Card, Error, Wake, regs};
use midwire_trace::Block;
use model::{Faults, Model};
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const SNAPSHOT: u32 = 64;

fn config(path: &Path) -> CaptureConfig {
    CaptureConfig {
        block_bytes: BLOCK as u32,
        ring_blocks: 8,
        snapshot_bytes: SNAPSHOT,
        final_wait: Duration::from_millis(300),
        ..CaptureConfig::new(path)
    }
}

fn open(faults: Faults) -> (Model, Card) {
    let model = Model::new(faults);
    let card = Card::open(Box::new(model.clone())).expect("open");
    (model, card)
}

/// Waits until the condition holds, a few seconds at most.
fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(5), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Records of all blocks of a file; every block must be whole and in order.
fn read(path: &Path) -> Vec<u32> {
    records(&std::fs::read(path).expect("read"))
}

fn records(bytes: &[u8]) -> Vec<u32> {
    assert!(bytes.len().is_multiple_of(BLOCK));
    let mut ids = Vec::new();
    for (number, bytes) in bytes.chunks(BLOCK).enumerate() {
        let block = Block::parse(bytes).expect("whole");
        assert_eq!(block.header.number, number as u64);
        let used = block.header.used_bytes as usize;
        assert!(bytes[used..].iter().all(|&b| b == 0), "tail is cleared");
        ids.extend(block.records().map(|entry| entry.record.packet_id));
    }
    ids
}

fn capture_file(change: impl Fn(&mut CaptureConfig), faults: Faults) {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(faults);
    let mut config = config(&path);
    change(&mut config);
    for _again in 0..2 {
        let capture = card.start_capture(config.clone()).expect("start");
        for n in 0..1000 {
            // As slow as needed for the ring not to fill.
            let at = || model.state().registers[&regs::RING_CONSUMED];
            if n % 30 == 0 {
                wait_for("room", || u64::from(at()) + 4 > u64::from(n) * 96 / 3968);
            }
            model.frame(n, 60);
        }
        let summary = capture.stop().expect("stop");
        assert_eq!((summary.records, summary.damaged), (1000, 0));
        assert!(summary.complete, "{summary:?}");
        assert_eq!(summary.counters.rx_frames, [1000, 0]);
        let bytes = std::fs::metadata(&path).expect("file").len();
        assert_eq!((summary.bytes, summary.blocks), (bytes, bytes / 4096));
        assert_eq!(read(&path), (0..1000).collect::<Vec<_>>());
        assert!(model.state().mapped.is_empty(), "the ring is given back");
    }
}

#[test]
fn every_record_reaches_the_file_by_interrupts() {
    capture_file(|_| {}, Faults::default());
}

#[test]
fn every_record_reaches_the_file_by_plain_writes() {
    capture_file(|config| config.io_uring = false, Faults::default());
}

#[test]
fn every_record_reaches_the_file_by_polling() {
    let faults = Faults {
        no_interrupts: true,
        ..Faults::default()
    };
    capture_file(|config| config.wake = Wake::Polling, faults);
}

#[test]
fn lost_interrupts_only_cost_time() {
    let faults = Faults {
        no_interrupts: true,
        ..Faults::default()
    };
    capture_file(|_| {}, faults);
}

#[test]
fn huge_pages_are_an_offer() {
    capture_file(|config| config.huge_pages = true, Faults::default());
}

#[test]
fn progress_is_seen_while_it_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(Faults::default());
    let capture = card.start_capture(config(&path)).expect("start");
    assert_eq!(capture.progress(), Default::default());
    model.frame(0, 60);
    model.flush();
    wait_for("a block", || capture.progress().blocks == 1);
    let progress = capture.progress();
    assert_eq!((progress.records, progress.bytes), (1, 4096));
    assert!(!progress.ended);
    let e = card
        .start_capture(config(&path))
        .err()
        .expect("one at a time");
    assert!(matches!(e, Error::Capturing), "{e}");
    // A file that is being written reads up to its last whole block, room for others behind it.
    let bytes = std::fs::read(&path).expect("read");
    let (written, room) = bytes.split_at(4096);
    assert_eq!(records(written), [0]);
    assert!(room.iter().all(|&byte| byte == 0));
    capture.stop().expect("stop");
}

#[test]
fn a_full_ring_loses_records_and_says_so() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(Faults::default());
    let capture = card.start_capture(config(&path)).expect("start");
    {
        // The host cannot take anything meanwhile, since it cannot reach the card to give
        // blocks back.
        let mut state = model.state();
        for n in 0..1000 {
            state.frame(n, 60);
        }
    }
    wait_for("the ring is empty", || {
        model.state().registers[&regs::RING_CONSUMED] == 8
    });
    model.frame(1000, 60);
    let summary = capture.stop().expect("stop");
    assert!(!summary.complete);
    let lost = summary.counters.lost_ingress[0];
    assert!(lost > 0);
    assert_eq!(summary.records + u64::from(lost), 1001);
    assert_eq!(summary.counters.tx_frames[0], 1001, "the wire lost nothing");
    let ids = read(&path);
    assert_eq!(ids.len() as u64, summary.records);
    assert_eq!(ids.last(), Some(&1000), "it goes on after the loss");
}

#[test]
fn a_damaged_block_is_counted_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(Faults {
        spoil: Some(1),
        ..Faults::default()
    });
    let capture = card.start_capture(config(&path)).expect("start");
    for n in 0..5 {
        model.frame(n, 60);
        model.flush();
    }
    wait_for("all blocks", || capture.progress().blocks == 5);
    let summary = capture.stop().expect("stop");
    assert_eq!((summary.damaged, summary.records), (1, 4));
    assert!(!summary.complete);
    let bytes = std::fs::read(&path).expect("read");
    let whole: Vec<bool> = bytes
        .chunks(BLOCK)
        .map(|block| Block::parse(block).is_ok())
        .collect();
    assert_eq!(whole, [true, false, true, true, true, true]);
}

#[test]
fn a_capture_without_its_final_block_is_cut_off() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(Faults {
        no_final_block: true,
        ..Faults::default()
    });
    let capture = card.start_capture(config(&path)).expect("start");
    model.frame(0, 60);
    model.flush();
    wait_for("the block", || capture.progress().blocks == 1);
    let start = Instant::now();
    let e = capture.stop().unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2), "bounded");
    let text = e.to_string();
    assert!(
        matches!(e, Error::CutOff { blocks: 1, .. }) && text.contains("no final block"),
        "{text}"
    );
    assert_eq!(read(&path), [0], "what came before stays readable");
}

#[test]
fn a_full_disk_ends_the_capture_but_not_the_card() {
    for io_uring in [false, true] {
        let (model, card) = open(Faults::default());
        let config = CaptureConfig {
            io_uring,
            ..config(Path::new("/dev/full"))
        };
        let capture = card.start_capture(config).expect("start");
        for n in 0..2000 {
            model.frame(n, 60);
        }
        wait_for("the end", || capture.progress().ended);
        let text = capture.stop().unwrap_err().to_string();
        assert!(
            text.contains("cannot write /dev/full") && text.contains("No space left"),
            "{text}"
        );
        let state = model.state();
        assert!(!state.capturing, "the card has come to rest");
        assert!(state.vectors.is_empty() && state.mapped.is_empty());
    }
}

#[test]
fn a_card_that_fails_or_goes_ends_the_capture() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (gone, why) in [
        (false, "DMA was refused"),
        (true, "does not answer any more"),
    ] {
        let (model, card) = open(Faults::default());
        let capture = card
            .start_capture(config(&dir.path().join("capture.mwc")))
            .expect("start");
        if gone {
            model.state().gone = true;
        } else {
            model.state().dma_error = true;
        }
        wait_for("the end", || capture.progress().ended);
        let text = capture.stop().unwrap_err().to_string();
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn dropping_the_capture_or_the_card_stops_the_hardware() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("capture.mwc");
    let (model, card) = open(Faults::default());
    let capture = card.start_capture(config(&path)).expect("start");
    model.frame(0, 60);
    drop(capture);
    assert!(!model.state().capturing);
    assert_eq!(read(&path), [0]);

    let capture = card.start_capture(config(&path)).expect("start");
    model.frame(7, 60);
    drop(card);
    assert!(!model.state().capturing);
    let summary = capture.stop().expect("the final block came");
    assert!(summary.complete);
    assert_eq!(read(&path), [7]);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let (_, card) = open(Faults::default());
    let good = config(Path::new("/nonexistent/capture.mwc"));
    let refuse = |change: &dyn Fn(&mut CaptureConfig)| {
        let mut config = good.clone();
        change(&mut config);
        card.start_capture(config)
            .err()
            .expect("refused")
            .to_string()
    };
    for (setting, text) in [
        ("block_bytes", refuse(&|c| c.block_bytes = 5000)),
        ("block_bytes", refuse(&|c| c.block_bytes = 1 << 23)),
        ("ring_blocks", refuse(&|c| c.ring_blocks = 1)),
        ("ring_blocks", refuse(&|c| c.ring_blocks = 1 << 17)),
        ("snapshot_bytes", refuse(&|c| c.snapshot_bytes = 33)),
        ("snapshot_bytes", refuse(&|c| c.snapshot_bytes = 8192)),
        ("flush", refuse(&|c| c.flush.0 = 999)),
    ] {
        assert!(
            text.starts_with(&format!("capture setting {setting}: ")),
            "{text}"
        );
    }
    let text = refuse(&|_| {});
    assert!(text.contains("/nonexistent/capture.mwc"), "{text}");
    // None of these keeps the card from the next capture.
    let dir = tempfile::tempdir().expect("tempdir");
    let capture = card
        .start_capture(config(&dir.path().join("x")))
        .expect("start");
    capture.stop().expect("stop");
}
