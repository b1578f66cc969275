// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules: packets chosen by what they are rather than by name, and what the card makes of them.
//! [`Rule`] becomes a row of the card's table; [`RuleState`] decides in software as the card does
//! (docs/tables.md, "Rule row").

use crate::program::Action;
use crate::row::Row;
use crate::tables::trigger;
use midwire_trace::chance::{self, Chance};
use midwire_trace::identity::Identity;
use midwire_trace::{Kind, Lane, Proto};
use serde::{Deserialize, Serialize};

/// Chooses packets of a lane, and says what happens to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The lane of the packets.
    pub lane: Lane,
    /// Whose packets.
    pub scope: Scope,
    /// Their protocols; all when empty.
    pub protos: Vec<Proto>,
    /// Their kinds. A packet is of kind any, of its own kind, and a data segment with FIN also of
    /// kind fin; one of no connection is of kind any alone.
    pub kinds: Vec<Kind>,
    /// Packets that do not begin below the highest seen.
    pub fresh: bool,
    /// Packets that do.
    pub again: bool,
    /// What `first`, `last` and `every` are about.
    pub measure: Measure,
    /// The lowest.
    pub first: u64,
    /// The highest; `None` for no end.
    pub last: Option<u64>,
    /// Every n-th from `first` on; 1 for all.
    pub every: u32,
    /// Whether one that was chosen is hit.
    pub chance: RuleChance,
    /// Hits after which the rule does no more.
    pub times: Option<u32>,
    /// Trigger that has to be armed, below 64.
    pub armed_by: Option<u8>,
    /// What happens.
    pub action: Action,
}

impl Rule {
    /// Every packet of some kind on a lane, without action.
    pub fn all(lane: Lane, kind: Kind) -> Self {
        Self {
            lane,
            scope: Scope::Tracked,
            protos: Vec::new(),
            kinds: vec![kind],
            fresh: true,
            again: true,
            measure: Measure::Position,
            first: 0,
            last: None,
            every: 1,
            chance: RuleChance::Always,
            times: None,
            armed_by: None,
            action: Action::default(),
        }
    }
}

/// Whose packets a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those of one connection.
    Connection(u16),
    /// Those of every connection.
    Tracked,
    /// Those of no connection.
    Plain,
    /// All.
    All,
}

/// What a range of a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Positions of the packet's kind. TCP data that brings nothing new has position 0.
    Position = 0,
    /// Bytes that TCP data covers.
    Byte = 1,
    /// The n-th packet that the rule sees, from 1.
    Count = 2,
}

/// Whether a packet that a rule has chosen is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleChance {
    /// It is.
    Always,
    /// By chance, as seed and identity have it.
    Random {
        /// Makes the decisions of one rule others than those of the next.
        seed: u64,
        /// How often.
        chance: Chance,
    },
    /// By a chain of two states (Gilbert and Elliott), good at first, that makes a step a packet.
    Burst {
        /// As above.
        seed: u64,
        /// How often in the good state.
        good: Chance,
        /// How often in the bad state.
        bad: Chance,
        /// Chance that the good state ends behind a packet.
        to_bad: Chance,
        /// Chance that the bad state does.
        to_good: Chance,
    },
}

/// Set in the number of a slot that is a rule's.
pub const RULE_SLOT: u32 = 1 << 22;

const MAX_POSITION: u64 = u32::MAX as u64;
const MAX_BYTE: u64 = (1 << 48) - 1;

impl Rule {
    fn end(&self) -> u64 {
        self.last.unwrap_or(match self.measure {
            // A PSN before the first is a number beyond these.
            Measure::Position if self.numbered_by_psn() => i32::MAX as u64,
            Measure::Position | Measure::Count => MAX_POSITION,
            Measure::Byte => MAX_BYTE,
        })
    }

    fn numbered_by_psn(&self) -> bool {
        let psn = |kind: &Kind| matches!(kind, Kind::Data | Kind::ReadRequest);
        self.kinds.iter().any(psn) && self.protos != [Proto::Tcp]
    }

