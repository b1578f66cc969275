// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 8 to 11 of Lumina's paper, drawn from runs on model NICs.

use std::error::Error as StdError;
use std::mem;

use midwire_analysis::roce::{Recovery, Verb};
use midwire_endpoints::rnic::{Fault, Profile, QpReport};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{Facts, Setting, carry_out, tests, with_profile};
use crate::draw::{Area, COLOURS, Drawn, FONT, decade, legend, svg};
use crate::plan::{Connections, Endpoint, Event, Plan, Traffic};
use crate::text::word;
use crate::{Error, explicit};

/// A figure of the paper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Name of its file.
    pub file: &'static str,
    /// What it shows.
    pub caption: &'static str,
    /// The picture.
    pub svg: String,
}

/// Tests whose packets are lost one by one, and what they are lost of.
const LOSSES: [(&str, Verb); 2] = [("write-loss", Verb::Write), ("read-loss", Verb::Read)];

/// The NICs of figures 8 and 9.
const NICS: [Profile; 4] = [Profile::Cx4Lx, Profile::Cx5, Profile::Cx6Dx, Profile::E810];
/// The NICs of figures 10 and 11, each beside the one without fault.
const STARVES: [Profile; 2] = [Profile::Cx6Dx, Profile::Clean];
const SUFFERS: [Profile; 2] = [Profile::Cx4Lx, Profile::Clean];
/// What figure 10 compares.
const SETTINGS: [&str; 3] = ["two classes", "two classes, marks", "one class, marks"];
/// Queue pairs of figure 11 that lose a packet.
const LOSERS: [usize; 4] = [0, 8, 12, 16];

/// A run that a figure needs.
struct Job {
    name: String,
    plan: Plan,
}

impl Job {
    fn run(&self, setting: &Setting<'_>) -> Result<Facts, Error> {
        let directory = setting.out.join("figures").join(&self.name);
        let facts = carry_out(&self.name, explicit::anew(&self.plan), &directory, setting)?;
        facts.map_err(|reason| Error::Figure {
            of: self.name.clone(),
            reason,
        })
    }
}

/// Runs what the figures need, and draws them.
pub fn figures(setting: &Setting<'_>) -> Result<Vec<Figure>, Error> {
    let jobs = [losses()?, classes()?, neighbours()?];
    let [of_losses, of_classes, _] = jobs.each_ref().map(Vec::len);
    let jobs: Vec<Job> = jobs.into_iter().flatten().collect();
    let runs = setting.each(&jobs, |job| job.name.clone(), |job| job.run(setting));
    let runs: Vec<Facts> = runs.into_iter().collect::<Result<_, _>>()?;
    let (losses, rest) = runs.split_at(of_losses);
    let (classes, neighbours) = rest.split_at(of_classes);
    let figure = |file: &'static str, caption, drawn: Drawn| {
        let svg = drawn.map_err(|error| Error::Figure {
            of: file.to_owned(),
            reason: error.to_string(),
        })?;
        Ok::<_, Error>(Figure { file, caption, svg })
    };
    Ok(vec![
        figure(
            "figure-8.svg",
            "Figure 8: from the packet that came too early to the NAK, or to the new READ request, \
             by the packet of the message that was lost",
            latencies(losses, |recovery| recovery.generation_ns),
        )?,
        figure(
            "figure-9.svg",
            "Figure 9: from the NAK, or the new READ request, to what is sent again, by the packet \
             of the message that was lost",
            latencies(losses, |recovery| recovery.reaction_ns),
        )?,
        figure(
            "figure-10.svg",
            "Figure 10: goodput of two queue pairs; where there are marks, of queue pair 0",
            goodputs(classes),
        )?,
        figure(
            "figure-11.svg",
            "Figure 11: mean time of a READ of 20 kB, when some of 36 queue pairs lose a packet",
            completions(neighbours),
        )?,
    ])
}

/// The plan of a test, for a NIC.
fn plan(name: &str, profile: Profile) -> Result<Plan, Error> {
    let test = tests::ALL.iter().find(|test| test.name == name);
    let test = test.ok_or_else(|| Error::Figure {
        of: name.to_owned(),
        reason: "the suite has no such test".to_owned(),
    })?;
    Ok(Plan::parse(name, &with_profile(test.plan, profile))?)
}

