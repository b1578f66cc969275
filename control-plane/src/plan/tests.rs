// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each kind of mistake, with the line it must be found on; and text that is no plan at all.

use super::*;

/// A plan whose events, expectations and so on begin at line 12.
const TAPS: &str = "\
version: 1
name: test
endpoints:
  a: {tap: {address: 10.77.0.1/24}}
  b: {tap: {address: 10.77.0.2/24}}
selectors:
  - {transport: tcp, port: 5001}
traffic:
  - tcp: {from: a, to: b, bytes: 100kB}
  - tcp: {from: b, to: a, bytes: 1MB, connections: 2}
";

const PCAPS: &str = "\
version: 1
name: test
endpoints:
  a: {pcap: {in: frames.pcap}}
  b: {pcap: {}}
";

fn mistakes(text: &str) -> Vec<(u64, u64, String)> {
    Plan::parse("plan.yaml", text)
        .expect_err(text)
        .mistakes
        .into_iter()
        .map(|m| (m.place.line, m.place.column, m.message))
        .collect()
}

#[track_caller]
fn one_mistake(text: &str, line: u64, column: u64, part: &str) {
    let found = mistakes(text);
    assert_eq!(found.len(), 1, "{found:?}");
    let (at_line, at_column, message) = &found[0];
    assert!(message.contains(part), "{part:?} is not in {message:?}");
    assert_eq!((*at_line, *at_column), (line, column), "{message}");
}

#[track_caller]
fn event_mistake(event: &str, column: u64, part: &str) {
    one_mistake(&format!("{TAPS}events:\n  - {event}\n"), 12, column, part);
}

#[test]
fn what_is_left_out_has_defaults() {
    let plan = Plan::parse(
        "plan.yaml",
        &format!("{TAPS}events:\n  - {{direction: a-to-b, packet: 5, action: drop}}\n"),
    )
    .unwrap();
    assert_eq!(plan.width(), 512);
    assert_eq!(plan.time(), CardTime::Wall);
    assert_eq!(plan.capture.snapshot, Size(128));
    let event = &plan.events[0];
    assert_eq!(event.connection, Connections::One(0));
    assert_eq!(event.kinds(), [Kind::Data]);
    assert_eq!(event.iterations, Iterations::first());
    assert_eq!(
        event.to_string(),
        "drop, connection 0 a-to-b, packet 5, iteration 1"
    );
    let Traffic::Tcp(tcp) = &plan.traffic[0] else {
        panic!("not TCP")
    };
    assert_eq!((tcp.connections, tcp.port), (1, 5001));
    assert_eq!(
        Plan::parse("plan.yaml", PCAPS).unwrap().time(),
        CardTime::Virtual
    );
}

#[test]
fn a_plan_survives_json() {
    let text = format!(
        "{TAPS}events:
  - {{direction: a-to-b, packet: 5, iterations: [1-2, 7], action: {{ecn: true, delay: 2500ns}}}}
  - {{direction: a-to-b, byte: 70000, action: {{corrupt: {{at: ip, offset: 8, mask: 0xff}}}}}}
  - {{direction: a-to-b, packet: 7, action: {{reorder: 3, duplicate: {{copies: 2, gap: 10us}}}}}}
  - {{direction: a-to-b, packet: 8, action: {{reorder: {{after: 2, of: lane}}, duplicate: 1}}}}
  - {{name: x, direction: a-to-b, kind: [ack, syn], packet: 9-, every: 3, times: 2, action: none}}
  - {{connection: all, direction: b-to-a, count: 9-20, probability: 0.3%, after: x, action: drop}}
  - {{connection: none, direction: b-to-a, packet: all, burst: {{begins: 1%, ends: 0.5}}, action: drop}}
  - {{direction: a-to-b, packet: 9, action: {{ecn: not-ect, truncate: 60, break: [fcs, l4]}}}}
  - {{direction: a-to-b, packet: 10, action: {{set: {{tcp-flags: [rst, ack], tcp-window: 0, mend: [ip, l4]}}}}}}
  - {{direction: a-to-b, packet: 11, action: {{set: {{at: ip, offset: 8, value: \"01 06\", mask: \"ff0f\"}}, corrupt: {{mend: all}}}}}}
  - {{direction: a-to-b, packet: 12, action: {{corrupt: {{mend: none}}, break: ip}}}}
expect:
  - traffic: completes
  - retransmission: {{packet: 5, within: 1s, cause: tail-probe}}
"
    );
    let plan = Plan::parse("plan.yaml", &text).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    // JSON is YAML.
    assert_eq!(Plan::parse("plan.json", &json).unwrap(), plan);
}

#[test]
fn yaml_and_type_mistakes_are_located() {
    one_mistake("", 1, 1, "expected a plan");
    one_mistake("version: 1\nname: [\n", 2, 7, "unclosed bracket");
    one_mistake("version: 2\nfuture: yes\n", 1, 10, "reads version 1");
    one_mistake("- 1\n", 1, 1, "expected a mapping");
    one_mistake("name: x\n", 1, 1, "missing field `version`");
    one_mistake(
        &format!("{PCAPS}nmae: x\n"),
        6,
        1,
        "unknown field `nmae`, expected one of version, name",
    );
    one_mistake(&format!("{PCAPS}name: y\n"), 6, 1, "duplicate mapping key");
    one_mistake(
        &format!("{PCAPS}timeouts: {{quiet: 5}}\n"),
        6,
        12,
        "such as 100ns",
    );
    one_mistake(
        &format!("{PCAPS}timeouts: {{quiet: 5 min}}\n"),
        6,
        19,
        "such as 100ns",
    );
    one_mistake(
        &format!("{PCAPS}capture: {{snapshot: 1Mb}}\n"),
        6,
        21,
        "64KiB",
    );
    event_mistake(
        "{direction: a-to-c, packet: 1, action: drop}",
        17,
        "expected one of a-to-b, b-to-a",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: dorp}",
        36,
        "expected drop, ecn",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {dealy: 1ms}}",
        45,
        "expected one of drop, ecn",
    );
    event_mistake(
        "{direction: a-to-b, packet: -1, action: drop}",
        33,
        "expected a whole number",
    );
    event_mistake(
        "{direction: a-to-b, kind: dat, packet: 1, action: drop}",
        31,
        "expected one of data, ack",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, iterations: 0, action: drop}",
        48,
        "from 1 to 254",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, iterations: [1, 1-3], action: drop}",
        48,
        "named twice",
    );
    event_mistake("{packet: 1, action: drop}", 17, "missing field `direction`");
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {corrupt: {mask: 0x100}}}",
        61,
        "from 0 to 255",
    );
}

