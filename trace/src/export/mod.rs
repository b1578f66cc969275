// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture in the formats of others: pcapng for packet tools, CSV and Parquet for tables, Lumina's for its
//! analyzers.

pub mod csv;
pub mod lumina;
pub mod parquet;
pub mod pcapng;
mod table;