/// The runs of figures 8 and 9: verb by verb, NIC by NIC.
fn losses() -> Result<Vec<Job>, Error> {
    let job = |(name, profile): (&str, Profile)| {
        Ok(Job {
            name: format!("{name}-{}", word(&profile)),
            plan: plan(name, profile)?,
        })
    };
    let each = LOSSES
        .iter()
        .flat_map(|(name, _)| NICS.map(|nic| (*name, nic)));
    each.map(job).collect()
}

/// The runs of figure 10: NIC by NIC, setting by setting.
fn classes() -> Result<Vec<Job>, Error> {
    let job = |(profile, setting)| {
        let mut plan = plan("two-classes", profile)?;
        if setting == 0 {
            plan.events.clear();
        }
        if let (2, Some(Traffic::Rdma(rdma))) = (setting, plan.traffic.first_mut()) {
            rdma.traffic_classes = vec![0];
            for end in plan.endpoints.both_mut() {
                if let Endpoint::Rnic(nic) = end {
                    nic.ets = vec![1];
                }
            }
        }
        let name = format!("classes-{}-{setting}", word(&profile));
        Ok(Job { name, plan })
    };
    let each = STARVES
        .iter()
        .flat_map(|nic| [0, 1, 2].map(|setting| (*nic, setting)));
    each.map(job).collect()
}

/// The runs of figure 11: NIC by NIC, with more and more that lose.
fn neighbours() -> Result<Vec<Job>, Error> {
    let job = |(profile, losers)| {
        let mut plan = plan("lossy-neighbours", profile)?;
        let lost = plan.events.first().cloned();
        let of_pair = |connection| {
            Some(Event {
                connection: Connections::One(connection),
                ..lost.clone()?
            })
        };
        plan.events = (0..losers as u32).filter_map(of_pair).collect();
        // NICs time out as asked unless they are told to adapt, and nobody told those of figure 11:
        // their 430 ms are a tenth of what this plan asks for.
        for end in plan.endpoints.both_mut() {
            if let Endpoint::Rnic(nic) = end {
                let faults = mem::replace(&mut nic.profile, Profile::Clean)
                    .faults()
                    .iter();
                let kept = faults.filter(|fault| **fault != Fault::AdaptiveRetransmission);
                nic.faults.extend(kept);
            }
        }
        let name = format!("neighbours-{}-{losers}", word(&profile));
        Ok(Job { name, plan })
    };
    let each = SUFFERS
        .iter()
        .flat_map(|nic| LOSERS.map(|losers| (*nic, losers)));
    each.map(job).collect()
}

const WHO: &str = "midwire suite rnic";
/// Pixels of a figure: two pictures side by side.
const SIZE: (u32, u32) = (1000, 380);

