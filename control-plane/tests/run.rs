// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs with a card made of memory: the order of the steps, what is left behind, and the verdict
//! for each way in which a run can go.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use midwire_control::bench::{
    Capturing, CardProvider, CardRequest, Device, Feed, PortFeed, Provided,
};
use midwire_control::plan::Plan;
use midwire_control::run_file::{RunFile, files};
use midwire_control::verdict::Outcome;
use midwire_control::{Error, Options, RunOutcome, analyze, run};
use midwire_driver as driver;
use midwire_trace::block::Counters;
use midwire_trace::{Actions, BlockBuilder, Capture, Lane, Nanos, Proto, Record};

const PLAN: &str = "\
version: 1
name: fake
endpoints:
  a: {pcap: {in: frames.pcap}}
  b: {pcap: {out: seen.pcapng}}
events:
  - {direction: a-to-b, packet: 5, iterations: 1-2, action: drop}
timeouts: {traffic: 300ms}
";

const EXTERNAL: &str = "\
version: 1
name: fake
endpoints: {a: external, b: external}
events:
  - {direction: a-to-b, packet: 5, iterations: 1-2, action: drop}
timeouts: {quiet: 50ms}
";

/// What the card does wrong, or the user.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    NoCard,
    LosesRecord,
    NeverFires,
    FiresOnce,
    SlotDisagrees,
    CutOff,
    NeverPlayed,
    Interrupted,
}

/// What was asked of the card, in order.
#[derive(Clone)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn note(&self, step: impl Into<String>) {
        self.0.borrow_mut().push(step.into());
    }
}

struct FakeProvider {
    fault: Fault,
    log: Log,
}

struct FakeCard {
    fault: Fault,
    log: Log,
}

struct FakeFeed {
    fault: Fault,
    log: Log,
}

struct FakeCapture {
    fault: Fault,
    log: Log,
    config: driver::CaptureConfig,
}

impl CardProvider for FakeProvider {
    fn provide(&mut self, request: CardRequest) -> Result<Provided, String> {
        if self.fault == Fault::NoCard {
            return Err("there is no card".to_owned());
        }
        if let [PortFeed::External, PortFeed::External] = request.ports {
            return Ok(self.card());
        }
        let [
            PortFeed::Pcap {
                input,
                output: None,
                ..
            },
            PortFeed::Pcap {
                input: None,
                output,
                ..
            },
        ] = &request.ports
        else {
            return Err(format!("other ports than the plan's: {request:?}"));
        };
        assert!(
            input.as_ref().is_some_and(|input| input.is_file()),
            "relative to the plan"
        );
        assert_eq!(
            output.as_deref(),
            Some(&*request.directory.join("seen.pcapng"))
        );
        Ok(self.card())
    }
}

impl FakeProvider {
    fn card(&self) -> Provided {
        self.log.note("provide");
        Provided {
            device: Box::new(FakeCard {
                fault: self.fault,
                log: self.log.clone(),
            }),
            feed: Box::new(FakeFeed {
                fault: self.fault,
                log: self.log.clone(),
            }),
        }
    }
}

impl Feed for FakeFeed {
    fn play(&mut self) -> Result<(), String> {
        self.log.note("play");
        Ok(())
    }
    fn played(&mut self) -> Result<bool, String> {
        Ok(self.fault != Fault::NeverPlayed)
    }
    fn finish(&mut self) -> Result<(), String> {
        self.log.note("finish");
        Ok(())
    }
}

