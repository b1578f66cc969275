// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic between the two hosts: built in for TCP, or any command.

mod command;
mod tcp;

pub use command::{Background, CommandReport, CommandTraffic, Outcome, Ready};
pub use tcp::{ConnectionReport, Direction, Payload, StreamReport, TcpInfo, TcpReport, TcpTraffic};

/// A duration in a plan: seconds, with fractions.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
