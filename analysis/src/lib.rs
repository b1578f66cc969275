// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the device under test did, read from a capture, and the report of it.
//!
//! [`view`] turns the records of a capture into the packets of each TCP connection, [`tcp`] says
//! what the senders did about loss and why, [`report`] draws it. [`roce`] says what RDMA NICs did,
//! and whether the specification has it so.

pub mod report;
pub mod roce;
pub mod tcp;
pub mod text;
pub mod view;
