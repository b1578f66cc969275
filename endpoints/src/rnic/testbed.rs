// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two NICs, the queue pairs between them, and the transfers that they make, one after the other or
//! together.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midwire_trace::Psn;
use midwire_trace::build::Path;
use midwire_trace::chance::Draws;
use serde::{Deserialize, Serialize};

use super::{
    BIT_PICOSECONDS, CompletionTimes, Config, Frame, MICROSECOND, Operation, Picoseconds, QpConfig,
    Rnic, Transfer, TransferConfig,
};
use crate::Port;
use crate::agent::Flow;

/// One end tells the other outside the line that transfers are over: after this time the next ones
/// begin. Participants of a calendar run for less at a stretch.
const OUT_OF_BAND: Picoseconds = 100 * MICROSECOND;

/// The largest message (InfiniBand specification, volume 1, 9.7.2).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// RDMA traffic: `qps` queue pairs from one NIC to the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaTransfer {
    /// The NIC that asks; the other one answers.
    pub from: Port,
    /// What the messages are, in turn.
    pub operations: Vec<Operation>,
    /// Queue pairs.
    pub qps: u32,
    /// Messages of each.
    pub messages: u64,
    /// Bytes of each message.
    pub size: u64,
    /// Most bytes of payload in a packet.
    pub mtu: u32,
    /// Messages of a queue pair that are posted at a time.
    pub tx_depth: u64,
    /// Every queue pair waits until all have completed theirs.
    pub barrier: bool,
    /// Queue pairs take the addresses of both NICs in turn.
    pub multi_gid: bool,
    /// As in [`QpConfig::timeout`].
    pub timeout: u8,
    /// As in [`QpConfig::retries`].
    pub retries: u8,
    /// As in [`QpConfig::rnr_retries`].
    pub rnr_retries: u8,
    /// As in [`QpConfig::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// As in [`QpConfig::max_reads`].
    pub max_reads: usize,
    /// As in [`QpConfig::receives`].
    pub receives: u64,
    /// As in [`QpConfig::repost`].
    pub repost: Picoseconds,
    /// First PSN of all queue pairs; of chance without it.
    pub first_psn: Option<Psn>,
    /// Classes of the transmission scheduler, which queue pairs take in turn.
    pub classes: Vec<usize>,
    /// DSCP of all packets but congestion notifications.
    pub dscp: u8,
    /// It begins together with the transfer before it, and not when that is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
}

impl RdmaTransfer {
    /// Which transfers run at the same time: groups, one after the other.
    pub fn groups(transfers: &[Self]) -> Vec<Range<usize>> {
        let mut end = 0;
        let groups = transfers.chunk_by(|_, next| next.together);
        let range = |group: &[Self]| {
            let first = end;
            end += group.len();
            first..end
        };
        groups.map(range).collect()
    }

    /// Bytes of all messages of a queue pair.
    pub fn bytes(&self) -> u64 {
        let turn = self.operations.len() as u64;
        let of = |(n, operation): (u64, &Operation)| {
            let times = self.messages.saturating_sub(n).div_ceil(turn);
            times.saturating_mul(if operation.is_atomic() { 8 } else { self.size })
        };
        (0..).zip(&self.operations).map(of).sum()
    }
}

struct Entry {
    from: Port,
    /// Bytes of each queue pair.
    bytes: u64,
    transfer: usize,
    /// Places of the queue pairs at port A and at port B.
    qps: Vec<[usize; 2]>,
    /// What each queue pair tells the other.
    facts: Vec<QpConfig>,
}

/// Two NICs and the transfers between them.
pub struct Testbed {
    nics: [Rnic; 2],
    entries: Vec<Entry>,
    /// The entries that run together.
    groups: Vec<Range<usize>>,
    /// The group under way.
    current: usize,
}

impl Testbed {
    /// Two NICs at ports A and B. The seed decides numbers of queue pairs, first PSNs, keys and
    /// contents of the memory.
    pub fn new(configs: [Config; 2], transfers: &[RdmaTransfer], seed: u64) -> Self {
        let mut bed = Self {
            nics: configs.map(Rnic::new),
            entries: Vec::new(),
            groups: RdmaTransfer::groups(transfers),
            current: 0,
        };
        let mut draws = Draws::new(seed);
        let mut used = [Vec::new(), Vec::new()];
        let mut index = 0;
        for transfer in transfers {
            let mut entry = Entry {
                from: transfer.from,
                bytes: transfer.bytes(),
                transfer: 0,
                qps: Vec::new(),
                facts: Vec::new(),
            };
            for n in 0..transfer.qps as usize {
                let ends = bed.queue_pair(transfer, n, index, seed, &mut draws, &mut used);
                index += 1;
                entry.facts.push(ends[transfer.from as usize].clone());
                let [a, b] = ends;
                entry.qps.push([bed.nics[0].add(a), bed.nics[1].add(b)]);
            }
            let from = transfer.from as usize;
            entry.transfer = bed.nics[from].add_transfer(TransferConfig {
                operations: transfer.operations.clone(),
                qps: entry.qps.iter().map(|places| places[from]).collect(),
                messages: transfer.messages,
                size: transfer.size,
                tx_depth: transfer.tx_depth,
                barrier: transfer.barrier,
            });
            bed.entries.push(entry);
        }
        bed
    }

