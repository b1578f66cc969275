// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agents that this machine reaches by a program's standard input and output: SSH's, as a rule,
//! which sees to who may ask whom.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Flow, Session};
use crate::rnic::RdmaNics;
use crate::{Error, Port};

/// How long agents may take until their queue pairs are there, and for all but the transfers
/// themselves after that.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest line that is read.
const LINE: u64 = 16 << 20;

/// A line that an agent has said; nothing when its output has ended.
type Heard = (Port, Option<String>);

/// How an agent is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// By SSH: the host, as ssh(1) takes it, and the program on it.
    Ssh {
        /// `user@host`, or a name of ssh's configuration.
        host: String,
        /// A command line there.
        program: String,
    },
    /// By a command line for `sh`, here.
    Run(String),
}

impl Reach {
    fn command(&self) -> Command {
        match self {
            // Nobody is there to be asked for a password.
            Reach::Ssh { host, program } => {
                let mut command = Command::new("ssh");
                command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--"]);
                command.args([host, program]);
                command
            }
            Reach::Run(line) => {
                let mut command = Command::new("sh");
                command.args(["-c", line]);
                command
            }
        }
    }
}

/// The process through which an agent is spoken to. Dropping it ends the process; the agent ends
/// when its input does.
struct Process {
    child: Child,
    says: Sender<String>,
    stderr: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts it; what it says besides goes into a file.
    fn start(
        port: Port,
        reach: &Reach,
        stderr: PathBuf,
        heard: Sender<Heard>,
    ) -> Result<Self, Error> {
        let file = File::create(&stderr).map_err(Error::host(
            port,
            format!("cannot write {}", stderr.display()),
        ))?;
        let mut child = (reach.command())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(Error::host(port, "cannot start what leads to its agent"))?;
        let (says, said) = channel::<String>();
        // An agent that does not read holds up nobody but these threads, which end with it.
        if let Some(mut input) = child.stdin.take() {
            thread::spawn(move || {
                for text in said {
                    if input
                        .write_all(text.as_bytes())
                        .and_then(|()| input.flush())
                        .is_err()
                    {
                        break;
                    }
                }
            });
        }
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                loop {
                    let mut line = Vec::new();
                    let read = output.by_ref().take(LINE).read_until(b'\n', &mut line);
                    let ended = !matches!(read, Ok(bytes) if bytes > 0);
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if heard.send((port, (!ended).then_some(line))).is_err() || ended {
                        break;
                    }
                }
            });
        }
        Ok(Self {
            child,
            says,
            stderr,
        })
    }

    /// What it has said besides, at the end.
    fn last_words(&self) -> String {
        let text = fs::read(&self.stderr).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        match text.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            Some(line) => format!(": {line}"),
            None => format!("; see {}", self.stderr.display()),
        }
    }
}

/// Two agents, and what is between them.
pub struct Agents {
    session: Session,
    processes: [Process; 2],
    heard: Receiver<Heard>,
    deadline: Instant,
}

impl Agents {
    /// Starts both, for a session that nobody has said anything in yet; the directory takes what
    /// they say besides.
    pub fn start(directory: &Path, reach: [&Reach; 2], session: Session) -> Result<Self, Error> {
        let (sender, heard) = channel();
        let start = |port: Port| {
            let stderr = directory.join(format!("agent-{port}.stderr"));
            Process::start(port, reach[port as usize], stderr, sender.clone())
        };
        Ok(Self {
            session,
            processes: [start(Port::A)?, start(Port::B)?],
            heard,
            deadline: Instant::now() + PATIENCE,
        })
    }

    /// Lets the session go on from its rest, for transfers that take no longer than this.
    pub fn go_on(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit + PATIENCE;
        let told = self.session.go_on();
        self.tell(told);
    }

    /// Takes part in the session for a while; whether there is nothing to be done any more.
    pub fn step(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.session.rests() || self.session.is_over() {
            return Ok(true);
        }
        match self.heard.recv_timeout(timeout) {
            Ok((port, Some(line))) => {
                let told = self.session.hear(port, &line)?;
                self.tell(told);
            }
            Ok((port, None)) => {
                return Err(Error::Agent {
                    port,
                    what: format!("it is gone{}", self.processes[port as usize].last_words()),
                });
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        match self.session.waits_for() {
            Some(port) if Instant::now() > self.deadline => Err(Error::Agent {
                port,
                what: format!(
                    "it does not answer{}",
                    self.processes[port as usize].last_words()
                ),
            }),
            _ => Ok(false),
        }
    }

    fn tell(&self, told: Vec<(Port, String)>) {
        for (port, text) in told {
            // Who does not listen any more is found gone.
            let _ = self.processes[port as usize].says.send(text);
        }
    }

    /// What the session has come to.
    pub fn nics(&self) -> &dyn RdmaNics {
        &self.session
    }

    /// The connections.
    pub fn flows(&self) -> Vec<Flow> {
        self.session.flows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_may_not_ask_and_takes_no_host_for_an_option() {
        let reach = Reach::Ssh {
            host: "root@a".to_owned(),
            program: "nice midwire-agent".to_owned(),
        };
        let command = reach.command();
        let words: Vec<_> = command
            .get_args()
            .filter_map(|word| word.to_str())
            .collect();
        assert_eq!(command.get_program(), "ssh");
        assert_eq!(
            words.join(" "),
            "-T -o BatchMode=yes -o ConnectTimeout=10 -- root@a nice midwire-agent"
        );
        assert_eq!(words.last(), Some(&"nice midwire-agent"));
    }
}
