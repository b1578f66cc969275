// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two hosts joined by a piece of wire made of two file descriptors: what they send, what their
//! traffic reports, and that nothing is left of them.
//!
//! The program is also its own helper: with `MIDWIRE_TEST_ROLE` it plays a part of a test.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use midwire_endpoints::privilege::{self, Privilege};
use midwire_endpoints::traffic::{CommandTraffic, Direction, Outcome, Payload, TcpTraffic};
use midwire_endpoints::{Error, Hosts, Neighbours, Port, Setting, TapHost};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Uid;

const ROLE: &str = "MIDWIRE_TEST_ROLE";
static GO_ON: AtomicBool = AtomicBool::new(false);

fn main() {
    let privilege = match privilege::enter() {
        Ok(privilege) => privilege,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    match env::var(ROLE).as_deref() {
        Ok("listen") => return listen(),
        Ok("hold") => return hold(),
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let mut trials = vec![
        Trial::test("bytes_arrive_both_ways_over_nothing_but_tcp", both_ways),
        Trial::test("ipv6_hosts_send_nothing_by_themselves", ipv6),
        Trial::test("a_lost_segment_is_sent_again", lost_segment),
        Trial::test("an_altered_byte_is_found", altered_byte),
        Trial::test("a_cut_wire_ends_in_time", cut_wire),
        Trial::test("a_full_queue_is_counted", full_queue),
        Trial::test(
            "an_unknown_congestion_control_is_refused",
            congestion_control,
        ),
        Trial::test("options_of_a_host_take_effect", host_options),
        Trial::test("hosts_find_each_other_by_arp", arp),
        Trial::test("a_command_leaves_output_and_status", command),
        Trial::test("a_command_that_takes_too_long_is_killed", command_timeout),
        Trial::test("a_background_command_is_waited_for_and_stopped", background),
        Trial::test("nothing_outlives_its_host", outlive),
        Trial::test("nothing_is_left_after_kill_9", kill_9),
    ];
    if privilege == Privilege::Root && Uid::effective().is_root() {
        trials.push(Trial::test(
            "an_ordinary_user_can_do_the_same",
            unprivileged,
        ));
    }
    println!("hosts by {privilege}");
    libtest_mimic::run(&arguments, trials).exit();
}

/// What may become of a frame: it may be changed, and `false` loses it.
type Fate = Box<dyn FnMut(Port, &mut Vec<u8>) -> bool + Send>;

/// Each frame with the port that it came from.
type Frames = Vec<(Port, Vec<u8>)>;

/// A piece of wire between two TAPs.
struct Wire {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    frames: Arc<Mutex<Frames>>,
}

impl Wire {
    fn new(ports: [OwnedFd; 2], mut fate: Fate) -> Wire {
        let stop = Arc::new(AtomicBool::new(false));
        let frames = Arc::new(Mutex::new(Vec::new()));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&frames));
        let thread = thread::spawn(move || {
            let [a, b] = &ports.map(File::from);
            let mut frame = vec![0; 1 << 16];
            while !stopped.load(Ordering::Relaxed) {
                let mut waited = [
                    PollFd::new(a.as_fd(), PollFlags::POLLIN),
                    PollFd::new(b.as_fd(), PollFlags::POLLIN),
                ];
                poll(&mut waited, PollTimeout::from(20_u8))?;
                for (port, from, to) in [(Port::A, a, b), (Port::B, b, a)] {
                    let (mut from, mut to) = (from, to);
                    while let Some(length) = unless_empty(from.read(&mut frame))? {
                        let mut frame = frame[..length].to_vec();
                        seen.lock().unwrap().push((port, frame.clone()));
                        if fate(port, &mut frame) {
                            to.write_all(&frame)?;
                        }
                    }
                }
            }
            Ok(())
        });
        Wire {
            stop,
            thread: Some(thread),
            frames,
        }
    }

    /// The frames that were sent so far.
    fn frames(&self) -> Frames {
        self.frames.lock().unwrap().clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

fn unless_empty(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        read => read.map(Some),
    }
}

fn straight() -> Fate {
    Box::new(|_, _| true)
}

fn tap_host(address: &str) -> TapHost {
    TapHost::new(address.parse().unwrap())
}

fn options() -> [TapHost; 2] {
    [tap_host("10.77.0.1/24"), tap_host("10.77.0.2/24")]
}

fn plugged([a, b]: [TapHost; 2], fate: Fate) -> Result<(Hosts, Wire), Error> {
    let (hosts, ports) = Hosts::new("test", &a, &b)?;
    Ok((hosts, Wire::new(ports, fate)))
}

/// The TCP part of an Ethernet frame with an IPv4 header without options.
fn tcp_of(frame: &[u8]) -> Option<&[u8]> {
    let total = usize::from(u16::from_be_bytes(frame.get(16..18)?.try_into().ok()?));
    (frame[12..15] == [8, 0, 0x45] && frame[23] == 6).then(|| &frame[34..14 + total])
}

fn payload_of(frame: &[u8]) -> Option<&[u8]> {
    let tcp = tcp_of(frame)?;
    Some(&tcp[usize::from(tcp[12] >> 4) * 4..])
}

/// The Internet checksum: 0 over what includes a right one.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn both_ways() -> Result<(), Failed> {
    let (hosts, wire) = plugged(options(), straight())?;
    let traffic = TcpTraffic {
        bytes: 1_000_001,
        connections: 3,
        source_port: Some(40_000),
        direction: Direction::Both,
        congestion_control: Some("reno".to_owned()),
        write_size: 10_007,
        seed: 42,
        ..TcpTraffic::default()
    };
    let report = traffic.run(&hosts, &GO_ON)?;
    assert!(report.completed(), "{report:?}");
    for (number, connection) in (0..).zip(&report.connections) {
        assert_eq!(connection.connection, number);
        assert_eq!(
            connection.local,
            format!("10.77.0.1:{}", 40_000 + number).parse()?
        );
        assert_eq!(connection.remote, "10.77.0.2:5001".parse()?);
        assert_eq!(connection.streams.len(), 2);
        for stream in &connection.streams {
            assert_eq!(
                (stream.bytes, stream.payload),
                (1_000_001, Payload::Verified)
            );
            assert!(stream.goodput_bits_per_s > 1_000_000, "{stream:?}");
        }
        for end in [connection.opener.unwrap(), connection.listener.unwrap()] {
            assert!(end.closed && end.acknowledged_bytes == 1_000_001, "{end:?}");
            assert_eq!(end.send_mss, 1448);
        }
    }

    let frames = wire.frames();
    let mut opened = Vec::new();
    let mut in_segments = [0, 0];
    for (port, frame) in &frames {
        let tcp = tcp_of(frame).unwrap_or_else(|| panic!("not TCP: {frame:02x?}"));
        assert!(frame.len() <= 1514, "{} bytes", frame.len());
        assert_eq!(frame[..6], hosts.at(port.other()).mac().0);
        assert_eq!(frame[6..12], hosts.at(*port).mac().0);
        assert_eq!(checksum(&[&frame[14..34]]), 0, "IP checksum");
        let pseudo = [0, 6, (tcp.len() >> 8) as u8, tcp.len() as u8];
        assert_eq!(checksum(&[&frame[26..34], &pseudo, tcp]), 0, "TCP checksum");
        if tcp[13] & 0x12 == 2 {
            opened.push(u16::from_be_bytes([tcp[0], tcp[1]]));
        }
        in_segments[usize::from(*port == Port::B)] += payload_of(frame).unwrap().len();
    }
    opened.dedup();
    assert_eq!(opened, [40_000, 40_001, 40_002], "order of opening");
    assert!(
        in_segments.iter().all(|&bytes| bytes >= 3_000_003),
        "{in_segments:?}"
    );
    for (host, counters) in [
        (&hosts.a, hosts.a.counters()?),
        (&hosts.b, hosts.b.counters()?),
    ] {
        assert_eq!(
            counters.send_lost + counters.receive_lost,
            0,
            "{counters:?}"
        );
        let sent = frames
            .iter()
            .filter(|(port, _)| *port == host.port())
            .count();
        assert!(
            counters.sent as usize >= sent && sent > 0,
            "{counters:?}, {sent} seen"
        );
    }
    Ok(())
}

