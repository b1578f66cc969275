// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong outside the device under test.

use std::path::PathBuf;

use crate::plan::PlanError;

/// A run that could not be carried out, or a file that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan's file can't be read.
    #[error("can't read the plan {}: {source}", path.display())]
    ReadPlan {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The plan has mistakes.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
