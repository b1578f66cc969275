// SPDX-License-Identifier: Apache-2.0 OR MIT
//! [Lumina](https://doi.org/10.1145/3603269.3604837): its test files as plans, and runs as it leaves
//! its own.
//!
//! Of a test file queue pairs, packets and rounds keep their numbers. What a plan can't say is a mistake, and
//! what needs no saying here is told in the plan's comment, each with its line.

mod export;
mod test_file;

use std::fmt::Display;
use std::path::Path;

use midwire_endpoints::rnic::{Fault, Profile};
use serde_saphyr::{Location, Spanned};

use crate::plan::{Mistake, Place, Plan, PlanError, read_text, read_yaml};
use crate::select::MAX_POSITIONS;
use crate::text::word;
pub use export::{Exported, export};
use test_file::{DataEvent, EventType, Host, IntegerOrText, NicType, TestFile, Traffic};

/// The plan that a test file of Lumina comes to, as YAML that was checked. `profile` replaces what
/// the file says of both NICs.
pub fn import(file: &str, bytes: &[u8], profile: Option<Profile>) -> Result<String, PlanError> {
    let test: TestFile = read_yaml(file, read_text(file, bytes)?)?;
    let mut import = Import {
        lines: Vec::new(),
        notes: Vec::new(),
        mistakes: Vec::new(),
        profile,
    };
    import.test(&test);
    import.finish(file, &test)
}

/// Positions that the card's tables hold for events.
const MAX_EVENTS: u64 = 100_000;

/// A plan that comes about line by line, each from a place in the test file.
struct Import {
    lines: Vec<(Place, String)>,
    notes: Vec<(Place, String)>,
    mistakes: Vec<Mistake>,
    profile: Option<Profile>,
}

impl Import {
    fn line(&mut self, at: Location, text: impl Into<String>) {
        self.lines.push((Place::of(at), text.into()));
    }

    /// A value for a key of the plan, when the file has it.
    fn value<T: Display>(&mut self, key: &str, value: &Option<Spanned<T>>, unit: &str) {
        if let Some(Spanned {
            value, referenced, ..
        }) = value
        {
            self.line(*referenced, format!("{key}: {value}{unit}"));
        }
    }

    fn note(&mut self, at: Location, text: impl Into<String>) {
        let text = text.into();
        if self.notes.iter().all(|(_, other)| *other != text) {
            self.notes.push((Place::of(at), text));
        }
    }

    fn mistake(&mut self, at: Location, message: impl Into<String>) {
        self.mistakes.push(Mistake {
            place: Place::of(at),
            message: message.into(),
        });
    }

    fn test(&mut self, test: &TestFile) {
        self.speed(test);
        let classes = self.classes(&test.traffic.value);
        self.line(test.requester.referenced, "endpoints:");
        for (port, host) in [("a", &test.requester), ("b", &test.responder)] {
            self.line(host.referenced, format!("  {port}:"));
            self.line(host.referenced, "    rnic:");
            self.host(&host.value, classes.is_some());
        }
        self.traffic(&test.traffic, classes);
        self.line(test.traffic.referenced, "expect:");
        self.line(test.traffic.referenced, "  - traffic: completes");
        let mirrors = [&test.requester_mirror, &test.responder_mirror];
        let kept = mirrors
            .into_iter()
            .flatten()
            .filter_map(|mirror| mirror.value.pkt_dump_conf.as_ref()?.snap_len.as_ref())
            .max_by_key(|bytes| bytes.value);
        if let Some(bytes) = kept {
            let text = format!("capture: {{snapshot: {}}}", bytes.value);
            self.line(bytes.referenced, text);
        }
        if let Some(times) = test.num_repeats.as_ref().filter(|times| times.value != 1) {
            let text = format!(
                "num-repeats: `midwire run --repeat {}` does so",
                times.value
            );
            self.note(times.referenced, text);
        }
    }

    fn speed(&mut self, test: &TestFile) {
        let switch = test.switch.as_ref();
        let Some(speed) = switch.and_then(|switch| switch.value.port_speed.as_ref()) else {
            return;
        };
        match speed.value.as_str() {
            "100G" => {}
            "10G" => self.line(speed.referenced, "card: {width: 64}"),
            _ => self.note(
                speed.referenced,
                "port-speed: the card has ports of 10G and 100G, here 100G",
            ),
        }
    }

