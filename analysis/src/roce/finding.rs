// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the specification does not allow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rule that was not kept, and by whom.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Responder: a request out of order is answered by a NAK.
    NakMissing,
    /// Responder: it says so once until the missing request comes.
    NakRepeated,
    /// Responder: a NAK needs a request out of order.
    NakUnfounded,
    /// Responder: a NAK names the first request that is missing.
    NakSkips,
    /// Responder: only what has come is acknowledged.
    AckUnfounded,
    /// Responder: responses begin where a read request asks.
    ResponseMisplaced,
    /// Responder: there are as many responses as the bytes asked for need.
    ResponseCount,
    /// Requester: it goes back no less far than to the first that is missing.
    ResumedAbove,
    /// Requester: it goes back no further than it was asked to.
    ResumedBelow,
    /// Requester: everything from there on is sent again.
    NotGoBackN,
    /// Requester: after a NAK it goes back.
    NotResumed,
    /// Requester: a read is asked for again from its place, for the bytes that remain.
    ReadExtent,
    /// Requester: after a receiver-not-ready NAK it waits as long as that says.
    RnrTooEarly,
    /// Requester: nothing is sent again without a reason.
    Unprovoked,
    /// Requester: a timeout is no shorter than asked for.
    TimeoutTooEarly,
    /// Requester: a timeout is no longer than four times what was asked for.
    TimeoutTooLate,
    /// Requester: no single setting explains its timeouts.
    TimeoutVaries,
    /// Requester: it tries no more often than asked.
    TooManyRetries,
    /// Notification point: marks are told of.
    NotificationMissing,
    /// Notification point: a notification needs a mark.
    NotificationUnfounded,
    /// Notification point: the time between notifications is what was asked for.
    NotificationInterval,
    /// Notification point: that time counts for what was asked for.
    NotificationScope,
    /// Either end: it says soon that something is missing.
    SlowNak,
    /// Either end: it sends again soon what is missing.
    SlowReaction,
    /// NIC: a traffic class may have what others leave of the line.
    NotWorkConserving,
    /// Receiver: it takes packets of connections though others recover from losses.
    NeighboursDiscarded,
    /// Receiver: it takes packets of connections that begin with MigReq 0.
    BeginnersDiscarded,
    /// NIC: it counts what the capture shows.
    CounterDiffers,
}

/// A rule that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The flow of requests.
    pub connection: Option<u32>,
    /// The packets that show it, by their numbers in the capture.
    pub packets: Vec<u64>,
    /// What happened.
    pub what: String,
}

impl Finding {
    /// The packets that show it, in words.
    pub fn cited(&self) -> String {
        let numbers: Vec<String> = self.packets.iter().map(u64::to_string).collect();
        match numbers.as_slice() {
            [one] => format!("packet {one}"),
            several => format!("packets {}", several.join(", ")),
        }
    }
}

impl Rule {
    /// Its name as JSON has it.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}
