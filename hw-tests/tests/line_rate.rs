// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At the rate of the line nothing is lost and no frame takes longer than it should; the whole
//! of it is measured by `make bench`.

use midwire_driver::{Action, Base, Broken, Corrupt, Ecn, Ip6Place, Mended, Set};
use midwire_hw_tests::line_rate::{Load, Measured, SHORTEST, mark, on_each, watch};
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
            load.push(len, 150);
        }
        load.push_random(7, 200);
        assert_whole(&load.run(width, &mark(2000)), 2);
    }
}

const SET: Set = Set {
    base: Base::Transport,
    offset: 14,
    mask: [0xff, 0xff, 0, 0, 0, 0, 0, 0],
    value: [0; 8],
    ip6: Ip6Place::Same,
};
const CORRUPT: Corrupt = Corrupt {
    base: Base::Ip,
    offset: 9,
    mask: 0x01,
};
const MENDED: Mended = Mended {
    ip: true,
    transport: true,
    icrc: true,
};

/// Runs frames of both lanes, all of which are edited; how many frames, and how many of them
/// were set, marked, and corrupted.
fn edited(width: Width, lengths: &[usize], action: Action) -> (u64, [u64; 3]) {
    let mut load = Load::new(1);
    for &len in lengths {
        load.push(len, 150);
    }
    load.push_random(11, 100);
    // The SYN is the first packet of its lane.
    let each = 150 * lengths.len() as u32 + 100;
    let measured = load.run(width, &on_each(each + 1, action));
    assert_eq!((measured.lost, measured.underruns), (0, 0), "{action:?}");
    for (len, group) in &measured.groups {
        assert_eq!(group.left, group.frames, "{len} bytes: {action:?}");
    }
    (2 * u64::from(each) + 1, measured.edited)
}

#[test]
fn edits_of_every_packet_keep_up() {
    let none = Action::default();
    let (set, corrupt) = (Some(SET), Some(CORRUPT));
    let ecn = Some(Ecn::Ect1);
    let mended = MENDED;
    let broken = Broken {
        fcs: false,
        ip: true,
        transport: true,
        icrc: true,
    };
    for width in WIDTHS {
        for (action, wanted) in [
            (
                Action {
                    set,
                    mended,
                    ..none
                },
                [1, 0, 0],
            ),
            (
                Action {
                    set,
                    ecn,
                    mended,
                    ..none
                },
                [1, 1, 0],
            ),
            (
                Action {
                    corrupt,
                    ecn,
                    mended,
                    ..none
                },
                [0, 1, 1],
            ),
            (
                Action {
                    set,
                    broken,
                    mended,
                    ..none
                },
                [1, 0, 1],
            ),
            (
                Action {
                    set,
                    truncate: Some(70),
                    ..none
                },
                [1, 0, 0],
            ),
        ] {
            let (frames, counts) = edited(width, &[60, 61, 64, 65, 128, 129, 1514], action);
            assert_eq!(counts, wanted.map(|n| n * frames), "{width:?} {action:?}");
        }
    }
}

#[test]
fn too_many_changes_of_shortest_frames_cost_no_frame() {
    let action = Action {
        set: Some(SET),
        ecn: Some(Ecn::Ect1),
        corrupt: Some(Corrupt {
            base: Base::Frame,
            offset: 3,
            mask: 0x20,
        }),
        mended: MENDED,
        ..Action::default()
    };
    for width in WIDTHS {
        let (frames, counts) = edited(width, &[60; 8], action);
        // A frame is changed as a whole or not at all.
        assert_eq!(counts, [counts[0]; 3]);
        match width {
            Width::W512 => assert!(counts[0] < frames && counts[0] > frames / 2, "{counts:?}"),
            Width::W64 => assert_eq!(counts[0], frames),
        }
        println!("{width:?}: {} of {frames} frames were changed", counts[0]);
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
