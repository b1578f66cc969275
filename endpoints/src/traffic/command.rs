// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any command line as traffic: iperf3, curl, the user's own program.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::seconds;
use crate::host::Place;
use crate::{Ended, Error, Hosts, Port, Running};

/// How often a background command is looked at while it gets ready.
const TICK: Duration = Duration::from_millis(5);
/// How long to wait for a background command that may never listen.
const SETTLE: Duration = Duration::from_secs(1);
/// How long to wait for one that has to listen.
const READY: Duration = Duration::from_secs(30);
/// How long a command may take to end when asked.
const GRACE: Duration = Duration::from_secs(1);

/// A command line that runs by `sh -c`, with the addresses of the hosts, where there are hosts, in
/// `MIDWIRE_A` and `MIDWIRE_B`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTraffic {
    /// The host that it runs in; this machine itself without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Port>,
    /// The command line.
    pub run: String,
    /// Runs beside what follows it, and is stopped at the end.
    #[serde(default)]
    pub background: bool,
    /// When a background command is ready; what follows waits for that.
    #[serde(default)]
    pub ready: Ready,
    /// Seconds that a command in the foreground may take.
    #[serde(default = "default_timeout", with = "seconds")]
    pub timeout: Duration,
    /// Further environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

fn default_timeout() -> Duration {
    Duration::from_secs(60)
}

/// When a background command is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// As soon as a program of the host listens on any new port; if none does, after a second.
    #[default]
    Listening,
    /// When a program of the host listens on this port.
    Port(u16),
    /// After this many seconds.
    #[serde(with = "seconds")]
    Delay(Duration),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Outcome {
    /// By itself, with this status.
    Exited {
        /// 0 says success.
        status: i32,
    },
    /// By a signal that was not ours.
    Killed {
        /// Its number.
        signal: i32,
    },
    /// Killed, its time being over.
    TimedOut,
    /// Killed, the run being cancelled.
    Cancelled,
    /// Stopped at the end of the run, as commands in the background are.
    Stopped,
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Outcome {
        match status.code() {
            Some(status) => Outcome::Exited { status },
            None => Outcome::Killed {
                signal: status.signal().unwrap_or(0),
            },
        }
    }
}

/// What became of a command.
#[derive(Debug, Clone, Serialize)]
pub struct CommandReport {
    /// The host that it ran in; nothing for this machine itself.
    pub on: Option<Port>,
    /// The command line.
    pub run: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// From its start to its end.
    pub duration_ns: u64,
    /// The file with its standard output.
    pub stdout: PathBuf,
    /// The file with its standard error.
    pub stderr: PathBuf,
}

impl CommandReport {
    /// Whether it did what it was to do: ended with status 0, or ran in the background to the end.
    pub fn completed(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Exited { status: 0 } | Outcome::Stopped
        )
    }
}

/// A command that runs in the background. Dropping it kills its process group.
#[derive(Debug)]
pub struct Background {
    running: Running,
    started: Instant,
    on: Option<Port>,
    run: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl CommandTraffic {
    /// Runs the command in the foreground, with its output in `DIRECTORY/NAME.stdout` and
    /// `.stderr`. How it ended is a result; an error says that it could not be started.
    pub fn run(
        &self,
        hosts: Option<&Hosts>,
        directory: &Path,
        name: &str,
        cancel: &AtomicBool,
    ) -> Result<CommandReport, Error> {
        let mut started = self.spawn(hosts, directory, name)?;
        let outcome = match started.running.wait(Some(self.timeout), cancel)? {
            Ended::Exited(status) => status.into(),
            Ended::TimedOut => Outcome::TimedOut,
            Ended::Cancelled => Outcome::Cancelled,
        };
        started.running.stop(GRACE)?;
        Ok(started.report(outcome))
    }

    /// Starts the command in the background and waits until it is ready.
    pub fn start(
        &self,
        hosts: Option<&Hosts>,
        directory: &Path,
        name: &str,
        cancel: &AtomicBool,
    ) -> Result<Background, Error> {
        let place = self.place(hosts)?;
        let before = place.listeners()?;
        if let Ready::Port(port) = self.ready
            && before.contains(&port)
        {
            return Err(Error::Traffic(format!("port {port} of {place} is taken")));
        }
        let mut started = self.spawn(hosts, directory, name)?;
        let limit = match self.ready {
            Ready::Listening => SETTLE,
            Ready::Port(_) => READY,
            Ready::Delay(delay) => delay,
        };
        while started.started.elapsed() < limit && !cancel.load(Ordering::Relaxed) {
            let ready = match self.ready {
                Ready::Listening => place.listeners()?.iter().any(|port| !before.contains(port)),
                Ready::Port(port) => place.listeners()?.contains(&port),
                Ready::Delay(_) => false,
            };
            if ready || started.running.try_wait()?.is_some() {
                return Ok(started);
            }
            thread::sleep(TICK);
        }
        match self.ready {
            Ready::Port(port) if !cancel.load(Ordering::Relaxed) => Err(Error::Traffic(format!(
                "{:?} on {place} does not listen on port {port} after {} s",
                self.run,
                READY.as_secs()
            ))),
            _ => Ok(started),
        }
    }

    fn place<'a>(&self, hosts: Option<&'a Hosts>) -> Result<Place<'a>, Error> {
        match (self.on, hosts) {
            (None, _) => Ok(Place::Here),
            (Some(port), Some(hosts)) => Ok(Place::Host(hosts.at(port))),
            (Some(port), None) => Err(Error::Traffic(format!("there is no host {port}"))),
        }
    }

    fn spawn(
        &self,
        hosts: Option<&Hosts>,
        directory: &Path,
        name: &str,
    ) -> Result<Background, Error> {
        let create = |kind| {
            let path = directory.join(format!("{name}.{kind}"));
            File::create(&path)
                .map(|file| (file, path.clone()))
                .map_err(|error| {
                    Error::Traffic(format!("cannot write {}: {error}", path.display()))
                })
        };
        let (stdout_file, stdout) = create("stdout")?;
        let (stderr_file, stderr) = create("stderr")?;
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(&self.run)
            .stdin(Stdio::null())
            .stdout(stdout_file)
            .stderr(stderr_file);
        for (variable, port) in [("MIDWIRE_A", Port::A), ("MIDWIRE_B", Port::B)] {
            if let Some(cidr) = hosts.and_then(|hosts| hosts.at(port).addresses().first()) {
                command.env(variable, cidr.address.to_string());
            }
        }
        command.envs(&self.environment);
        let started = Instant::now();
        let running = self.place(hosts)?.spawn(command)?;
        Ok(Background {
            running,
            started,
            on: self.on,
            run: self.run.clone(),
            stdout,
            stderr,
        })
    }
}

impl Background {
    /// Stops it, if it has not ended, and says how it ended.
    pub fn stop(mut self) -> Result<CommandReport, Error> {
        let ended = self.running.try_wait()?;
        let outcome = match ended {
            Some(status) => status.into(),
            None => {
                self.running.stop(GRACE)?;
                Outcome::Stopped
            }
        };
        Ok(self.report(outcome))
    }

    /// Waits for it to end by itself, for at most `timeout`; stops it then.
    pub fn finish(
        mut self,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<CommandReport, Error> {
        self.running.wait(Some(timeout), cancel)?;
        self.stop()
    }

    fn report(self, outcome: Outcome) -> CommandReport {
        let duration_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        CommandReport {
            on: self.on,
            run: self.run,
            outcome,
            duration_ns,
            stdout: self.stdout,
            stderr: self.stderr,
        }
    }
}
