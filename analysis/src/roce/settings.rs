// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the NICs were asked to do: the analyzers compare with it what they did.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Scope;

/// What all NICs were asked to do, and single ones or queue pairs of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Timers of all queue pairs that are not told apart below.
    #[serde(flatten)]
    pub timer: Timer,
    /// Limit on the notifications of all NICs that are not told apart below.
    #[serde(flatten)]
    pub notification: Limit,
    /// Single NICs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicSettings>,
    /// Single queue pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_pairs: Vec<QpSettings>,
}

/// How long a requester waits for an answer, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// It runs for 4.096 µs · 2^timeout.
    pub timeout: Option<u8>,
    /// Times that a requester may try again without progress.
    pub retry_count: Option<u8>,
}

/// How often a NIC may tell of congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// It tells of congestion at all.
    pub notifies: Option<bool>,
    /// Least time between congestion notifications, ns.
    pub notification_interval_ns: Option<u64>,
    /// What that time counts for.
    pub notification_scope: Option<Scope>,
}

/// What one NIC was asked to do, and what it says that it counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSettings {
    /// What it is called.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Limit on its notifications.
    #[serde(flatten)]
    pub notification: Limit,
    /// Its counters by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// What the two ends of a connection were asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpSettings {
    /// Addresses and queue pairs of the ends.
    pub ends: [(IpAddr, u32); 2],
    /// Their timers.
    #[serde(flatten)]
    pub timer: Timer,
    /// Most bytes of payload in a packet; nothing when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Traffic class of what they send; nothing when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
}

impl Settings {
    /// Of the connection that has this end.
    pub(super) fn queue_pair(&self, address: IpAddr, qp: u32) -> Option<&QpSettings> {
        let mut all = self.queue_pairs.iter();
        all.find(|settings| settings.ends.contains(&(address, qp)))
    }

    /// The other end of the connection that has this one.
    pub(super) fn other_end(&self, address: IpAddr, qp: u32) -> Option<(IpAddr, u32)> {
        let [one, other] = self.queue_pair(address, qp)?.ends;
        Some(if one == (address, qp) { other } else { one })
    }

    /// Of the timers at the ends of a flow that goes there.
    pub(super) fn timer_of(&self, address: IpAddr, qp: u32) -> Timer {
        self.queue_pair(address, qp)
            .map_or(self.timer, |settings| settings.timer)
    }

    /// Of the packets of a flow that goes there.
    pub(super) fn mtu_of(&self, address: IpAddr, qp: u32) -> Option<u32> {
        self.queue_pair(address, qp)?.mtu
    }

    /// Of the notifications of the NIC that has one of these addresses.
    pub(super) fn notification_of(&self, addresses: &[IpAddr]) -> Limit {
        let mut nics = self.nics.iter();
        nics.find(|nic| nic.addresses.iter().any(|own| addresses.contains(own)))
            .map_or(self.notification, |nic| nic.notification)
    }
}
