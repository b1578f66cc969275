// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual card with everything but a driver and endpoints: registers, frames, DMA,
//! virtual time, files.

mod common;

use common::{Capture, card, frame, virtual_lines};
use midwire_trace::Port;
use midwire_virtual_card::{
    CONFIG, Config, DEVICE_ID, Error, Frame, Pace, Participant, Picoseconds, PortConfig, Time,
    VENDOR_ID, VirtualCard, Width, after_start,
};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, TsResolution};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
const ID: u16 = 0;
const DATA_WIDTH: u16 = 0xc;
const CLOCK_PS: u16 = 0x10;
const NOW: u16 = 0x90;

fn lines(time: Time, width: Width) -> Config {
    Config {
        time,
        width,
        ports: [PortConfig::Line, PortConfig::Line],
        ..Config::default()
    }
}

#[test]
fn both_cores_answer_in_both_times() {
    for width in [Width::W512, Width::W64] {
        for time in [Time::Wall, Time::Virtual] {
            let card = card(lines(time, width));
            let bus = card.host_bus();
            let mut id = [0; 4];
            bus.read(CONFIG, 0, &mut id);
            assert_eq!(
                id,
                [VENDOR_ID.to_le_bytes(), DEVICE_ID.to_le_bytes()].concat()[..]
            );
            assert_eq!(bus.read32(ID), 0x4d57_4952);
            assert_eq!(bus.read32(DATA_WIDTH), 8 * width.bytes() as u32);
            assert_eq!(bus.read32(CLOCK_PS), width.clock_ps() as u32);
            bus.write32(0xa0, 0x1234_5000);
            assert_eq!(bus.read32(0xa0), 0x1234_5000);
            bus.reset();
            assert_eq!(bus.read32(0xa0), 0, "reset reaches the core");
        }
    }
}

#[test]
fn a_card_that_is_gone_answers_all_ones() {
    let card = card(lines(Time::Wall, Width::W64));
    let bus = card.host_bus();
    card.shutdown();
    assert_eq!(bus.read32(ID), u32::MAX);
    bus.write32(ID, 0);
    bus.reset();
}

#[test]
fn what_does_not_live_in_the_cards_time_is_refused() {
    let file = || PortConfig::File {
        input: None,
        pace: Pace::Recorded,
        output: None,
    };
    for (time, port) in [
        (Time::Wall, file()),
        (Time::Virtual, PortConfig::Tap("mwt".into())),
    ] {
        let ports = [PortConfig::Unplugged, port];
        let refused = VirtualCard::spawn(Config {
            time,
            ports,
            ..Config::default()
        });
        let text = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text.contains("port B does not live in"), "{text}");
    }
}

#[test]
fn frames_pass_whole_and_in_order_both_ways() {
    for width in [Width::W512, Width::W64] {
        for time in [Time::Wall, Time::Virtual] {
            let card = card(lines(time, width));
            let [a, b] = Port::ALL.map(|port| card.line(port).expect("a line"));
            let lengths = [60, 61, 63, 64, 65, 127, 128, 129, 1000, 1514, 9014];
            for (n, len) in lengths.into_iter().enumerate() {
                a.send(frame(n as u8, len)).expect("send");
                b.send(frame(100 + n as u8, len)).expect("send");
            }
            card.start_inputs().expect("start");
            card.wait_quiescent(LONG).expect("quiescent");
            for (n, len) in lengths.into_iter().enumerate() {
                let got = b.receive(SECOND).expect("at B").data;
                assert!(
                    got == frame(n as u8, len),
                    "{width:?} {time:?}: frame {n} is {got:?}"
                );
                assert_eq!(
                    a.receive(SECOND).expect("at A").data,
                    frame(100 + n as u8, len)
                );
            }
            assert!(a.try_receive().is_none() && b.try_receive().is_none());
            let stats = card.shutdown();
            let bytes = lengths.iter().sum::<usize>() as u64;
            for port in stats.ports {
                assert_eq!(
                    (port.frames_in, port.bytes_in),
                    (lengths.len() as u64, bytes)
                );
                assert_eq!(
                    (port.frames_out, port.bytes_out),
                    (lengths.len() as u64, bytes)
                );
                assert_eq!((port.lost_out, port.bad_out, port.underruns), (0, 0, 0));
            }
        }
    }
}

#[test]
fn wall_time_runs_by_itself_and_does_not_go_back() {
    let card = card(lines(Time::Wall, Width::W512));
    let bus = card.host_bus();
    let now = || {
        bus.write32(0x80, 1 << 2);
        u64::from(bus.read32(NOW)) | u64::from(bus.read32(NOW + 4)) << 32
    };
    let before = now();
    std::thread::sleep(Duration::from_millis(50));
    let between = now();
    assert!(
        (45_000_000..1_000_000_000).contains(&(between - before)),
        "{before} {between}"
    );
    let mut last = between;
    for _ in 0..100 {
        let time = now();
        assert!(time >= last);
        last = time;
    }
    let cycles = card.stats().cycles;
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        card.stats().cycles - cycles < 100,
        "an idle card costs nothing"
    );
}