fn ipv6() -> Result<(), Failed> {
    let (hosts, wire) = plugged([tap_host("fd77::1/64"), tap_host("fd77::2/64")], straight())?;
    let report = TcpTraffic {
        bytes: 100_000,
        ..TcpTraffic::default()
    }
    .run(&hosts, &GO_ON)?;
    assert!(report.completed(), "{report:?}");
    assert_eq!(report.connections[0].remote, "[fd77::2]:5001".parse()?);
    // Listener reports and router solicitations would come within the first second.
    thread::sleep(Duration::from_millis(1500));
    let frames = wire.frames();
    let other = frames
        .iter()
        .find(|(_, frame)| frame[12..14] != [0x86, 0xdd] || frame[20] != 6);
    assert!(!frames.is_empty() && other.is_none(), "{other:02x?}");
    Ok(())
}

fn lost_segment() -> Result<(), Failed> {
    let mut data = 0;
    let fate: Fate = Box::new(move |port, frame| {
        let carries =
            port == Port::A && payload_of(frame).is_some_and(|payload| !payload.is_empty());
        data += u32::from(carries);
        !(carries && data == 20)
    });
    let (hosts, _wire) = plugged(options(), fate)?;
    let report = TcpTraffic {
        bytes: 300_000,
        ..TcpTraffic::default()
    }
    .run(&hosts, &GO_ON)?;
    assert!(report.completed(), "{report:?}");
    let opener = report.connections[0].opener.unwrap();
    assert!(opener.retransmitted_segments >= 1, "{opener:?}");
    assert!(opener.retransmitted_bytes >= 1448, "{opener:?}");
    assert_eq!(
        report.connections[0]
            .listener
            .unwrap()
            .retransmitted_segments,
        0
    );
    Ok(())
}

