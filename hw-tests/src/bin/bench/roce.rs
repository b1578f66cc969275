// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate of the analysis of RoCE.

use crate::Result;
use crate::report::Report;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use midwire_analysis::roce::{Settings, source};
use midwire_trace::Nanos;
use midwire_trace::build;
use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet::{Aeth, Bth, Reth, opcode};

const PACKETS: u64 = 400_000;
const CONNECTIONS: u32 = 64;
/// Packets of a write, before its acknowledgement.
const WRITE: u32 = 8;
/// One in so many writes loses its third packet.
const LOSS: u64 = 100;

fn write(path: &Path, payload: usize, snapshot: usize) -> midwire_trace::Result<()> {
    let there = build::Path::ipv4(50_000, 4791);
    let back = there.reversed();
    let frame = |answer: bool, n: u32, opcode, psn: u32, extension: &[u8]| {
        let (route, qp, payload) = match answer {
            true => (&back, 0x1000 + n, 0),
            false => (&there, 0x2000 + n, payload),
        };
        let bth = Bth {
            opcode,
            pkey: 0xffff,
            dest_qp: qp,
            psn: (n << 18).wrapping_add(psn) & 0xff_ffff,
            ..Bth::default()
        };
        build::roce(route, &bth, extension, &vec![0x5a; payload])
    };
    let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut writer = Writer::new(out, &About::default())?;
    let interface = writer.interface("x", "", None, snapshot as u32)?;
    let mut number = 0;
    let mut add = |data: Vec<u8>| -> midwire_trace::Result<u64> {
        number += 1;
        let kept = &data[..data.len().min(snapshot)];
        writer.packet(&Frame {
            length: data.len() as u32,
            ..Frame::received(interface, Nanos(number * 100), kept)
        })?;
        Ok(number)
    };
    let reth = build::reth(Reth {
        va: 0,
        rkey: 1,
        dma_len: WRITE * payload as u32,
    });
    let aeth = |syndrome| build::aeth(Aeth { syndrome, msn: 0 });
    for round in 0.. {
        for n in 0..CONNECTIONS {
            let first = round as u32 * WRITE;
            let request = |psn: u32| match psn {
                0 => frame(false, n, opcode::WRITE_FIRST, first, &reth),
                psn if psn + 1 == WRITE => frame(false, n, opcode::WRITE_LAST, first + psn, &[]),
                psn => frame(false, n, opcode::WRITE_MIDDLE, first + psn, &[]),
            };
            let lost = (round * u64::from(CONNECTIONS) + u64::from(n)).is_multiple_of(LOSS);
            for psn in (0..WRITE).filter(|psn| !lost || *psn != 2) {
                add(request(psn))?;
            }
            if lost {
                add(frame(true, n, opcode::ACK, first + 2, &aeth(0x60)))?;
                for psn in 2..WRITE {
                    add(request(psn))?;
                }
            }
            let answer = frame(true, n, opcode::ACK, first + WRITE - 1, &aeth(0x1f));
            if add(answer)? >= PACKETS {
                writer.finish()?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Time that this thread has run, ns.
fn cpu_ns() -> Result<u64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(times
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()?)
}

/// On one core, from a file.
pub fn analysis_rate(report: &mut Report) -> Result<()> {
    report.section(
        "Analysis of RoCE",
        &format!(
            "A pcapng file of {PACKETS} packets of {CONNECTIONS} connections that WRITE, where one \
             in {LOSS} messages loses a packet: packets read from the file and analysed in a second \
             of CPU time. The ICRC of packets that are there as a whole is checked.",
        ),
    );
    report.table(&["packets", "packets/s", "losses found"]);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("roce.pcapng");
    for (what, payload, snapshot) in [
        ("128 bytes of 1 KiB packets", 1024, 128),
        ("whole 256 B packets", 256, 10_000),
        ("whole 1 KiB packets", 1024, 10_000),
        ("whole 4 KiB packets", 4096, 10_000),
    ] {
        write(&path, payload, snapshot)?;
        let start = cpu_ns()?;
        let read = source::packet_file(&path, Settings::default())?;
        let rate = read.packets as f64 * 1e3 / (cpu_ns()? - start) as f64;
        let found = read.analysis.recoveries.len();
        if !read.analysis.findings.is_empty() || found == 0 {
            return Err(format!("{what}: {:?}", read.analysis.findings).into());
        }
        report.row(&[what.to_owned(), format!("{rate:.2} M"), found.to_string()]);
    }
    Ok(())
}
