// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What two agents are asked, in order: queue pairs, of which the card is told before there is any
//! packet of theirs; then transfers, group by group, with counters before and after.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use midwire_trace::Psn;
use midwire_trace::chance::Draws;

use super::protocol::{
    Arrived, Check, Open, Prepare, QueuePair, Ran, RanPair, Reply, Request, VERSION,
};
use crate::rnic::{NANOSECOND, QpReport, RdmaNics, RdmaReport, RdmaTransfer, rate};
use crate::{Error, Port};

/// Packets of one direction of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The end that sends them.
    pub from: Port,
    /// Its address.
    pub source: IpAddr,
    /// That of the other end.
    pub destination: IpAddr,
    /// The queue pair that they are for.
    pub queue_pair: u32,
    /// The first PSN: responses have those of their requests.
    pub first_psn: u32,
}

impl Flow {
    /// Requests and responses of a queue pair: address and number at the end that asks, and at the
    /// one that answers.
    pub fn both(asks: Port, ends: [(IpAddr, u32); 2], first_psn: u32) -> [Flow; 2] {
        let flow = |from, source: (IpAddr, u32), destination: (IpAddr, u32)| Flow {
            from,
            source: source.0,
            destination: destination.0,
            queue_pair: destination.1,
            first_psn,
        };
        let [source, destination] = ends;
        [
            flow(asks, source, destination),
            flow(asks.other(), destination, source),
        ]
    }
}

/// What all agents have to answer before it goes on; transfers by the number of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greet,
    Open,
    Prepare,
    /// Nothing, until the card knows the queue pairs.
    Rest,
    Connect,
    Before,
    Serve(usize),
    Run(usize),
    Check(usize),
    After,
    Over,
}

#[derive(Default)]
struct End {
    /// Its answer is waited for.
    asked: bool,
    /// Of each transfer.
    qps: Vec<Vec<QueuePair>>,
    /// Counters before the first transfer and after the last.
    counters: [BTreeMap<String, u64>; 2],
}

/// Transfers between two agents.
pub struct Session {
    transfers: Vec<RdmaTransfer>,
    /// The transfers that run together.
    groups: Vec<Range<usize>>,
    wanted: [Open; 2],
    seed: u64,
    limit_ns: u64,
    stage: Stage,
    ends: [End; 2],
    /// By transfer.
    ran: BTreeMap<usize, Ran>,
    checked: BTreeMap<usize, Vec<Arrived>>,
}

impl Session {
    /// Between agents at ports A and B, which have not said anything yet. The seed decides first
    /// PSNs and contents; no transfer takes longer than the limit.
    pub fn new(transfers: Vec<RdmaTransfer>, wanted: [Open; 2], seed: u64, limit_ns: u64) -> Self {
        let asked = || End {
            asked: true,
            ..End::default()
        };
        Self {
            groups: RdmaTransfer::groups(&transfers),
            transfers,
            wanted,
            seed,
            limit_ns,
            stage: Stage::Greet,
            ends: [asked(), asked()],
            ran: BTreeMap::new(),
            checked: BTreeMap::new(),
        }
    }

    /// Whether the queue pairs are there, and nothing goes on until [`Session::go_on`].
    pub fn rests(&self) -> bool {
        self.stage == Stage::Rest
    }

    /// Whether agents have been told to end.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Who has to say something before it goes on.
    pub fn waits_for(&self) -> Option<Port> {
        let mut ports = Port::ALL.into_iter();
        ports.find(|port| self.ends[*port as usize].asked)
    }

    /// Lets it go on from its rest; what agents have to be told.
    pub fn go_on(&mut self) -> Vec<(Port, String)> {
        self.enter(Stage::Connect)
    }

    /// Takes a line from an agent; what agents have to be told.
    pub fn hear(&mut self, from: Port, line: &str) -> Result<Vec<(Port, String)>, Error> {
        let wrong = |what| Error::Agent { port: from, what };
        let reply = serde_json::from_str(line)
            .map_err(|e| wrong(format!("it says what is no answer: {e}: {line:.200}")))?;
        let end = &mut self.ends[from as usize];
        if !std::mem::take(&mut end.asked) {
            return Err(wrong(format!("it speaks unasked: {line:.200}")));
        }
        self.take(from, reply).map_err(wrong)?;
        let waits = self.ends.iter().any(|end| end.asked);
        Ok(match self.next() {
            Some(next) if !waits => self.enter(next),
            _ => Vec::new(),
        })
    }