fn altered_byte() -> Result<(), Failed> {
    // Two words of the payload change places, which no Internet checksum notices.
    let mut data = 0;
    let fate: Fate = Box::new(move |_, frame| {
        if payload_of(frame).is_some_and(|payload| payload.len() == 1448) {
            data += 1;
            if data == 3 {
                let at = frame.len() - 1448;
                for offset in [100, 101] {
                    frame.swap(at + offset, at + offset + 2);
                }
            }
        }
        true
    });
    let (hosts, _wire) = plugged(options(), fate)?;
    let report = TcpTraffic {
        bytes: 100_000,
        ..TcpTraffic::default()
    }
    .run(&hosts, &GO_ON)?;
    assert!(!report.completed());
    let stream = &report.connections[0].streams[0];
    assert_eq!(stream.bytes, 100_000);
    assert_eq!(
        stream.payload,
        Payload::Differs {
            offset: 2 * 1448 + 100
        }
    );
    Ok(())
}

fn cut_wire() -> Result<(), Failed> {
    let mut data = 0;
    let fate: Fate = Box::new(move |_, frame| {
        data += u32::from(payload_of(frame).is_some_and(|payload| !payload.is_empty()));
        data < 10
    });
    let (hosts, _wire) = plugged(options(), fate)?;
    let begun = Instant::now();
    let traffic = TcpTraffic {
        bytes: 1_000_000,
        timeout: Duration::from_millis(700),
        ..TcpTraffic::default()
    };
    let report = traffic.run(&hosts, &GO_ON)?;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    let connection = &report.connections[0];
    assert!(!report.completed());
    assert_eq!(connection.streams[0].payload, Payload::Incomplete);
    assert!(connection.streams[0].bytes > 0);
    assert!(
        connection
            .errors
            .iter()
            .any(|error| error.contains("not finished after 0.7 s")),
        "{connection:?}"
    );

    // Now nothing comes through, not even a SYN; and the whole is cancelled.
    let cancel = Arc::new(AtomicBool::new(false));
    let cancels = Arc::clone(&cancel);
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        cancels.store(true, Ordering::Relaxed);
    });
    let report = TcpTraffic {
        port: 5002,
        connections: 2,
        ..TcpTraffic::default()
    }
    .run(&hosts, &cancel)?;
    thread.join().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(report.connections[0].opened_ns, None);
    assert!(
        report
            .connections
            .iter()
            .all(|c| c.errors == ["opening: cancelled"]),
        "{report:?}"
    );
    Ok(())
}

