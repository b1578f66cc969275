// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words that programs and tables share; those of records too are midwire-trace's.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Transports that the card follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp = 1,
    /// RoCEv2.
    Roce = 2,
}

impl Transport {
    /// As tables name it.
    pub(crate) fn bits(self) -> u128 {
        self as u128
    }
}

/// Versions of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// That of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }
}
