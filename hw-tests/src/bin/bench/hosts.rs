// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real TCP between two hosts through the card, in wall time.

use crate::Result;
use crate::report::Report;
use midwire_driver::{CaptureConfig, Card};
use midwire_endpoints::traffic::{Background, CommandTraffic, Ready, TcpTraffic};
use midwire_endpoints::{Hosts, Port, TapHost};
use midwire_hw_tests::InProcess;
use midwire_hw_tests::line_rate::watch;
use midwire_virtual_card::{Config, PortConfig, VirtualCard};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SECONDS: u64 = 8;

/// iperf3, or the built-in traffic where there is none.
pub fn through_two_hosts(report: &mut Report) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let a = TapHost::new("10.77.0.1/24".parse()?);
    let b = TapHost::new("10.77.0.2/24".parse()?);
    let (hosts, [port_a, port_b]) = Hosts::new("bench", &a, &b)?;
    let simulation = VirtualCard::spawn(Config {
        ports: [PortConfig::TapFd(port_a), PortConfig::TapFd(port_b)],
        ..Config::default()
    })?;
    let card = Card::open(Box::new(InProcess::new(simulation.host_bus())))?;
    card.load(&watch())?;
    let capture = card.start_capture(CaptureConfig::new(directory.path().join("capture.mwc")))?;
    card.track(true)?;
    let cancel = AtomicBool::new(false);
    let before = simulation.stats();
    let (program, sent, received) = match iperf3(&hosts, directory.path(), &cancel)? {
        Some((sent, received)) => ("iperf3", sent, received),
        None => {
            let traffic = TcpTraffic {
                bytes: 400_000_000,
                ..TcpTraffic::default()
            };
            let seen = traffic.run(&hosts, &cancel)?;
            let stream = &seen.connections[0].streams[0];
            let goodput = stream.goodput_bits_per_s as f64;
            ("the built-in TCP traffic", goodput, goodput)
        }
    };
    let stats = simulation.stats();
    let summary = capture.stop()?;
    let counters = card.counters()?;
    let lost_in: u64 = Port::ALL
        .iter()
        .map(|port| hosts.at(*port).counters().map(|c| c.send_lost))
        .sum::<std::result::Result<u64, _>>()?;
    let lost_out: u64 = stats.ports.iter().map(|port| port.lost_out).sum();
    let lost_lane: u64 = counters.ports.iter().map(|port| port.rx_lost).sum();
    let lost_records: u32 = [summary.counters.lost_ingress, summary.counters.lost_egress]
        .as_flattened()
        .iter()
        .sum();
    report.section(
        "TCP between two hosts",
        &format!(
            "Two network namespaces joined by the virtual card (512 bits, wall time), every packet \
             captured with 128 bytes of it. One connection of {program}."
        ),
    );
    let cycles = (stats.cycles - before.cycles) as f64 / (stats.wall - before.wall).as_secs_f64();
    report.table(&["what", "measured"]);
    for (what, value) in [
        ("sent", format!("{:.0} Mbit/s", sent / 1e6)),
        ("received", format!("{:.0} Mbit/s", received / 1e6)),
        (
            "frames lost between a host and the card",
            lost_in.to_string(),
        ),
        ("frames lost in the card", lost_lane.to_string()),
        (
            "frames lost between the card and a host",
            lost_out.to_string(),
        ),
        ("records", summary.records.to_string()),
        ("records lost", lost_records.to_string()),
        (
            "capture complete",
            if summary.complete { "yes" } else { "no" }.into(),
        ),
        (
            "cycles simulated a second",
            format!("{:.2} M", cycles / 1e6),
        ),
    ] {
        report.row(&[what.to_string(), value]);
    }
    Ok(())
}

/// Bits a second that were sent and received; `None` where there is no iperf3.
fn iperf3(
    hosts: &Hosts,
    directory: &std::path::Path,
    cancel: &AtomicBool,
) -> Result<Option<(f64, f64)>> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        return Ok(None);
    }
    let command = |on, run: String, background| CommandTraffic {
        on: Some(on),
        run,
        background,
        ready: Ready::default(),
        timeout: Duration::from_secs(SECONDS + 30),
        environment: Default::default(),
    };
    let server = command(Port::B, "exec iperf3 -s -1".into(), true);
    let server: Background = server.start(Some(hosts), directory, "server", cancel)?;
    let client = command(
        Port::A,
        format!("exec iperf3 -J -t {SECONDS} -c $MIDWIRE_B"),
        false,
    );
    let client = client.run(Some(hosts), directory, "client", cancel)?;
    server.stop()?;
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&client.stdout)?)?;
    let speed = |side: &str| json["end"][side]["bits_per_second"].as_f64();
    match (speed("sum_sent"), speed("sum_received")) {
        (Some(sent), Some(received)) => Ok(Some((sent, received))),
        _ => Err(format!("iperf3 says {}", json["error"]).into()),
    }
}