    pub(crate) fn check(&self, connections: u32) -> Result<(), String> {
        if let Scope::Connection(connection) = self.scope
            && u32::from(connection) >= connections
        {
            return Err(format!(
                "connection {connection} is beyond the {connections} that the card follows"
            ));
        }
        if self.kinds.is_empty() || !(self.fresh || self.again) {
            return Err("chooses no packets".into());
        }
        if let Some(kind) = self.kinds.iter().find(|kind| !has_position(**kind)) {
            return Err(format!("packets of kind {kind} have no positions"));
        }
        if matches!(self.scope, Scope::Plain | Scope::All) && self.measure != Measure::Count {
            return Err("packets of no connection have no position: count them".into());
        }
        if self.measure == Measure::Byte && !self.kinds.contains(&Kind::Data) {
            return Err("only data has bytes".into());
        }
        if self.measure == Measure::Byte && self.every != 1 {
            return Err("every n-th byte is in some segment: count these".into());
        }
        let limit = match self.measure {
            Measure::Byte => MAX_BYTE,
            _ => MAX_POSITION,
        };
        if self.first > self.end() || self.end() > limit {
            return Err(format!(
                "the range {} to {} is empty or ends above {limit}",
                self.first,
                self.end()
            ));
        }
        if self.every == 0 || self.times == Some(0) {
            return Err("every 0th packet, or 0 times, is never".into());
        }
        self.armed_by.map_or(Ok(0), trigger)?;
        Ok(())
    }

    /// The row, when [`check`](Self::check) found nothing.
    pub(crate) fn row(&self, action: u32) -> Row {
        let (scope, connection) = match self.scope {
            Scope::Connection(connection) => (0, connection),
            Scope::Tracked => (1, 0),
            Scope::Plain => (2, 0),
            Scope::All => (3, 0),
        };
        let bits = |bits: &mut dyn Iterator<Item = u8>| bits.fold(0u128, |all, n| all | 1 << n);
        let protos = match self.protos.is_empty() {
            true => 15,
            false => bits(&mut self.protos.iter().map(|proto| *proto as u8)),
        };
        // n = 2^shift * odd: a multiple of odd is the inverse's multiple below limit.
        let shift = self.every.trailing_zeros();
        let odd = self.every >> shift;
        let inverse = (0..5).fold(1u32, |x, _| {
            x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x)))
        });
        let row = Row::default()
            .with_bit(0, true)
            .with(1, 2, scope)
            .with(3, 4, protos)
            .with(7, 16, connection.into())
            .with(
                23,
                9,
                bits(&mut self.kinds.iter().map(|kind| kind.number())),
            )
            .with_bit(32, self.fresh)
            .with_bit(33, self.again)
            .with(34, 2, self.measure as u128)
            .with(36, 48, self.first.into())
            .with(84, 48, self.end().into())
            .with_bit(132, self.armed_by.is_some())
            .with(133, 6, self.armed_by.unwrap_or(0).into())
            .with(139, 32, inverse.into())
            .with(171, 5, shift.into())
            .with(176, 32, (u32::MAX / self.every).into())
            .with(401, 32, self.times.unwrap_or(0).into())
            .with(433, 16, action.into());
        match self.chance {
            RuleChance::Always => row.with(273, 32, Chance::ALWAYS.0.into()),
            RuleChance::Random { seed, chance } => {
                row.with(208, 64, seed.into())
                    .with(273, 32, chance.0.into())
            }
            RuleChance::Burst {
                seed,
                good,
                bad,
                to_bad,
                to_good,
            } => row
                .with(208, 64, seed.into())
                .with_bit(272, true)
                .with(273, 32, good.0.into())
                .with(305, 32, bad.0.into())
                .with(337, 32, to_bad.0.into())
                .with(369, 32, to_good.0.into()),
        }
    }

    /// The position by which a packet is chosen, and its kind, when it passes the filter but for
    /// the trigger and the range of counts. 0 where the rule's own count is the position.
    pub fn passes(&self, packet: &Sight) -> Option<(Kind, u64)> {
        let scope = match self.scope {
            Scope::Connection(connection) => packet.connection == Some(connection),
            Scope::Tracked => packet.connection.is_some(),
            Scope::Plain => packet.connection.is_none(),
            Scope::All => true,
        };
        let proto = self.protos.is_empty() || self.protos.contains(&packet.proto);
        if !scope || !proto || !(if packet.below { self.again } else { self.fresh }) {
            return None;
        }
        let (kind, position) = if self.kinds.contains(&Kind::Any) {
            (Kind::Any, packet.any)
        } else if self.kinds.contains(&packet.kind) {
            (packet.kind, packet.own)
        } else {
            (
                Kind::Fin,
                packet.fin.filter(|_| self.kinds.contains(&Kind::Fin))?,
            )
        };
        let range = self.first..=self.end();
        match self.measure {
            Measure::Count => Some((kind, 0)),
            Measure::Position => {
                let position = u64::from(position);
                range.contains(&position).then_some((kind, position))
            }
            Measure::Byte => {
                let (from, to) = packet.bytes?;
                (from <= self.end() && self.first <= to).then_some((kind, from))
            }
        }
    }
}