#[test]
fn rule_mistakes_are_located() {
    for (event, column, part) in [
        (
            "{direction: a-to-b, packet: 1-, iterations: 2, action: drop}",
            49,
            "expected 1, 2- or all",
        ),
        (
            "{direction: a-to-b, packet: 1-, every: 0, action: drop}",
            44,
            "every 0th",
        ),
        (
            "{direction: a-to-b, packet: 1-, probability: 200%, action: drop}",
            50,
            "a probability from 0 to 1",
        ),
        (
            "{direction: a-to-b, packet: 1-4294967296, action: drop}",
            33,
            "expected a packet below 4294967296",
        ),
        (
            "{connection: all, direction: a-to-b, kind: [nak, cnp], packet: 1-, action: drop}",
            5,
            "the selectors admit TCP only",
        ),
        (
            "{direction: a-to-b, kind: [], packet: 1-, action: drop}",
            31,
            "no kind of packet",
        ),
        (
            "{direction: a-to-b, kind: [data, dat], packet: 1-, action: drop}",
            31,
            "expected one of data, ack",
        ),
        (
            "{connection: some, direction: a-to-b, packet: 1, action: drop}",
            6,
            "all or none",
        ),
        (
            "{direction: a-to-b, packet: 5, after: loss, action: drop}",
            43,
            "no event has the name loss",
        ),
        (
            "{direction: a-to-b, packet: 5, action: none}",
            44,
            "does nothing, and has no name",
        ),
        (
            "{direction: a-to-b, byte: 99999-100000, action: drop}",
            31,
            "carries 100000 bytes",
        ),
    ] {
        event_mistake(event, column, part);
    }
    let rules: String = (1..=65)
        .map(|n| format!("  - {{direction: a-to-b, packet: {n}-, action: ecn}}\n"))
        .collect();
    one_mistake(
        &format!("{TAPS}events:\n{rules}"),
        12 + 64,
        5,
        "64 events of this direction go by rules already",
    );
}

#[test]
fn event_mistakes_are_located() {
    event_mistake(
        "{direction: a-to-b, packet: 0, action: drop}",
        33,
        "event 1: packet 0, but packets count from 1",
    );
    event_mistake(
        "{direction: a-to-b, action: drop}",
        5,
        "expected one of packet, byte, psn and count",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, byte: 9, action: drop}",
        42,
        "packet and byte",
    );
    event_mistake(
        "{direction: b-to-a, kind: ack, byte: 9, action: drop}",
        31,
        "expected kind: data",
    );
    event_mistake(
        "{direction: a-to-b, psn: 9, action: drop}",
        5,
        "the selectors admit TCP only",
    );
    event_mistake(
        "{direction: a-to-b, kind: nak, packet: 1, action: drop}",
        5,
        "of RoCE",
    );
    event_mistake(
        "{direction: b-to-a, kind: ack, packet: 3, iterations: 1-2, action: drop}",
        59,
        "is seen once",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {}}",
        44,
        "does nothing",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {drop: true, ecn: true}}",
        44,
        "drop alone",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {delay: 0ns}}",
        52,
        "1ns to 1000s",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {delay: 1001s}}",
        52,
        "1ns to 1000s",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {drop: true, duplicate: 1}}",
        44,
        "drop alone",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {reorder: 0}}",
        54,
        "expected 1 to 65535",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {reorder: {of: lane}}}",
        55,
        "missing field `after`",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {duplicate: 256}}",
        56,
        "expected 1 to 255",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {duplicate: {gap: 5s}}}",
        62,
        "0ns to 4s",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {corrupt: {mask: 0}}}",
        61,
        "mask 0",
    );
    event_mistake(
        "{direction: a-to-b, packet: 1, action: {corrupt: {offset: 4096}}}",
        63,
        "0 to 4095",
    );
    event_mistake(
        "{direction: b-to-a, kind: ack, packet: 1, action: {corrupt: {}}}",
        65,
        "no payload",
    );
    event_mistake(
        "{connection: 3, direction: a-to-b, packet: 1, action: drop}",
        18,
        "opens 3",
    );
    event_mistake(
        "{direction: b-to-a, packet: 1, action: drop}",
        17,
        "data of connection 0 goes a-to-b (traffic 1)",
    );
    event_mistake(
        "{direction: a-to-b, byte: 100000, action: drop}",
        31,
        "the last is 99999",
    );
}

