// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page: well-formed, closed in itself, and safe against what names hold.

use super::plane::{H, LEFT, RIGHT, W, steps};
use super::*;
use crate::tcp::analyze;
use crate::view::Passage;
use midwire_trace::Kind;
use midwire_trace::inside::{CaState, Event};
use midwire_trace::units::{Nanos, Port};

const MS: u64 = 1_000_000;
const MSS: u16 = 1_000;

fn packet(number: u64, lane: Lane, time_ns: u64) -> TcpPacket {
    TcpPacket {
        at: Passage::untouched(number, lane, time_ns),
        seq: 0,
        ack: 0,
        window: 500,
        flags: 0x10,
        payload: 0,
        sack: Vec::new(),
    }
}

/// A connection whose third segment is lost, fourth marked, fifth corrupted, and whose second
/// acknowledgement is late.
fn packets() -> Vec<TcpPacket> {
    let mut all = vec![TcpPacket {
        flags: 0x02,
        ..packet(1, Lane::AtoB, 10 * MS)
    }];
    for n in 1..=20_u32 {
        let at = (10 + u64::from(n)) * MS;
        let mut data = TcpPacket {
            seq: 1 + (n - 1) * u32::from(MSS),
            payload: MSS,
            ..packet(u64::from(2 * n), Lane::AtoB, at)
        };
        match n {
            3 => (data.at.left_ns, data.at.event) = (None, Some(1)),
            4 => (data.at.marked, data.at.event) = (true, Some(2)),
            5 => (data.at.corrupted, data.at.event) = (true, Some(3)),
            _ => {}
        }
        let mut ack = TcpPacket {
            ack: 1 + n.min(2) * u32::from(MSS),
            ..packet(u64::from(2 * n + 1), Lane::BtoA, at + MS / 2)
        };
        if n == 2 {
            (ack.at.left_ns, ack.at.delayed, ack.at.event) = (Some(at + 3 * MS), true, Some(4));
        }
        all.extend([data, ack]);
    }
    all.push(TcpPacket {
        seq: 1 + 2 * u32::from(MSS),
        payload: MSS,
        ..packet(50, Lane::AtoB, 40 * MS)
    });
    all
}

/// Host A's window grows with each segment, is halved, and its kernel recovers in between.
fn moments() -> Vec<Moment> {
    let at = |ms, event| Moment::new(Nanos(ms * MS), Port::A, event, 1);
    let mut all: Vec<_> = (11..=30)
        .map(|ms| Moment {
            cwnd: Some(if ms < 20 { ms as u32 } else { 10 }),
            ssthresh: Some(if ms < 20 { 0x7fff_ffff } else { 9 }),
            srtt_us: Some(500),
            ..at(ms, Event::Probe)
        })
        .collect();
    for (ms, state) in [(20, CaState::Recovery), (25, CaState::Open)] {
        all.push(Moment {
            ca_state: Some(state),
            ..at(ms, Event::CaState)
        });
    }
    all.sort_by_key(|moment| moment.time_ns);
    all
}

/// Ten segments, of which the replay has lost the fifth.
fn replay(name: &str) -> Replay {
    let points = [true, false].map(|went_on| {
        let point = |n: u32| Point {
            from_a: true,
            time_ns: u64::from(n) * MS,
            seq: 1 + n * 1000,
            payload: 1000,
            ack: None,
            went_on: went_on || n != 5,
        };
        let ack = |n: u32| Point {
            from_a: false,
            seq: 1,
            payload: 0,
            ack: Some(1001 + n * 1000),
            went_on: true,
            ..point(n)
        };
        (0..10).flat_map(|n| [point(n), ack(n)]).collect()
    });
    let row = ["packet", "11", name, "differs"];
    Replay {
        title: name.to_owned(),
        holds: false,
        lines: vec![("Packets".to_owned(), name.to_owned())],
        departure: Some(Departure {
            what: name.to_owned(),
            time_ns: 5 * MS,
            rows: vec![row.map(str::to_owned).to_vec()],
        }),
        points,
    }
}

#[test]
fn a_replay_is_drawn_over_what_was_recorded() {
    let mut section = String::new();
    replay("<test>").section(&mut section);
    well_formed(&section);
    let begins = "<h2>Replay of &lt;test&gt;</h2><div class=\"verdict bad\">";
    assert!(section.starts_with(begins), "{section}");
    // Of one direction; the other one has no data.
    assert_eq!(section.matches("<svg").count(), 1);
    let strokes = |part: &str| section.matches(part).count();
    assert_eq!(strokes("stroke=\"var(--data)\""), 2, "{section}");
    assert_eq!(strokes("stroke=\"var(--bad)\""), 1, "{section}");
    assert!(section.contains(">departs</text>"), "{section}");
    let drawn = section
        .split("stroke=\"var(--data)\"")
        .next()
        .expect("a path");
    let (_, path) = drawn.rsplit_once("d=\"").expect("a path");
    assert_eq!(path.matches('M').count(), 10, "{path}");
}