    fn take(&mut self, from: Port, reply: Reply) -> Result<(), String> {
        let counts = |transfers: &[usize]| -> Vec<usize> {
            let of = |n: &usize| count(&self.transfers[*n]);
            transfers.iter().map(of).collect()
        };
        let (runs, serves) = match self.stage {
            Stage::Run(group) | Stage::Check(group) => {
                (self.asked(group, from), self.answered(group, from))
            }
            _ => Default::default(),
        };
        let (of_runs, of_serves) = (counts(&runs), counts(&serves));
        let end = &mut self.ends[from as usize];
        match (self.stage, reply) {
            (_, Reply::Failed(what)) => return Err(what),
            (Stage::Greet, Reply::Greeting { version, midwire }) if version != VERSION => {
                return Err(format!(
                    "it is of midwire {midwire} and speaks version {version} of the protocol, not \
                     {VERSION}: install the one of midwire {}",
                    env!("CARGO_PKG_VERSION")
                ));
            }
            (Stage::Greet, Reply::Greeting { .. })
            | (Stage::Open, Reply::Opened { .. })
            | (Stage::Connect, Reply::Connected {})
            | (Stage::Serve(_), Reply::Serving {}) => {}
            (Stage::Prepare, Reply::Prepared(qps)) if fits(&self.transfers, &qps) => end.qps = qps,
            (Stage::Before, Reply::Counters(counters)) => end.counters[0] = counters,
            (Stage::After, Reply::Counters(counters)) => end.counters[1] = counters,
            (Stage::Run(_), Reply::Ran(all)) if all.iter().map(|r| r.qps.len()).eq(of_runs) => {
                self.ran.extend(runs.into_iter().zip(all));
            }
            (Stage::Check(_), Reply::Checked(all)) if all.iter().map(Vec::len).eq(of_serves) => {
                self.checked.extend(serves.into_iter().zip(all));
            }
            (stage, reply) => {
                return Err(format!("it was asked to {stage:?} and answers {reply:?}"));
            }
        }
        Ok(())
    }

    /// What comes when all have answered.
    fn next(&self) -> Option<Stage> {
        let transfers = |group| match group < self.groups.len() {
            true => Stage::Serve(group),
            false => Stage::After,
        };
        Some(match self.stage {
            Stage::Greet => Stage::Open,
            Stage::Open => Stage::Prepare,
            Stage::Prepare => Stage::Rest,
            Stage::Connect => Stage::Before,
            Stage::Before => transfers(0),
            Stage::Serve(group) => Stage::Run(group),
            Stage::Run(group) => Stage::Check(group),
            Stage::Check(group) => transfers(group + 1),
            Stage::After => Stage::Over,
            Stage::Rest | Stage::Over => return None,
        })
    }

    fn enter(&mut self, stage: Stage) -> Vec<(Port, String)> {
        self.stage = stage;
        let mut orders = Vec::new();
        for port in Port::ALL {
            if let Some(request) = self.request(port) {
                // After the last request nothing is said any more.
                self.ends[port as usize].asked = request != Request::Leave {};
                // A request has neither maps with other keys than text nor numbers without end.
                let text = serde_json::to_string(&request).unwrap_or_default();
                orders.push((port, text + "\n"));
            }
        }
        orders
    }

    /// Transfers of a group that an end asks for.
    fn asked(&self, group: usize, end: Port) -> Vec<usize> {
        let transfers = self.groups[group].clone();
        transfers
            .filter(|n| self.transfers[*n].from == end)
            .collect()
    }

    /// Those that it answers.
    fn answered(&self, group: usize, end: Port) -> Vec<usize> {
        self.asked(group, end.other())
    }

    fn check(&self, transfer: usize) -> Check {
        let qps = self.ran.get(&transfer).map(|ran| &ran.qps);
        Check {
            transfer,
            messages: qps.into_iter().flatten().map(|qp| qp.messages).collect(),
        }
    }

