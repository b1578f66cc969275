// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of NICs: those that are right agree with the packets, and any other figure is found.

use std::collections::BTreeMap;
use std::net::IpAddr;

use midwire_analysis::roce::{Limit, NicSettings, Rule, Settings};

use crate::conversation::Conversation;

const TIMEOUT: u64 = 67_108_864;

/// A write that loses a packet, a mark that is told of, a read that loses a response, and a
/// request that is sent again because its acknowledgement was lost.
fn eventful() -> Conversation {
    let mut c = Conversation::new(0xff_fffe);
    c.write(0, 4, 0);
    c.dropped().write(0, 4, 1);
    c.write(0, 4, 2);
    c.write(0, 4, 3);
    c.after(3_000).nak(1);
    c.after(3_000).write(0, 4, 1);
    c.marked().write(0, 4, 2);
    c.write(0, 4, 3);
    c.after(2_000).cnp();
    c.after(2_000).ack(3);
    c.after(2_000).read(4, 3, 4);
    c.after(2_000).response(4, 3, 4);
    c.dropped().response(4, 3, 5);
    c.response(4, 3, 6);
    c.after(3_000).read(4, 3, 5);
    c.after(2_000).response(5, 2, 5);
    c.response(5, 2, 6);
    c.after(2_000).send(7);
    c.after(2_000).dropped().ack(7);
    c.after(TIMEOUT).send(7);
    c.after(2_000).ack(7);
    c
}

/// What the two NICs have to count of that.
const RIGHT: [&[(&str, u64)]; 2] = [
    &[
        ("tx_packets_phy", 11),
        ("packet_seq_err", 1),
        ("implied_nak_seq_err", 1),
        ("local_ack_timeout_err", 1),
        ("rp_cnp_handled", 1),
        ("np_cnp_sent", 0),
        ("out_of_sequence", 0),
    ],
    &[
        ("np_cnp_sent", 1),
        ("cnpSent", 1),
        ("RxECNMrkd", 1),
        ("np_ecn_marked_roce_packets", 1),
        ("out_of_sequence", 2),
        ("duplicate_request", 2),
        ("rx_write_requests", 1),
        ("rx_read_requests", 2),
        ("rx_icrc_encapsulated", 0),
        ("packet_seq_err", 0),
    ],
];

fn settings(counters: [BTreeMap<String, u64>; 2]) -> Settings {
    let nics = ["a", "b"].into_iter().zip(counters).enumerate();
    Settings {
        nics: nics
            .map(|(n, (name, counters))| NicSettings {
                name: name.to_owned(),
                addresses: vec![IpAddr::from([10, 0, 0, n as u8 + 1])],
                notification: Limit::default(),
                counters,
            })
            .collect(),
        ..Settings::default()
    }
}

fn right() -> [BTreeMap<String, u64>; 2] {
    RIGHT.map(|all| all.iter().map(|&(name, n)| (name.to_owned(), n)).collect())
}

#[test]
fn right_counters_agree() {
    let analysis = eventful().analysis_with(settings(right()));
    assert_eq!(analysis.findings, []);
    assert_eq!(
        analysis.counters.len(),
        RIGHT.iter().map(|all| all.len()).sum::<usize>()
    );
}

#[test]
fn each_wrong_counter_is_named_with_both_figures() {
    for nic in [0, 1] {
        for (name, n) in RIGHT[nic] {
            // Stuck, or one too many.
            for wrong in [n.checked_sub(1), n.checked_add(1)].into_iter().flatten() {
                // Frames that are no RoCE are counted there too.
                if *name == "tx_packets_phy" && wrong > *n || *name == "rx_read_requests" {
                    continue;
                }
                let mut counters = right();
                counters[nic].insert((*name).to_owned(), wrong);
                let analysis = eventful().analysis_with(settings(counters));
                let [found] = &analysis.findings[..] else {
                    panic!("{name} {wrong}: {:?}", analysis.findings)
                };
                assert_eq!(found.rule, Rule::CounterDiffers);
                let whose = format!("of {} is {wrong}", ["a", "b"][nic]);
                for part in [name, whose.as_str(), &n.to_string()] {
                    assert!(found.what.contains(part), "{}", found.what);
                }
                assert_eq!(found.packets.is_empty(), *n == 0);
            }
        }
    }
}

#[test]
fn packets_that_show_it_are_cited() {
    let c = eventful();
    let mut counters = right();
    counters[1].insert("np_cnp_sent".to_owned(), 0);
    let analysis = c.analysis_with(settings(counters));
    let cnp = c.observed().find(|p| p.roce.bth.opcode == 0x81);
    let cnp = cnp.expect("a notification").number;
    assert_eq!(analysis.findings[0].packets, [cnp]);
}

#[test]
fn what_a_nic_took_is_not_known_when_it_discards() {
    let mut counters = right();
    counters[1].insert("rx_discards_phy".to_owned(), 1);
    counters[1].insert("out_of_sequence".to_owned(), 9);
    let analysis = eventful().analysis_with(settings(counters));
    assert_eq!(analysis.findings, []);
}

#[test]
fn soft_roce_has_counters_of_its_own() {
    // What the capture allows.
    for (nic, name, least, most) in [
        (0, "sent_pkts", 11, None),
        (0, "rcvd_seq_err", 0, Some(1)),
        (0, "rcvd_rnr_err", 0, Some(0)),
        (0, "completer_retry_err", 1, Some(3)),
        (1, "rcvd_pkts", 10, None),
        (1, "out_of_seq_request", 1, Some(2)),
        (1, "send_rnr_err", 0, Some(0)),
    ] {
        let findings = |says: u64| {
            let mut counters = right();
            counters[nic].insert(name.to_owned(), says);
            let analysis = eventful().analysis_with(settings(counters));
            analysis.findings.len()
        };
        assert_eq!(findings(least), 0, "{name}");
        assert_eq!(findings(most.unwrap_or(1000)), 0, "{name}");
        for wrong in least.checked_sub(1).into_iter().chain(most.map(|n| n + 1)) {
            assert_eq!(findings(wrong), 1, "{name} {wrong}");
        }
    }
}