fn has_position(kind: Kind) -> bool {
    !matches!(kind, Kind::Injected | Kind::Other)
}

/// What a rule sees of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Number of its connection, if it has one.
    pub connection: Option<u16>,
    /// Its protocol.
    pub proto: Proto,
    /// Its own kind.
    pub kind: Kind,
    /// Which packet of its connection and lane it is.
    pub any: u32,
    /// Its position by its own kind; 0 for TCP data that brings nothing new.
    pub own: u32,
    /// Which FIN it is, when it is data too.
    pub fin: Option<u32>,
    /// First and last byte that it covers, when it is TCP data.
    pub bytes: Option<(u64, u64)>,
    /// It begins below the highest seen.
    pub below: bool,
    /// Which of those that do; 0 when it does not.
    pub again: u32,
}

impl Sight {
    /// A packet of no connection.
    pub fn plain(proto: Proto) -> Self {
        Self {
            connection: None,
            proto,
            kind: Kind::Other,
            any: 0,
            own: 0,
            fin: None,
            bytes: None,
            below: false,
            again: 0,
        }
    }

    /// A packet by its name.
    pub fn of(identity: &Identity<'_>, proto: Proto) -> Self {
        // Positions are numbers of 32 bits, bytes of 48.
        let at = |kind| {
            identity
                .places
                .iter()
                .rev()
                .find(|place| place.kind == kind)
        };
        let number = |kind| at(kind).map(|place| place.position as u32);
        let byte = |byte: i64| byte as u64 & MAX_BYTE;
        let data = identity.kind == Kind::Data;
        let tcp_data = data && proto == Proto::Tcp;
        let last = |from: i64| from + i64::from(identity.len) - 1;
        Self {
            connection: u16::try_from(identity.connection).ok(),
            proto,
            kind: identity.kind,
            any: number(Kind::Any).unwrap_or(0),
            own: match tcp_data && !identity.new {
                true => 0,
                false => number(identity.kind).unwrap_or(0),
            },
            fin: number(Kind::Fin).filter(|_| data),
            bytes: identity
                .byte
                .filter(|_| tcp_data)
                .map(|from| (byte(from), byte(last(from)))),
            below: identity.below,
            again: identity.again,
        }
    }
}

/// What a rule has counted, and the state of its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleState {
    /// Packets that passed its filter.
    pub seen: u32,
    /// Those that were hit.
    pub fired: u32,
    bad: bool,
}

impl RuleState {
    /// Whether the rule hits a packet, which counts. Its trigger has to be armed, if it has one.
    pub fn hits(&mut self, rule: &Rule, packet: &Sight) -> bool {
        let Some((kind, position)) = rule.passes(packet) else {
            return false;
        };
        self.seen = self.seen.saturating_add(1);
        let position = match rule.measure {
            Measure::Count => u64::from(self.seen),
            _ => position,
        };
        let nth = rule.measure == Measure::Byte
            || ((rule.first..=rule.end()).contains(&position)
                && (position - rule.first).is_multiple_of(rule.every.into()));
        if !nth {
            return false;
        }
        let spent = rule.times.is_some_and(|times| self.fired >= times);
        let falls = match rule.chance {
            RuleChance::Always => true,
            RuleChance::Random { seed, chance } => {
                let stream = (packet.connection, rule.lane, kind);
                chance.falls(chance::packet(seed, stream, position as u32, packet.again))
            }
            RuleChance::Burst {
                seed,
                good,
                bad,
                to_bad,
                to_good,
            } => {
                let [draw, step] = chance::burst(seed, rule.lane, self.seen);
                let (loss, change) = match self.bad {
                    true => (bad, to_good),
                    false => (good, to_bad),
                };
                self.bad ^= change.falls(step);
                loss.falls(draw)
            }
        };
        let fires = falls && !spent;
        self.fired = self.fired.saturating_add(fires.into());
        fires
    }
}

#[cfg(test)]
#[path = "rule_test.rs"]
mod tests;
