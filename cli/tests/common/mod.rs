// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans between two Linux hosts in virtual time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A plan in a directory of its own.
pub struct Plan(pub TempDir);

impl Plan {
    /// With `options` for each host.
    pub fn new(options: &str, body: &str) -> Self {
        let host = |n| format!("{{linux: {{address: 10.77.0.{n}/24, {options}}}}}");
        let plan = Self(TempDir::new().expect("temporary directory"));
        let text = format!(
            "version: 1\nname: test\nendpoints:\n  a: {}\n  b: {}\n{body}",
            host(1),
            host(2)
        );
        fs::write(plan.path("plan.yaml"), text).expect("plan written");
        plan
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_midwire"));
        command
            .arg("run")
            .arg(self.path("plan.yaml"))
            .arg("--out")
            .arg(self.path(out))
            .args(more);
        command
    }

    pub fn run(&self, out: &str, more: &[&str]) -> Output {
        self.command(out, more).output().expect("midwire starts")
    }

    /// Runs it to its end; its capture.
    pub fn capture(&self, out: &str, more: &[&str]) -> Vec<u8> {
        let output = self.run(out, more);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        fs::read(self.path(out).join("capture.mwc")).expect("a capture")
    }
}

/// `run.json` of a run.
pub fn run_file(run: &Path) -> Value {
    let text = fs::read(run.join("run.json")).expect("run.json");
    serde_json::from_slice(&text).expect("JSON")
}

pub fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}