    fn request(&self, port: Port) -> Option<Request> {
        let some = |transfers: Vec<usize>| (!transfers.is_empty()).then_some(transfers);
        Some(match self.stage {
            Stage::Open => Request::Open(self.wanted[port as usize].clone()),
            Stage::Prepare => Request::Prepare(self.prepare(port)),
            Stage::Connect => Request::Connect(self.ends[port.other() as usize].qps.clone()),
            Stage::Before | Stage::After => Request::Counters {},
            Stage::Serve(group) => Request::Serve(some(self.answered(group, port))?),
            Stage::Run(group) => Request::Run(some(self.asked(group, port))?),
            Stage::Check(group) => {
                let transfers = some(self.answered(group, port))?;
                Request::Check(transfers.into_iter().map(|n| self.check(n)).collect())
            }
            Stage::Over => Request::Leave {},
            Stage::Greet | Stage::Rest => return None,
        })
    }

    fn prepare(&self, end: Port) -> Prepare {
        let mut draws = Draws::new(self.seed);
        let mut first_psn = |transfer: &RdmaTransfer| {
            let of_ends = [draws.draw(), draws.draw()].map(Psn::new);
            transfer.first_psn.unwrap_or(of_ends[end as usize]).get()
        };
        Prepare {
            end,
            first_psns: (self.transfers.iter())
                .map(|transfer| (0..transfer.qps).map(|_| first_psn(transfer)).collect())
                .collect(),
            transfers: self.transfers.clone(),
            seed: self.seed,
            limit_ns: self.limit_ns,
        }
    }

    /// Both ends of the queue pairs of a transfer, that which asks first.
    fn pairs(&self, n: usize) -> impl Iterator<Item = (&QueuePair, &QueuePair)> {
        let from = self.transfers[n].from;
        let of = |port: Port| self.ends[port as usize].qps.get(n).into_iter().flatten();
        of(from).zip(of(from.other()))
    }

    /// Requests and responses of each queue pair in turn, as connections are counted.
    pub fn flows(&self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (n, transfer) in self.transfers.iter().enumerate() {
            for (asks, answers) in self.pairs(n) {
                let ends = [asks, answers].map(|end| (end.address, end.number));
                flows.extend(Flow::both(transfer.from, ends, asks.first_psn));
            }
        }
        flows
    }
}

impl RdmaNics for Session {
    fn report(&self, n: usize) -> Option<RdmaReport> {
        let transfer = self.transfers.get(n)?;
        let nothing = Ran {
            qps: vec![RanPair::default(); count(transfer)],
            ..Ran::default()
        };
        let ran = self.ran.get(&n).unwrap_or(&nothing);
        let checked = self.checked.get(&n).into_iter().flatten().copied();
        let checked = checked.chain(std::iter::repeat(Arrived::default()));
        let qps: Vec<_> = (self.pairs(n).zip(&ran.qps).zip(checked))
            .map(|(((asks, answers), ran), checked)| qp_report(asks, answers, ran, checked))
            .collect();
        let whole = |qp: &QpReport| {
            qp.error.is_none() && qp.wrong_bytes == 0 && qp.bytes == transfer.bytes()
        };
        let bytes = qps.iter().map(|qp| qp.bytes).sum();
        (!qps.is_empty()).then(|| RdmaReport {
            completed: self.checked.contains_key(&n)
                && ran.duration_ns.is_some()
                && qps.iter().all(whole),
            duration_ns: ran.duration_ns,
            messages: qps.iter().map(|qp| qp.messages).sum(),
            bytes,
            wrong_bytes: qps.iter().map(|qp| qp.wrong_bytes).sum(),
            goodput_bps: goodput(bytes, ran.duration_ns),
            completion_times: ran.times,
            qps,
        })
    }

    /// During the transfers.
    fn counters(&self, port: Port) -> BTreeMap<String, u64> {
        let [before, after] = &self.ends[port as usize].counters;
        let more = |(name, value): (&String, &u64)| {
            let since = value.saturating_sub(before.get(name).copied().unwrap_or(0));
            (name.clone(), since)
        };
        after.iter().map(more).collect()
    }
}

fn count(transfer: &RdmaTransfer) -> usize {
    transfer.qps as usize
}

fn fits(transfers: &[RdmaTransfer], qps: &[Vec<QueuePair>]) -> bool {
    let counts = qps.iter().map(Vec::len);
    counts.eq(transfers.iter().map(count))
}

