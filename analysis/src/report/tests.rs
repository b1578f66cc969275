// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page: well-formed, closed in itself, and safe against what names hold.

use super::*;
use crate::tcp::analyze;
use midwire_trace::inside::{CaState, Event};
use midwire_trace::units::{Nanos, Port};

const MS: u64 = 1_000_000;
const MSS: u16 = 1_000;

fn packet(number: u64, lane: Lane, time_ns: u64) -> TcpPacket {
    TcpPacket {
        number,
        lane,
        time_ns,
        left_ns: Some(time_ns),
        corrupted: false,
        delayed: false,
        copies_ns: Vec::new(),
        seq: 0,
        ack: 0,
        window: 500,
        flags: 0x10,
        payload: 0,
        sack: Vec::new(),
        marked: false,
        event: None,
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
            3 => (data.left_ns, data.event) = (None, Some(1)),
            4 => (data.marked, data.event) = (true, Some(2)),
            5 => (data.corrupted, data.event) = (true, Some(3)),
            _ => {}
        }
        let mut ack = TcpPacket {
            ack: 1 + n.min(2) * u32::from(MSS),
            ..packet(u64::from(2 * n + 1), Lane::BtoA, at + MS / 2)
        };
        if n == 2 {
            (ack.left_ns, ack.delayed, ack.event) = (Some(at + 3 * MS), true, Some(4));
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
        tables: Vec::new(),
        pictures: vec![Picture {
            title: name.to_owned(),
            connection: &connection,
            packets: &packets,
            inside: &moments(),
        }],
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
    let (_, acks) = place(&packets, Lane::AtoB);
    let view = View {
        t0: 15 * MS,
        t1: 20 * MS,
        s0: 1_000,
        s1: 5_000,
        height: H,
    };
    let line = acknowledged(view, &acks);
    let entry = format!("M{LEFT} {:.1}", view.y(2_000));
    assert!(
        line.starts_with(&entry),
        "{line} does not begin with {entry}"
    );
    assert!(line.ends_with(&format!("H{:.1}", W - RIGHT)), "{line}");
    // What is acknowledged below the view runs along its border.
    let above = View { s0: 3_000, ..view };
    assert!(acknowledged(above, &acks).starts_with(&format!("M{LEFT} {:.1}", above.y(3_000))));
    // Before the first acknowledgement there is no line.
    let early = View {
        t0: 0,
        t1: 10 * MS,
        ..view
    };
    assert_eq!(acknowledged(early, &acks), "");
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
