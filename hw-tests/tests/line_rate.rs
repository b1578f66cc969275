// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At the rate of the line nothing is lost and no frame takes longer than it should; the whole
//! of it is measured by `make bench`.

use midwire_hw_tests::line_rate::{Load, Measured, SHORTEST, mark, watch};
use midwire_virtual_card::Width;

const WIDTHS: [Width; 2] = [Width::W512, Width::W64];

/// Every frame left, and has as many records as it should.
fn assert_whole(measured: &Measured, records_a_frame: u64) {
    assert_eq!(
        (measured.lost, measured.underruns, measured.unmatched),
        (0, 0, 0)
    );
    assert!(measured.complete, "{} records lost", measured.records_lost);
    for (len, group) in &measured.groups {
        assert_eq!(group.left, group.frames, "{len} bytes");
        assert_eq!(group.records, records_a_frame * group.frames, "{len} bytes");
    }
}

#[test]
fn lengths_back_to_back() {
    for width in WIDTHS {
        let mut load = Load::new(1);
        for len in (SHORTEST..=200)
            .chain((201..=1514).step_by(37))
            .chain([9014])
        {
            load.push(len, 12);
        }
        assert_whole(&load.run(width, &watch()), 1);
    }
}

#[test]
fn shortest_frames_of_many_connections_in_little_time() {
    let mut load = Load::new(1000);
    load.push(SHORTEST, 3000);
    let measured = load.run(Width::W512, &watch());
    assert_whole(&measured, 1);
    // At the input a frame waits for the one before it, which a gap may have shifted by a clock.
    let longest = measured.groups[&SHORTEST].latency.max;
    assert!(longest <= 150_000 + Width::W512.clock_ps(), "{longest} ps");
}

#[test]
fn events_on_every_packet() {
    for width in WIDTHS {
        let mut load = Load::new(1);
        for len in [256, 512, 1514] {
            load.push(len, 300);
        }
        load.push_random(7, 200);
        assert_whole(&load.run(width, &mark(2000)), 2);
    }
}

#[test]
fn too_many_records_cost_no_frame() {
    let mut load = Load::new(1);
    load.push(SHORTEST, 4000);
    // The SYN is the first packet of its lane.
    let measured = load.run(Width::W512, &mark(4001));
    assert_eq!((measured.lost, measured.underruns), (0, 0));
    let group = &measured.groups[&SHORTEST];
    assert_eq!(group.left, group.frames);
    assert_eq!(group.records + measured.records_lost, 2 * group.frames);
    assert!(measured.records_lost > 0 && !measured.complete);
}
