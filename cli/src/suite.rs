// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire suite`.

use std::path::{Path, PathBuf};
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
    /// Draw figures 8 to 11 of the paper into this directory, from runs of their own
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
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
        let setting = Setting {
            out: &out,
            seed: options.seed,
            threads: options.jobs.unwrap_or(processors),
            providers: &|| Box::new(Provider::new(Place::Virtual)),
            progress: &|test, done, of| {
                bar.set_message(format!("{done} of {of}, {test} is over"));
            },
            interrupt: &*interrupt()?,
        };
        let reports = suite::run_all(&profiles, &setting);
        let figures = match (&reports, &options.figures) {
            (Ok(_), Some(_)) => suite::figures(&setting),
            _ => Ok(Vec::new()),
        };
        bar.finish_and_clear();
        if !kept {
            // At worst the runs stay in the temporary directory.
            let _ = std::fs::remove_dir_all(&out);
        }
        let (reports, figures) = (reports?, figures?);
        if options.json {
            print_json(&reports)?;
        } else {
            for report in &reports {
                say(&suite::text(report))?;
            }
        }
        let directory = options.figures.unwrap_or_default();
        let mut drawn = Vec::new();
        for figure in figures {
            let path = directory.join(figure.file);
            std::fs::create_dir_all(&directory)
                .and_then(|()| std::fs::write(&path, &figure.svg))
                .map_err(unwritten(&path))?;
            drawn.push((figure.caption, path));
        }
        if let Some(page) = &options.write {
            // Pictures below the page are named from there.
            let from_page = |path: &Path| {
                let below = page.parent().and_then(|at| path.strip_prefix(at).ok());
                below.unwrap_or(path).display().to_string()
            };
            let drawn: Vec<_> = (drawn.iter())
                .map(|(caption, path)| (*caption, from_page(path)))
                .collect();
            std::fs::write(page, suite::markdown(&reports, &drawn)).map_err(unwritten(page))?;
        }
        Ok(reports
            .iter()
            .fold(0, |code, report| worse(code, report.exit_code())))
    }
}

fn unwritten(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::environment(format!("can't write {}: {error}", path.display()))
}
