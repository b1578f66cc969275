// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire suite`.

use std::path::PathBuf;
use std::thread;

use clap::{Args, Subcommand};
use midwire_control::suite::{self, Setting};
use midwire_endpoints::rnic::Profile;

use crate::import::profile;
use crate::provider::{Place, Provider};
use crate::run::{bar, interrupt, worse};
use crate::{Failure, print_json, say};

/// What is tested.
#[derive(Subcommand)]
pub enum Suite {
    /// RDMA NICs: all that Lumina's authors found in some
    Rnic(Rnic),
}

/// Options of `midwire suite rnic`.
#[derive(Args)]
pub struct Rnic {
    /// The model NIC: clean, cx4-lx, cx5, cx6-dx or e810
    #[arg(long, value_name = "PROFILE", value_parser = profile, required_unless_present = "all")]
    profile: Vec<Profile>,
    /// All model NICs
    #[arg(long, conflicts_with = "profile")]
    all: bool,
    /// Keep the runs in this directory; it must be new or empty
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write the tables to a page in Markdown
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

impl Suite {
    /// Runs the suite; the exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        let Suite::Rnic(options) = self;
        let profiles = match options.all {
            true => Profile::ALL.to_vec(),
            false => options.profile,
        };
        let kept = options.out.is_some();
        let out = options.out.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("midwire-suite-{}", std::process::id()))
        });
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let bar = bar();
        let reports = suite::run_all(
            &profiles,
            &Setting {
                out: &out,
                seed: options.seed,
                threads: options.jobs.unwrap_or(processors),
                providers: &|| Box::new(Provider::new(Place::Virtual)),
                progress: &|test, done, of| {
                    bar.set_message(format!("{done} of {of}, {test} is over"));
                },
                interrupt: &*interrupt()?,
            },
        );
        bar.finish_and_clear();
        if !kept {
            // At worst the runs stay in the temporary directory.
            let _ = std::fs::remove_dir_all(&out);
        }
        let reports = reports?;
        if options.json {
            print_json(&reports)?;
        } else {
            for report in &reports {
                say(&suite::text(report))?;
            }
        }
        if let Some(path) = &options.write {
            std::fs::write(path, suite::markdown(&reports)).map_err(|error| {
                Failure::environment(format!("can't write {}: {error}", path.display()))
            })?;
        }
        Ok(reports
            .iter()
            .fold(0, |code, report| worse(code, report.exit_code())))
    }
}