fn page(name: &str) -> String {
    let packets = packets();
    let connection = analyze(0, &packets);
    html(&Report {
        name: name.to_owned(),
        description: name.to_owned(),
        verdict: format!("PASS: {name}"),
        passed: true,
        facts: vec![("Card".to_owned(), name.to_owned())],
        events: vec![EventRow {
            number: 1,
            asked: name.to_owned(),
            fired: 1,
            wanted: Some(2),
            measured: format!("{name}\nand more"),
            passed: false,
        }],
        expectations: vec![Check {
            what: name.to_owned(),
            found: name.to_owned(),
            holds: true,
        }],
        integrity: Vec::new(),
        replay: None,
        tables: Vec::new(),
        pictures: vec![Picture {
            title: name.to_owned(),
            connection: &connection,
            packets: &packets,
            inside: &moments(),
        }],
        roce_pictures: Vec::new(),
        more_roce: 0,
        start_ns: 9 * MS,
        plan: name.to_owned(),
    })
}

/// Every tag that is opened is closed, in order. HTML's own void elements need no end.
fn well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "br"];
    let mut open = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag that ends");
        assert!(!text.contains('>'), "a bare > after <{tag}>");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty());
        let name = name.expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !(tag.starts_with('!') || tag.ends_with('/') || VOID.contains(&name)) {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn every_tag_is_closed() {
    well_formed(&page("plain"));
}

#[test]
fn names_are_text_and_nothing_else() {
    let page = page("<script>alert(1)</script>&\"'");
    well_formed(&page);
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;"));
}

#[test]
fn the_page_needs_no_network() {
    let page = page("plain");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn the_page_tells_events_and_draws_them() {
    let page = page("plain");
    assert!(page.contains("1 of 2"));
    assert!(page.contains("plain<br>and more"));
    for marker in ["✕", "□", "◆", "⋯●"] {
        assert!(page.contains(marker), "the key explains {marker}");
    }
    // The whole, and closer views of events 1 (which 2 and 3 are in) to 4.
    assert!(page.matches("<svg").count() >= 2);
    assert!(page.contains("Around event 1"));
    // The first segment came 2 ms after the first record.
    assert!(page.contains("Time from 2 ms of the run."), "{page}");
    assert!(page.contains("packet 50: bytes 2000 to 3000, sent again"));
}

#[test]
fn acknowledgements_enter_a_view_where_they_were() {
    let packets = packets();
    let sequence = Sequence::tcp(&packets, Lane::AtoB);
    let view = View {
        t0: 15 * MS,
        t1: 20 * MS,
        s0: 1_000,
        s1: 5_000,
        height: H,
    };
    let line = sequence.acknowledged(view);
    let entry = format!("M{LEFT} {:.1}", view.y(2_000));
    assert!(
        line.starts_with(&entry),
        "{line} does not begin with {entry}"
    );
    assert!(line.ends_with(&format!("H{:.1}", W - RIGHT)), "{line}");
    // What is acknowledged below the view runs along its border.
    let above = View { s0: 3_000, ..view };
    assert!(
        sequence
            .acknowledged(above)
            .starts_with(&format!("M{LEFT} {:.1}", above.y(3_000)))
    );
    // Before the first acknowledgement there is no line.
    let early = View {
        t0: 0,
        t1: 10 * MS,
        ..view
    };
    assert_eq!(sequence.acknowledged(early), "");
}

#[test]
fn ticks_are_round_and_inside() {
    assert_eq!(steps(0, 100, 5), [0, 20, 40, 60, 80, 100]);
    assert_eq!(steps(990, 1_260, 5), [1_000, 1_100, 1_200]);
    assert_eq!(steps(7, 7, 5), [7]);
}

#[test]
fn the_kernels_view_has_the_pictures_axis_of_time() {
    let page = page("x");
    let svgs: Vec<&str> = page.split("<svg").skip(1).collect();
    let ticks = |svg: &str| -> Vec<String> {
        let labels = svg.split("text-anchor=\"middle\"").skip(1);
        let ticks = svg.split("v4\" stroke");
        let places = ticks.filter_map(|t| Some(t.rsplit_once("<path d=\"M")?.1.split_once(' ')?.0));
        labels
            .zip(places)
            .map(|(label, x)| format!("{x} {}", label.split('<').next().unwrap()))
            .collect()
    };
    let (bytes, windows, round_trip) = (svgs[0], svgs[1], svgs[2]);
    assert!(ticks(bytes).len() > 3);
    assert_eq!(ticks(bytes), ticks(windows));
    assert_eq!(ticks(bytes), ticks(round_trip));
    // Recovery from 20 to 25 ms, of 11 to 40 ms.
    let x = |ms: f64| LEFT + (ms - 11.0) / 29.0 * (W - LEFT - RIGHT);
    let (from, width) = (x(20.0), x(25.0) - x(20.0));
    let shade = format!("<rect x=\"{from:.1}\" y=\"28\" width=\"{width:.1}\"");
    assert!(windows.contains(&shade), "{windows}");
    // A threshold that is not there yet has no place on the axis.
    assert!(!windows.contains("2000000000"));
}

#[test]
fn without_a_kernels_view_there_is_no_picture_of_it() {
    let packets = packets();
    let mut page = String::new();
    let picture = Picture {
        title: String::new(),
        connection: &analyze(0, &packets),
        packets: &packets,
        inside: &[],
    };
    super::picture(&mut page, &picture, 0);
    assert!(page.contains("time–sequence picture") && !page.contains("cwnd"));
}

/// A connection that WRITEs across the end of the numbers: the fourth packet is lost, asked for by
/// a NAK, and all is sent again from there on; then a READ, of which a response is lost.
#[test]
fn psns_are_drawn_as_they_were_sent_and_asked_for() {
    const FIRST: u32 = 0xff_fffd;
    let mut lists = [Vec::new(), Vec::new()];
    let mut number = 0;
    let mut send = |to: usize, kind, psn: u32, event: Option<u32>| {
        number += 1;
        let lane = Lane::ALL[to];
        let mut at = Passage::untouched(number, lane, number * MS);
        if event.is_some() {
            (at.left_ns, at.event) = (None, event);
        }
        lists[to].push(RocePacket {
            at,
            kind,
            response: to == 1,
            psn: FIRST.wrapping_add(psn) & 0xff_ffff,
            syndrome: if kind == Kind::Nak { 0x60 } else { 0 },
        });
    };
    for psn in 0..6 {
        send(0, Kind::Data, psn, (psn == 3).then_some(7));
    }
    send(1, Kind::Nak, 3, None);
    for psn in 3..6 {
        send(0, Kind::Data, psn, None);
    }
    send(1, Kind::Ack, 5, None);
    send(0, Kind::ReadRequest, 6, None);
    send(1, Kind::Data, 6, None);
    send(1, Kind::Data, 7, Some(8));
    send(1, Kind::Data, 8, None);
    send(0, Kind::ReadRequest, 7, None);
    send(1, Kind::Data, 7, None);
    send(1, Kind::Data, 8, None);
    let end = |last| roce::End {
        address: [10, 0, 0, last].into(),
        qp: Some(last.into()),
    };
    let connection = roce::Connection {
        number: 0,
        requester: end(1),
        responder: end(2),
        verbs: Default::default(),
        first_psn: FIRST,
        first_packet: 1,
        migration_cleared: false,
        first_answer: None,
        mtu: None,
        counts: Default::default(),
        responder_round_trip_ns: None,
        requester_round_trip_ns: None,
        refusals: Vec::new(),
    };
    let picture = RocePicture {
        connection: &connection,
        to_responder: &lists[0],
        to_requester: &lists[1],
    };
    let mut page = String::new();
    roce_picture(&mut page, &picture, 0);
    for (times, what) in [
        // As a whole and around the event; what an event touched has its mark besides.
        (4, "packet 4: PSN 3<"),
        (2, "packet 7: NAK, PSN 3<"),
        (2, "packet 8: PSN 3, sent again<"),
        (4, "packet 14: PSN 7<"),
        (2, "packet 16: READ, PSN 7<"),
        (2, "packet 17: PSN 7, sent again<"),
        // The first one asks for what was not sent yet.
        (0, "packet 12:"),
    ] {
        assert_eq!(page.matches(what).count(), times, "{what}: {page}");
    }
    let requests = Sequence::requests(&picture);
    let all = requests.extent().expect("there are some");
    // All six are acknowledged by the last packet.
    let acknowledged = format!("M{:.1} {:.1}", all.x(11 * MS), all.y(6));
    assert!(requests.acknowledged(all).starts_with(&acknowledged));
}
