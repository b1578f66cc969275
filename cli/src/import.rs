// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use midwire_control::lumina;
use midwire_endpoints::rnic::Profile;

use crate::{Failure, say};

/// Where the test comes from.
#[derive(Subcommand)]
pub enum Import {
    /// Lumina: a test file, with the same numbers of queue pairs and packets
    Lumina(Lumina),
}

/// Options of `midwire import lumina`.
#[derive(Args)]
pub struct Lumina {
    /// The test file (YAML)
    file: PathBuf,
    /// What both NICs resemble, whatever the file says: clean, cx4-lx, cx5, cx6-dx or e810
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    profile: Option<Profile>,
    /// Write the plan to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A profile by its name.
pub fn profile(name: &str) -> Result<Profile, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

impl Import {
    /// Writes the plan.
    pub fn write(self) -> Result<u8, Failure> {
        let Import::Lumina(Lumina {
            file,
            profile,
            output,
        }) = self;
        let failure = |what, path: &PathBuf, error| {
            Failure::environment(format!("can't {what} {}: {error}", path.display()))
        };
        let bytes = std::fs::read(&file).map_err(|e| failure("read", &file, e))?;
        let plan = lumina::import(&file.display().to_string(), &bytes, profile)
            .map_err(midwire_control::Error::from)?;
        match &output {
            Some(path) => std::fs::write(path, plan).map_err(|e| failure("write", path, e))?,
            None => say(plan.trim_end())?,
        }
        Ok(0)
    }
}