/// Draws two pictures side by side.
fn pair(draw: impl Fn(usize, &Area<'_>) -> Result<(), Box<dyn StdError>>) -> Drawn {
    svg(SIZE, WHO, |root| {
        for (place, area) in root.split_evenly((1, 2)).iter().enumerate() {
            draw(place, area)?;
        }
        Ok(())
    })
}

/// Times by the packet that was lost: a picture for each verb, a line for each NIC.
fn latencies(runs: &[Facts], of: fn(&Recovery) -> Option<u64>) -> Drawn {
    pair(|place, area| {
        let (_, verb) = LOSSES[place];
        let mut chart = ChartBuilder::on(area)
            .caption(verb.to_string().to_uppercase(), FONT)
            .margin(10)
            .set_label_area_size(LabelAreaPosition::Left, 70)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(0u64..100, (1e3..1e9).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("packet of the message that was lost")
            .light_line_style(TRANSPARENT)
            .y_label_formatter(&decade)
            .label_style(FONT)
            .draw()?;
        let own = runs.iter().skip(place * NICS.len());
        // Lines that lie upon each other show both.
        let styles = COLOURS.into_iter().zip([9, 6, 4, 2]);
        let styles = styles.map(|(colour, width)| colour.stroke_width(width));
        for ((nic, facts), style) in NICS.iter().zip(own).zip(styles) {
            let line = LineSeries::new(times(facts, verb, of), style).point_size(4);
            chart
                .draw_series(line)?
                .label(word(nic))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        legend(
            &mut chart.configure_series_labels(),
            SeriesLabelPosition::UpperRight,
        )
    })
}

/// What a figure shows of each recovery, by the packet of its message.
fn times(facts: &Facts, verb: Verb, of: fn(&Recovery) -> Option<u64>) -> Vec<(u64, f64)> {
    let Some(Traffic::Rdma(rdma)) = facts.run.recorded.plan.parsed.traffic.first() else {
        return Vec::new();
    };
    let packets = rdma.size.0.div_ceil(rdma.mtu.into()).max(1);
    let recoveries = facts.roce().map_or(&[][..], |read| &read.recoveries);
    let point = |recovery: &Recovery| {
        let position = u64::try_from(recovery.position).ok()? % packets;
        Some((position, of(recovery)? as f64))
    };
    let mut points: Vec<_> = (recoveries.iter())
        .filter(|recovery| recovery.verb == verb)
        .filter_map(point)
        .collect();
    points.sort_by_key(|(position, _)| *position);
    points
}

/// Bars in groups: what is below a group, and how high its bars are.
type Groups = Vec<(String, [f64; 2])>;

/// A picture of bars in groups.
struct Bars<'a, Y> {
    caption: String,
    /// What the bars of a group are.
    names: [&'a str; 2],
    below: &'a str,
    label: &'a dyn Fn(&f64) -> String,
    /// Where bars begin, and the scale.
    scale: (f64, Y),
    groups: Groups,
}

impl<Y> Bars<'_, Y>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    fn draw(self, area: &Area<'_>) -> Result<(), Box<dyn StdError>> {
        let (floor, scale) = self.scale;
        let name = |place: &f64| {
            let group = self.groups.get(place.round() as usize);
            let whole = (place - place.round()).abs() < 0.01 && *place > -0.01;
            group
                .filter(|_| whole)
                .map_or_else(String::new, |(name, _)| name.clone())
        };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, FONT)
            .margin(10)
            .set_label_area_size(LabelAreaPosition::Left, 70)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(-0.5..self.groups.len() as f64 - 0.5, scale)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.groups.len())
            .x_label_formatter(&name)
            .x_desc(self.below)
            .light_line_style(TRANSPARENT)
            .y_label_formatter(self.label)
            .label_style(FONT)
            .draw()?;
        for (bar, (name, colour)) in self.names.into_iter().zip(COLOURS).enumerate() {
            let from = bar as f64 * 0.3 - 0.3;
            let bars = self.groups.iter().enumerate().map(|(group, (_, heights))| {
                let left = group as f64 + from;
                let corners = [(left, floor), (left + 0.28, heights[bar].max(floor))];
                Rectangle::new(corners, colour.filled())
            });
            chart.draw_series(bars)?.label(name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
            });
        }
        legend(
            &mut chart.configure_series_labels(),
            SeriesLabelPosition::UpperRight,
        )
    }
}

fn goodputs(runs: &[Facts]) -> Drawn {
    pair(|place, area| {
        let own = runs.iter().skip(place * SETTINGS.len()).zip(SETTINGS);
        let goodput = |qp: Option<&QpReport>| qp.and_then(|qp| qp.goodput_bps).unwrap_or(0) as f64;
        let group = |(facts, setting): (&Facts, &str)| {
            let qps = facts.queue_pairs().unwrap_or_default();
            (
                setting.to_owned(),
                [0, 1].map(|qp| goodput(qps.get(qp)) / 1e9),
            )
        };
        Bars {
            caption: word(&STARVES[place]),
            names: ["queue pair 0", "queue pair 1"],
            below: "",
            label: &|giga| format!("{giga} Gb/s"),
            scale: (0.0, 0.0..100.0),
            groups: own.map(group).collect(),
        }
        .draw(area)
    })
}

fn completions(runs: &[Facts]) -> Drawn {
    pair(|place, area| {
        let own = runs.iter().skip(place * LOSERS.len()).zip(LOSERS);
        let mean = |qps: &[QpReport]| {
            let times = qps.iter().filter_map(|qp| qp.completion_times);
            let means: Vec<f64> = times.map(|times| times.mean_ns as f64).collect();
            means.iter().sum::<f64>() / means.len().max(1) as f64
        };
        let group = |(facts, losers): (&Facts, usize)| {
            let qps = facts.queue_pairs().unwrap_or_default();
            let (lose, others) = qps.split_at(losers.min(qps.len()));
            (losers.to_string(), [mean(lose), mean(others)])
        };
        Bars {
            caption: word(&SUFFERS[place]),
            names: ["lose a packet", "lose none"],
            below: "queue pairs that lose a packet",
            label: &decade,
            scale: (1e4, (1e4..1e10).log_scale()),
            groups: own.map(group).collect(),
        }
        .draw(area)
    })
}