#[test]
fn virtual_time_stands_still_for_the_host() {
    let card = virtual_lines(Width::W512, true);
    let bus = card.host_bus();
    let now = || {
        bus.write32(0x80, 1 << 2);
        u64::from(bus.read32(NOW)) | u64::from(bus.read32(NOW + 4)) << 32
    };
    assert_eq!(now(), 0);
    let line = card.line(Port::A).expect("a line");
    line.send(frame(1, 60)).expect("send");
    assert_eq!(now(), 0, "inputs wait for their start");
    card.start_inputs().expect("start");
    card.wait_quiescent(LONG).expect("quiescent");
    let after = now();
    assert!((1_000_000_000..1_001_000_000).contains(&after), "{after}");
    (0..10).for_each(|_| assert_eq!(now(), after));
}

#[test]
fn frames_leave_at_the_lines_pace() {
    for (width, byte_ps) in [(Width::W512, 80), (Width::W64, 800)] {
        let card = virtual_lines(width, true);
        let [a, b] = Port::ALL.map(|port| card.line(port).expect("a line"));
        for n in 0..200 {
            a.send(frame(n, 60)).expect("send");
        }
        card.start_inputs().expect("start");
        card.wait_quiescent(LONG).expect("quiescent");
        let times: Vec<u64> = (0..200)
            .map(|_| b.receive(SECOND).expect("frame").at)
            .collect();
        // A frame of 64 bytes with FCS takes 84 bytes on the line.
        let whole = times[199] - times[0];
        let line = 199 * 84 * byte_ps;
        assert!(
            whole.abs_diff(line) <= 4 * width.clock_ps(),
            "{whole} is not {line}"
        );
        assert!(times.windows(2).all(|t| t[1] - t[0] >= 84 * byte_ps));
    }
}

/// Frames with pauses of all lengths, so that idle clocks are skipped now and then.
fn traffic(card: &VirtualCard) {
    let mut at = 0;
    for n in 0..400u32 {
        for port in Port::ALL {
            let len = 60 + (n as usize * 37 + port.index() * 500) % 1455;
            let at = after_start(at + 3 * port.index() as u64);
            let sent = Frame {
                at,
                data: frame(n as u8, len),
                bad: n % 50 == 9,
            };
            card.line(port)
                .expect("a line")
                .send_frame(sent)
                .expect("send");
        }
        at += [10, 150, 3000, 40, 12_000][n as usize % 5];
    }
}

/// Everything that leaves the card in a run: blocks and frames.
fn run(width: Width, skip_idle: bool, pause: Duration) -> (Vec<u8>, Vec<Frame>, u64) {
    let card = virtual_lines(width, skip_idle);
    let capture = Capture::start(card.host_bus(), 12, 2, 128, pause);
    traffic(&card);
    card.start_inputs().expect("start");
    card.wait_quiescent(LONG).expect("quiescent");
    let blocks = capture.stop();
    let lines = Port::ALL.map(|port| card.line(port).expect("a line"));
    let frames = lines
        .iter()
        .flat_map(|line| std::iter::from_fn(|| line.try_receive()))
        .collect();
    let stats = card.shutdown();
    assert_eq!(stats.host_timeouts, 0);
    (blocks, frames, stats.cycles_skipped)
}

#[test]
fn virtual_runs_are_the_same_to_the_bit() {
    for width in [Width::W512, Width::W64] {
        let (blocks, frames, skipped) = run(width, true, Duration::ZERO);
        assert_eq!(frames.len(), 800);
        let mut records = 0;
        for block in blocks.chunks(4096) {
            let block = midwire_trace::Block::parse(block).expect("a whole block");
            records += block.header.records;
            assert_eq!(
                block.header.counters.lost_ingress,
                [0, 0],
                "the ring never got full"
            );
        }
        assert_eq!(records, 800);

        assert!(run(width, true, Duration::ZERO) == (blocks.clone(), frames.clone(), skipped));
        let slow = run(width, true, Duration::from_millis(3));
        assert!(
            (slow.0, slow.1) == (blocks.clone(), frames.clone()),
            "a slow host"
        );
        let all = run(width, false, Duration::ZERO);
        // The start of inputs is jumped to even so.
        assert!(
            all.2 + 100_000 < skipped,
            "{} is not well below {skipped}",
            all.2
        );
        assert!((all.0, all.1) == (blocks, frames), "every clock evaluated");
    }
}