    /// The traffic class of each queue pair, when the file has them: by Lumina's default, eight
    /// values of DSCP share one.
    fn classes(&mut self, traffic: &Traffic) -> Option<(Location, Vec<u8>)> {
        let list = traffic.dscp_list.as_ref()?;
        let values: Option<Vec<u8>> = match &list.value {
            IntegerOrText::Integer(dscp) => u8::try_from(*dscp).ok().map(|dscp| vec![dscp]),
            IntegerOrText::Text(text) => text.split(',').map(|t| t.trim().parse().ok()).collect(),
        };
        match values {
            Some(values) if values.iter().all(|dscp| *dscp < 64) => {
                self.note(
                    list.referenced,
                    "dscp-list: taken for the traffic classes; the packets themselves have DSCP 0",
                );
                Some((
                    list.referenced,
                    values.iter().map(|dscp| dscp / 8).collect(),
                ))
            }
            _ => {
                let expected =
                    "dscp-list: expected a DSCP from 0 to 63 for each queue pair, such as 0,8";
                self.mistake(list.referenced, expected);
                None
            }
        }
    }

    fn host(&mut self, host: &Host, classes: bool) {
        let nic = &host.nic.value;
        let addresses: Vec<_> = nic.ip_list.value.iter().map(ToString::to_string).collect();
        if nic.ip_list.value.iter().any(|cidr| !cidr.address.is_ipv4()) {
            self.mistake(nic.ip_list.referenced, "ip-list: expected IPv4 addresses");
        }
        let text = format!("      address: [{}]", addresses.join(", "));
        self.line(nic.ip_list.referenced, text);
        if classes {
            // What Lumina sets up for its eight classes.
            self.line(
                host.nic.referenced,
                "      ets: [12, 13, 12, 13, 12, 13, 12, 13]",
            );
        }
        if let Some(map) = &nic.prio_dscp_map {
            let only = "prio-dscp-map: only Lumina's default is known, by which 8 values of DSCP share a traffic class";
            self.mistake(map.referenced, only);
        }
        let profile = self.profile.unwrap_or_else(|| match &nic.r#type {
            Some(kind) => named(kind.value),
            None => {
                self.note(host.nic.referenced, "nic: no type, taken for a clean one");
                Profile::Clean
            }
        });
        self.roce(host, profile);
    }

    /// What is wrong with a NIC, and its congestion control.
    fn roce(&mut self, host: &Host, profile: Profile) {
        let nic = &host.nic;
        let at = nic
            .value
            .r#type
            .as_ref()
            .map_or(nic.referenced, |kind| kind.referenced);
        let none = test_file::RoceParameters::default();
        let roce = host.roce_parameters.as_ref().unwrap_or(&none);
        let own = profile.faults();
        let mut limit = None;
        match &roce.adaptive_retrans {
            Some(on) if profile == Profile::E810 => {
                self.note(on.referenced, "adaptive-retrans: of NVIDIA's NICs");
                self.line(at, "      profile: e810");
            }
            Some(on) if on.value != own.contains(&Fault::AdaptiveRetransmission) => {
                let mut faults = own.to_vec();
                faults.retain(|fault| *fault != Fault::AdaptiveRetransmission);
                if on.value {
                    faults.push(Fault::AdaptiveRetransmission);
                }
                let faults: Vec<_> = faults.iter().map(word).collect();
                self.line(
                    on.referenced,
                    format!("      faults: [{}]", faults.join(", ")),
                );
                // They stand in place of a profile, which has this besides.
                limit = Some(word(&profile.cnp_scope()));
            }
            _ => self.line(at, format!("      profile: {}", word(&profile))),
        }
        self.line(at, "      dcqcn:");
        let np = roce.dcqcn_np_enable.as_ref().or(roce.dcqcn_enable.as_ref());
        self.value("        np", &np.cloned(), "");
        let rp = roce.dcqcn_rp_enable.as_ref().or(roce.dcqcn_enable.as_ref());
        self.value("        rp", &rp.cloned(), "");
        let between = "        min_time_between_cnps";
        self.value(between, &roce.min_time_between_cnps, "us");
        if let Some(limit) = limit {
            self.line(at, format!("        cnp_limit: {limit}"));
        }
        if self
            .lines
            .last()
            .is_some_and(|(_, text)| text.ends_with("dcqcn:"))
        {
            self.lines.pop();
        }
        if let Some(slow) = &roce.slow_restart {
            let text = "slow-restart: the model NIC begins anew as fast as it ended";
            self.note(slow.referenced, text);
        }
    }

    fn traffic(&mut self, at: &Spanned<Traffic>, classes: Option<(Location, Vec<u8>)>) {
        let traffic = &at.value;
        let Some(parts) = self.parts(at) else {
            return;
        };
        let verb_at = traffic.rdma_verb.referenced;
        if let [part] = parts.as_slice() {
            // Those of data alone are counted, so connection n is the n-th queue pair.
            let from = part.sender();
            self.line(verb_at, "selectors:");
            self.line(verb_at, format!("  - {{transport: roce, from: {from}}}"));
        } else {
            self.together(traffic);
        }
        let all = count(&parts);
        if let Some((at, classes)) = &classes
            && classes.len() as u64 != all
        {
            let expected = format!("dscp-list: expected {all} values, one for each queue pair");
            self.mistake(*at, expected);
        }
        let mut classes = classes.map(|(at, classes)| (at, classes.into_iter()));
        self.line(at.referenced, "traffic:");
        for (n, part) in parts.iter().enumerate() {
            self.line(at.referenced, "  - rdma:");
            self.line(at.referenced, "      from: a");
            self.line(at.referenced, "      to: b");
            self.line(verb_at, format!("      verb: {}", part.verb));
            self.line(part.at, format!("      qps: {}", part.qps));
            self.value("      messages", &Some(traffic.num_msgs_per_qp.clone()), "");
            self.value("      size", &Some(traffic.message_size.clone()), "");
            self.value("      mtu", &traffic.mtu, "");
            self.value("      tx_depth", &traffic.tx_depth, "");
            self.value("      barrier", &traffic.barrier_sync, "");
            self.value("      multi_gid", &traffic.multi_gid, "");
            self.value("      timeout", &traffic.min_retransmit_timeout, "");
            self.value("      retries", &traffic.max_retransmit_retry, "");
            if let Some((at, classes)) = &mut classes {
                let own = classes.take(usize::try_from(part.qps).unwrap_or(usize::MAX));
                let own: Vec<_> = own.map(|class| class.to_string()).collect();
                let text = format!("      traffic_classes: [{}]", own.join(", "));
                self.line(*at, text);
            }
            if n > 0 {
                self.line(verb_at, "      together: true");
            }
        }
        let events = traffic.data_pkt_events.as_deref().unwrap_or_default();
        if let Some(first) = events.first() {
            self.line(first.referenced, "events:");
        }
        for event in events {
            self.event(event, traffic, &parts);
        }
    }

    /// What queue pairs do that SEND while others READ.
    fn together(&mut self, traffic: &Traffic) {
        if let Some(barrier) = traffic
            .barrier_sync
            .as_ref()
            .filter(|barrier| barrier.value)
        {
            let expected = "barrier-sync: Lumina has none with send_read, expected false";
            self.mistake(barrier.referenced, expected);
        }
        if let Some(gids) = traffic.multi_gid.as_ref().filter(|gids| gids.value) {
            self.note(
                gids.referenced,
                "multi-gid: queue pairs that READ take the addresses in turn from the first on, as those that SEND do",
            );
        }
    }

    /// The queue pairs, by what they do.
    fn parts(&mut self, at: &Spanned<Traffic>) -> Option<Vec<Part>> {
        let traffic = &at.value;
        let verb = &traffic.rdma_verb;
        let known = ["send", "write", "read", "send_read"];
        let word = verb.value.trim().to_lowercase();
        let Some(word) = known.into_iter().find(|known| *known == word) else {
            let expected = "rdma-verb: expected send, write, read or send_read";
            self.mistake(verb.referenced, expected);
            return None;
        };
        if let Some(paper) = &traffic.num_connections {
            let message = "num-connections: the paper's name for num-qps, where qpn and psn count from 1; expected num-qps, and qpn and psn from 0";
            self.mistake(paper.referenced, message);
            return None;
        }
        let qps = traffic.num_qps.as_ref();
        let at = qps.map_or(at.referenced, |qps| qps.referenced);
        let part = |(verb, qps)| Part { verb, qps, at };
        let parts: Option<Vec<_>> = match (word, qps.map(|qps| &qps.value)) {
            ("send_read", Some(IntegerOrText::Text(both))) => {
                two(both).map(|(send, read)| [("send", send), ("read", read)].map(part).into())
            }
            ("send_read", _) => None,
            (verb, Some(IntegerOrText::Integer(qps))) => Some(vec![part((verb, *qps))]),
            _ => None,
        };
        if parts.is_none() {
            let expected = match word {
                "send_read" => {
                    "num-qps: expected how many queue pairs SEND and how many READ, such as 2,2, or 2_2 in quotes, without which it is 22 in YAML"
                }
                _ => "num-qps: expected a whole number",
            };
            self.mistake(at, expected);
        }
        parts
    }

    /// Lumina's event happens in each message, and counts rounds of a message anew.
    fn event(&mut self, event: &Spanned<DataEvent>, traffic: &Traffic, parts: &[Part]) {
        let at = event.referenced;
        let DataEvent {
            qpn,
            psn,
            r#type,
            iter,
        } = &event.value;
        let Some((connection, way)) = data_of(parts, qpn.value.into()) else {
            let all = count(parts);
            let message = format!(
                "qpn {}: expected one below {all}, for they count from 0",
                qpn.value
            );
            return self.mistake(qpn.referenced, message);
        };
        let mtu = traffic
            .mtu
            .as_ref()
            .map_or(1024, |mtu| mtu.value.max(1))
            .into();
        let packets = traffic.message_size.value.div_ceil(mtu).max(1);
        // No messages are a mistake of the plan's.
        let messages = u64::from(traffic.num_msgs_per_qp.value.max(1));
        let total = packets.saturating_mul(messages);
        let all = matches!(psn.value, IntegerOrText::Text(_));
        let positions = if all { total } else { total / packets };
        if positions > MAX_EVENTS {
            let message = format!(
                "psn: {positions} packets: expected at most {MAX_EVENTS}, which is all that the card holds"
            );
            return self.mistake(psn.referenced, message);
        }
        let positions = match &psn.value {
            IntegerOrText::Integer(psn) if *psn < packets => one_of(*psn, packets, total),
            IntegerOrText::Text(all) if all.trim().eq_ignore_ascii_case("all") => every_one(total),
            _ => {
                let message = format!(
                    "psn: expected all, or one below {packets}, for a message has so many packets, from 0"
                );
                return self.mistake(psn.referenced, message);
            }
        };
        let action = match r#type.value {
            EventType::Drop => "drop",
            EventType::Ecn => "ecn",
            // Lumina changes the identification and mends the header's checksum.
            EventType::BitError => "{corrupt: {at: ip, offset: 4, mask: 0xff, mend: ip}}",
        };
        let iterations = match iter.value {
            1 => String::new(),
            n => {
                self.note(
                    iter.referenced,
                    "iter: counts the rounds of a message there, and here the times that this packet is seen: the same when each round gets to it",
                );
                format!(", iterations: {n}")
            }
        };
        for position in positions {
            self.line(
                at,
                format!(
                    "  - {{connection: {connection}, direction: {way}, {position}{iterations}, action: {action}}}"
                ),
            );
        }
    }

    /// The plan, if it is one: what is wrong with it is told at the place that it comes from.
    fn finish(mut self, file: &str, test: &TestFile) -> Result<String, PlanError> {
        let mut head = vec![format!("# From a test file of Lumina, {}.", name(file))];
        let elsewhere = test.elsewhere();
        if !elsewhere.is_empty() || !self.notes.is_empty() {
            head.push("# What it says besides, by its lines:".to_owned());
        }
        self.notes.sort_by_key(|(place, _)| place.line);
        head.extend(
            self.notes
                .iter()
                .map(|(place, note)| format!("# - {}: {note}", place.line)),
        );
        if !elsewhere.is_empty() {
            let lines: Vec<_> = elsewhere.iter().map(u64::to_string).collect();
            head.push(format!(
                "# - {}: Lumina's machines, files and ports",
                lines.join(", ")
            ));
        }
        head.extend(["version: 1".to_owned(), format!("name: {}", name(file))]);
        let before = head.len();
        let lines = head.iter().chain(self.lines.iter().map(|(_, text)| text));
        let text: String = lines.flat_map(|line| [line.as_str(), "\n"]).collect();
        if self.mistakes.is_empty() {
            match Plan::parse(file, &text) {
                Ok(_) => return Ok(text),
                Err(error) => self
                    .mistakes
                    .extend(error.mistakes.into_iter().map(|mistake| {
                        let line = (mistake.place.line as usize).checked_sub(before + 1);
                        let from = line.and_then(|line| self.lines.get(line));
                        Mistake {
                            place: from.map_or(Place::START, |(place, _)| *place),
                            message: mistake.message,
                        }
                    })),
            }
        }
        self.mistakes.sort_by_key(|mistake| mistake.place);
        Err(PlanError {
            file: file.to_owned(),
            mistakes: self.mistakes,
        })
    }
}

