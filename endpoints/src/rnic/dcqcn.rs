// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DCQCN: who is told of congestion marks and how often, and how a sender slows and recovers
//! (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015). The parameters
//! have the names and defaults of NVIDIA's drivers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BIT_PICOSECONDS, MICROSECOND, Picoseconds};

/// What congestion notifications are rationed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CnpScope {
    /// All of the port.
    Port,
    /// Those to one address.
    Ip,
    /// Those to one queue pair.
    Qp,
}

/// The notification point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPoint {
    /// It notifies.
    pub enabled: bool,
    /// Least time from one notification to the next.
    pub min_time_between_cnps: Picoseconds,
    /// Of which notifications.
    pub scope: CnpScope,
    /// DSCP of notifications.
    pub dscp: u8,
}

impl Default for NotificationPoint {
    fn default() -> Self {
        Self {
            enabled: true,
            min_time_between_cnps: 4 * MICROSECOND,
            scope: CnpScope::Port,
            dscp: 48,
        }
    }
}

/// Parameters of the reaction point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactionPoint {
    /// It reacts.
    pub enabled: bool,
    /// Of 1024, what alpha keeps in each period.
    pub dce_tcp_g: u64,
    /// The period of alpha.
    pub dce_tcp_rtt: Picoseconds,
    /// Alpha at the first notification, of 1023.
    pub initial_alpha_value: u64,
    /// Per cent of its rate that a decrease leaves at least.
    pub rpg_min_dec_fac: u64,
    /// Least rate, bit/s.
    pub rpg_min_rate: u64,
    /// Least time from one decrease to the next.
    pub rate_reduce_monitor_period: Picoseconds,
    /// Time from one increase to the next.
    pub rpg_time_reset: Picoseconds,
    /// Bytes from one increase to the next.
    pub rpg_byte_reset: u64,
    /// Increases of fast recovery.
    pub rpg_threshold: u32,
    /// Step of additive increase, bit/s.
    pub rpg_ai_rate: u64,
    /// Step of hyper increase, bit/s.
    pub rpg_hai_rate: u64,
}

impl Default for ReactionPoint {
    fn default() -> Self {
        Self {
            enabled: true,
            dce_tcp_g: 1019,
            dce_tcp_rtt: MICROSECOND,
            initial_alpha_value: 1023,
            rpg_min_dec_fac: 50,
            rpg_min_rate: 1_000_000,
            rate_reduce_monitor_period: 4 * MICROSECOND,
            rpg_time_reset: 300 * MICROSECOND,
            rpg_byte_reset: 32_767,
            rpg_threshold: 1,
            rpg_ai_rate: 5_000_000,
            rpg_hai_rate: 50_000_000,
        }
    }
}

/// A fraction of 1024 stands for 1.
const ONE: u64 = 1024;

/// The rate of a queue pair that was slowed.
#[derive(Clone, Debug)]
struct Slowed {
    rate: u64,
    target: u64,
    alpha: u64,
    decreased: Picoseconds,
    alpha_updated: Picoseconds,
    increased: Picoseconds,
    bytes: u64,
    by_time: u32,
    by_bytes: u32,
}

/// The rate of a queue pair.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    line_rate: u64,
    slowed: Option<Slowed>,
}

impl Rate {
    /// Of a queue pair that sends as fast as the line.
    pub fn new(line_rate: u64) -> Self {
        let slowed = None;
        Self { line_rate, slowed }
    }

    /// A notification has come.
    pub fn notified(&mut self, now: Picoseconds, parameters: &ReactionPoint) {
        self.recover(now, parameters);
        let slowed = self.slowed.get_or_insert(Slowed {
            rate: self.line_rate,
            target: self.line_rate,
            alpha: parameters.initial_alpha_value,
            decreased: 0,
            alpha_updated: now,
            increased: now,
            bytes: 0,
            by_time: 0,
            by_bytes: 0,
        });
        let g = parameters.dce_tcp_g.min(ONE);
        let first = slowed.decreased == 0;
        if !first {
            slowed.alpha = (g * slowed.alpha + (ONE - g) * (ONE - 1)) / ONE;
            slowed.alpha_updated = now;
        }
        if !first && now < slowed.decreased + parameters.rate_reduce_monitor_period {
            return;
        }
        let least = slowed.rate * parameters.rpg_min_dec_fac / 100;
        slowed.target = slowed.rate;
        slowed.rate = (slowed.rate - slowed.rate / ONE * slowed.alpha / 2)
            .max(least)
            .max(parameters.rpg_min_rate);
        (slowed.decreased, slowed.increased) = (now, now);
        (slowed.bytes, slowed.by_time, slowed.by_bytes) = (0, 0, 0);
    }

