// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire analyze` on files of packets, good and bad.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use midwire_trace::Nanos;
use midwire_trace::build::{self, Path as Route};
use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet::{Aeth, Bth, opcode};
use serde_json::Value;
use tempfile::TempDir;

fn analyze(file: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midwire"))
        .arg("analyze")
        .arg(file)
        .args(more)
        .output()
        .expect("midwire starts")
}

fn roce(back: bool, opcode: u8, psn: u32, syndrome: Option<u8>) -> Vec<u8> {
    let there = Route::ipv4(50_000, 4791);
    let route = if back { there.reversed() } else { there };
    let bth = Bth {
        opcode,
        pkey: 0xffff,
        dest_qp: if back { 0x11 } else { 0x22 },
        psn,
        ..Bth::default()
    };
    let aeth = syndrome.map_or(Vec::new(), |syndrome| {
        build::aeth(Aeth { syndrome, msn: 0 })
    });
    build::roce(&route, &bth, &aeth, b"")
}

/// Three sends, of which the second is lost on its way here; sent again from `again`.
fn conversation(again: u32) -> Vec<Vec<u8>> {
    let send = |psn| roce(false, opcode::SEND_ONLY, psn, None);
    let answer = |psn, syndrome| roce(true, opcode::ACK, psn, Some(syndrome));
    let mut frames = vec![send(7), send(9), answer(7, 0x1f), answer(8, 0x60)];
    frames.extend((again..10).map(send));
    frames.push(answer(9, 0x1f));
    frames
}

fn pcapng(dir: &TempDir, frames: &[Vec<u8>]) -> PathBuf {
    let path = dir.path().join("test.pcapng");
    let file = fs::File::create(&path).expect("file");
    let mut writer = Writer::new(file, &About::default()).expect("header");
    let interface = writer.interface("x", "", None, 0).expect("interface");
    for (data, n) in frames.iter().zip(1..) {
        let frame = Frame::received(interface, Nanos(n * 2_000), data);
        writer.packet(&frame).expect("packet");
    }
    writer.finish().expect("file written");
    path
}

#[test]
fn a_file_as_specified_and_one_that_is_not() {
    let dir = TempDir::new().expect("directory");
    let good = analyze(&pcapng(&dir, &conversation(8)), &[]);
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{text}");
    for part in [
        "10.0.0.1 QP 0x11",
        "NAK, sequence error",
        "before the capture",
        "PASS",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let bad = analyze(&pcapng(&dir, &conversation(9)), &[]);
    let text = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(1), "{text}");
    assert!(
        text.contains("resumed-above") && text.contains("FAIL"),
        "{text}"
    );

    let json = analyze(
        &pcapng(&dir, &conversation(9)),
        &["--json", "--timeout", "14"],
    );
    let value: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["analysis"]["findings"][0]["rule"], "resumed-above");
    assert_eq!(
        value["analysis"]["findings"][0]["packets"],
        serde_json::json!([4, 5])
    );
    assert_eq!(value["analysis"]["settings"]["timeout"], 14);
}

#[test]
fn files_that_can_not_be_used_say_why() {
    let dir = TempDir::new().expect("directory");
    let refused = |path: &Path, code, what: &str| {
        let output = analyze(path, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(what) && text.contains("test"), "{text}");
    };
    let plain = vec![build::udp(&Route::ipv4(1, 2), b"no RDMA")];
    refused(
        &pcapng(&dir, &plain),
        2,
        "none of 1 packets goes to UDP port 4791",
    );
    refused(&pcapng(&dir, &[]), 2, "there is no packet");
    let path = dir.path().join("test.txt");
    fs::write(&path, "not packets at all").expect("file");
    refused(&path, 5, "neither pcap nor pcapng");
    refused(&dir.path().join("test.none"), 5, "No such file");

    // Cut off: what is there is read, and it is told.
    let whole = pcapng(&dir, &conversation(8));
    let bytes = fs::read(&whole).expect("file");
    fs::write(&whole, &bytes[..bytes.len() - 30]).expect("file");
    let output = analyze(&whole, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("not whole") && text.contains("6 packets"),
        "{text}"
    );
}