impl Device for FakeCard {
    fn info(&self) -> driver::CardInfo {
        driver::CardInfo {
            name: "fake card".into(),
            version: (0, 1),
            map_hash: 0,
            data_width: 512,
            clock_ps: 3103,
            connections: 16,
            flow_rows_log2: 4,
            slots: 16,
            exact_rows_log2: 4,
            page_rows_log2: 4,
            ways: 4,
            selectors: 4,
            actions: 16,
            rules: 4,
            delay_slots: 4,
            max_frame: 10240,
        }
    }
    fn load(&self, program: &driver::Program) -> driver::Result<driver::Loaded> {
        self.log
            .note(format!("load {} positions", program.positions.len()));
        let slots = program
            .positions
            .iter()
            .map(|p| driver::SlotId {
                lane: p.lane,
                slot: 3,
            })
            .collect();
        Ok(driver::Loaded {
            rules: Vec::new(),
            slots,
            declared: Vec::new(),
        })
    }
    fn track(&self, on: bool) -> driver::Result<()> {
        self.log.note(format!("track {on}"));
        Ok(())
    }
    fn start_capture(&self, config: driver::CaptureConfig) -> driver::Result<Box<dyn Capturing>> {
        self.log.note("capture");
        // Whoever kills the run from now on leaves a run that can be analyzed.
        let run = RunFile::read(config.path.parent().unwrap()).unwrap();
        assert_eq!(
            (run.verdict.exit_code, run.recorded.positions.len()),
            (5, 1)
        );
        Ok(Box::new(FakeCapture {
            fault: self.fault,
            log: self.log.clone(),
            config,
        }))
    }
    fn counters(&self) -> driver::Result<driver::Counters> {
        Ok(driver::Counters::default())
    }
    fn connections(&self) -> driver::Result<Vec<driver::Connection>> {
        Ok(Vec::new())
    }
    fn slot_state(&self, slot: driver::SlotId) -> driver::Result<driver::SlotState> {
        assert_eq!(
            slot,
            driver::SlotId {
                lane: Lane::AtoB,
                slot: 3
            }
        );
        let (seen, fired) = match self.fault {
            Fault::NeverFires => (0, 0),
            Fault::FiresOnce => (1, 1),
            Fault::SlotDisagrees => (3, 3),
            _ => (3, 2),
        };
        Ok(driver::SlotState {
            seen,
            fired,
            last_packet_id: None,
        })
    }
}

impl Capturing for FakeCapture {
    fn progress(&self) -> driver::CaptureProgress {
        driver::CaptureProgress {
            blocks: 0,
            records: 10,
            bytes: 0,
            lost: 0,
            ended: false,
        }
    }

    /// A SYN and nine segments from A; those with ids 5, 7 and 9 are at the event's position.
    fn stop(self: Box<Self>) -> driver::Result<driver::CaptureSummary> {
        self.log.note("stop");
        let mut block = BlockBuilder::new(4096, self.config.snapshot_bytes).unwrap();
        let hits: &[u32] = match self.fault {
            Fault::NeverFires => &[],
            Fault::FiresOnce => &[5],
            _ => &[5, 7, 9],
        };
        let mut dropped = 0;
        for id in 0..10 {
            if self.fault == Fault::LosesRecord && id == 8 {
                continue;
            }
            // Segments of 100 bytes: four of new data, then the fifth where it is wanted.
            let segment = match id {
                1..=4 => id,
                _ if hits.contains(&id) => 5,
                _ => 1,
            };
            let (flags, seq, len) = if id == 0 {
                (0x02, 0, 0)
            } else {
                (0x10, 100 * segment - 99, 100)
            };
            let mut record = Record {
                time: Nanos(1_000 * u64::from(id)),
                packet_id: id,
                proto: Proto::Tcp,
                connection: Some(0),
                tcp_flags: flags,
                f0: seq,
                payload_len: len,
                ..Record::default()
            };
            if let Some(before) = hits.iter().position(|hit| *hit == id) {
                record.slot = Some(3);
                record.iteration = before as u8 + 1;
                if before < 2 {
                    record.actions = Actions::DROP;
                    dropped += 1;
                }
            }
            assert!(block.push(record, Some(&[0; 60])));
        }
        let lost = u32::from(self.fault == Fault::LosesRecord);
        let counters = Counters {
            rx_frames: [10, 0],
            tx_frames: [10 - u64::from(dropped), 0],
            dropped: [dropped, 0],
            lost_ingress: [lost, 0],
            ..Counters::default()
        };
        *block.counters() = counters;
        let last = self.fault != Fault::CutOff;
        let bytes = block.finish(last, Nanos(0));
        fs::write(&self.config.path, &bytes).unwrap();
        if !last {
            return Err(driver::Error::CutOff {
                blocks: 1,
                reason: "the card is gone".into(),
            });
        }
        let complete = lost == 0;
        Ok(driver::CaptureSummary {
            blocks: 1,
            records: 10,
            bytes: bytes.len() as u64,
            damaged: 0,
            counters,
            complete,
        })
    }
}