/// A host that answers each frame at once, until it has answered enough.
struct Echo {
    delay: Picoseconds,
    claimed_delay: Picoseconds,
    /// What it will do, and when.
    agenda: Vec<(Picoseconds, Vec<u8>)>,
    left: usize,
    seen: Arc<Mutex<Vec<(Picoseconds, u8)>>>,
}

impl Participant for Echo {
    fn next(&self) -> Option<Picoseconds> {
        self.agenda.iter().map(|(at, _)| *at).min()
    }

    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<(), Error> {
        let delay = self.delay;
        let due = self.agenda.extract_if(.., |(at, _)| *at < to);
        sent.extend(due.map(|(at, data)| Frame {
            at: at + delay,
            data,
            bad: false,
        }));
        Ok(())
    }

    fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<(), Error> {
        let mut data = frame.data;
        self.seen
            .lock()
            .expect("lock")
            .push((end + self.delay, data[11]));
        if self.left > 0 {
            self.left -= 1;
            data[11] += 1;
            self.agenda.push((end + self.delay, data));
        }
        Ok(())
    }

    fn link_delay(&self) -> Picoseconds {
        self.claimed_delay
    }
}

/// Two hosts play ping-pong; when each saw what.
fn ping_pong(claimed_delay: Picoseconds) -> Vec<(Picoseconds, u8)> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let host = |agenda: Vec<_>| {
        let delay = 5_000_000;
        let seen = seen.clone();
        PortConfig::Participant(Box::new(Echo {
            delay,
            claimed_delay,
            agenda,
            left: 20,
            seen,
        }))
    };
    let first = (after_start(0), frame(0, 100));
    let second = (after_start(7), frame(100, 1514));
    let ports = [host(vec![first, second]), host(vec![])];
    let card = card(Config {
        time: Time::Virtual,
        ports,
        ..Config::default()
    });
    card.start_inputs().expect("start");
    card.wait_quiescent(LONG).expect("quiescent");
    drop(card);
    seen.lock().expect("lock").clone()
}

#[test]
fn hosts_on_the_calendar_miss_nothing_however_far_it_looks() {
    let far = ping_pong(5_000_000);
    assert_eq!(far.len(), 42, "two, and the answers of both hosts");
    // There: 5 us, the line, the card; and 5 us more.
    let (at, _) = far[0];
    assert!(
        (after_start(10_000)..after_start(11_000)).contains(&at),
        "{at}"
    );
    let mut near = ping_pong(1_000_000);
    let mut sorted = far.clone();
    [&mut near, &mut sorted]
        .iter_mut()
        .for_each(|list| list.sort());
    assert_eq!(near, sorted);
}

#[test]
fn a_host_that_takes_no_blocks_does_not_stop_time() {
    let card = virtual_lines(Width::W512, true);
    let capture = Capture::start(card.host_bus(), 12, 2, 0, Duration::from_secs(3600));
    traffic(&card);
    card.start_inputs().expect("start");
    card.wait_quiescent(LONG).expect("quiescent");
    assert_eq!(card.stats().host_timeouts, 1, "one is enough to know");
    assert_eq!(card.stats().ports[1].frames_out, 400);
    drop(card);
    drop(capture);
}

fn write_pcap(path: &Path, resolution: TsResolution, frames: &[(u64, Vec<u8>)]) {
    let file = File::create(path).expect("create");
    let header = PcapHeader {
        ts_resolution: resolution,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(file, header).expect("header");
    for (ns, data) in frames {
        let packet = PcapPacket::new(Duration::from_nanos(*ns), data.len() as u32, data);
        writer.write_packet(&packet).expect("packet");
    }
}

fn write_pcapng(path: &Path, tsresol: Option<u8>, frames: &[(u64, Vec<u8>)]) {
    let mut writer = PcapNgWriter::new(File::create(path).expect("create")).expect("header");
    let options = tsresol
        .map(InterfaceDescriptionOption::IfTsResol)
        .into_iter()
        .collect();
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options,
    };
    writer.write_pcapng_block(interface).expect("interface");
    for (units, data) in frames {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(*units),
            original_len: data.len() as u32,
            data: data.into(),
            options: vec![],
        };
        writer.write_pcapng_block(packet).expect("packet");
    }
}

/// Times in ns and frames of a pcapng file of ours.
fn read_pcapng(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = PcapNgReader::new(File::open(path).expect("open")).expect("header");
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("block") {
            frames.push((packet.timestamp.as_nanos() as u64, packet.data.into_owned()));
        }
    }
    frames
}

fn play(input: [&Path; 2], pace: Pace, output: [&Path; 2]) -> Result<(), Error> {
    let ports = [0, 1].map(|n: usize| PortConfig::File {
        input: Some(input[n].into()),
        pace,
        output: Some(output[n].into()),
    });
    let card = VirtualCard::spawn(Config {
        time: Time::Virtual,
        ports,
        ..Config::default()
    })?;
    card.start_inputs()?;
    card.wait_quiescent(LONG)
}