fn full_queue() -> Result<(), Failed> {
    let [mut a, b] = options();
    a.queue = 2;
    let (hosts, ports) = Hosts::new("test", &a, &b)?;
    let sent = hosts.a.run_in(|| {
        let socket = std::net::UdpSocket::bind("10.77.0.1:0")?;
        for _ in 0..10 {
            socket.send_to(b"nobody reads the TAP", "10.77.0.2:9")?;
        }
        Ok::<(), io::Error>(())
    })?;
    sent?;
    let counters = hosts.a.counters()?;
    assert_eq!((counters.sent, counters.send_lost), (0, 8), "{counters:?}");
    drop(ports);
    Ok(())
}

fn congestion_control() -> Result<(), Failed> {
    let (hosts, wire) = plugged(options(), straight())?;
    let unknown = Some("nonesuch".to_owned());
    let traffic = TcpTraffic {
        congestion_control: unknown.clone(),
        ..TcpTraffic::default()
    };
    let refused = traffic.run(&hosts, &GO_ON).unwrap_err().to_string();
    assert!(
        refused.contains("\"nonesuch\"") && refused.contains("reno"),
        "{refused}"
    );
    assert!(wire.frames().is_empty());

    let [mut a, b] = options();
    a.congestion_control = unknown;
    let refused = Hosts::new("test", &a, &b).unwrap_err().to_string();
    assert!(
        refused.starts_with("host a: no congestion control \"nonesuch\"")
            && refused.contains("reno"),
        "{refused}"
    );
    a.congestion_control = Some("reno".to_owned());
    let (hosts, _ports) = Hosts::new("test", &a, &b)?;
    let used = hosts
        .a
        .run_in(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control"))??;
    assert_eq!(used.trim(), "reno");
    Ok(())
}

fn host_options() -> Result<(), Failed> {
    let [mut a, mut b] = options();
    for host in [&mut a, &mut b] {
        host.sysctls
            .insert("net.ipv4.tcp_ecn".to_owned(), Setting("1".to_owned()));
        host.sysctls.insert(
            "net.ipv4.tcp_timestamps".to_owned(),
            Setting("0".to_owned()),
        );
    }
    b.mtu = 1300;
    b.mac = Some("02:00:00:00:00:99".parse()?);
    let (hosts, wire) = plugged([a, b.clone()], straight())?;
    let report = TcpTraffic {
        bytes: 50_000,
        ..TcpTraffic::default()
    }
    .run(&hosts, &GO_ON)?;
    assert!(report.completed(), "{report:?}");
    let opener = report.connections[0].opener.unwrap();
    assert!(
        opener.ecn && !opener.timestamps && opener.send_mss == 1260,
        "{opener:?}"
    );
    let frames = wire.frames();
    assert_eq!(
        frames.iter().map(|(_, frame)| frame.len()).max(),
        Some(1314)
    );
    assert_eq!(frames[0].1[..6], [2, 0, 0, 0, 0, 0x99]);

    let refusal = |change: &dyn Fn(&mut TapHost)| {
        let mut b = b.clone();
        change(&mut b);
        Hosts::new("test", &options()[0], &b)
            .unwrap_err()
            .to_string()
    };
    let sysctl = |name: &'static str, value: &'static str| {
        refusal(&move |b| drop(b.sysctls.insert(name.to_owned(), Setting(value.to_owned()))))
    };
    let unknown = sysctl("net.ipv4.tcp_nonesuch", "1");
    assert_eq!(
        unknown,
        "host b: net.ipv4.tcp_nonesuch is no sysctl of a network namespace of this kernel"
    );
    for name in [
        "kernel.panic",
        "net.ipv4...kernel.panic",
        "net./../kernel/panic",
    ] {
        assert!(
            sysctl(name, "1").contains("is no sysctl of the network"),
            "{name}"
        );
    }
    assert!(
        sysctl("net.ipv4.tcp_ecn", "many")
            .starts_with("host b: cannot set net.ipv4.tcp_ecn to \"many\"")
    );
    assert!(refusal(&|b| b.mtu = 20).starts_with("host b: its interface refuses the MTU 20"));
    assert!(
        refusal(&|b| b.address = options()[0].address.clone())
            .contains("already the address of host a")
    );
    assert!(refusal(&|b| b.address.clear()).contains("needs an address"));
    assert!(
        refusal(&|b| {
            b.address = vec!["fd77::1/64".parse().unwrap()];
            b.mtu = 1279
        })
        .contains("1280")
    );
    Ok(())
}

fn arp() -> Result<(), Failed> {
    let hosts = options().map(|host| TapHost {
        neighbours: Neighbours::Learn,
        ..host
    });
    let (hosts, wire) = plugged(hosts, straight())?;
    let report = TcpTraffic {
        bytes: 10_000,
        ..TcpTraffic::default()
    }
    .run(&hosts, &GO_ON)?;
    assert!(report.completed(), "{report:?}");
    assert_eq!(wire.frames()[0].1[12..14], [8, 6]);
    Ok(())
}

fn shell(on: Port, run: impl Into<String>) -> CommandTraffic {
    CommandTraffic {
        on: Some(on),
        run: run.into(),
        background: false,
        ready: Default::default(),
        timeout: Duration::from_secs(20),
        environment: Default::default(),
    }
}

fn command() -> Result<(), Failed> {
    let (hosts, _wire) = plugged(options(), straight())?;
    let directory = tempfile::tempdir()?;
    let mut echo = shell(
        Port::B,
        "echo $MIDWIRE_A $MIDWIRE_B $MORE; cat /proc/net/dev >&2; exit 3",
    );
    echo.environment
        .insert("MORE".to_owned(), "and more".to_owned());
    let report = echo.run(Some(&hosts), directory.path(), "1", &GO_ON)?;
    assert_eq!(report.outcome, Outcome::Exited { status: 3 });
    assert!(!report.completed());
    assert_eq!(
        fs::read_to_string(&report.stdout)?,
        "10.77.0.1 10.77.0.2 and more\n"
    );
    assert_eq!(report.stdout, directory.path().join("1.stdout"));
    let devices = fs::read_to_string(&report.stderr)?;
    let devices: BTreeSet<&str> = devices
        .lines()
        .skip(2)
        .filter_map(|l| l.trim().split(':').next())
        .collect();
    assert!(devices.is_superset(&["eth0", "lo"].into()), "{devices:?}");

    let killed = shell(Port::A, "kill -9 $$").run(Some(&hosts), directory.path(), "2", &GO_ON)?;
    assert_eq!(killed.outcome, Outcome::Killed { signal: 9 });
    let fine = shell(Port::A, "true").run(Some(&hosts), directory.path(), "3", &GO_ON)?;
    assert!(fine.completed());
    let mut here = shell(Port::A, "cat /proc/net/dev; test -z \"$MIDWIRE_A\"");
    here.on = None;
    let on_this_machine = here.run(None, directory.path(), "5", &GO_ON)?;
    assert!(on_this_machine.completed(), "{on_this_machine:?}");
    assert!(fs::read_to_string(&on_this_machine.stdout)?.contains("lo:"));
    here.on = Some(Port::A);
    let no_hosts = here.run(None, directory.path(), "5", &GO_ON).unwrap_err();
    assert_eq!(no_hosts.to_string(), "traffic: there is no host a");
    let nowhere = shell(Port::A, "true").run(Some(&hosts), Path::new("/nonesuch"), "4", &GO_ON);
    assert!(
        nowhere
            .unwrap_err()
            .to_string()
            .contains("/nonesuch/4.stdout")
    );
    Ok(())
}

/// Processes whose environment has the mark, or whose command line does.
fn marked(mark: &str) -> Vec<i32> {
    let has = |path: String| {
        fs::read(path).is_ok_and(|bytes| {
            bytes
                .windows(mark.len())
                .any(|window| window == mark.as_bytes())
        })
    };
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes
        .filter(|pid: &i32| {
            has(format!("/proc/{pid}/environ")) || has(format!("/proc/{pid}/cmdline"))
        })
        .collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn mark(name: &str) -> String {
    format!("midwire-test-{name}-{}", std::process::id())
}

fn command_timeout() -> Result<(), Failed> {
    let (hosts, _wire) = plugged(options(), straight())?;
    let directory = tempfile::tempdir()?;
    let mark = mark("timeout");
    let mut stubborn = shell(Port::A, "trap '' TERM; sleep 100 & sleep 100");
    stubborn.environment.insert("MARK".to_owned(), mark.clone());
    stubborn.timeout = Duration::from_millis(300);
    let begun = Instant::now();
    let report = stubborn.run(Some(&hosts), directory.path(), "1", &GO_ON)?;
    assert_eq!(report.outcome, Outcome::TimedOut);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    eventually("its group is gone", || marked(&mark).is_empty());
    let report = stubborn.run(Some(&hosts), directory.path(), "2", &AtomicBool::new(true))?;
    assert_eq!(report.outcome, Outcome::Cancelled);
    eventually("its group is gone", || marked(&mark).is_empty());
    Ok(())
}

/// Listens on port 5002 after a while, and greets whoever comes.
fn listen() {
    thread::sleep(Duration::from_millis(200));
    let listener = TcpListener::bind("0.0.0.0:5002").unwrap();
    for stream in listener.incoming() {
        stream.unwrap().write_all(b"hello").unwrap();
    }
}

fn background() -> Result<(), Failed> {
    let (hosts, _wire) = plugged(options(), straight())?;
    let directory = tempfile::tempdir()?;
    let this = env::current_exe()?;
    for ready in [r#""listening""#, r#"{"port": 5002}"#] {
        let text = format!(
            r#"{{"on": "b", "run": "{}", "background": true, "ready": {ready}}}"#,
            this.display()
        );
        let mut server: CommandTraffic = serde_json::from_str(&text)?;
        server
            .environment
            .insert(ROLE.to_owned(), "listen".to_owned());
        let running = server.start(Some(&hosts), directory.path(), "server", &GO_ON)?;
        let greeting = hosts.a.run_in(|| {
            let mut greeting = String::new();
            TcpStream::connect("10.77.0.2:5002")?
                .read_to_string(&mut greeting)
                .map(|_| greeting)
        })?;
        assert_eq!(greeting?, "hello");
        let taken = serde_json::from_str::<CommandTraffic>(
            r#"{"on": "b", "run": "true", "ready": {"port": 5002}}"#,
        )?;
        let taken = taken
            .start(Some(&hosts), directory.path(), "taken", &GO_ON)
            .unwrap_err();
        assert!(
            taken.to_string().contains("port 5002 of host b is taken"),
            "{taken}"
        );
        let report = running.stop()?;
        assert_eq!(report.outcome, Outcome::Stopped);
        assert!(report.completed());
        let left = hosts.b.listeners()?;
        assert!(left.is_empty(), "{left:?}");
    }
    let brief = shell(Port::A, "exit 7").start(Some(&hosts), directory.path(), "brief", &GO_ON)?;
    assert_eq!(brief.stop()?.outcome, Outcome::Exited { status: 7 });
    Ok(())
}

fn outlive() -> Result<(), Failed> {
    let (hosts, wire) = plugged(options(), straight())?;
    let directory = tempfile::tempdir()?;
    let mark = mark("outlive");
    let mut daemon = shell(Port::A, "setsid sleep 100 & exit 0");
    daemon.environment.insert("MARK".to_owned(), mark.clone());
    assert!(
        daemon
            .run(Some(&hosts), directory.path(), "1", &GO_ON)?
            .completed()
    );
    let mut forever = shell(Port::A, "sleep 100");
    forever.environment = daemon.environment.clone();
    let running = forever.start(Some(&hosts), directory.path(), "2", &GO_ON)?;
    eventually("both run", || marked(&mark).len() >= 2);
    let first = hosts.a.pid();
    drop((hosts, wire));
    drop(running);
    assert!(marked(&mark).is_empty(), "{:?}", marked(&mark));
    assert!(!Path::new(&format!("/proc/{first}")).exists());
    Ok(())
}

/// Sets up a run with programs in it, says so, and waits to be killed.
fn hold() {
    let (hosts, _wire) = plugged(options(), straight()).unwrap();
    let directory = env::temp_dir();
    let name = mark("hold");
    for port in Port::ALL {
        let daemon = shell(port, "setsid sh -c 'sleep 100; true' & exit 0");
        assert!(
            daemon
                .run(Some(&hosts), &directory, &name, &GO_ON)
                .unwrap()
                .completed()
        );
    }
    let _running = shell(Port::A, "sleep 100")
        .start(Some(&hosts), &directory, &name, &GO_ON)
        .unwrap();
    for kind in ["stdout", "stderr"] {
        fs::remove_file(directory.join(format!("{name}.{kind}"))).unwrap();
    }
    for host in [&hosts.a, &hosts.b] {
        println!(
            "{}",
            fs::read_link(format!("/proc/{}/ns/net", host.pid()))
                .unwrap()
                .display()
        );
    }
    let endless = TcpTraffic {
        bytes: u64::MAX,
        timeout: Duration::from_secs(60),
        ..TcpTraffic::default()
    };
    println!("ready");
    endless.run(&hosts, &GO_ON).unwrap();
}

/// Network namespaces that any process is in or holds open.
fn namespaces_in_use() -> BTreeSet<String> {
    let processes = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let links = processes.flat_map(|process| {
        let tasks = fs::read_dir(process.join("task"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links: Vec<_> = tasks.map(|task| task.path().join("ns/net")).collect();
        links.extend(
            fs::read_dir(process.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
                .map(|fd| fd.path()),
        );
        links
    });
    links
        .filter_map(|link| Some(fs::read_link(link).ok()?.display().to_string()))
        .collect()
}

/// A child that a failing test does not leave behind.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_9() -> Result<(), Failed> {
    let mark = mark("kill-9");
    let child = Command::new(env::current_exe()?)
        .env(ROLE, "hold")
        .env("MARK", &mark)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut run = Killed(child);
    let lines = BufReader::new(run.0.stdout.take().unwrap()).lines();
    let namespaces: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| line != "ready")
        .collect();
    assert_eq!(namespaces.len(), 2, "{namespaces:?}");
    assert!(
        namespaces
            .iter()
            .all(|namespace| namespaces_in_use().contains(namespace))
    );
    // The run, both first processes, two daemons of two processes each, and a command.
    eventually("all of them run", || marked(&mark).len() >= 8);
    drop(run);
    eventually("every process is gone", || marked(&mark).is_empty());
    let in_use = namespaces_in_use();
    assert!(
        !namespaces
            .iter()
            .any(|namespace| in_use.contains(namespace))
    );
    Ok(())
}

fn unprivileged() -> Result<(), Failed> {
    const NOBODY: u32 = 65_534;
    // Where an ordinary user can reach it, wherever this was built.
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))?;
    let program = directory.path().join("hosts");
    fs::copy(env::current_exe()?, &program)?;
    let mut command = Command::new(&program);
    command
        .arg("--test-threads=2")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir(directory.path());
    command.env("TMPDIR", directory.path()).env_remove(ROLE);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(reason) = text.lines().find(|line| line.starts_with("skipped: ")) {
        println!("{reason}");
        return Ok(());
    }
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("hosts by user namespace"), "{text}");
    Ok(())
}