#[test]
fn edits_that_cannot_be_made_are_located() {
    let action = |action: &str, column, part: &str| {
        let event = format!("{{direction: a-to-b, packet: 1, action: {action}}}");
        event_mistake(&event, column, part);
    };
    action("{ecn: ect2}", 45, "not-ect, ect0, ect1 or ce");
    action(
        "{corrupt: {mend: some}}",
        55,
        "all, none, or a list of ip, l4 and icrc",
    );
    action("{corrupt: {mend: [fcs]}}", 62, "one of ip, l4, icrc");
    action("{break: all}", 45, "fcs, ip, l4 or icrc");
    action("{break: icrc}", 52, "TCP has no ICRC");
    action("{truncate: 0}", 55, "0 bytes are kept");
    action("{truncate: 10240}", 55, "expected 1 to 10239");
    action("{set: {}}", 50, "sets nothing");
    action("{set: {ttl: 256}}", 56, "from 0 to 255");
    action("{set: {dscp: 64}}", 57, "expected 0 to 63");
    action("{set: {hop-limit: 3}}", 51, "expected one of ttl, dscp");
    action("{set: {mig-req: false}}", 60, "mig-req is a field of RoCE");
    action("{set: {tcp-flags: [rst, fun]}}", 51, "fin, syn, rst");
    action("{set: {tcp-flags: 256}}", 51, "up to 0xff");
    action(
        "{set: {ttl: 1, dscp: 3}}",
        56,
        "dscp and ttl do not stand in 8 bytes",
    );
    action("{set: {ttl: 1, tcp-window: 3}}", 71, "one header");
    action("{set: {ttl: 1, value: \"00\"}}", 56, "expected one of them");
    action("{set: {offset: 3}}", 59, "offset goes with value");
    action("{set: {value: \"0\"}}", 58, "in hexadecimal");
    action("{set: {value: \"000000000000000000\"}}", 58, "1 to 8 bytes");
    action(
        "{set: {value: \"00 01\", mask: \"ff\"}}",
        73,
        "mask has 1 bytes and value 2",
    );
    action(
        "{set: {value: \"01\", mask: \"fe\"}}",
        58,
        "outside of mask",
    );
    action(
        "{set: {value: \"00\", mask: \"00\"}}",
        70,
        "changes nothing",
    );
    action("{set: {value: \"00\", offset: 4096}}", 72, "0 to 4095");
    action(
        "{set: {ttl: 1}, corrupt: {}}",
        69,
        "expected the same mend at both",
    );
    action("{drop: true, set: {ttl: 1}}", 44, "drop alone");
    one_mistake(
        &format!(
            "{PCAPS}events:\n  - {{direction: a-to-b, psn: 1, action: {{set: {{tcp-window: 1}}}}}}\n"
        ),
        7,
        60,
        "tcp-window is a field of TCP, and the event is of RoCE",
    );
}

#[test]
fn frames_that_cannot_be_made_are_located() {
    let action = |action: &str, column, part: &str| {
        let event = format!("{{direction: a-to-b, packet: 1, action: {action}}}");
        event_mistake(&event, column, part);
    };
    action("{inject: fin}", 45, "rst, ack, nak, cnp or pause");
    action("{inject: {fin: {}}}", 54, "expected one of rst, ack, nak");
    action(
        "{inject: {rst: {toward: c}}}",
        68,
        "one of sender, receiver, a, b",
    );
    action(
        "{inject: {ack: {msn: 1}}}",
        65,
        "an ack without qp is of TCP and has no msn",
    );
    action(
        "{inject: {ack: {qp: 1, window: 1}}}",
        75,
        "an ack with qp is of RoCE and has no window",
    );
    action(
        "{inject: {ack: {qp: 1}}}",
        53,
        "is made of packets of RoCE alone",
    );
    action(
        "{inject: {nak: {toward: receiver}}}",
        53,
        "nak is made of packets of RoCE",
    );
    action(
        "{inject: {pause: {priority: 8}}}",
        72,
        "priority 8 of the pause: expected at most 7",
    );
    action(
        "{inject: {pause: {priority: []}}}",
        72,
        "a pause of no priority",
    );
    action(
        "{inject: {frame: \"00 11\"}}",
        61,
        "a frame of 2 bytes: expected 14 to 2047",
    );
    action("{inject: {frame: \"gg\"}}", 61, "this is no frame");
    let roce = |action: &str, column, part: &str| {
        let plan = format!("{PCAPS}events:\n  - {{direction: a-to-b, psn: 1, action: {action}}}\n");
        one_mistake(&plan, 7, column, part);
    };
    roce("{inject: nak}", 50, "expected qp, or toward: receiver");
    roce("{inject: {cnp: {toward: a}}}", 56, "needs its queue pair");
    roce(
        "{inject: {cnp: {qp: 0x1000000}}}",
        61,
        "expected at most 16777215",
    );
    roce("{inject: {nak: {qp: 1, dscp: 64}}}", 70, "at most 63");
    roce("{inject: rst}", 50, "rst is made of packets of TCP alone");
    let many: String = (0..65)
        .map(|n| format!("  - {{direction: a-to-b, packet: {}, action: {{inject: {{pause: {{quanta: {n}}}}}}}}}\n", n + 1))
        .collect();
    one_mistake(
        &format!("{TAPS}events:\n{many}"),
        12,
        3,
        "65 different frames: expected at most 64",
    );
    let long: String = (0..20)
        .map(|n| format!("  - {{direction: a-to-b, packet: {}, action: {{inject: {{frame: \"{n:02x}{}\"}}}}}}\n", n + 1, "00".repeat(1513)))
        .collect();
    one_mistake(
        &format!("{TAPS}events:\n{long}"),
        12,
        3,
        "20 different frames, number 17: needs more bytes than the 384 rows",
    );
    let six = TAPS
        .replace("10.77.0.1/24", "fd00::1/64")
        .replace("10.77.0.2/24", "fd00::2/64");
    let broken = "events:\n  - {direction: a-to-b, packet: 1, action: {break: ip}}\n";
    Plan::parse("p.yaml", &format!("{TAPS}{broken}")).expect("IPv4 has one");
    one_mistake(
        &format!("{six}{broken}"),
        12,
        52,
        "an IPv6 header has no checksum",
    );
}