struct Went {
    directory: PathBuf,
    run: RunFile,
    log: Vec<String>,
    _keep: tempfile::TempDir,
}

fn start(base: &Path, text: &str, fault: Fault, log: &Log) -> Result<RunOutcome, Error> {
    let file = base.join("plan.yaml");
    let plan = Plan::parse("plan.yaml", text).unwrap();
    let interrupt = AtomicBool::new(false);
    let mut progress = |progress: &midwire_control::Progress| {
        if fault == Fault::Interrupted
            && *progress == midwire_control::Progress::Step("running traffic")
        {
            interrupt.store(true, Ordering::Relaxed);
        }
    };
    let options = Options {
        plan_file: file,
        plan_text: text.to_owned(),
        out: Some(base.join("out")),
        seed: 7,
        repeat: (1, 1),
        rerun: None,
        progress: &mut progress,
        interrupt: &interrupt,
    };
    run(
        &plan,
        options,
        &mut FakeProvider {
            fault,
            log: log.clone(),
        },
    )
}

fn went(fault: Fault) -> Went {
    went_by(PLAN, fault)
}

fn went_by(text: &str, fault: Fault) -> Went {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("frames.pcap"), b"").unwrap();
    let log = Log(Rc::default());
    let RunOutcome { directory, run } = start(base.path(), text, fault, &log).unwrap();
    let log = log.0.take();
    Went {
        directory,
        run,
        log,
        _keep: base,
    }
}

#[track_caller]
fn ends(fault: Fault, outcome: Outcome, exit_code: u8, reason: &str) -> Went {
    let went = went(fault);
    let verdict = &went.run.verdict;
    assert_eq!(
        (verdict.outcome, verdict.exit_code),
        (outcome, exit_code),
        "{:#?}",
        went.run
    );
    assert!(
        verdict.reasons.iter().any(|text| text.contains(reason)),
        "{verdict:?}"
    );
    assert!(went.directory.join(files::JUNIT).is_file());
    assert_eq!(RunFile::read(&went.directory).unwrap(), went.run);
    went
}

#[test]
fn steps_come_in_their_order() {
    let went = ends(Fault::None, Outcome::Pass, 0, "complete");
    assert_eq!(
        went.log,
        [
            "provide",
            "load 1 positions",
            "capture",
            "track true",
            "play",
            "track false",
            "stop",
            "finish"
        ]
    );
    let event = &went.run.findings.events[0];
    assert_eq!((event.fired, event.wanted, event.seen), (2, Some(2), 3));
    assert_eq!(went.run.recorded.seed, 7);
}