#[test]
fn files_go_in_at_their_times_and_come_out_in_pcapng() {
    let dir = tempfile::tempdir().expect("dir");
    let path = |name: &str| dir.path().join(name);
    let sizes = [60, 1514, 42, 700];
    let frames: Vec<_> = (0u8..4).map(|n| frame(n, sizes[n as usize])).collect();
    let base = 1_700_000_000_000_000_000; // ns
    let times = [0, 123_000, 1_000_000_000, 3_600_000_000_000]; // an hour costs nothing
    let list = |unit: u64| {
        let stamped = times
            .iter()
            .zip(&frames)
            .map(|(ns, data)| ((base + ns) / unit, data.clone()));
        stamped.collect::<Vec<_>>()
    };
    write_pcap(&path("us"), TsResolution::MicroSecond, &list(1));
    write_pcap(&path("ns"), TsResolution::NanoSecond, &list(1));
    write_pcapng(&path("ng"), None, &list(1000));
    write_pcapng(&path("ng9"), Some(9), &list(1));
    for pair in [["us", "ns"], ["ng", "ng9"]] {
        let [input_a, input_b] = pair.map(path);
        let [out_a, out_b] = ["out a", "out b"].map(path);
        play([&input_a, &input_b], Pace::Recorded, [&out_a, &out_b]).expect("play");
        for out in [out_a, out_b] {
            let got = read_pcapng(&out);
            assert_eq!(got.len(), 4);
            for ((at, data), (time, sent)) in got.iter().zip(times.iter().zip(&frames)) {
                let mut sent = sent.clone();
                sent.resize(sent.len().max(60), 0);
                assert_eq!(*data, sent);
                let through = at - 1_000_000_000 - time;
                assert!(
                    through < 20_000,
                    "a few hundred ns through the card, not {through}"
                );
            }
        }
    }
}

#[test]
fn two_files_keep_their_distance() {
    let dir = tempfile::tempdir().expect("dir");
    let path = |name: &str| dir.path().join(name);
    write_pcap(
        &path("a"),
        TsResolution::NanoSecond,
        &[(5_000_000, frame(1, 60))],
    );
    write_pcap(
        &path("b"),
        TsResolution::NanoSecond,
        &[(2_000_000, frame(2, 60))],
    );
    play(
        [&path("a"), &path("b")],
        Pace::Recorded,
        [&path("oa"), &path("ob")],
    )
    .expect("play");
    let [at_a, at_b] = ["oa", "ob"].map(|out| read_pcapng(&path(out))[0].0);
    assert!((at_b - at_a).abs_diff(3_000_000) <= 4, "{}", at_b - at_a);
}

#[test]
fn line_rate_is_line_rate() {
    let dir = tempfile::tempdir().expect("dir");
    let path = |name: &str| dir.path().join(name);
    let frames: Vec<_> = (0..1000u64)
        .map(|n| (n * 1_000_000, frame(n as u8, 1514)))
        .collect();
    write_pcap(&path("a"), TsResolution::NanoSecond, &frames);
    write_pcap(&path("b"), TsResolution::NanoSecond, &[]);
    play(
        [&path("a"), &path("b")],
        Pace::LineRate,
        [&path("oa"), &path("ob")],
    )
    .expect("play");
    let got = read_pcapng(&path("ob"));
    assert_eq!(got.len(), 1000);
    let whole = got[999].0 - got[0].0;
    let line = 999 * 1538 * 80 / 1000;
    assert!(whole.abs_diff(line) <= 10, "{whole} is not {line}");
}

#[test]
fn files_that_are_none_are_named() {
    let dir = tempfile::tempdir().expect("dir");
    let path = |name: &str| dir.path().join(name);
    let good = path("good");
    write_pcap(
        &good,
        TsResolution::NanoSecond,
        &[(0, frame(0, 60)), (9, frame(1, 60))],
    );
    let bytes = std::fs::read(&good).expect("read");
    std::fs::write(path("cut"), &bytes[..bytes.len() - 10]).expect("write");
    std::fs::write(path("noise"), [0x55; 5000]).expect("write");
    std::fs::write(path("empty"), []).expect("write");
    let mut other_link = bytes.clone();
    other_link[23] = 101; // big endian: raw IP
    std::fs::write(path("raw"), other_link).expect("write");
    for name in ["cut", "noise", "empty", "raw", "missing"] {
        let out = [path("oa"), path("ob")];
        let played = play([&path(name), &good], Pace::Recorded, [&out[0], &out[1]]);
        let text = played.expect_err(name).to_string();
        assert!(text.contains(name) && !text.contains('\n'), "{text}");
    }
}