    /// Both ends of a queue pair.
    fn queue_pair(
        &self,
        transfer: &RdmaTransfer,
        n: usize,
        index: u32,
        seed: u64,
        draws: &mut Draws,
        used: &mut [Vec<u32>; 2],
    ) -> [QpConfig; 2] {
        let [a, b] = [0, 1].map(|end| {
            loop {
                let number = (draws.draw() & 0xff_ffff) as u32;
                // 0 and 1 are for management.
                if number > 1 && !used[end].contains(&number) {
                    used[end].push(number);
                    let psn = Psn::new(draws.draw());
                    return (number, transfer.first_psn.unwrap_or(psn));
                }
            }
        });
        let key = draws.draw() as u32;
        let address = |end: usize| {
            let addresses = &self.nics[end].config().addresses;
            addresses[if transfer.multi_gid { n } else { 0 } % addresses.len()]
        };
        let end = |own: usize, (number, first_psn): (u32, Psn), (peer, peer_psn): (u32, Psn)| {
            let port = 0xc000 | ((number ^ peer) & 0x3fff) as u16;
            let mut path = Path::new(
                SocketAddr::new(address(own), port),
                SocketAddr::new(address(1 - own), 0),
            );
            path.src_mac = self.nics[own].config().mac;
            path.dst_mac = self.nics[1 - own].config().mac;
            path.traffic_class |= transfer.dscp << 2;
            QpConfig {
                number,
                peer,
                first_psn,
                peer_psn,
                path,
                mtu: transfer.mtu,
                timeout: transfer.timeout,
                retries: transfer.retries,
                rnr_retries: transfer.rnr_retries,
                min_rnr_timer: transfer.min_rnr_timer,
                max_reads: transfer.max_reads,
                region: u64::from(index + 1) << 40,
                region_bytes: transfer.messages.saturating_mul(transfer.size).max(8),
                key,
                seed,
                index,
                receives: transfer.receives,
                repost: transfer.repost,
                class: transfer.classes[n % transfer.classes.len()],
                opens: own == transfer.from as usize,
            }
        };
        [end(0, a, b), end(1, b, a)]
    }

    /// Starts the first transfers.
    pub fn start(&mut self, at: Picoseconds) {
        let group = self.groups.get(self.current).cloned();
        for entry in &self.entries[group.unwrap_or_default()] {
            self.nics[entry.from as usize].start(entry.transfer, at);
        }
    }

    /// When all transfers under way are over.
    fn end(&self) -> Option<Picoseconds> {
        let mut group = self.groups.get(self.current)?.clone();
        group.try_fold(0, |last, n| Some(last.max(self.transfer(n)?.end()?)))
    }

    /// Requests and responses of each queue pair in turn.
    pub fn flows(&self) -> Vec<Flow> {
        let of_entry = |entry: &Entry| {
            let from = entry.from;
            let both = |qp: &QpConfig| {
                let ends = [(qp.path.src.ip(), qp.number), (qp.path.dst.ip(), qp.peer)];
                Flow::both(from, ends, qp.first_psn.get())
            };
            entry.facts.iter().flat_map(both).collect::<Vec<_>>()
        };
        self.entries.iter().flat_map(of_entry).collect()
    }

    /// The NIC at a port.
    pub fn nic(&self, port: Port) -> &Rnic {
        &self.nics[port as usize]
    }

    fn transfer(&self, number: usize) -> Option<&Transfer> {
        let entry = self.entries.get(number)?;
        Some(self.nics[entry.from as usize].transfer(entry.transfer))
    }

    /// Runs the NIC at a port to just before `to`; frames are told with the times at which their
    /// first bits leave it.
    pub fn advance(&mut self, port: Port, to: Picoseconds, sent: &mut Vec<Frame>) {
        self.nics[port as usize].advance(to, sent);
        while let Some(end) = self.end() {
            self.current += 1;
            self.start(end + OUT_OF_BAND);
        }
    }

    /// Gives the NIC at a port a frame, the last bit of which arrives at `at`.
    pub fn receive(&mut self, port: Port, at: Picoseconds, frame: Frame) {
        self.nics[port as usize].receive(at, frame);
    }
}