#[test]
fn a_run_can_be_analyzed_again() {
    let went = ends(Fault::None, Outcome::Pass, 0, "");
    let again = analyze(&went.directory).unwrap();
    assert_eq!(again, went.run);

    // A capture that was cut since proves nothing any more.
    let path = went.directory.join(files::CAPTURE);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(
        analyze(&went.directory).unwrap().verdict.outcome,
        Outcome::CaptureIncomplete
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(
        analyze(&went.directory).unwrap().verdict.outcome,
        Outcome::CaptureIncomplete
    );
}

#[test]
fn each_fault_has_its_exit_code() {
    ends(Fault::NoCard, Outcome::Environment, 5, "there is no card");
    ends(
        Fault::LosesRecord,
        Outcome::CaptureIncomplete,
        3,
        "9 records + 1 lost",
    );
    ends(
        Fault::CutOff,
        Outcome::CaptureIncomplete,
        3,
        "the card is gone",
    );
    ends(
        Fault::SlotDisagrees,
        Outcome::CaptureIncomplete,
        3,
        "acted 3 times, the records show 3 and 2",
    );
    ends(
        Fault::NeverFires,
        Outcome::EventNotFired,
        4,
        "never fired: the position was never seen",
    );
    ends(
        Fault::FiresOnce,
        Outcome::EventNotFired,
        4,
        "fired 1 of 2 times",
    );
    ends(
        Fault::NeverPlayed,
        Outcome::Environment,
        5,
        "longer than 300ms",
    );
}

#[test]
fn an_interrupted_run_keeps_its_capture() {
    let went = ends(Fault::Interrupted, Outcome::Interrupted, 5, "interrupted");
    assert_eq!(went.log.last().map(String::as_str), Some("finish"));
    let capture = Capture::open(went.directory.join(files::CAPTURE)).unwrap();
    assert_eq!(midwire_trace::Accounting::of(&capture).records, 10);
}

#[test]
fn external_endpoints_are_looked_at_for_as_long_as_the_plan_says() {
    let begin = std::time::Instant::now();
    let went = went_by(&format!("{EXTERNAL}duration: 300ms\n"), Fault::None);
    assert!(begin.elapsed().as_millis() >= 300);
    assert_eq!(
        went.run.verdict.outcome,
        Outcome::Pass,
        "{:?}",
        went.run.verdict
    );
    // Files that a served card plays begin with the capture, so tracking comes first.
    let steps = [
        "provide",
        "load 1 positions",
        "track true",
        "capture",
        "track false",
        "stop",
        "finish",
    ];
    assert_eq!(went.log, steps);

    // An interruption breaks off what has an end of its own …
    let went = went_by(&format!("{EXTERNAL}duration: 1000s\n"), Fault::Interrupted);
    assert_eq!(went.run.verdict.outcome, Outcome::Interrupted);
    // … and is the end of what has none.
    let went = went_by(
        &format!("{EXTERNAL}duration: until-interrupted\n"),
        Fault::Interrupted,
    );
    assert_eq!(
        went.run.verdict.outcome,
        Outcome::Pass,
        "{:?}",
        went.run.verdict
    );
    assert!(!went.run.recorded.interrupted);
}

#[test]
fn commands_run_here_beside_external_endpoints() {
    let traffic = "traffic:
  - command: {on: here, run: 'sleep 100', background: true}
  - command: {on: here, run: 'echo $PPID; exit 3'}
expect: [traffic: fails]
";
    let went = went_by(&format!("{EXTERNAL}{traffic}"), Fault::None);
    assert_eq!(
        went.run.verdict.outcome,
        Outcome::Pass,
        "{:?}",
        went.run.verdict
    );
    let said = fs::read_to_string(went.directory.join("traffic-2.stdout")).unwrap();
    assert_eq!(said.trim(), std::process::id().to_string());
    let [server, client] = &went.run.recorded.traffic[..] else {
        panic!("{:?}", went.run.recorded.traffic)
    };
    assert!(server.completed && server.what == "sleep 100", "{server:?}");
    assert!(
        client.summary.starts_with("ended with status 3"),
        "{client:?}"
    );
}

#[test]
fn a_run_does_not_begin_on_another_ones_directory_or_without_its_input() {
    let base = tempfile::tempdir().unwrap();
    let log = Log(Rc::default());
    let error = start(base.path(), PLAN, Fault::None, &log).unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
    assert!(!base.path().join("out").exists());

    fs::write(base.path().join("frames.pcap"), b"").unwrap();
    fs::create_dir(base.path().join("out")).unwrap();
    fs::write(base.path().join("out/mine"), b"").unwrap();
    let error = start(base.path(), PLAN, Fault::None, &log).unwrap_err();
    assert!(matches!(error, Error::NotEmpty(_)), "{error}");
    assert!(log.0.borrow().is_empty());
}

#[test]
fn a_run_file_of_another_version_is_refused() {
    let went = ends(Fault::None, Outcome::Pass, 0, "");
    let path = went.directory.join(files::RUN);
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen("\"version\": 2", "\"version\": 9", 1);
    fs::write(&path, text).unwrap();
    assert!(matches!(
        analyze(&went.directory),
        Err(Error::RunVersion { found: 9, .. })
    ));
    fs::write(&path, "{").unwrap();
    assert!(matches!(
        analyze(&went.directory),
        Err(Error::RunFile { .. })
    ));
}
