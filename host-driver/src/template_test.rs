// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn bytes(length: usize) -> Template {
    Template {
        toward: Toward::Receiver,
        answer: Answer::Bytes(vec![0xa5; length]),
    }
}

fn refuse(templates: &[Template]) -> (usize, String) {
    rows(templates).expect_err("refused")
}

#[test]
fn a_template_lies_as_documented() {
    let reset = Template {
        toward: Toward::Sender,
        answer: Answer::Tcp(TcpAnswer {
            flags: 0x14,
            window: 0x1234,
            number: SequenceNumber::Next,
        }),
    };
    let rows = rows(&[bytes(65), reset]).expect("rows");
    let row = |index: u32| rows.iter().find(|entry| entry.index == index).unwrap().row;
    // Two rows of bytes, for IPv4 and IPv6 alike.
    for head in [row(0), row(1)] {
        assert_eq!(
            (head.get(0, 1), head.get(1, 4), head.get(5, 1)),
            (1, 0xf, 0)
        );
        assert_eq!(head.get(22, 9), 128);
        assert_eq!(head.get(128, 32), 1 | 65 << 2);
    }
    assert_eq!(row(128).get(504, 8), 0xa5);
    assert_eq!((row(129).get(0, 8), row(129).get(8, 128)), (0xa5, 0));
    // The segment, over IPv4.
    let head = row(2);
    assert_eq!((head.get(1, 4), head.get(5, 1)), (0b10, 1));
    assert_eq!(head.get(6, 16), 6 + 20);
    assert_eq!(head.get(22, 9), 130);
    let steps: Vec<_> = (0..24).map(|n| head.get(128 + 16 * n, 16)).collect();
    let seen = |base: u128, offset: u128, n: u128| 2 | base << 2 | (n - 1) << 4 | offset << 9;
    let work = |what: u128| 3 | what << 2;
    let addresses = [seen(1, 16, 4), seen(1, 12, 4)];
    let ports = [seen(2, 2, 2), seen(2, 0, 2)];
    let expected = [
        &[
            seen(0, 6, 6),
            seen(0, 0, 6),
            work(0),
            work(1),
            1 | 10 << 2,
            work(4),
        ][..],
        &addresses,
        &[work(2)],
        &ports,
        &[seen(2, 8, 4), work(3), 1 | 4 << 2, work(5), 1 | 2 << 2, 0],
    ];
    assert_eq!(steps[..17], expected.concat()[..17]);
    let own = row(130).get(0, 128).to_le_bytes();
    assert_eq!(own[..10], [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6]);
    assert_eq!(own[10..], [0x50, 0x14, 0x12, 0x34, 0, 0]);
    assert_eq!(row(3).get(22, 9), 131);
    // What a template names is there before it.
    let order: Vec<_> = rows.iter().map(|entry| entry.index).collect();
    assert_eq!(order, [128, 129, 130, 131, 0, 1, 2, 3]);
}

#[test]
fn mistakes_are_told() {
    assert_eq!(refuse(&[bytes(14), bytes(13)]).0, 1);
    assert!(refuse(&[bytes(2048)]).1.contains("not in 14 to 2047"));
    let many = refuse(&vec![bytes(14); 65]);
    assert_eq!((many.0, many.1.contains("64 templates")), (64, true));
    let long = refuse(&vec![bytes(2047); 13]);
    assert_eq!((long.0, long.1.contains("more bytes")), (12, true));
    let roce = |message, queue_pair| Template {
        toward: Toward::Sender,
        answer: Answer::Roce(RoceAnswer {
            message,
            queue_pair,
            traffic_class: 0,
        }),
    };
    let reason = refuse(&[roce(RoceMessage::Cnp, Some(1 << 24))]).1;
    assert!(reason.contains("queue pair"), "{reason}");
    let message = RoceMessage::Ack {
        syndrome: 0,
        msn: Some(1 << 24),
    };
    let reason = refuse(&[roce(message, None)]).1;
    assert!(reason.contains("message number"), "{reason}");
    let none = Template {
        toward: Toward::Sender,
        answer: Answer::Pause(Pause {
            priorities: Some(0),
            quanta: 1,
        }),
    };
    assert!(refuse(&[none]).1.contains("no priority"));
}
