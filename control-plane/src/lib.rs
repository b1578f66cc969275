// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans and runs.
mod error;
pub mod expect;
#[cfg(test)]
mod fixture;
pub mod junit;
pub mod merge;
pub mod plan;
pub mod run_file;
pub mod table;
mod text;
pub mod verdict;
pub use error::Error;