#[test]
fn a_packet_that_is_dropped_can_be_answered() {
    let text = format!(
        "{TAPS}events:
  - {{direction: a-to-b, packet: 5, action: {{drop: true, inject: rst}}}}
  - {{direction: a-to-b, packet: 6, action: drop}}
  - {{direction: a-to-b, packet: 6, action: {{inject: {{rst: {{toward: receiver}}}}}}}}
"
    );
    let plan = Plan::parse("p", &text).unwrap();
    let told: Vec<_> = (plan.events.iter())
        .map(|event| event.action.to_string())
        .collect();
    assert_eq!(
        told,
        [
            "drop + inject rst to the sender",
            "drop",
            "inject rst to the receiver"
        ]
    );
    one_mistake(
        &(text + "  - {direction: a-to-b, packet: 6, action: {inject: pause}}\n"),
        15,
        5,
        "both inject",
    );
}

#[test]
fn events_at_one_position_meet() {
    let at = |second: &str| {
        format!(
            "{TAPS}events:\n  - {{direction: a-to-b, packet: 5, iterations: 1-2, action: drop}}\n  - {second}\n"
        )
    };
    one_mistake(
        &at("{direction: a-to-b, packet: 5, iterations: 2, action: ecn}"),
        13,
        5,
        "events 1 and 2 both take iteration 2 of packet 5",
    );
    assert!(
        Plan::parse(
            "p",
            &at("{direction: a-to-b, packet: 5, iterations: 3, action: ecn}")
        )
        .is_ok()
    );
    assert!(
        Plan::parse(
            "p",
            &at("{connection: 1, direction: b-to-a, packet: 5, action: ecn}")
        )
        .is_ok()
    );
    one_mistake(
        &at("{direction: a-to-b, packet: 5, iterations: [4, 6, 8, 10], action: ecn}"),
        13,
        5,
        "the card holds 4",
    );
}

#[test]
fn endpoint_and_card_mistakes_are_located() {
    let with = |a: &str, b: &str| format!("version: 1\nname: x\nendpoints:\n  a: {a}\n  b: {b}\n");
    let taps = |a: &str, b: &str| {
        format!(
            "{}traffic: [command: {{on: a, run: ls}}]\n",
            with(&format!("{{tap: {{{a}}}}}"), &format!("{{tap: {{{b}}}}}"))
        )
    };
    let a = "address: 10.0.0.1/24";
    assert!(Plan::parse("p", &taps(a, "address: 10.0.0.2/24")).is_ok());
    one_mistake(
        &taps(a, "address: 10.0.0.1/24"),
        5,
        22,
        "has the address of endpoint a",
    );
    one_mistake(
        &taps(a, "address: 10.0.1.1/24"),
        5,
        22,
        "can't reach each other",
    );
    one_mistake(&taps(a, "address: fd00::1/64"), 5, 22, "one family");
    one_mistake(
        &taps("address: 10.0.0.1/33", a),
        4,
        22,
        "a host's address with its prefix",
    );
    one_mistake(
        &taps("address: 10.0.0.1/24, mtu: 20", "address: 10.0.0.2/24"),
        4,
        40,
        "68 to 10222",
    );
    one_mistake(
        &taps(
            "address: 10.0.0.1/24, sysctls: {kernel.panic: 1}",
            "address: 10.0.0.2/24",
        ),
        4,
        59,
        "net.*",
    );
    one_mistake(
        &with("{tap: {address: 10.0.0.1/24}}", "{pcap: {}}"),
        5,
        6,
        "one type",
    );
    one_mistake(&with("{pcap: {}}", "{pcap: {}}"), 4, 3, "no frames come in");
    one_mistake(
        &with("{pcap: {in: x}}", "{pcap: {out: ../x}}"),
        5,
        19,
        "inside the run's directory",
    );
    one_mistake(
        &with("{pcap: {in: x}}", "{pcap: {out: run.json}}"),
        5,
        19,
        "file of the run itself",
    );
    one_mistake(
        &with("{pcap: {in: x, out: y}}", "{pcap: {out: y}}"),
        5,
        19,
        "different",
    );
    let host = "{linux: {address: 10.0.0.1/24, trace: [sockets, {function_graph: tcp ack}]}}";
    one_mistake(
        &format!(
            "{}traffic: [command: {{on: a, run: ls}}]\n",
            with(host, "{linux: {address: 10.0.0.2/24, trace: [tcp_probe]}}")
        ),
        4,
        44,
        "no function of the kernel",
    );
    for name in ["12.stdout", "setup.sh", "trace", "network"] {
        let host = format!("{{linux: {{address: 10.0.0.1/24, files: [client.12.sh, ./{name}]}}}}");
        one_mistake(
            &format!(
                "{}traffic: [command: {{on: a, run: ls}}]\n",
                with(&host, "{linux: {address: 10.0.0.2/24}}")
            ),
            4,
            44,
            &format!("files: {name} is a file of the run itself"),
        );
    }
    one_mistake(
        &with("{pcap: {in: x}}", "{card: {}}"),
        5,
        7,
        "expected one of tap, linux, rnic, agent, pcap, external",
    );
    one_mistake(
        &format!("{PCAPS}card: {{width: 128}}\n"),
        6,
        15,
        "expected 64 or 512",
    );
    one_mistake(
        &format!("{PCAPS}card: {{time: wall}}\n"),
        6,
        14,
        "expected time: virtual",
    );
    one_mistake(
        &format!("{TAPS}card: {{time: virtual}}\n"),
        11,
        14,
        "expected time: wall",
    );
    one_mistake(
        "version: 1\nname: ../x\nendpoints: {a: {pcap: {in: x}}, b: {pcap: {}}}",
        2,
        7,
        "letters",
    );
}

