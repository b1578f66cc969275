// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The RoCE analyzers on conversations that follow the specification, and on ones that don't.

mod conversation;
mod counters;
mod impact;
mod introduction;
mod logic;
#[path = "../common/mad.rs"]
mod mad;
mod notification;
mod simulation;