fn named(kind: NicType) -> Profile {
    match kind {
        NicType::Cx4 => Profile::Cx4Lx,
        NicType::Cx5 => Profile::Cx5,
        NicType::Cx6 => Profile::Cx6Dx,
        NicType::E810 => Profile::E810,
    }
}

/// Two numbers above 0, as Lumina's `num-qps` has them.
fn two(text: &str) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(['_', ','])?;
    let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
    Some((number(first)?, number(second)?))
}

/// Queue pairs that do the same.
struct Part {
    verb: &'static str,
    qps: u64,
    /// Where the file says how many.
    at: Location,
}

impl Part {
    fn reads(&self) -> bool {
        self.verb == "read"
    }

    /// The end that sends the data.
    fn sender(&self) -> &'static str {
        if self.reads() { "b" } else { "a" }
    }
}

/// Queue pairs of all parts.
fn count(parts: &[Part]) -> u64 {
    let qps = parts.iter().map(|part| part.qps);
    qps.fold(0, u64::saturating_add)
}

/// Connection and direction of the data of a queue pair. When all queue pairs do the same, only data
/// is counted; otherwise each of them has its requests and then its answers.
fn data_of(parts: &[Part], qpn: u64) -> Option<(u64, &'static str)> {
    let mut end = 0_u64;
    let part = parts.iter().find(|part| {
        end = end.saturating_add(part.qps);
        qpn < end
    })?;
    let connection = match parts {
        [_] => qpn,
        _ => 2 * qpn + u64::from(part.reads()),
    };
    let way = if part.reads() { "b-to-a" } else { "a-to-b" };
    Some((connection, way))
}

