// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test file of Lumina becomes a plan, the plan a run, and the run what Lumina would have left:
//! read as Lumina's analyzers do, by offsets and without midwire's own parsers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use midwire_trace::packet_file::{FilePacket, PacketFile};
use tempfile::TempDir;

fn midwire(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_midwire"))
        .args(arguments)
        .output()
        .expect("midwire starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// `- {key: value, …}` a line.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let row = |line: &str| {
        let inner = line.split_once('{').unwrap().1.split_once('}').unwrap().0;
        let pairs = inner.split(", ").map(|pair| pair.split_once(": ").unwrap());
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    text.lines()
        .filter(|line| line.contains('{'))
        .map(row)
        .collect()
}

struct Mirrored {
    time: u64,
    sequence: u64,
    event: u8,
    dest_qp: u64,
    psn: u64,
    opcode: u8,
}

fn mirrored(path: &Path) -> Vec<Mirrored> {
    let mut file = PacketFile::open(path).unwrap();
    let mut packet = FilePacket::default();
    let mut all = Vec::new();
    while file.read(&mut packet).unwrap() {
        let d = &packet.data;
        assert_eq!(number(&d[36..38]), 4791);
        all.push(Mirrored {
            time: number(&d[..6]),
            sequence: number(&d[6..12]),
            event: d[22],
            dest_qp: number(&d[47..50]),
            psn: number(&d[51..54]),
            opcode: d[42],
        });
    }
    all
}

/// A run as Lumina leaves its own.
struct Lumina(TempDir);

impl Lumina {
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join("lumina").join(name)).unwrap()
    }
}

/// Imports a test of Lumina, runs it and exports the run; its packets.
fn carry_out(file: &str) -> (Lumina, Vec<Mirrored>) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../control-plane/tests/lumina")
        .join(file);
    let import = [
        "import",
        "lumina",
        &file.display().to_string(),
        "-o",
        &path("plan.yaml"),
    ];
    assert_eq!(midwire(&import).status.code(), Some(0));
    assert_eq!(
        midwire(&["validate", &path("plan.yaml")]).status.code(),
        Some(0)
    );
    let run = ["run", &path("plan.yaml"), "--out", &path("run")];
    assert_eq!(midwire(&run).status.code(), Some(0));
    let export = ["export", &path("run"), "--lumina", &path("lumina")];
    assert_eq!(midwire(&export).status.code(), Some(0));
    let packets = mirrored(&dir.path().join("lumina/0/pcap-result/merge.pcap"));
    (Lumina(dir), packets)
}

/// What happened to packets of data: the number of the queue pair, the relative PSN, and the event.
fn told(queue_pairs: &[HashMap<String, String>], packets: &[Mirrored]) -> Vec<(usize, u64, u8)> {
    let mut told = Vec::new();
    for (n, qp) in queue_pairs.iter().enumerate() {
        let value = |key: &str| qp[key].parse::<u64>().unwrap();
        for packet in packets.iter().filter(|p| p.dest_qp == value("qpn_rcv")) {
            if packet.event != 0 {
                let psn = (packet.psn + (1 << 24) - value("psn_snd")) % (1 << 24);
                told.push((n, psn, packet.event));
            }
        }
    }
    told
}

#[test]
fn queue_pairs_send_while_others_read() {
    let (lumina, packets) = carry_out("send-read.yml");
    let queue_pairs = rows(&lumina.read("0/switch-result/switch_message_snapshot.yml"));
    let senders: Vec<_> = queue_pairs.iter().map(|qp| qp["ip_snd"].as_str()).collect();
    let [a, b] = ["\"10.0.0.1\"", "\"10.0.0.2\""];
    assert_eq!(senders, [a, a, b, b, b]);
    let lost = [1, 2, 4, 4].iter().zip([3, 0, 7, 7]);
    let mut expected: Vec<_> = lost
        .flat_map(|(qp, psn)| [0, 10].map(|message| (*qp, psn + message, 1)))
        .collect();
    expected.sort_unstable();
    let mut told = told(&queue_pairs, &packets);
    told.sort_unstable();
    assert_eq!(told, expected);
    // Other than those of data nothing was hit.
    let hit = packets.iter().filter(|packet| packet.event != 0);
    assert_eq!(hit.count(), expected.len());

    // Both begin before either is over.
    let [sends, reads] = [0x00..=0x04, 0x0d..=0x10].map(|opcodes| {
        let own = packets.iter().filter(|p| opcodes.contains(&p.opcode));
        let mut times = own.map(|packet| packet.time);
        let first = times.next().unwrap();
        first..times.next_back().unwrap()
    });
    assert!(sends.start < reads.end && reads.start < sends.end);
    let config = lumina.read("config.yml");
    assert!(config.contains("num-qps: 2,3\n  rdma-verb: send_read\n"));
}

#[test]
fn a_test_of_lumina_runs_and_its_analyzers_can_read_the_run() {
    let (lumina, packets) = carry_out("marks-and-losses.yml");
    // Lumina's three conditions, and time.
    let counts = rows(&lumina.read("0/switch-result/switch_state_snapshot.yml"));
    let sum = |row: &HashMap<String, String>, ports: [&str; 2]| -> u64 {
        ports
            .iter()
            .map(|port| row[*port].parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum(&counts[0], ["1", "2"]), packets.len() as u64);
    assert_eq!(sum(&counts[1], ["3", "4"]), packets.len() as u64);
    assert!(
        packets
            .iter()
            .zip(1..)
            .all(|(packet, n)| packet.sequence == n)
    );
    assert!(packets.is_sorted_by_key(|packet| packet.time));

    // Each message of ten packets has what the file says, at its queue pair's number.
    let queue_pairs = rows(&lumina.read("0/switch-result/switch_message_snapshot.yml"));
    let mut expected = Vec::new();
    for (qp, psn, events) in [(0, 4, &[2][..]), (2, 3, &[1, 1]), (3, 9, &[3])] {
        for message in 0..3 {
            expected.extend(events.iter().map(|event| (qp, psn + 10 * message, *event)));
        }
    }
    assert_eq!(told(&queue_pairs, &packets), expected);

    // What the receiver counted is what the packets say.
    let finish = lumina.read("0/rdma-result/responder_counter_finish.yml");
    let counter = |name: &str| {
        let line = finish
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap().parse::<usize>().unwrap()
    };
    let notifications = packets
        .iter()
        .filter(|packet| packet.opcode == 0x81)
        .count();
    assert_eq!(counter("np_cnp_sent"), notifications);
    assert_eq!(counter("rx_icrc_encapsulated"), 3);
    assert!(
        lumina
            .read("0/rdma-result/responder_counter_start.yml")
            .contains("np_cnp_sent: 0\n")
    );
    assert!(lumina.read("config.yml").contains("rdma-verb: write"));
}