    /// Alpha and rate as they have become by now.
    fn recover(&mut self, now: Picoseconds, parameters: &ReactionPoint) {
        let Some(slowed) = &mut self.slowed else {
            return;
        };
        while slowed.alpha > 0 && now >= slowed.alpha_updated + parameters.dce_tcp_rtt {
            slowed.alpha = slowed.alpha * parameters.dce_tcp_g.min(ONE) / ONE;
            slowed.alpha_updated += parameters.dce_tcp_rtt;
        }
        while now >= slowed.increased + parameters.rpg_time_reset {
            slowed.increased += parameters.rpg_time_reset;
            slowed.by_time += 1;
            slowed.increase(parameters);
            if slowed.rate >= self.line_rate {
                break;
            }
        }
        if slowed.rate >= self.line_rate {
            self.slowed = None;
        }
    }

    /// Bytes go out now; when the next may follow.
    pub fn send(
        &mut self,
        now: Picoseconds,
        bytes: u64,
        parameters: &ReactionPoint,
    ) -> Picoseconds {
        self.recover(now, parameters);
        let Some(slowed) = &mut self.slowed else {
            return now;
        };
        slowed.bytes += bytes;
        while slowed.bytes >= parameters.rpg_byte_reset.max(1) {
            slowed.bytes -= parameters.rpg_byte_reset.max(1);
            slowed.by_bytes += 1;
            slowed.increase(parameters);
        }
        let picoseconds =
            u128::from(bytes) * u128::from(BIT_PICOSECONDS) / u128::from(slowed.rate.max(1));
        now.saturating_add(picoseconds as u64)
    }

    /// Bits a second, as of the last time that anything happened.
    #[cfg(test)]
    fn now(&self) -> u64 {
        self.slowed.as_ref().map_or(self.line_rate, |s| s.rate)
    }
}

impl Slowed {
    fn increase(&mut self, parameters: &ReactionPoint) {
        let (most, least) = (
            self.by_time.max(self.by_bytes),
            self.by_time.min(self.by_bytes),
        );
        if least > parameters.rpg_threshold {
            self.target += parameters.rpg_hai_rate;
        } else if most > parameters.rpg_threshold {
            self.target += parameters.rpg_ai_rate;
        }
        self.rate = (self.rate + self.target).div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 100_000_000_000;

    #[test]
    fn the_first_notification_halves_the_rate_and_others_wait_for_the_period() {
        let parameters = ReactionPoint::default();
        let mut rate = Rate::new(LINE);
        rate.notified(MICROSECOND, &parameters);
        let half = rate.now();
        assert!((LINE / 2..LINE * 51 / 100).contains(&half), "{half}");
        rate.notified(2 * MICROSECOND, &parameters);
        assert_eq!(rate.now(), half);
        rate.notified(5 * MICROSECOND, &parameters);
        assert!(rate.now() < half * 52 / 100);
    }

    #[test]
    fn it_never_falls_below_the_least_rate_and_recovers() {
        let parameters = ReactionPoint::default();
        let mut rate = Rate::new(LINE);
        for n in 1..100 {
            rate.notified(n * 5 * MICROSECOND, &parameters);
        }
        assert_eq!(rate.now(), parameters.rpg_min_rate);
        let mut before = 0;
        for second in 1..200 {
            rate.send(second * 1_000_000 * MICROSECOND, 1000, &parameters);
            assert!(rate.now() >= before);
            before = rate.now();
        }
        assert_eq!(rate.now(), LINE);
    }

    #[test]
    fn packets_are_spaced_by_the_rate() {
        let parameters = ReactionPoint::default();
        let mut rate = Rate::new(LINE);
        assert_eq!(rate.send(7, 1000, &parameters), 7);
        rate.notified(MICROSECOND, &parameters);
        let next = rate.send(MICROSECOND, 1000, &parameters) - MICROSECOND;
        assert_eq!(next, 8_000_000_000_000_000 / rate.now());
    }
}
