// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture in the formats of others: pcapng for packet tools, CSV for tables.

pub mod csv;
pub mod pcapng;