/// The packet of this number in each message of so many packets.
fn one_of(psn: u64, packets: u64, total: u64) -> Vec<String> {
    if total - packets <= psn {
        return vec![format!("psn: {psn}")];
    }
    let last = total - packets + psn;
    if last - psn < MAX_POSITIONS {
        return vec![format!("psn: {psn}-{last}, every: {packets}")];
    }
    // Beyond that a range would go by a rule, which tells no rounds apart.
    let all: Vec<_> = (psn..=last)
        .step_by(packets as usize)
        .map(|n| n.to_string())
        .collect();
    all.chunks(MAX_POSITIONS as usize)
        .map(|some| format!("psn: [{}]", some.join(", ")))
        .collect()
}

/// Each packet, by as many ranges as are looked up by name.
fn every_one(total: u64) -> Vec<String> {
    (0..total)
        .step_by(MAX_POSITIONS as usize)
        .map(|first| match total.min(first + MAX_POSITIONS) - 1 {
            last if last == first => format!("psn: {first}"),
            last => format!("psn: {first}-{last}"),
        })
        .collect()
}

/// A plan's name, after that of the file.
fn name(file: &str) -> String {
    let stem = Path::new(file)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = stem.chars().map(plain).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    match &name[..name.len().min(64)] {
        "" => "lumina".to_owned(),
        name => name.to_owned(),
    }
}
