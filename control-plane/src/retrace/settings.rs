// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts whose stacks are set as those of a connection must have been, as far as its packets say.

use std::net::IpAddr;

use midwire_endpoints::Setting;
use midwire_trace::packet::tcp_flags::{ACK, CWR, ECE, SYN};
use midwire_trace::units::line_bytes;
use midwire_trace::{Lane, Nanos};
use serde_json::json;

use super::trail::{Seen, Trail};
use crate::plan::{Duration, LinuxEndpoint};

/// Rates of network cards, in Mbit/s, that gaps between frames are taken for.
const RATES: [u32; 9] = [
    10, 100, 1_000, 2_500, 5_000, 10_000, 25_000, 40_000, 100_000,
];

/// What Linux offers by itself with the memory that a host has here, and with plenty.
const SMALL: u8 = 5;
const PLENTY: u8 = 7;

/// The hosts at A and B, whose least times to answer are these.
pub fn infer(trail: &Trail, responses: [Nanos; 2]) -> Result<[LinuxEndpoint; 2], String> {
    let host = |lane: Lane| -> Result<LinuxEndpoint, String> {
        let [own, other] = [lane, lane.other()].map(|lane| trail.ends[lane.index()].ip());
        let length = prefix(own, other);
        let plain = json!({"address": format!("{own}/{length}")});
        let mut host: LinuxEndpoint = serde_json::from_value(plain).map_err(|e| e.to_string())?;
        host.delay = Duration((responses[lane.index()].0 / 2).clamp(LEAST_DELAY, MOST_DELAY));
        // Who only acknowledges shows no rate.
        host.rate_mbps = rate(trail.of(lane)).or_else(|| rate(trail.of(lane.other())));
        offered(&mut host, trail, lane);
        Ok(host)
    };
    Ok([host(Lane::AtoB)?, host(Lane::BtoA)?])
}

/// Cables that are shorter make a run slow.
pub const LEAST_DELAY: u64 = 100;
const MOST_DELAY: u64 = 1_000_000_000;

/// The longest prefix, up to what is usual, of a network that has both addresses.
fn prefix(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros().min(24),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros().min(64),
        _ => 0,
    }
}

/// The least rate of a network card that the least gap between two long frames of a direction
/// leaves; nothing when none follow each other.
pub(super) fn rate<'a>(frames: impl Iterator<Item = &'a Seen>) -> Option<u32> {
    let frames: Vec<_> = frames.filter(|seen| seen.is_timely()).collect();
    let longest = frames.iter().map(|seen| seen.length).max()?;
    let long = |seen: &&Seen| seen.length == longest && longest > 1000;
    let pairs = frames.windows(2).filter(|pair| pair.iter().all(long));
    let gap = pairs.map(|pair| pair[1].time.since(pair[0].time).0).min()?;
    let bits = line_bytes(longest as usize) * 8;
    // bit/ns are Gbit/s. Times are rounded, and may be so by a clock of the card.
    let least = bits * 1000 / (gap + 7);
    RATES.into_iter().find(|rate| u64::from(*rate) >= least)
}

/// Settings that the SYN of an end shows.
fn offered(host: &mut LinuxEndpoint, trail: &Trail, lane: Lane) {
    let syn = |lane| trail.of(lane).find(|seen| seen.segment.has(SYN));
    let (Some(own), other) = (syn(lane), syn(lane.other())) else {
        return;
    };
    let Some(offer) = own.segment.offer else {
        return;
    };
    let v4 = trail.ends[0].is_ipv4();
    let headers = if v4 { 40 } else { 60 };
    if let Some(mss) = offer.mss {
        host.mtu = u32::from(mss) + headers;
    }
    let answers = own.segment.has(ACK);
    let asked = other.and_then(|syn| syn.segment.offer).unwrap_or_default();
    let mut set = |name: &str, value: String| {
        host.sysctls
            .insert(format!("net.ipv4.{name}"), Setting(value));
    };
    // An answer leaves away what was not asked for.
    if !offer.sack && (!answers || asked.sack) {
        set("tcp_sack", "0".to_owned());
    }
    if !offer.timestamps && (!answers || asked.timestamps) {
        set("tcp_timestamps", "0".to_owned());
    }
    match offer.scale {
        None if !answers || asked.scale.is_some() => set("tcp_window_scaling", "0".to_owned()),
        None => {}
        Some(SMALL) => {}
        Some(PLENTY) => {
            set("tcp_rmem", "4096 131072 6291456".to_owned());
            set("tcp_wmem", "4096 16384 4194304".to_owned());
        }
        Some(scale) => {
            let most = 3_u64 << (14 + scale);
            set("tcp_rmem", format!("4096 {} {most}", most.min(131_072)));
        }
    }
    let echo = own.segment.has(ECE);
    let ecn = match other {
        _ if !answers => u8::from(echo && own.segment.has(CWR)),
        Some(syn) if syn.segment.has(ECE) && !echo => 0,
        _ => 2,
    };
    set("tcp_ecn", ecn.to_string());
}