#[test]
fn selector_and_traffic_mistakes_are_located() {
    let selector = |s: &str| {
        format!(
            "version: 1\nname: x\nendpoints:\n  a: {{tap: {{address: 10.0.0.1/24}}}}\n  b: {{tap: {{address: 10.0.0.2/24}}}}\n\
             traffic: [command: {{on: a, run: ls}}]\nselectors:\n  - {s}\n"
        )
    };
    assert!(Plan::parse("p", &selector("{source: 10.0.0.0/24, from: b}")).is_ok());
    one_mistake(
        &selector("{transport: tcp, qp: 5}"),
        8,
        26,
        "no queue pairs",
    );
    one_mistake(
        &selector("{transport: roce, port: 5}"),
        8,
        29,
        "by qp, not by port",
    );
    one_mistake(&selector("{port: 5, qp: 5}"), 8, 19, "matches nothing");
    one_mistake(&selector("{qp: 0x1000000}"), 8, 10, "24 bits");
    one_mistake(
        &selector("{source: 10.0.0.1, destination: '::1'}"),
        8,
        37,
        "different families",
    );
    one_mistake(&selector("{source: 10.1.0.0/16}"), 8, 14, "matches nothing");
    one_mistake(
        &selector("{source: 10.0.0.1, from: b}"),
        8,
        14,
        "matches nothing",
    );
    let traffic = |t: &str| {
        format!(
            "version: 1\nname: x\nendpoints:\n  a: {{tap: {{address: 10.0.0.1/24}}}}\n  b: {{tap: {{address: 10.0.0.2/24}}}}\n\
             traffic:\n  - {t}\n"
        )
    };
    one_mistake(
        &traffic("tcp: {from: a, to: a, bytes: 1}"),
        7,
        24,
        "expected the other endpoint",
    );
    one_mistake(
        &traffic("tcp: {from: a, to: b, bytes: 0}"),
        7,
        34,
        "0 bytes",
    );
    one_mistake(
        &traffic("tcp: {from: a, to: b, bytes: 1, connections: 0}"),
        7,
        50,
        "1 to 1024",
    );
    one_mistake(
        &traffic("tcp: {from: a, to: b, bytes: 1, port: 70000}"),
        7,
        43,
        "0 to 65535",
    );
    one_mistake(
        &traffic("tcp: {from: a, to: b, bytes: 1, congestion_control: 'a b'}"),
        7,
        57,
        "cubic",
    );
    one_mistake(
        &traffic("command: {on: a, run: ' '}"),
        7,
        27,
        "command line",
    );
    one_mistake(
        &traffic("command: {on: a, run: ls, background: true}"),
        7,
        3,
        "in the background",
    );
    one_mistake(
        &traffic("udp: {}"),
        7,
        5,
        "expected one of tcp, rdma, command",
    );
    one_mistake(
        &format!("{PCAPS}traffic: [command: {{on: a, run: ls}}]\n"),
        6,
        10,
        "expected no traffic",
    );
}

