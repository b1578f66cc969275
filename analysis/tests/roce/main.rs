// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The RoCE analyzers on conversations that follow the specification, and on ones that don't.

mod conversation;
mod counters;
mod impact;
mod logic;
mod notification;
mod simulation;
