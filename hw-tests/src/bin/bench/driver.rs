// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's way from the ring to a file, next to a plain write and to tcpdump.

use crate::Result;
use crate::report::Report;
use midwire_endpoints::{Ended, Hosts, Port, TapHost};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// To memory and to the disk; with `hosts` next to tcpdump.
pub fn ring_to_disk(report: &mut Report, hosts: bool) -> Result<()> {
    report.section(
        "From the ring to a file",
        "The driver with a ring that is always full: records a second from the ring to a file in \
         memory and to one on the disk of the temporary directory, next to a plain write of as \
         many bytes there, and the CPU time that a record takes of this machine, next to that of \
         tcpdump, which writes 64 bytes of each packet of a veth to a file in memory, with what \
         the kernel does for it.",
    );
    let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args([
            "bench",
            "--locked",
            "-q",
            "-p",
            "midwire-driver",
            "--bench",
            "ring_to_disk",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let tcpdump = match hosts {
        true => tcpdump()?,
        false => None,
    };
    report.table(&[
        "to",
        "records/s",
        "bytes/s",
        "of a plain write",
        "CPU a record",
        "of tcpdump's",
    ]);
    for line in String::from_utf8(output.stdout)?.lines() {
        // ring_to_disk NAME: 12.3 M records/s, 4.56 GB/s, 7.89 ns of CPU a record
        let Some((name, figures)) = line
            .strip_prefix("ring_to_disk ")
            .and_then(|rest| rest.split_once(": "))
        else {
            continue;
        };
        let figures: Vec<_> = figures.split(", ").collect();
        let [records, bytes, cpu] = figures[..] else {
            return Err(format!("the driver's benchmark says {line:?}").into());
        };
        let number = |text: &str| text.split(' ').next().unwrap_or_default().parse::<f64>();
        let (speed, cpu) = (number(bytes)?, number(cpu)?);
        let plain = match name {
            "memory" => plain_write("/dev/shm".as_ref())?,
            _ => plain_write(&std::env::temp_dir())?,
        };
        report.row(&[
            name.into(),
            records.trim_end_matches(" records/s").to_string(),
            bytes.trim_end_matches("/s").into(),
            format!("{:.0} %", 100.0 * speed / plain),
            format!("{cpu:.1} ns"),
            tcpdump.map_or("not measured".into(), |ns| format!("1/{:.0}", ns / cpu)),
        ]);
    }
    let cpu = tcpdump.map_or("no tcpdump here".into(), |ns| format!("{ns:.0} ns"));
    report.row(&["tcpdump, a packet", "", "", "", cpu.as_str(), ""]);
    if !output.status.success() {
        return Err("the driver's benchmark failed".into());
    }
    Ok(())
}

/// Nanoseconds of CPU time that tcpdump takes for each packet that it writes, of the packets of a
/// veth: its own, and what the kernel takes for it, which is done on the sender's account; `None`
/// where there is no tcpdump.
fn tcpdump() -> Result<Option<f64>> {
    const PACKETS: u64 = 1_000_000;
    const SNAPSHOT: u64 = 64;
    // A file has a header of 24 bytes, and one of 16 for each packet.
    const FILE_HEADER: u64 = 24;
    const PACKET_HEADER: u64 = 16;
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return Ok(None);
    }
    let a = TapHost::new("10.77.0.1/24".parse()?);
    let b = TapHost::new("10.77.0.2/24".parse()?);
    let (hosts, _taps) = Hosts::new("bench-veth", &a, &b)?;
    let host = hosts.at(Port::A);
    let cancel = AtomicBool::new(false);
    let patience = Some(Duration::from_secs(20));
    for line in [
        "link add mw0 type veth peer name mw1",
        "link set mw0 up",
        "link set mw1 up",
    ] {
        let mut ip = Command::new("ip");
        ip.args(line.split(' '));
        if !matches!(host.spawn(ip)?.wait(patience, &cancel)?, Ended::Exited(s) if s.success()) {
            return Err(format!("`ip {line}` failed").into());
        }
    }
    let file = tempfile::NamedTempFile::new_in("/dev/shm")?;
    let said = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("tcpdump");
    command
        .args(["-i", "mw1", "-Z", "root", "-B", "65536", "-s"])
        .arg(SNAPSHOT.to_string())
        .arg("-w")
        .arg(file.path())
        .stderr(said.reopen()?);
    let mut tcpdump = host.spawn(command)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(said.path())?.contains("listening") {
        if Instant::now() > deadline {
            return Err("tcpdump does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let send = || {
        let before = cpu_time("thread-self")?;
        send_packets("mw0", PACKETS)?;
        Ok::<_, io::Error>(cpu_time("thread-self")?.saturating_sub(before))
    };
    let heard = host.run_in(send)??;
    std::thread::sleep(Duration::from_millis(500));
    let own = cpu_time(tcpdump.pid())?;
    tcpdump.stop(Duration::from_secs(5))?;
    let unheard = host.run_in(send)??;
    let written = file.as_file().metadata()?.len() - FILE_HEADER;
    let packets = written / (PACKET_HEADER + SNAPSHOT);
    let kernel = heard.saturating_sub(unheard);
    Ok(Some(
        (own + kernel).as_nanos() as f64 / packets.max(1) as f64,
    ))
}

/// CPU time of a process or of a thread of this one, in user and kernel mode.
fn cpu_time(pid: impl std::fmt::Display) -> io::Result<Duration> {
    // Documentation/scheduler/sched-stats.rst
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let spent = text.split(' ').next().unwrap_or_default();
    spent
        .parse()
        .map(Duration::from_nanos)
        .map_err(io::Error::other)
}

/// Sends packets of 128 bytes out of an interface of this thread's network namespace.
fn send_packets(interface: &str, packets: u64) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(interface)?;
    let mut frame = [0u8; 128];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    // SAFETY: plain system calls; address and frame are valid for the lengths that are given,
    // and the descriptor is closed by its owner.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = index as i32;
        to.sll_halen = 6;
        for _ in 0..packets {
            let sent = libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as u32,
            );
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Gigabytes a second of a plain write of the same bytes to this directory.
fn plain_write(directory: &std::path::Path) -> Result<f64> {
    let mut file = tempfile::tempfile_in(directory)?;
    let blocks = vec![0x5a; 1 << 20];
    let start = Instant::now();
    for _ in 0..1 << 10 {
        file.write_all(&blocks)?;
    }
    file.sync_all()?;
    Ok(f64::from(1 << 10) * blocks.len() as f64 / start.elapsed().as_secs_f64() / 1e9)
}
