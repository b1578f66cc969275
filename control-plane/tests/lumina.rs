// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test files of Lumina become plans, and what is wrong with them is told by its place.

use std::fs;
use std::path::Path;

use midwire_control::lumina::import;
use midwire_control::plan::{
    Connections, Duration, Endpoint, Iterations, Plan, RnicEndpoint, Traffic, Verb,
};
use midwire_endpoints::rnic::{CnpScope, Fault, Profile};
use midwire_trace::Lane;
use proptest::prelude::*;

const FILES: [&str; 4] = ["marks-and-losses", "reads", "classes", "send-read"];

fn text(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lumina");
    fs::read_to_string(directory.join(name)).unwrap()
}

fn plan(name: &str, profile: Option<Profile>) -> Plan {
    let file = format!("{name}.yml");
    let plan = import(&file, text(&file).as_bytes(), profile).unwrap();
    Plan::parse("plan", &plan).unwrap()
}

fn nics(plan: &Plan) -> [&RnicEndpoint; 2] {
    [&plan.endpoints.a, &plan.endpoints.b].map(|endpoint| match endpoint {
        Endpoint::Rnic(nic) => nic,
        other => panic!("{other:?}"),
    })
}

fn rdma(plan: &Plan) -> &midwire_control::plan::RdmaTraffic {
    match plan.traffic.as_slice() {
        [Traffic::Rdma(rdma)] => rdma,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_file_keeps_its_numbers_and_tells_what_is_left_out() {
    let file = "marks-and-losses.yml";
    let plan = import(file, text(file).as_bytes(), None).unwrap();
    let expected = text("marks-and-losses.yaml");
    let (_licence, expected) = expected.split_once('\n').unwrap();
    assert_eq!(plan, expected, "\n{plan}");
}

#[test]
fn reads_are_hit_where_their_responses_are() {
    let plan = plan("reads", None);
    let [requester, responder] = nics(&plan);
    assert_eq!(requester.profile, Profile::Cx4Lx);
    assert_eq!(responder.profile, Profile::E810);
    assert!(!responder.dcqcn.np && !responder.dcqcn.rp && requester.dcqcn.np);
    let rdma = rdma(&plan);
    assert_eq!(
        (rdma.verb, rdma.qps, rdma.messages, rdma.timeout),
        (Verb::Read, 36, 10, 10)
    );
    assert_eq!(plan.selectors[0].from, Some(midwire_endpoints::Port::B));
    // Of messages of 20 packets the fifth, and all 200.
    let [one, all] = plan.events.as_slice() else {
        panic!("{:?}", plan.events)
    };
    assert_eq!(one.psn.as_ref().unwrap().ranges(), [(4, 184)]);
    assert_eq!((one.every, one.direction), (Some(20), Lane::BtoA));
    assert_eq!(all.psn.as_ref().unwrap().ranges(), [(0, 199)]);
    assert_eq!(all.iterations, Iterations::first());
}

#[test]
fn classes_follow_the_dscp_and_far_messages_are_named_one_by_one() {
    let plan = plan("classes", None);
    assert!(nics(&plan).iter().all(|nic| nic.ets.len() == 8));
    assert_eq!(rdma(&plan).traffic_classes, [0, 1]);
    let positions = plan.events[0].psn.as_ref().unwrap();
    let expected: Vec<_> = (0..20).map(|n| n * 1024 + 7).map(|n| (n, n)).collect();
    assert_eq!(positions.ranges(), expected);
}

/// Each queue pair has its requests and its answers, and READs have their data in the answers.
#[test]
fn queue_pairs_send_while_others_read() {
    let check = |plan: &Plan| {
        let [Traffic::Rdma(send), Traffic::Rdma(read)] = plan.traffic.as_slice() else {
            panic!("{:?}", plan.traffic)
        };
        assert_eq!((send.verb, send.qps, send.together), (Verb::Send, 2, false));
        assert_eq!((read.verb, read.qps, read.together), (Verb::Read, 3, true));
        for rdma in [send, read] {
            assert_eq!((rdma.messages, rdma.size.0, rdma.mtu), (2, 10240, 1024));
        }
        assert!(plan.selectors.is_empty());
        let events = plan.events.iter().map(|event| {
            let connection = match event.connection {
                Connections::One(connection) => connection,
                other => panic!("{other:?}"),
            };
            let psns = event.psn.as_ref().unwrap().ranges().to_vec();
            (connection, event.direction, psns)
        });
        let expected = [
            (2, Lane::AtoB, vec![(3, 13)]),
            (5, Lane::BtoA, vec![(0, 10)]),
            (9, Lane::BtoA, vec![(7, 17)]),
            (9, Lane::BtoA, vec![(7, 17)]),
        ];
        assert_eq!(events.collect::<Vec<_>>(), expected);
        assert!(plan.events.iter().all(|event| event.every == Some(10)));
    };
    check(&plan("send-read", None));
    // As its traffic generator takes it.
    let text = text("send-read.yml");
    let quoted = text
        .replace("2,3", "'2_3'")
        .replace("send_read", "Send_Read ");
    let classes = quoted.replace("tx-depth: 1", "tx-depth: 1\n  dscp-list: 0,8,16,24,32");
    let plan = Plan::parse("p", &import("f.yml", classes.as_bytes(), None).unwrap()).unwrap();
    check(&plan);
    let classes = plan.traffic.iter().map(|traffic| match traffic {
        Traffic::Rdma(rdma) => rdma.traffic_classes.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(classes.collect::<Vec<_>>(), [vec![0, 1], vec![2, 3, 4]]);
}

#[test]
fn mistakes_of_send_read_are_told_by_their_place() {
    let numbers = "9:12: num-qps: expected how many queue pairs SEND and how many READ, such as 2,2, or 2_2 in quotes, without which it is 22 in YAML";
    let cases = [
        ("2,3", "3", numbers),
        ("2,3", "2_3", numbers),
        ("2,3", "0,0", numbers),
        ("2,3", "2,0", numbers),
        ("2,3", "a,b", numbers),
        ("2,3", "1,2,3", numbers),
        (
            "2,3",
            "5000,1",
            "9:12: traffic 1: qps 5000, expected 1 to 4096",
        ),
        (
            "2,3",
            "1,5000",
            "9:12: traffic 2: qps 5000, expected 1 to 4096",
        ),
        (
            "qpn: 2",
            "qpn: 5",
            "18:13: qpn 5: expected one below 5, for they count from 0",
        ),
        (
            "barrier-sync: false",
            "barrier-sync: true",
            "14:17: barrier-sync: Lumina has none with send_read, expected false",
        ),
        (
            "tx-depth: 1",
            "dscp-list: 0,8",
            "15:14: dscp-list: expected 5 values, one for each queue pair",
        ),
    ];
    told_by_place("send-read.yml", &cases);
}

#[test]
fn another_profile_replaces_that_of_the_file() {
    let plan = plan("marks-and-losses", Some(Profile::Clean));
    let [requester, responder] = nics(&plan);
    assert_eq!(requester.profile, Profile::Clean);
    assert!(requester.faults.is_empty());
    // The file still switches adaptive retransmission on.
    assert_eq!(responder.faults, [Fault::AdaptiveRetransmission]);
    assert_eq!(responder.dcqcn.cnp_limit, Some(CnpScope::Port));
    assert_eq!(requester.dcqcn.min_time_between_cnps, Duration(0));
}

#[test]
fn mistakes_are_told_by_their_place() {
    let cases = [
        (
            "num-qps: 36",
            "num-connections: 36",
            "8:20: num-connections: the paper's name for num-qps, where qpn and psn count from 1; expected num-qps, and qpn and psn from 0",
        ),
        (
            "num-qps: 36",
            "num-qps: 2,2",
            "8:12: num-qps: expected a whole number",
        ),
        (
            "num-qps: 36",
            "num-qps: 5000",
            "8:12: traffic 1: qps 5000, expected 1 to 4096",
        ),
        (
            "rdma-verb: Read",
            "rdma-verb: swim",
            "9:14: rdma-verb: expected send, write, read or send_read",
        ),
        (
            "message-size: 20000",
            "message-size: 20000\n  mtu: 1500",
            "12:8: traffic 1: mtu 1500, expected 256, 512, 1024, 2048 or 4096",
        ),
        (
            "timeout: 10",
            "timeout: 32",
            "12:27: traffic 1: timeout 32, expected 0 to 31",
        ),
        (
            "psn: 4",
            "psn: 20",
            "15:12: psn: expected all, or one below 20, for a message has so many packets, from 0",
        ),
        (
            "qpn: 0",
            "qpn: 36",
            "14:12: qpn 36: expected one below 36, for they count from 0",
        ),
        (
            "num-msgs-per-qp: 10",
            "num-msgs-per-qp: 4000000000",
            "19:12: psn: 80000000000 packets: expected at most 100000, which is all that the card holds",
        ),
        (
            "10.0.0.2/24",
            "fd77::2/64",
            "5:30: ip-list: expected IPv4 addresses",
        ),
        (
            "10.0.0.2/24",
            "10.0.0.1/24",
            "5:30: 10.0.0.1 is there twice",
        ),
        ("type: CX4", "type: XL710", "3:15: unknown variant `XL710`"),
        (
            "type: drop",
            "type: delay",
            "16:13: unknown variant `delay`",
        ),
        (
            "dcqcn-enable: no",
            "dcqcn-enabel: no",
            "6:21: unknown field `dcqcn-enabel`",
        ),
        (
            "message-size: 20000",
            "dscp-list: 0,70\n  message-size: 20000",
            "11:14: dscp-list: expected a DSCP from 0 to 63 for each queue pair, such as 0,8",
        ),
        (
            "message-size: 20000",
            "dscp-list: 0,7\n  message-size: 20000",
            "11:14: dscp-list: expected 36 values, one for each queue pair",
        ),
    ];
    told_by_place("reads.yml", &cases);
}

/// Replaces a text of a file, and wants a mistake.
fn told_by_place(file: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        let text = text(file).replacen(from, to, 1);
        let error = import("f.yml", text.as_bytes(), None).expect_err(to);
        let all = error.to_string();
        let told = all
            .lines()
            .any(|line| line.starts_with(&format!("f.yml:{expected}")));
        assert!(told, "{to}: expected {expected}, got\n{all}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done to a file, there is a plan or a mistake.
    #[test]
    fn no_file_panics(
        which in 0..FILES.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, "[-0-9a-zé:,{}\\[\\] \\n]{0,12}"), 0..6),
    ) {
        let mut lines: Vec<String> = text(&format!("{}.yml", FILES[which])).lines().map(str::to_owned).collect();
        for (at, what, new) in cuts {
            let at = at.index(lines.len());
            match what {
                0 => lines[at] = new,
                1 => {
                    let key = lines[at].split_once(':').map_or("", |(key, _)| key).to_owned();
                    lines[at] = format!("{key}: {new}");
                }
                _ => lines[at].push_str(&new),
            }
        }
        if let Ok(plan) = import("x.yml", lines.join("\n").as_bytes(), None) {
            prop_assert!(Plan::parse("x", &plan).is_ok());
        }
    }

    /// Numbers of any size neither.
    #[test]
    fn no_number_panics(values in prop::collection::vec((0..7usize, any::<u64>(), 0..64u32), 1..4)) {
        let mut text = text("reads.yml");
        let keys = ["num-qps: 36", "num-msgs-per-qp: 10", "message-size: 20000", "psn: 4", "qpn: 1", "iter: 1", "timeout: 10"];
        for (key, value, shift) in values {
            let key = keys[key];
            let name = key.split_once(':').unwrap().0;
            text = text.replacen(key, &format!("{name}: {}", value >> shift), 1);
        }
        let _ = import("x.yml", text.as_bytes(), None);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(import("x", &bytes, None).is_err());
    }
}
