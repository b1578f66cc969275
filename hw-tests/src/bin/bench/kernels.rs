// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux hosts on the card's clock: how fast a run goes, and who has computed meanwhile.

use crate::Result;
use crate::report::Report;
use midwire_endpoints::linux::Image;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: &str = "30MB";
const PLAN: &str = "version: 1
name: bench
endpoints:
  a: {linux: {address: 10.77.0.1/24, rate_mbps: 1000, delay: 5us}}
  b: {linux: {address: 10.77.0.2/24, rate_mbps: 1000, delay: 5us}}
traffic:
";

/// How often processes are asked what they have computed.
const LOOK: Duration = Duration::from_millis(20);

/// CPU time in clock ticks.
#[derive(Clone, Copy, Default)]
struct Computed {
    kernels: f64,
    /// The card's thread: simulation, calendar, and the hosts' network cards.
    card: f64,
    /// Its system calls: orders to the kernels, and answers.
    talk: f64,
    rest: f64,
}

/// One connection between two kernels.
pub fn linux_hosts(report: &mut Report) -> Result<()> {
    let title = "Linux hosts in virtual time";
    if let Err(error) = Image::find(None, None) {
        report.section(title, &format!("Not measured: {error}"));
        return Ok(());
    }
    let (boot, ..) = run("command: {on: a, run: 'true'}")?;
    let traffic = format!("tcp: {{from: a, to: b, bytes: {BYTES}}}");
    let (wall, frames, computed) = run(&traffic)?;
    report.section(
        title,
        &format!(
            "Two kernels, 1 Gb/s and 5 µs each, the card between them (512 bits), every frame \
             captured: one TCP connection with {BYTES}. Booting is in the wall time. Shares are of \
             all CPU time.",
        ),
    );
    report.table(&["what", "measured"]);
    let all = computed.kernels + computed.card + computed.talk + computed.rest;
    let share = |part: f64| format!("{:.0} %", 100.0 * part / all);
    for (what, value) in [
        ("frames", frames.to_string()),
        ("wall time", format!("{:.1} s", wall.as_secs_f64())),
        (
            "of it booting, and all that ends a run",
            format!("{:.1} s", boot.as_secs_f64()),
        ),
        (
            "frames a wall second",
            format!("{:.0}", frames as f64 / wall.as_secs_f64()),
        ),
        ("kernels", share(computed.kernels)),
        (
            "card, calendar and network cards, simulated",
            share(computed.card),
        ),
        ("orders to the kernels, and answers", share(computed.talk)),
        ("rest, as the capture's file", share(computed.rest)),
    ] {
        report.row(&[what.to_owned(), value]);
    }
    Ok(())
}

/// Carries out a plan with this traffic: how long it took, frames, and who computed.
fn run(traffic: &str) -> Result<(Duration, u64, Computed)> {
    let directory = tempfile::tempdir()?;
    let plan = directory.path().join("plan.yaml");
    fs::write(&plan, format!("{PLAN}  - {traffic}\n"))?;
    let out = directory.path().join("run");
    let start = Instant::now();
    let mut midwire = Command::new(std::env::current_exe()?.with_file_name("midwire"))
        .arg("run")
        .arg(plan)
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::null())
        .spawn()?;
    let computed = watch(&mut midwire)?;
    let wall = start.elapsed();
    let run: serde_json::Value = serde_json::from_slice(&fs::read(out.join("run.json"))?)?;
    let frames = run["recorded"]["capture"]["records"].as_u64();
    Ok((wall, frames.ok_or("no capture")?, computed))
}

/// What a run has computed, until it ends.
fn watch(midwire: &mut Child) -> Result<Computed> {
    let mut computed = Computed::default();
    loop {
        if let Some(status) = midwire.try_wait()? {
            return match status.success() {
                true => Ok(computed),
                false => Err(format!("midwire ended with {status}").into()),
            };
        }
        let mut now = Computed::default();
        for thread in processes(&format!("/proc/{}/task", midwire.id())) {
            match thread.name.as_str() {
                "virtual card" => {
                    now.card += thread.user;
                    now.talk += thread.system;
                }
                _ => now.rest += thread.user + thread.system,
            }
        }
        now.kernels = descendants(midwire.id())
            .map(|process| process.user + process.system + process.ended)
            .sum();
        // Of those that have ended nothing is told any more.
        computed = Computed {
            kernels: computed.kernels.max(now.kernels),
            card: computed.card.max(now.card),
            talk: computed.talk.max(now.talk),
            rest: computed.rest.max(now.rest),
        };
        thread::sleep(LOOK);
    }
}

/// A process or a thread, with clock ticks of CPU time.
struct Process {
    id: u32,
    parent: u32,
    name: String,
    user: f64,
    system: f64,
    /// Of its children that have ended.
    ended: f64,
}

/// Those in a directory of /proc, by their numbers.
fn processes(directory: &str) -> Vec<Process> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| process(&entry.path())).collect()
}

/// The kernels of a run, and the processes in them.
fn descendants(of: u32) -> impl Iterator<Item = Process> {
    let all = processes("/proc");
    let mut family = vec![of];
    loop {
        let children = all
            .iter()
            .filter(|process| family.contains(&process.parent));
        let new: Vec<_> = children
            .map(|process| process.id)
            .filter(|id| !family.contains(id))
            .collect();
        if new.is_empty() {
            break;
        }
        family.extend(new);
    }
    family.remove(0);
    all.into_iter()
        .filter(move |process| family.contains(&process.id))
}

/// Reads `stat` (proc_pid_stat(5)).
fn process(path: &Path) -> Option<Process> {
    let id = path.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(path.join("stat")).ok()?;
    let (name, fields) = text.split_once('(')?.1.rsplit_once(") ")?;
    // From the third field on, the state.
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    Some(Process {
        id,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        user: ticks(14)?,
        system: ticks(15)?,
        ended: ticks(16)? + ticks(17)?,
    })
}