#[test]
fn hosts_and_transfers_have_options() {
    let plan = |a: &str, tcp: &str, rest: &str| {
        format!(
            "version: 1\nname: x\nendpoints:\n  a: {{tap: {{{a}}}}}\n  b: {{tap: {{address: [fd77::2/64, 10.0.0.2/24], mac: 02:00:00:00:00:0b}}}}\n\
             traffic:\n  - tcp: {{from: a, to: b, bytes: 9kB{tcp}}}\n{rest}"
        )
    };
    let a = "address: [10.0.0.1/24, fd77::1/64], mac: 02:00:00:00:00:0a, neighbours: learn, queue: 100, congestion_control: reno";
    let tcp = ", source_port: 40000, no_delay: true, write_size: 1kB, direction: receive";
    let text = plan(a, tcp, "");
    let read = Plan::parse("p", &text).unwrap();
    let (Endpoint::Tap(host), Traffic::Tcp(transfer)) = (&read.endpoints.a, &read.traffic[0])
    else {
        panic!("{read:?}")
    };
    assert_eq!((host.address.len(), host.queue), (2, 100));
    assert_eq!(
        (transfer.source_port, transfer.no_delay),
        (Some(40_000), true)
    );
    assert_eq!(transfer.write_size, Size(1_000));
    let json = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), read);

    // What is received comes from the other end; the first address of b decides the family.
    let drops = |direction: &str| {
        format!("events: [{{direction: {direction}, packet: 1, action: drop}}]\n")
    };
    assert!(Plan::parse("p", &plan(a, ", direction: receive", &drops("b-to-a"))).is_ok());
    one_mistake(
        &plan(a, ", direction: receive", &drops("a-to-b")),
        8,
        22,
        "goes b-to-a",
    );
    for direction in ["a-to-b", "b-to-a"] {
        assert!(Plan::parse("p", &plan(a, ", direction: both", &drops(direction))).is_ok());
    }
    let selector =
        |net: &str| format!("selectors: [{{destination: '{net}'}}]\n{}", drops("a-to-b"));
    assert!(Plan::parse("p", &plan(a, "", &selector("fd77::/64"))).is_ok());
    one_mistake(
        &plan(a, "", &selector("10.0.0.0/24")),
        9,
        10,
        "the selectors admit none of the traffic",
    );

    one_mistake(&plan("address: []", "", ""), 4, 22, "needs an address");
    one_mistake(
        &plan("address: fd77::1/64, mac: 02:00:00:00:00:0b", "", ""),
        5,
        54,
        "the mac of endpoint a",
    );
    one_mistake(
        &plan("address: fd77::1/64, queue: 0", "", ""),
        4,
        41,
        "room",
    );
    one_mistake(
        &plan("address: fd77::1/64, mtu: 1000", "", ""),
        4,
        39,
        "1280",
    );
    one_mistake(
        &plan("address: fd77::1/64, congestion_control: a/b", "", ""),
        4,
        54,
        "cubic",
    );
    one_mistake(
        &plan(
            "address: fd77::1/64",
            ", connections: 9, source_port: 65530",
            "",
        ),
        7,
        68,
        "65530 to 65538",
    );
    one_mistake(
        &plan("address: fd77::1/64", ", write_size: 0", ""),
        7,
        51,
        "expected 1 to",
    );
}

#[test]
fn external_endpoints_leave_the_card_and_the_hosts_to_the_user() {
    let plan = |rest: &str| {
        format!("version: 1\nname: x\nendpoints: {{a: external, b: external}}\n{rest}\n")
    };
    for good in [
        "duration: 10s",
        "duration: until-interrupted",
        "traffic: [command: {on: here, run: ls}]\nexpect: [traffic: completes]",
        "duration: 1s\nevents: [{connection: 7, direction: b-to-a, packet: 5, action: drop}]",
    ] {
        let read = Plan::parse("p", &plan(good)).unwrap();
        assert_eq!(read.time(), CardTime::Wall);
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), read);
    }
    for (wrong, column, part) in [
        ("duration: soon", 11, "until-interrupted"),
        ("duration: 0s", 11, "above 0"),
        (
            "traffic: [tcp: {from: a, to: b, bytes: 1}]\n",
            11,
            "on: here",
        ),
        ("traffic: [command: {on: a, run: ls}]", 25, "on: here"),
        ("duration: 1s\ncard: {width: 64}", 15, "leave it away"),
        (
            "duration: 1s\nexpect: [traffic: completes]",
            10,
            "no traffic",
        ),
    ] {
        let line = wrong.lines().count() as u64 + 3;
        one_mistake(&plan(wrong), line, column, part);
    }
    one_mistake(&plan(""), 3, 12, "how long the run lasts");
    one_mistake(
        &plan("duration: 1s\ntraffic: [command: {on: here, run: ls}]"),
        4,
        11,
        "not both",
    );
    one_mistake(
        &format!("{PCAPS}duration: 1s\n"),
        6,
        11,
        "external endpoints",
    );
    one_mistake(
        "version: 1\nname: x\nendpoints: {a: external, b: {pcap: {in: x}}}",
        3,
        29,
        "one type",
    );
}

#[test]
fn expectation_mistakes_are_located() {
    let with = |e: &str| format!("{TAPS}expect:\n  - {e}\n");
    assert!(Plan::parse("p", &with("retransmissions: {connection: 2, at_most: 0}")).is_ok());
    one_mistake(
        &with("traffic: complete"),
        12,
        14,
        "expected one of completes, fails",
    );
    one_mistake(
        &with("traffic: completes\n  - traffic: fails"),
        13,
        5,
        "contradicts",
    );
    one_mistake(
        &with("retransmissions: {connection: 0}"),
        12,
        22,
        "demands nothing",
    );
    one_mistake(
        &with("retransmissions: {at_least: 2, at_most: 1}"),
        12,
        33,
        "above at_most",
    );
    one_mistake(
        &with("retransmissions: {connection: 7, at_most: 1}"),
        12,
        35,
        "no connection 7",
    );
    one_mistake(
        &with("retransmissions: {direction: b-to-a, at_most: 1}"),
        12,
        34,
        "goes a-to-b",
    );
    one_mistake(&with("retransmission: {packet: 0}"), 12, 30, "count from 1");
    one_mistake(
        &with("retransmission: {packet: 1, byte: 1}"),
        12,
        39,
        "one of them",
    );
    one_mistake(
        &with("retransmission: {packet: 1, cause: luck}"),
        12,
        40,
        "expected one of any, fast",
    );
    one_mistake(
        &with("retransmission: {packet: 1, within: 0s}"),
        12,
        41,
        "above 0",
    );
    one_mistake(
        &format!("{PCAPS}expect: [traffic: completes]\n"),
        6,
        10,
        "no traffic",
    );
}

