// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as Lumina leaves its own, so that its analyzers can be put to it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use midwire_endpoints::Port;
use midwire_endpoints::rnic::Profile;
use midwire_trace::Capture;
use midwire_trace::export::lumina;
use serde_json::Value;

use crate::Error;
use crate::plan::{Endpoint, Plan, RdmaTraffic, Traffic, Verb, lane_from};
use crate::run_file::{NicRecord, RunFile, files};

pub use midwire_trace::export::lumina::Exported;

/// Lumina's names of files, in a directory for its first repetition.
const PACKETS: &str = "0/pcap-result/merge.pcap";
const QUEUE_PAIRS: &str = "0/switch-result/switch_message_snapshot.yml";
const SWITCH: &str = "0/switch-result/switch_state_snapshot.yml";
const CONFIG: &str = "config.yml";

/// Writes the packets of a run, and for a run with traffic that Lumina has, all else that its
/// analyzers read; whether that is so.
pub fn export(run: &RunFile, from: &Path, to: &Path) -> Result<(Exported, bool), Error> {
    let path = to.join(PACKETS);
    make_parent(&path)?;
    let capture = Capture::open(from.join(files::CAPTURE))
        .map_err(|e| Error::file("read", &from.join(files::CAPTURE))(std::io::Error::other(e)))?;
    let file = File::create(&path).map_err(Error::file("create", &path))?;
    let exported = lumina::write(&capture, BufWriter::new(file))
        .map_err(|e| Error::file("write", &path)(std::io::Error::other(e)))?;
    let plan = &run.recorded.plan.parsed;
    let (Some([requester, responder]), Some((verb, entries))) = (nics(plan), traffic(plan)) else {
        return Ok((exported, false));
    };
    let from = entries[0].from;
    let ends = match from {
        Port::A => [requester, responder],
        Port::B => [responder, requester],
    };
    let whole = fs::canonicalize(to).map_err(Error::file("find", to))?;
    write(to, CONFIG, &config(&whole, verb, &entries, ends))?;
    write(to, QUEUE_PAIRS, &queue_pairs(run, &entries))?;
    write(to, SWITCH, &switch(&exported, from))?;
    for (name, port) in [("requester", from), ("responder", from.other())] {
        if let Some(nic) = run.recorded.nics.iter().find(|nic| nic.endpoint == port) {
            for (when, on) in [("start", false), ("finish", true)] {
                let file = format!("0/rdma-result/{name}_counter_{when}.yml");
                write(to, &file, &counters(nic, on))?;
            }
        }
    }
    Ok((exported, true))
}

/// The traffic of a plan in Lumina's word, when it has one: one entry, or one of SENDs and one of
/// READs together, which differ in nothing that Lumina's files tell but their queue pairs.
fn traffic<'a>(plan: &'a Plan) -> Option<(&'static str, Vec<&'a RdmaTraffic>)> {
    let rdma = |traffic: &'a Traffic| match traffic {
        Traffic::Rdma(rdma) => Some(rdma),
        _ => None,
    };
    let entries: Vec<_> = plan.traffic.iter().map(rdma).collect::<Option<_>>()?;
    let told = |rdma: &RdmaTraffic| {
        let RdmaTraffic {
            from,
            messages,
            size,
            mtu,
            tx_depth,
            ..
        } = *rdma;
        (from, messages, size, mtu, tx_depth)
    };
    let verbs: Vec<_> = entries.iter().map(|rdma| rdma.verb).collect();
    let verb = match verbs.as_slice() {
        [verb @ (Verb::Send | Verb::Write | Verb::Read)] => verb.as_str(),
        [Verb::Send, Verb::Read] if entries[1].together && told(entries[0]) == told(entries[1]) => {
            "send_read"
        }
        _ => return None,
    };
    Some((verb, entries))
}

fn make_parent(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::file("create", parent)),
        None => Ok(()),
    }
}

fn write(to: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = to.join(name);
    make_parent(&path)?;
    fs::write(&path, text).map_err(Error::file("write", &path))
}

/// A NIC as Lumina's file has it.
struct Nic {
    kind: &'static str,
    addresses: String,
}

fn nics(plan: &Plan) -> Option<[Nic; 2]> {
    let nic = |endpoint: &Endpoint| {
        let (address, profile) = match endpoint {
            Endpoint::Rnic(nic) => (&nic.address, nic.profile),
            Endpoint::Linux(host) if host.rdma => (&host.address, Profile::Clean),
            Endpoint::Agent(host) => (&host.address, Profile::Clean),
            _ => return None,
        };
        let addresses: Vec<_> = address.iter().map(ToString::to_string).collect();
        Some(Nic {
            kind: match profile {
                Profile::Cx4Lx => "CX4",
                // Of no vendor: the counters that it has go by these names.
                Profile::Clean | Profile::Cx5 => "CX5",
                Profile::Cx6Dx => "CX6",
                Profile::E810 => "E810",
            },
            addresses: addresses.join(", "),
        })
    };
    Some([nic(&plan.endpoints.a)?, nic(&plan.endpoints.b)?])
}