impl RdmaNics for Testbed {
    fn report(&self, number: usize) -> Option<RdmaReport> {
        let entry = self.entries.get(number)?;
        let transfer = self.transfer(number)?;
        let from = entry.from as usize;
        let qps: Vec<QpReport> = transfer
            .flows()
            .iter()
            .zip(&entry.qps)
            .zip(&entry.facts)
            .map(|((flow, places), facts)| {
                let taken = self.nics[1 - from].taken(places[1 - from]);
                let fetched = self.nics[from].fetched(places[from]);
                let messages = &flow.messages;
                let time = messages
                    .first()
                    .zip(messages.last())
                    .map(|(first, last)| last.completed - first.posted);
                let bytes = taken.0 + fetched.0;
                QpReport {
                    source: facts.path.src.ip(),
                    destination: facts.path.dst.ip(),
                    qp: facts.number,
                    peer_qp: facts.peer,
                    first_psn: facts.first_psn.get(),
                    peer_first_psn: facts.peer_psn.get(),
                    messages: messages.len() as u64,
                    bytes,
                    wrong_bytes: taken.1 + fetched.1,
                    goodput_bps: rate(bytes, time),
                    completion_times: CompletionTimes::of(messages.iter()),
                    error: flow.error.map(|status| status.to_string()),
                }
            })
            .collect();
        let duration = transfer
            .begun()
            .zip(transfer.end())
            .map(|(begun, end)| end - begun);
        let bytes = qps.iter().map(|qp| qp.bytes).sum();
        let wanted = entry.bytes;
        let whole = |qp: &QpReport| qp.error.is_none() && qp.wrong_bytes == 0 && qp.bytes == wanted;
        Some(RdmaReport {
            completed: duration.is_some() && qps.iter().all(whole),
            duration_ns: duration.map(|time| time / 1000),
            messages: qps.iter().map(|qp| qp.messages).sum(),
            bytes,
            wrong_bytes: qps.iter().map(|qp| qp.wrong_bytes).sum(),
            goodput_bps: rate(bytes, duration),
            completion_times: CompletionTimes::of(
                transfer.flows().iter().flat_map(|flow| &flow.messages),
            ),
            qps,
        })
    }

    fn counters(&self, port: Port) -> BTreeMap<String, u64> {
        self.nic(port).counters().by_name()
    }
}

/// Bit/s.
pub(crate) fn rate(bytes: u64, time: Option<Picoseconds>) -> Option<u64> {
    let time = time.filter(|time| *time > 0)?;
    let rate = u128::from(bytes) * u128::from(BIT_PICOSECONDS) / u128::from(time);
    u64::try_from(rate).ok()
}

/// Two NICs that have sent each other RDMA messages.
pub trait RdmaNics {
    /// What became of a transfer; nothing when it was not even prepared.
    fn report(&self, number: usize) -> Option<RdmaReport>;
    /// Counters of the NIC at a port.
    fn counters(&self, port: Port) -> BTreeMap<String, u64>;
}

/// What became of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaReport {
    /// Every message completed, and every byte arrived once, in order and right.
    pub completed: bool,
    /// From the first message posted to the last one completed; nothing when it did not end.
    pub duration_ns: Option<u64>,
    /// Messages that completed.
    pub messages: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Those that were wrong.
    pub wrong_bytes: u64,
    /// Bytes in that time.
    pub goodput_bps: Option<u64>,
    /// How long the messages took.
    pub completion_times: Option<CompletionTimes>,
    /// Each queue pair.
    pub qps: Vec<QpReport>,
}

/// What became of a queue pair's messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpReport {
    /// Address of the end that asks.
    pub source: IpAddr,
    /// Address of the end that answers.
    pub destination: IpAddr,
    /// Number of the queue pair at the end that asks.
    pub qp: u32,
    /// And at the end that answers.
    pub peer_qp: u32,
    /// PSN of the first request.
    pub first_psn: u32,
    /// PSN that the end that answers would begin with.
    pub peer_first_psn: u32,
    /// Messages that completed.
    pub messages: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Those that were wrong.
    pub wrong_bytes: u64,
    /// Bytes from the first message posted to the last one completed.
    pub goodput_bps: Option<u64>,
    /// How long the messages took.
    pub completion_times: Option<CompletionTimes>,
    /// Why messages failed.
    pub error: Option<String>,
}

/// A NIC of a testbed, to be plugged into a port.
#[derive(Clone)]
pub struct Plug {
    bed: Arc<Mutex<Testbed>>,
    port: Port,
}

impl fmt::Debug for Plug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model NIC at port {}", self.port)
    }
}

impl Plug {
    /// Both NICs of a testbed.
    pub fn both(bed: Testbed) -> [Plug; 2] {
        let bed = Arc::new(Mutex::new(bed));
        Port::ALL.map(|port| Plug {
            bed: Arc::clone(&bed),
            port,
        })
    }

    /// The testbed.
    pub fn bed(&self) -> MutexGuard<'_, Testbed> {
        // Nothing is half done between two calls.
        self.bed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port that it is for.
    pub fn port(&self) -> Port {
        self.port
    }
}
