// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the device under test did, read from a capture, and the report of it.
//!
//! [`view`] turns the records of a capture into the packets of each connection, [`tcp`] says what
//! the senders did about loss and why, [`report`] draws it.

pub mod report;
pub mod tcp;
pub mod view;