#[test]
fn all_mistakes_are_told_at_once_in_order() {
    let text = format!(
        "{TAPS}events:
  - {{direction: a-to-b, packet: 0, action: drop}}
  - {{direction: b-to-a, packet: 1, action: {{}}}}
capture: {{snapshot: 20kB}}
"
    );
    let lines: Vec<u64> = mistakes(&text).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(lines, [12, 13, 13, 14]);
    let error = Plan::parse("dir/plan.yaml", &text).unwrap_err().to_string();
    assert!(
        error.starts_with("dir/plan.yaml:12:33: event 1: packet 0"),
        "{error}"
    );
}

#[test]
fn bytes_that_are_no_text_are_located() {
    let error = Plan::parse_bytes("p", b"version: 1\nname: \xff\n").unwrap_err();
    assert_eq!(error.mistakes[0].place, Place { line: 2, column: 7 });
}

/// xorshift64*: enough to be different each time and the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn must_not_panic(bytes: &[u8]) {
    if let Err(error) = Plan::parse_bytes("p", bytes) {
        let lines = bytes.split(|&b| b == b'\n' || b == b'\r').count() as u64 + 3;
        assert!(!error.mistakes.is_empty());
        for mistake in &error.mistakes {
            let text = String::from_utf8_lossy(bytes);
            assert!(
                (1..=lines).contains(&mistake.place.line),
                "{mistake:?}\n{text}"
            );
            assert!(
                mistake.place.column >= 1 && !mistake.message.is_empty(),
                "{mistake:?}\n{text}"
            );
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(0x6d69_6477_6972_6531);
    let alphabet = b"{}[]:,-&*!|>'\"#%@ \n\t\\?abc019.~<=\xc3\xa9\xff\0";
    for _ in 0..3_000 {
        let length = random.below(200);
        let plain: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        must_not_panic(&plain);
        let yaml: Vec<u8> = (0..length)
            .map(|_| alphabet[random.below(alphabet.len())])
            .collect();
        must_not_panic(&yaml);
    }
}

#[test]
fn mutated_plans_never_panic() {
    let whole = format!(
        "{TAPS}events:
  - {{connection: 0, direction: a-to-b, packet: 5, iterations: 1-2, action: drop}}
  - {{direction: b-to-a, kind: ack, packet: 3, action: {{delay: 5ms}}}}
  - {{direction: a-to-b, packet: 60, action: {{corrupt: {{at: payload, offset: 0, mask: 0x01}}}}}}
expect:
  - traffic: completes
  - retransmission: {{connection: 0, packet: 5, within: 1s, cause: fast}}
capture: {{snapshot: 128}}
timeouts: {{traffic: 20s}}
"
    );
    let words: &[&[u8]] = &[
        b"-1",
        b"0",
        b"99999999999999999999999999",
        b"null",
        b"~",
        b"{}",
        b"[]",
        b"all",
        b"1e400",
        b".nan",
        b"!!binary x",
        b"&a",
        b"*a",
        b"<<: *a",
        b"---\n",
        b"? ",
        b"1-",
        b"\xf0\x9f\xa6\x80",
        b"::/0",
        b"0x",
        b"true",
        b"|\n",
        b"0.0000000000000000000000000001s",
        b"\"",
        b"'",
    ];
    let mut random = Random(0x6d69_6477_6972_6532);
    for _ in 0..4_000 {
        let mut text = whole.clone().into_bytes();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            let end = (at + random.below(12)).min(text.len());
            match random.below(4) {
                0 => text[at] ^= 1 << random.below(8),
                1 => drop(text.drain(at..end)),
                2 => drop(text.splice(at..end, words[random.below(words.len())].iter().copied())),
                _ => text.truncate(at),
            }
            if text.is_empty() {
                break;
            }
        }
        must_not_panic(&text);
    }
}

#[test]
fn deep_and_repeated_text_is_refused() {
    must_not_panic("[".repeat(100_000).as_bytes());
    must_not_panic(format!("version: {}1", "- ".repeat(50_000)).as_bytes());
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (from, to) in "abcdefghij".chars().zip("bcdefghijk".chars()) {
        bomb += &format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 9].join(", "));
    }
    assert!(Plan::parse("p", &bomb).is_err());
}

const NICS: &str = "\
version: 1
name: test
endpoints:
  a: {rnic: {address: 10.0.0.1/24}}
  b: {rnic: {address: 10.0.0.2/24, ets: [1, 1]}}
traffic:
  - rdma: {from: a, to: b, verb: write, messages: 1, size: 1}
";