/// Ports of the switch that Lumina would have had: of the requester, the responder and the two
/// that dump packets.
const PORTS: [u32; 4] = [1, 2, 3, 4];

fn config(to: &Path, verb: &str, entries: &[&RdmaTraffic], ends: [Nic; 2]) -> String {
    let rdma = entries[0];
    // Lumina's analyzers part two numbers by a comma.
    let qps: Vec<_> = entries.iter().map(|rdma| rdma.qps.to_string()).collect();
    let mut text = format!(
        "result-path: {}\naggregate-pcap-filename: merge.pcap\nnum-repeats: 1\n",
        // JSON's strings are YAML's.
        Value::from(to.display().to_string())
    );
    for ((name, nic), port) in ["requester", "responder"].into_iter().zip(ends).zip(PORTS) {
        let Nic { kind, addresses } = nic;
        text += &format!(
            "{name}:\n  nic: {{type: {kind}, ip-list: [{addresses}], switch-port: {port}}}\n"
        );
    }
    for (name, port) in ["requester-mirror", "responder-mirror"]
        .into_iter()
        .zip(&PORTS[2..])
    {
        text += &format!("{name}:\n  nic: {{switch-port: {port}}}\n");
    }
    text + &format!(
        "traffic:\n  num-qps: {}\n  rdma-verb: {verb}\n  num-msgs-per-qp: {}\n  mtu: {}\n  \
         message-size: {}\n  tx-depth: {}\n",
        qps.join(","),
        rdma.messages,
        rdma.mtu,
        rdma.size.0,
        rdma.tx_depth
    )
}

/// The queue pairs as the ends told them to the switch. Sender is who sends data.
fn queue_pairs(run: &RunFile, entries: &[&RdmaTraffic]) -> String {
    let mut text = String::new();
    for (rdma, record) in entries.iter().zip(&run.recorded.traffic) {
        let report = record.rdma();
        for qp in report.iter().flat_map(|report| &report.qps) {
            let requester = (qp.qp, qp.source);
            let responder = (qp.peer_qp, qp.destination);
            let [from, to] = match rdma.verb {
                Verb::Read => [responder, requester],
                _ => [requester, responder],
            };
            // Responses have the PSNs of their requests.
            let _ = writeln!(
                text,
                "- {{psn_rcv: {}, psn_snd: {}, qpn_rcv: {}, qpn_snd: {}, ip_rcv: \"{}\", ip_snd: \"{}\"}}",
                qp.peer_first_psn, qp.first_psn, to.0, from.0, to.1, from.1
            );
        }
    }
    text
}

/// Packets that came in and went out by the switch's ports, mirrored to both dumpers in turn.
fn switch(exported: &Exported, requester: Port) -> String {
    let there = lane_from(requester);
    let [there, back] = [there.index(), there.other().index()];
    let [all, dropped] = [exported.packets, exported.dropped];
    let mirrored = all[0] + all[1];
    let ingress = [all[there], all[back], 0, 0];
    let egress = [
        all[back] - dropped[back],
        all[there] - dropped[there],
        mirrored.div_ceil(2),
        mirrored / 2,
    ];
    let mut text = "counter:\n".to_owned();
    for (name, counts) in [("ingress", ingress), ("egress", egress)] {
        let counts = PORTS
            .iter()
            .zip(counts)
            .map(|(port, n)| format!("{port}: {n}"));
        let _ = writeln!(
            text,
            "  {name}: {{{}}}",
            counts.collect::<Vec<_>>().join(", ")
        );
    }
    text
}

/// A NIC's counters in Lumina's groups, all 0 at the start.
fn counters(nic: &NicRecord, on: bool) -> String {
    let value = |n: u64| if on { n } else { 0 };
    let get = |name: &str| value(nic.counters.get(name).copied().unwrap_or(0));
    let mut text = format!(
        "port-counters: {{port_rcv_packets: {}, port_xmit_packets: {}}}\n",
        get("rx_packets_phy"),
        get("tx_packets_phy")
    );
    let of_port = |name: &str| name.ends_with("_phy");
    for (group, phy) in [("hw-counters", false), ("ethtool-counters", true)] {
        let _ = writeln!(text, "{group}:");
        for (name, n) in nic.counters.iter().filter(|(name, _)| of_port(name) == phy) {
            let _ = writeln!(text, "  {name}: {}", value(*n));
        }
    }
    text
}
