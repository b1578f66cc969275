// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a NIC's transmission scheduler (ETS, IEEE 802.1Qaz) is work-conserving: a traffic class
//! may have what the others leave.
//!
//! A queue pair that is in the middle of a message has something to send, unless it was told to
//! slow down or to go back. When it sends no more than the share that its class had while others
//! filled the line with it, and the line is idle all the same, its class is held to that share.
//! The line's rate is the highest that was seen.

use midwire_trace::packet::opcode;
use midwire_trace::units::line_bytes;

use super::{Finding, Observed, Rule};

/// Packets of a port over which rates are measured.
const WINDOW: u32 = 16;
/// Windows that have to be there of each sort.
const WINDOWS: usize = 4;
/// Classes that are told apart.
const CLASSES: usize = 8;

/// Some packets of a port in a row.
#[derive(Clone, Copy, Default)]
struct Window {
    packets: u32,
    /// Times of the first packet and of the one behind the last, ns.
    span: [u64; 2],
    /// Numbers of the first and the last packet.
    numbers: [u64; 2],
    /// Bytes on the line, by class.
    bytes: [u64; CLASSES],
    /// Classes that had something to send all the time, a bit each.
    wanted: u8,
}

impl Window {
    fn time(&self) -> f64 {
        self.span[1].saturating_sub(self.span[0]).max(1) as f64
    }

    /// Bytes a nanosecond.
    fn rate(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 / self.time()
    }

    fn wants(&self, class: usize) -> bool {
        self.wanted >> class & 1 == 1
    }
}

struct Port {
    mac: [u8; 6],
    /// What the classes are called.
    classes: Vec<u8>,
    /// Queue pairs of each that have something to send.
    wanting: [u32; CLASSES],
    /// Classes that have such queue pairs, a bit each.
    wanted: u8,
    current: Window,
    windows: Vec<Window>,
}

/// What a flow sends by.
#[derive(Clone, Copy, Default)]
struct Sender {
    port: usize,
    class: usize,
    wanting: bool,
    /// It was notified of congestion.
    slowed: bool,
}

#[derive(Default)]
pub(super) struct Scheduler {
    ports: Vec<Port>,
    senders: Vec<Option<Sender>>,
}

impl Scheduler {
    /// A flow sends a packet of a class.
    pub fn sent(&mut self, flow: usize, p: &Observed, class: impl FnOnce() -> u8) {
        if self.senders.len() <= flow {
            self.senders.resize(flow + 1, None);
        }
        let sender = match self.senders[flow] {
            Some(sender) => sender,
            None => self.sender(p.src_mac, class()),
        };
        let port = &mut self.ports[sender.port];
        let wanted = port.wanted;
        let window = &mut port.current;
        if window.packets == WINDOW {
            window.span[1] = p.time.0;
            window.wanted &= wanted;
            port.windows.push(std::mem::take(window));
        }
        if window.packets == 0 {
            window.span[0] = p.time.0;
            window.numbers[0] = p.number;
            window.wanted = u8::MAX;
        } else {
            window.wanted &= wanted;
        }
        window.packets += 1;
        window.numbers[1] = p.number;
        window.bytes[sender.class] += line_bytes(p.length);
        let after = Sender {
            wanting: !sender.slowed && opcode::goes_on(p.roce.bth.opcode),
            ..sender
        };
        self.want(flow, after, sender.wanting);
    }

    fn sender(&mut self, mac: [u8; 6], class: u8) -> Sender {
        let known = self.ports.iter().position(|port| port.mac == mac);
        let port = known.unwrap_or_else(|| {
            self.ports.push(Port {
                mac,
                classes: Vec::new(),
                wanting: [0; CLASSES],
                wanted: 0,
                current: Window::default(),
                windows: Vec::new(),
            });
            self.ports.len() - 1
        });
        let classes = &mut self.ports[port].classes;
        let known = classes.iter().position(|known| *known == class);
        let class = known.unwrap_or_else(|| {
            classes.push(class);
            // More than can be told apart share the last place.
            classes.len() - 1
        });
        Sender {
            port,
            class: class.min(CLASSES - 1),
            ..Sender::default()
        }
    }

    fn want(&mut self, flow: usize, sender: Sender, before: bool) {
        let port = &mut self.ports[sender.port];
        let wanting = &mut port.wanting[sender.class];
        *wanting = *wanting + u32::from(sender.wanting) - u32::from(before);
        port.wanted &= !(1 << sender.class);
        port.wanted |= u8::from(*wanting > 0) << sender.class;
        self.senders[flow] = Some(sender);
    }

    /// A flow's sender is told to go back or to begin anew, or to slow down.
    pub fn interrupted(&mut self, flow: usize, slowed: bool) {
        if let Some(Some(sender)) = self.senders.get(flow).copied() {
            let after = Sender {
                wanting: false,
                slowed: sender.slowed || slowed,
                ..sender
            };
            self.want(flow, after, sender.wanting);
        }
    }

    pub fn findings(&self) -> Vec<Finding> {
        self.ports.iter().flat_map(Port::findings).collect()
    }
}

impl Port {
    fn findings(&self) -> Vec<Finding> {
        let classes = 0..self.classes.len().min(CLASSES);
        if classes.len() < 2 {
            return Vec::new();
        }
        let rates = self.windows.iter().map(Window::rate);
        let line = rates.fold(0.0, f64::max);
        classes.filter_map(|class| self.held(class, line)).collect()
    }

    /// A class that is held to its share.
    fn held(&self, class: usize, line: f64) -> Option<Finding> {
        let wanted = || self.windows.iter().filter(|window| window.wants(class));
        let shared = |window: &&Window| window.bytes.iter().filter(|bytes| **bytes > 0).count() > 1;
        let full: Vec<_> = (wanted().filter(shared))
            .filter(|window| window.rate() >= 0.95 * line)
            .collect();
        let spare: Vec<_> = wanted().filter(|w| w.rate() < 0.9 * line).collect();
        if full.len() < WINDOWS || spare.len() < WINDOWS.max(wanted().count() / 10) {
            return None;
        }
        let rate = |windows: &[&Window], bytes: fn(&Window, usize) -> u64| {
            let all: u64 = windows.iter().map(|window| bytes(window, class)).sum();
            all as f64 / windows.iter().map(|window| window.time()).sum::<f64>()
        };
        let own = |window: &Window, class: usize| window.bytes[class];
        let (share, alone) = (rate(&full, own), rate(&spare, own));
        if alone > 1.15 * share {
            return None;
        }
        let used = rate(&spare, |window, _| window.bytes.iter().sum());
        Some(Finding {
            rule: Rule::NotWorkConserving,
            connection: None,
            packets: vec![spare.first()?.numbers[0], spare.last()?.numbers[1]],
            what: format!(
                "traffic class {} sends {:.1} Gb/s, as it does when others fill the line ({:.1}), \
                 though only {:.1} of {:.1} are used",
                self.classes[class],
                alone * 8.0,
                share * 8.0,
                used * 8.0,
                line * 8.0
            ),
        })
    }
}