#[test]
fn model_nics_are_checked() {
    let plan = Plan::parse("p", NICS).unwrap();
    assert_eq!(plan.time(), CardTime::Virtual);
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);

    for (rdma, part) in [
        ("to: b", "to: a", "expected the other endpoint"),
        ("size: 1", "size: 0", "size 0, expected 1"),
        ("size: 1", "size: 3GB", "expected 1 to 2147483648"),
        ("size: 1", "size: 2GB, mtu: 256", "PSNs can't tell apart"),
        ("size: 1", "size: 1, mtu: 1500", "expected 256, 512"),
        (
            "size: 1",
            "size: 1, retries: 8",
            "retries 8, expected 0 to 7",
        ),
        ("size: 1", "size: 1, timeout: 32", "timeout 32"),
        (
            "size: 1",
            "size: 1, traffic_classes: [0, 1]",
            "traffic class 1",
        ),
        ("messages: 1", "messages: 0", "messages 0"),
    ]
    .map(|(old, new, part)| (NICS.replace(old, new), part))
    {
        let found = mistakes(&rdma);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == 7 && found[0].2.contains(part), "{found:?}");
    }
    let together = NICS.replace("size: 1", "size: 1, together: true");
    let (_, entry) = together.split_once("traffic:\n").unwrap();
    let two = Plan::parse("p", &format!("{NICS}{entry}")).unwrap();
    assert!(two.runs_together() && !plan.runs_together());
    let command = "  - command: {on: a, run: ls}\n";
    let places = mistakes(&format!("{NICS}{command}{entry}"));
    assert_eq!([places[0].0, places[1].0], [8, 9], "{places:?}");
    for (text, line, column, part) in [
        (together, 7, 73, "expected one of rdma there"),
        (NICS.replace("10.0.0.2", "10.0.0.1"), 5, 23, "twice"),
        (NICS.replace("10.0.0.2/24", "fd00::2/64"), 5, 23, "all IPv6"),
        (NICS.replace("[1, 1]", "[1, 0]"), 5, 41, "weights above 0"),
        (
            NICS.replace(
                "rdma: {from: a, to: b, verb: write, messages: 1, size: 1}",
                "command: {on: a, run: ls}",
            ),
            7,
            5,
            "run no programs",
        ),
        (
            TAPS.replace(
                "tcp: {from: a, to: b, bytes: 100kB}",
                "rdma: {from: a, to: b, verb: write, messages: 1, size: 1}",
            ),
            9,
            5,
            "expected rnic or agent endpoints",
        ),
        (
            format!("{NICS}expect: [counter: {{endpoint: a, name: packets, at_most: 1}}]\n"),
            8,
            39,
            "there is no counter packets",
        ),
        (
            format!("{TAPS}expect: [counter: {{endpoint: a, name: sent_pkts, at_most: 1}}]\n"),
            11,
            10,
            "or linux ones with rdma",
        ),
        (
            format!("{NICS}expect: [findings: {{rule: nak-missing}}]\n"),
            8,
            20,
            "demands nothing",
        ),
        (
            format!("{NICS}expect: [completion: {{traffic: 2, within: 1ms}}]\n"),
            8,
            32,
            "traffic 2 is not of RDMA messages",
        ),
        (
            format!("{NICS}expect: [completion: {{queue_pairs: 0-1, within: 1ms}}]\n"),
            8,
            36,
            "queue pair 1, but traffic 1 has 1, counted from 0",
        ),
        (
            format!("{NICS}expect: [completion: {{within: 0us}}]\n"),
            8,
            31,
            "expected a time above 0",
        ),
        (
            format!("{NICS}expect: [counter: {{endpoint: a, name: rx_discards_phy}}]\n"),
            8,
            19,
            "demands nothing",
        ),
    ] {
        one_mistake(&text, line, column, part);
    }
}

const AGENTS: &str = "version: 1
name: x
endpoints:
  a: {agent: {ssh: root@a, address: 10.0.0.1/24}}
  b: {agent: {run: nsenter midwire-agent, address: 10.0.0.2/24, device: mlx5_1}}
traffic:
  - rdma: {from: a, to: b, verb: write, messages: 1, size: 1}
";

const HOSTS: &str = "version: 1
name: x
endpoints:
  a: {linux: {address: 10.0.0.1/24, rdma: true}}
  b: {linux: {address: 10.0.0.2/24, rdma: true}}
traffic:
  - rdma: {from: a, to: b, verb: write, messages: 1, size: 1}
";

#[test]
fn hosts_with_agents_send_rdma_alone() {
    let free = "expect: [counter: {endpoint: a, name: anything, at_most: 1}]\n";
    for text in [AGENTS, HOSTS, &format!("{AGENTS}{free}")] {
        Plan::parse("plan.yaml", text).expect("a plan");
    }
    for (text, line, part) in [
        (AGENTS.replace("ssh: root@a, ", ""), 4, "expected ssh"),
        (
            AGENTS.replace("ssh: root@a", "ssh: -oProxyCommand=x"),
            4,
            "is no host",
        ),
        (
            AGENTS.replace("run:", "ssh: b, run:"),
            5,
            "either ssh or run",
        ),
        (
            AGENTS.replace("run:", "program: x, run:"),
            5,
            "in the command line",
        ),
        (AGENTS.replace("10.0.0.2", "10.0.0.1"), 5, "twice"),
        (
            AGENTS.replace("size: 1}", "size: 1, traffic_classes: [1]}"),
            7,
            "traffic class 1",
        ),
        (format!("{AGENTS}card: {{width: 64}}\n"), 8, "leave it away"),
        (
            format!("{AGENTS}  - command: {{on: here, run: ls}}\n"),
            8,
            "run no programs",
        ),
        (
            HOSTS.replace("10.0.0.2/24, rdma: true", "10.0.0.2/24"),
            5,
            "rdma: true of host b",
        ),
        (
            format!("{HOSTS}  - command: {{on: a, run: ls}}\n"),
            8,
            "run no programs",
        ),
        (
            HOSTS.replace("size: 1}", "size: 1, qps: 2049}"),
            7,
            "2049 queue pairs: expected at most 2048",
        ),
        (
            HOSTS
                .replace("rdma: true", "rdma: true, memory: 2GiB")
                .replace("size: 1}", "size: 1, qps: 4096}")
                + "  - rdma: {from: b, to: a, verb: read, messages: 1, size: 1}\n",
            8,
            "4097 queue pairs: expected at most 4096",
        ),
    ] {
        let found = mistakes(&text);
        assert_eq!(found.len(), 1, "{text}{found:?}");
        assert!(found[0].0 == line && found[0].2.contains(part), "{found:?}");
    }
}
