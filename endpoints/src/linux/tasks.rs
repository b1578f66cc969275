// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hosts do: commands, one after the other, those in the background beside the others.
//!
//! The first process of each host carries them out (hosts/init); what it says comes at a time of
//! the calendar, and what it is told too, so that commands begin at the same nanosecond in every
//! run.

use crate::Port;
use crate::rnic::Picoseconds;
use crate::traffic::Outcome;

/// A command that a host runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The host.
    pub on: Port,
    /// For `sh`.
    pub run: String,
    /// How it goes with the others.
    pub kind: Kind,
}

/// How a command goes with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The next one begins when it has ended.
    Foreground,
    /// One that waits for what the next one does: that begins when this one listens on a port, or
    /// after a second, and those after it when both have ended.
    Listener,
    /// Likewise, but it is stopped when all others are done.
    Background,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    /// How it ended.
    pub outcome: Outcome,
    /// From its start to its end, in virtual time.
    pub duration: Picoseconds,
}

/// From news of a host to the order that follows. Longer than any span of the calendar, so that
/// no host has run past it.
pub(super) const REACTION: Picoseconds = 100_000_000;
/// How long a stopped command may take to end.
const GRACE: Picoseconds = 1_000_000_000_000;
/// The least age of a host at its first command: some programs take a clock below one second for
/// one that was not set, and it may be slow by a tenth.
const SETTLED: Picoseconds = 1_200_000_000_000;
/// How long hosts may take to start.
const BOOT: Picoseconds = 60_000_000_000_000;

/// How long things may take in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All commands together.
    pub traffic: Picoseconds,
    /// Silence after the last one.
    pub quiet: Picoseconds,
    /// When the hosts are switched off at the latest.
    pub until: Option<Picoseconds>,
}

impl Limits {
    /// The earlier of a time and the latest end.
    fn no_later(&self, at: Picoseconds) -> Picoseconds {
        self.until.map_or(at, |until| until.min(at))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Runs(Picoseconds),
    Ended(Done),
}

/// An order for a host at a time.
pub(super) type Order = (Picoseconds, Port, String);

pub(super) struct Tasks {
    tasks: Vec<(Task, State)>,
    limits: Limits,
    /// Instead of tasks, agents take the orders until they end.
    has_agents: bool,
    /// Those that run.
    agents_left: usize,
    /// Hosts that are not set up yet.
    starting: usize,
    /// The last task that was begun, until all but those in the background have ended.
    current: Option<usize>,
    /// When the hosts are switched off.
    pub end: Picoseconds,
}

impl Tasks {
    pub fn new(tasks: Vec<Task>, limits: Limits) -> Self {
        Self {
            tasks: tasks.into_iter().map(|task| (task, State::Waits)).collect(),
            limits,
            has_agents: false,
            agents_left: 2,
            starting: 2,
            current: None,
            end: BOOT,
        }
    }

    /// Has both hosts run agents instead of tasks.
    pub fn use_agents(&mut self) {
        self.has_agents = true;
    }

    /// The hosts start at this time.
    pub fn begin(&mut self, origin: Picoseconds) {
        self.end = self.limits.no_later(origin + BOOT);
    }

    pub fn started(&self) -> bool {
        self.starting == 0
    }

    /// What became of each, after the end.
    pub fn done(&self) -> impl Iterator<Item = (&Task, Option<Done>)> {
        let done = |(task, state): &(Task, State)| match *state {
            State::Waits => None,
            State::Ended(done) => Some(done),
            State::Runs(since) => Some(Done {
                outcome: match (task.kind, self.current) {
                    (Kind::Background, None) => Outcome::Stopped,
                    _ => Outcome::TimedOut,
                },
                duration: self.end.saturating_sub(since),
            }),
        };
        self.tasks.iter().map(move |entry| (&entry.0, done(entry)))
    }