fn goodput(bytes: u64, duration_ns: Option<u64>) -> Option<u64> {
    rate(bytes, duration_ns.map(|ns| ns.saturating_mul(NANOSECOND)))
}

fn qp_report(asks: &QueuePair, answers: &QueuePair, ran: &RanPair, checked: Arrived) -> QpReport {
    let bytes = ran.arrived.bytes + checked.bytes;
    QpReport {
        source: asks.address,
        destination: answers.address,
        qp: asks.number,
        peer_qp: answers.number,
        first_psn: asks.first_psn,
        peer_first_psn: answers.first_psn,
        messages: ran.messages,
        bytes,
        wrong_bytes: ran.arrived.wrong_bytes + checked.wrong_bytes,
        goodput_bps: goodput(bytes, ran.duration_ns),
        completion_times: ran.times,
        error: ran.error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rnic::Operation;

    fn transfer(from: Port, qps: u32) -> RdmaTransfer {
        RdmaTransfer {
            from,
            operations: vec![Operation::Send],
            qps,
            messages: 2,
            size: 100,
            mtu: 1024,
            tx_depth: 1,
            barrier: false,
            multi_gid: false,
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
            min_rnr_timer: 12,
            max_reads: 1,
            receives: 1,
            repost: 0,
            first_psn: None,
            classes: vec![0],
            dscp: 0,
            together: false,
        }
    }

    /// An agent of few words: its answer to a request, in a session in which all goes well.
    fn answer(port: Port, request: &Request) -> Option<Reply> {
        let arrived = |bytes| Arrived {
            bytes,
            wrong_bytes: 0,
        };
        Some(match request {
            Request::Open(_) => Reply::Opened {
                device: "rxe0".to_owned(),
                addresses: Vec::new(),
            },
            Request::Prepare(prepare) => {
                let queue_pair = |(n, psn): (usize, &u32)| QueuePair {
                    address: IpAddr::from([10, 0, 0, port as u8 + 1]),
                    number: 16 * (port as u32 + 1) + n as u32,
                    first_psn: *psn,
                    memory: 0,
                    key: 0,
                };
                let of = |psns: &Vec<u32>| psns.iter().enumerate().map(queue_pair).collect();
                Reply::Prepared(prepare.first_psns.iter().map(of).collect())
            }
            Request::Connect(_) => Reply::Connected {},
            Request::Counters {} => Reply::Counters([("sent".to_owned(), 7)].into()),
            Request::Serve(_) => Reply::Serving {},
            Request::Run(all) => {
                let ran = |n: &usize| Ran {
                    duration_ns: Some(1000),
                    times: None,
                    qps: vec![
                        RanPair {
                            messages: 2,
                            ..RanPair::default()
                        };
                        if *n == 0 { 2 } else { 1 }
                    ],
                };
                Reply::Ran(all.iter().map(ran).collect())
            }
            Request::Check(all) => {
                let of = |check: &Check| {
                    assert!(check.messages.iter().all(|n| *n == 2));
                    check.messages.iter().map(|n| arrived(100 * n)).collect()
                };
                Reply::Checked(all.iter().map(of).collect())
            }
            Request::Leave {} => return None,
        })
    }

    fn line(reply: &Reply) -> String {
        serde_json::to_string(reply).unwrap()
    }

    /// Answers until nothing is asked any more; the requests, by the word that they begin with.
    fn converse(session: &mut Session, mut told: Vec<(Port, String)>) -> Vec<String> {
        let mut words = Vec::new();
        while !told.is_empty() {
            for (port, text) in std::mem::take(&mut told) {
                let request: Request = serde_json::from_str(&text).unwrap();
                words.push(format!("{port} {}", text.split('"').nth(1).unwrap()));
                if let Some(reply) = answer(port, &request) {
                    told.extend(session.hear(port, &line(&reply)).unwrap());
                }
            }
        }
        words
    }

    fn greeting(version: u32) -> String {
        line(&Reply::Greeting {
            version,
            midwire: "1".to_owned(),
        })
    }

    fn session() -> Session {
        let transfers = vec![transfer(Port::A, 2), transfer(Port::B, 1)];
        Session::new(transfers, Default::default(), 1, 1_000_000_000)
    }

    #[test]
    fn all_is_asked_in_order() {
        let mut session = session();
        assert!(
            session
                .hear(Port::B, &greeting(VERSION))
                .unwrap()
                .is_empty()
        );
        let told = session.hear(Port::A, &greeting(VERSION)).unwrap();
        let words = converse(&mut session, told);
        assert_eq!(words, ["a open", "b open", "a prepare", "b prepare"]);
        assert!(session.rests());

        // Requests and answers of each queue pair, with the addresses of the end that asks first.
        let flows = session.flows();
        let to: Vec<_> = flows
            .iter()
            .map(|flow| (flow.from, flow.queue_pair))
            .collect();
        let (a, b) = (Port::A, Port::B);
        assert_eq!(to, [(a, 32), (b, 16), (a, 33), (b, 17), (b, 16), (a, 32)]);
        assert!(
            flows
                .chunks(2)
                .all(|pair| pair[0].first_psn == pair[1].first_psn)
        );
        assert_ne!(flows[0].first_psn, flows[2].first_psn);
        assert!(!session.report(0).unwrap().completed);

        let told = session.go_on();
        let words = converse(&mut session, told);
        let first = ["a connect", "b connect", "a counters", "b counters"];
        let transfers = ["b serve", "a run", "b check", "a serve", "b run", "a check"];
        let last = ["a counters", "b counters", "a leave", "b leave"];
        assert_eq!(words, [&first[..], &transfers, &last].concat());
        assert!(session.is_over());
        let report = session.report(0).unwrap();
        assert!(report.completed);
        assert_eq!((report.messages, report.bytes), (4, 400));
        assert_eq!(report.goodput_bps, Some(3_200_000_000));
        // The same before and after
        assert_eq!(session.counters(Port::A)["sent"], 0);
    }

    /// Two entries that run together, asked for by either end, and one after them.
    #[test]
    fn transfers_run_together() {
        let together = |from| RdmaTransfer {
            together: true,
            ..transfer(from, 1)
        };
        let transfers = vec![
            transfer(Port::A, 2),
            together(Port::B),
            together(Port::A),
            transfer(Port::A, 1),
        ];
        let mut session = Session::new(transfers, Default::default(), 1, 1_000_000_000);
        session.hear(Port::B, &greeting(VERSION)).unwrap();
        let told = session.hear(Port::A, &greeting(VERSION)).unwrap();
        converse(&mut session, told);
        let mut told = session.go_on();
        let mut requests = Vec::new();
        while !told.is_empty() {
            for (port, text) in std::mem::take(&mut told) {
                let request: Request = serde_json::from_str(&text).unwrap();
                let numbers = match &request {
                    Request::Serve(all) | Request::Run(all) => Some(all.clone()),
                    Request::Check(all) => Some(all.iter().map(|c| c.transfer).collect()),
                    _ => None,
                };
                let word = text.split('"').nth(1).unwrap();
                requests.extend(numbers.map(|all| format!("{port} {word} {all:?}")));
                if let Some(reply) = answer(port, &request) {
                    told.extend(session.hear(port, &line(&reply)).unwrap());
                }
            }
        }
        let expected = [
            "a serve [1]",
            "b serve [0, 2]",
            "a run [0, 2]",
            "b run [1]",
            "a check [1]",
            "b check [0, 2]",
            "b serve [3]",
            "a run [3]",
            "b check [3]",
        ];
        assert_eq!(requests, expected);
        for (n, messages) in [4, 2, 2, 2].into_iter().enumerate() {
            let report = session.report(n).unwrap();
            assert!(report.completed && report.messages == messages, "{n}");
        }
    }

    #[test]
    fn what_is_out_of_order_is_refused() {
        let says = |lines: &[&str]| {
            let mut session = session();
            let mut told = lines.iter().map(|line| session.hear(Port::A, line));
            let error = told.find_map(Result::err);
            error.expect("an error").to_string()
        };
        assert!(says(&[&greeting(VERSION + 1)]).contains("install the one of midwire"));
        assert!(says(&[&greeting(VERSION), &greeting(VERSION)]).contains("unasked"));
        assert!(says(&["{}"]).contains("no answer"));
        let connected = line(&Reply::Connected {});
        assert!(says(&[&connected]).contains("was asked to Greet and answers Connected"));
        let failed = line(&Reply::Failed("no device".to_owned()));
        assert_eq!(says(&[&failed]), "agent at port a: no device");
    }
}
