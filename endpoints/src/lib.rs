// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is plugged into the card's ports on this machine: two hosts in network namespaces, each
//! with a TAP whose other side is a port of the virtual card, and the traffic between them; or
//! [models of RDMA NICs](rnic) or [whole Linux kernels](linux) in virtual time.
//!
//! A host leaves nothing behind. Its namespaces have no names: they are held by threads,
//! descriptors and processes alone, so they vanish with this process however it ends.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use midwire_endpoints::{Hosts, TapHost, privilege, traffic::TcpTraffic};
//!
//! # fn main() -> Result<(), midwire_endpoints::Error> {
//! privilege::enter()?; // first of all, while the process has one thread
//! let a = TapHost::new("10.77.0.1/24".parse()?);
//! let b = TapHost::new("10.77.0.2/24".parse()?);
//! let (hosts, [port_a, port_b]) = Hosts::new("run-1", &a, &b)?;
//! // … the card moves frames between port_a and port_b …
//! let report = TcpTraffic::default().run(&hosts, &AtomicBool::new(false))?;
//! assert!(report.completed());
//! # drop((port_a, port_b)); Ok(()) }
//! ```

pub mod agent;
mod error;
mod host;
pub mod linux;
mod netlink;
mod options;
pub mod payload;
pub mod privilege;
pub mod rnic;
mod tap;
pub mod traffic;

pub use error::Error;
pub use host::{Ended, Host, Hosts, LinkCounters, Running};
pub use options::{Cidr, Mac, Neighbours, Port, Setting, TapHost, one_or_several, route};