    /// Takes a line from a host; adds what hosts have to be told.
    pub fn hear(
        &mut self,
        now: Picoseconds,
        line: &str,
        orders: &mut Vec<Order>,
    ) -> Result<(), &'static str> {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let number = |word: &str| word.parse().ok().filter(|n| *n < self.tasks.len());
        match words[..] {
            ["up"] => {
                self.starting = self.starting.saturating_sub(1);
                if self.starting == 0 {
                    let now = now + SETTLED;
                    self.end = self.limits.no_later(now + self.limits.traffic);
                    if self.has_agents {
                        let order = |on| (now + REACTION, on, "agent\n".to_owned());
                        orders.extend(Port::ALL.map(order));
                        self.end = self.limits.no_later(self.end + GRACE);
                    } else {
                        self.next(now, 0, orders);
                    }
                }
            }
            ["left", "0"] => {
                self.agents_left = self.agents_left.saturating_sub(1);
                if self.agents_left == 0 {
                    self.settle(now, orders);
                }
            }
            ["left", _] => return Err("its agent has broken down, see agent.stderr"),
            ["failed"] => {
                return Err("it could not be set up as the plan says");
            }
            ["ready", n] => {
                if let Some(n) = number(n)
                    && self.current == Some(n)
                {
                    self.next(now, n + 1, orders);
                }
            }
            ["end", n, status] => {
                if let (Some(n), Ok(status)) = (number(n), status.parse()) {
                    self.ended(n, now, status);
                    match self.current {
                        Some(current) if self.is_over(current) => {
                            self.next(now, current + 1, orders);
                        }
                        Some(_) => {}
                        None => self.settle(now, orders),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether what follows a task in the foreground can begin.
    fn is_over(&self, current: usize) -> bool {
        let waited_for = |(task, state): &(Task, State)| {
            task.kind != Kind::Background && matches!(state, State::Runs(_))
        };
        self.tasks[current].0.kind == Kind::Foreground
            && !self.tasks[..=current].iter().any(waited_for)
    }

    fn ended(&mut self, n: usize, now: Picoseconds, status: i32) {
        let (task, state) = &mut self.tasks[n];
        if let State::Runs(since) = *state {
            let stopped = task.kind == Kind::Background && self.current.is_none();
            let outcome = match (status, stopped) {
                (_, true) => Outcome::Stopped,
                // As a shell says it.
                (129..=192, false) => Outcome::Killed {
                    signal: status - 128,
                },
                (status, false) => Outcome::Exited { status },
            };
            let duration = now.saturating_sub(since);
            *state = State::Ended(Done { outcome, duration });
        }
    }

    /// Begins with task `n`, or ends.
    fn next(&mut self, now: Picoseconds, n: usize, orders: &mut Vec<Order>) {
        let at = now + REACTION;
        let Some((task, state)) = self.tasks.get_mut(n) else {
            return self.stop(now, orders);
        };
        let order = match task.kind {
            Kind::Foreground => "run",
            Kind::Listener | Kind::Background => "background",
        };
        orders.push((at, task.on, format!("{order} {n}\n")));
        *state = State::Runs(at);
        self.current = Some(n);
    }

    fn stop(&mut self, now: Picoseconds, orders: &mut Vec<Order>) {
        self.current = None;
        self.end = self.end.min(now + GRACE + self.limits.quiet);
        for (n, (task, state)) in self.tasks.iter().enumerate() {
            if let State::Runs(_) = state {
                orders.push((now + REACTION, task.on, format!("stop {n}\n")));
            }
        }
        self.settle(now, orders);
    }

    /// Switches off after a silence when nothing runs any more; the last thing that hosts do is to
    /// write down what they have counted.
    fn settle(&mut self, now: Picoseconds, orders: &mut Vec<Order>) {
        let runs = |(_, state): &(Task, State)| matches!(state, State::Runs(_));
        if !self.tasks.iter().any(runs) {
            self.end = self.end.min(now + self.limits.quiet.max(2 * REACTION));
            let at = self.end - REACTION;
            orders.extend(Port::ALL.map(|on| (at, on, "counters\n".to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Picoseconds = 1_000_000_000;
    const LIMITS: Limits = Limits {
        traffic: 1000 * MS,
        quiet: 250 * MS,
        until: None,
    };

    fn tasks() -> Tasks {
        tasks_of(Kind::Background)
    }

    fn tasks_of(kind: Kind) -> Tasks {
        let task = |on, kind| Task {
            on,
            run: "true".to_owned(),
            kind,
        };
        let tasks = vec![task(Port::B, kind), task(Port::A, Kind::Foreground)];
        Tasks::new(tasks, LIMITS)
    }

    fn hear(tasks: &mut Tasks, now: Picoseconds, line: &str) -> Vec<String> {
        let mut orders = Vec::new();
        tasks.hear(now, line, &mut orders).unwrap();
        let said = |(at, port, text): Order| {
            let expected = match (text.trim_end(), line) {
                ("counters", _) => tasks.end - REACTION,
                (_, "up") => now + SETTLED + REACTION,
                _ => now + REACTION,
            };
            assert_eq!(at, expected);
            format!("{port} {}", text.trim_end())
        };
        orders.into_iter().map(said).collect()
    }

    #[test]
    fn commands_follow_each_other() {
        let mut tasks = tasks();
        assert!(hear(&mut tasks, MS, "up").is_empty());
        assert_eq!(hear(&mut tasks, 2 * MS, "up"), ["b background 0"]);
        assert_eq!(hear(&mut tasks, 1005 * MS, "ready 0"), ["a run 1"]);
        assert_eq!(hear(&mut tasks, 1009 * MS, "end 1 0"), ["b stop 0"]);
        let last = hear(&mut tasks, 1010 * MS, "end 0 143");
        assert_eq!(last, ["a counters", "b counters"]);
        assert_eq!(tasks.end, 1260 * MS);
        let done: Vec<_> = tasks.done().filter_map(|(_, done)| done).collect();
        assert_eq!(done[0].outcome, Outcome::Stopped);
        assert_eq!(done[1].outcome, Outcome::Exited { status: 0 });
        assert_eq!(done[1].duration, 4 * MS - REACTION);
    }

    #[test]
    fn a_listener_is_waited_for() {
        let mut tasks = tasks_of(Kind::Listener);
        for line in ["up", "up", "ready 0"] {
            hear(&mut tasks, MS, line);
        }
        assert!(hear(&mut tasks, 2 * MS, "end 1 0").is_empty());
        assert_eq!(tasks.end, SETTLED + 1001 * MS);
        let last = hear(&mut tasks, 3 * MS, "end 0 0");
        assert_eq!(last, ["a counters", "b counters"]);
        assert_eq!(tasks.end, 253 * MS);
        let done: Vec<_> = tasks.done().filter_map(|(_, done)| done).collect();
        assert_eq!(done[0].outcome, Outcome::Exited { status: 0 });
    }

    #[test]
    fn what_does_not_end_runs_into_the_limit() {
        let mut tasks = tasks();
        for line in ["up", "up", "ready 0"] {
            hear(&mut tasks, MS, line);
        }
        assert_eq!(tasks.end, SETTLED + 1001 * MS);
        let done: Vec<_> = tasks.done().filter_map(|(_, done)| done).collect();
        assert_eq!(done[1].outcome, Outcome::TimedOut);
        // A server that ended by itself is no success.
        hear(&mut tasks, 2 * MS, "end 0 139");
        let done: Vec<_> = tasks.done().filter_map(|(_, done)| done).collect();
        assert_eq!(done[0].outcome, Outcome::Killed { signal: 11 });
    }
}
