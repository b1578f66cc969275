// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets, records, blocks, the capture file and its exports.
//!
//! The card writes [`record`]s packed into [`block`]s; a [`capture`] file is those blocks, one
//! after the other. [`packet`] reads the frames behind the records, and [`identity`] works out,
//! independently of the card, what each packet is called: connection, lane, kind, position and
//! iteration. [`chance`] takes the card's random decisions. The layouts are in `docs/formats.md`, byte by byte.

pub mod accounting;
pub mod block;
pub mod build;
pub mod capture;
pub mod chance;
mod error;
pub mod export;
pub mod identity;
pub mod inside;
pub mod packet;
pub mod packet_file;
pub mod record;
pub mod units;

pub use accounting::Accounting;
pub use block::{Block, BlockBuilder, BlockHeader};
pub use capture::Capture;
pub use chance::Chance;
pub use error::{Error, Result};
pub use packet::Packet;
pub use record::Record;
pub use units::{Actions, Flags, Kind, Lane, Nanos, Port, Proto, Psn, Tap};
