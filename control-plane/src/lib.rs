// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans and runs.
mod error;
pub mod merge;
pub mod plan;
pub use error::Error;
