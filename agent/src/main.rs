// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent of a real host: sets up queue pairs with verbs, and sends RDMA messages over them as
//! it is asked on its standard input; it answers on its standard output. Whoever starts it is
//! trusted: over a network that is SSH's to see to. docs/agent.md has more.

mod counters;
mod error;
mod layout;
mod requester;
mod responder;
mod transfer;
mod verbs;

use std::io::{BufRead as _, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use midwire_endpoints::agent::protocol::{
    Arrived, Check, Open, Prepare, QueuePair, Reply, Request, VERSION,
};

use error::Error;
use responder::Service;
use transfer::{Activity, Transfer, Wait};
use verbs::Nic;

const USAGE: &str = "usage: midwire-agent\n\n\
    Sends RDMA messages as it is asked on its standard input, by midwire run, which starts it on \
    hosts that a plan names as endpoints: agent.";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("--version") => {
            println!("midwire-agent {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    let mut agent = Agent::default();
    let requests = requests();
    let greeting = Reply::Greeting {
        version: VERSION,
        midwire: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let result = say(&greeting).and_then(|()| agent.answer(&requests));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It may be the channel that is broken.
            let _ = say(&Reply::Failed(error.to_string()));
            eprintln!("midwire-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Requests as they come in. When nobody is there any more who could ask, the process ends, with
/// whatever it does, and the kernel takes its queue pairs back.
fn requests() -> Receiver<Result<Request, String>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let request = serde_json::from_str(&line)
                .map_err(|error| format!("asked for what is no request: {error}: {line:.200}"));
            if sender.send(request).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}

fn say(reply: &Reply) -> Result<(), Error> {
    let failed = Error::refused("can't answer");
    let mut line = serde_json::to_vec(reply).map_err(|e| Error::Asked(e.to_string()))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)
        .and_then(|()| out.flush())
        .map_err(failed)
}

#[derive(Default)]
struct Agent {
    // Queue pairs go before the NIC.
    transfers: Vec<Transfer>,
    nic: Option<Nic>,
}

impl Agent {
    /// Answers all requests, until it is asked to leave.
    fn answer(&mut self, requests: &Receiver<Result<Request, String>>) -> Result<(), Error> {
        // The thread that reads ends the process when there are no more.
        while let Ok(request) = requests.recv() {
            let reply = match request.map_err(Error::Asked)? {
                Request::Open(wish) => self.open(&wish)?,
                Request::Prepare(wish) => self.prepare(&wish)?,
                Request::Connect(peers) => self.connect(&peers)?,
                Request::Counters {} => Reply::Counters(counters::read(&self.nic()?.name)),
                Request::Run(all) => self.run(&all, &mut [])?,
                Request::Serve(all) => self.serve(&all, requests)?,
                Request::Check(_) => {
                    return Err(Error::Asked("no transfer is served".to_owned()));
                }
                Request::Leave {} => return Ok(()),
            };
            say(&reply)?;
        }
        Ok(())
    }

    fn nic(&self) -> Result<&Nic, Error> {
        let closed = || Error::Asked("no NIC is open".to_owned());
        self.nic.as_ref().ok_or_else(closed)
    }

    fn transfer(&self, n: usize) -> Result<&Transfer, Error> {
        let none = || Error::Asked(format!("there is no transfer {n}"));
        self.transfers.get(n).ok_or_else(none)
    }

    fn open(&mut self, wish: &Open) -> Result<Reply, Error> {
        wish.setup.iter().try_for_each(|line| set_up(line))?;
        let nics = Nic::open(wish.device.as_deref())?;
        let names: Vec<_> = nics.iter().map(|nic| nic.name.clone()).collect();
        let has_all = |nic: &Nic| {
            let mut wanted = wish.addresses.iter();
            wanted.all(|address| nic.gids.iter().any(|gid| gid.address == *address))
        };
        let Some(mut nic) = nics.into_iter().find(has_all) else {
            return Err(Error::Asked(lacks(wish, &names)));
        };
        if !wish.addresses.is_empty() {
            let gids = wish.addresses.iter().filter_map(|address| {
                let mut gids = nic.gids.iter();
                gids.find(|gid| gid.address == *address).copied()
            });
            nic.gids = gids.collect();
        }
        if nic.gids.is_empty() {
            let message = format!(
                "{} has no GID of RoCEv2: give its interface an address",
                nic.name
            );
            return Err(Error::Asked(message));
        }
        let reply = Reply::Opened {
            device: nic.name.clone(),
            addresses: nic.gids.iter().map(|gid| gid.address).collect(),
        };
        self.nic = Some(nic);
        Ok(reply)
    }

    fn prepare(&mut self, wish: &Prepare) -> Result<Reply, Error> {
        let counts = wish.first_psns.iter().map(Vec::len);
        if !counts.eq(wish.transfers.iter().map(|transfer| transfer.qps as usize)) {
            return Err(Error::Asked(
                "expected a first PSN of each queue pair".to_owned(),
            ));
        }
        let mut first = 0;
        for (n, transfer) in wish.transfers.iter().enumerate() {
            let transfer_made = Transfer::prepare(self.nic()?, wish, n, first)?;
            self.transfers.push(transfer_made);
            first += transfer.qps;
        }
        let pairs = self.transfers.iter().map(Transfer::queue_pairs);
        Ok(Reply::Prepared(pairs.collect()))
    }

    fn connect(&mut self, peers: &[Vec<QueuePair>]) -> Result<Reply, Error> {
        for (transfer, peers) in self.transfers.iter_mut().zip(peers) {
            transfer.connect(peers)?;
        }
        Ok(Reply::Connected {})
    }

    fn run(&self, all: &[usize], services: &mut [Service]) -> Result<Reply, Error> {
        let transfers = all.iter().map(|n| self.transfer(*n));
        let transfers = transfers.collect::<Result<Vec<_>, _>>()?;
        Ok(Reply::Ran(requester::run(&transfers, services)?))
    }

    /// Serves transfers until it is asked to check them; may carry out others meanwhile.
    fn serve(
        &self,
        all: &[usize],
        requests: &Receiver<Result<Request, String>>,
    ) -> Result<Reply, Error> {
        let services = all.iter().map(|n| Service::new(self.transfer(*n)?));
        let mut services = services.collect::<Result<Vec<_>, _>>()?;
        say(&Reply::Serving {})?;
        loop {
            match attend(&mut services, requests)? {
                Request::Run(others) => say(&self.run(&others, &mut services)?)?,
                Request::Check(checks) if checks.iter().map(|c| &c.transfer).eq(all) => {
                    let pairs = services.iter().zip(&checks);
                    let check = |(service, check): (&Service, &Check)| -> Vec<Arrived> {
                        service.check(&check.messages)
                    };
                    return Ok(Reply::Checked(pairs.map(check).collect()));
                }
                other => {
                    return Err(Error::Asked(format!(
                        "expected to check transfers {all:?}, not {other:?}"
                    )));
                }
            }
        }
    }
}

/// Serves until there is something else to do.
fn attend(
    services: &mut [Service],
    requests: &Receiver<Result<Request, String>>,
) -> Result<Request, Error> {
    let mut wait = Wait::new();
    let receiving = services.iter_mut().filter(|service| service.receives());
    let all = receiving.map(|service| service as &mut dyn Activity);
    let mut all: Vec<_> = all.collect();
    while !all.is_empty() {
        if let Ok(request) = requests.try_recv() {
            return request.map_err(Error::Asked);
        }
        wait.step(&mut all)?;
    }
    // The thread that reads ends the process when there are no more.
    let request = requests.recv().map_err(|e| Error::Asked(e.to_string()))?;
    request.map_err(Error::Asked)
}

/// Runs a command line of the plan. What it says must not get among the answers.
fn set_up(line: &str) -> Result<(), Error> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null());
    let output = command.output().map_err(Error::refused("can't run sh"))?;
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Asked(format!("setup: {line:?} failed: {said}"))),
    }
}

/// What is not there, and what is.
fn lacks(wish: &Open, found: &[String]) -> String {
    let wanted: Vec<_> = wish.addresses.iter().map(ToString::to_string).collect();
    match (&wish.device, found) {
        (Some(device), []) => format!("there is no RDMA device {device}: see `rdma link`"),
        (None, []) => {
            "there is no RDMA device: see `rdma link`; Soft-RoCE makes one of any network \
                       card (rdma link add rxe0 type rxe netdev eth0)"
                .to_owned()
        }
        (_, found) => format!(
            "{} has no GID of RoCEv2 for {}: see `rdma link` and `ip address`",
            found.join(" nor "),
            wanted.join(", ")
        ),
    }
}
