// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a run in virtual time reads besides its plan: its capture follows from them, the
//! plan and the seed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf, absolute};

use midwire_endpoints::agent::program;
use midwire_endpoints::linux::Image;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::plan::{Endpoint, LinuxEndpoint, Plan};
use crate::run_file::InputRecord;

/// The files that a plan names, in a fixed order; those of its hosts too that it leaves open.
fn paths(plan: &mut Plan) -> Vec<&mut PathBuf> {
    let sends_rdma = plan.sends_rdma();
    let mut paths: Vec<&mut PathBuf> = Vec::new();
    for endpoint in plan.endpoints.both_mut() {
        match endpoint {
            Endpoint::Linux(host) => {
                paths.push(host.kernel.get_or_insert_default());
                paths.push(host.initramfs.get_or_insert_default());
                paths.extend(&mut host.files);
                if sends_rdma {
                    paths.push(host.agent.get_or_insert_default());
                }
            }
            Endpoint::Pcap(pcap) => paths.extend(&mut pcap.input),
            Endpoint::Tap(_) | Endpoint::Rnic(_) | Endpoint::Agent(_) | Endpoint::External => {}
        }
    }
    paths
}

/// Notes where the files of a plan in the directory `base` are, and what they hold.
pub(crate) fn record(plan: &Plan, base: &Path) -> Result<Vec<InputRecord>, String> {
    let (mut plan, sends_rdma) = (plan.clone(), plan.sends_rdma());
    for endpoint in plan.endpoints.both_mut() {
        if let Endpoint::Linux(LinuxEndpoint {
            kernel,
            initramfs,
            agent,
            ..
        }) = endpoint
        {
            if sends_rdma {
                let named = agent.as_ref().map(|path| base.join(path));
                *agent = Some(program(named.as_deref()).map_err(|e| e.to_string())?);
            }
            let [k, i] = [&*kernel, &*initramfs].map(|path| path.as_ref().map(|p| base.join(p)));
            let image = Image::find(k.as_deref(), i.as_deref()).map_err(|e| e.to_string())?;
            (*kernel, *initramfs) = (Some(image.kernel), Some(image.initramfs));
        }
    }
    let mut records: Vec<InputRecord> = Vec::new();
    for path in paths(&mut plan) {
        let found = absolute(base.join(path)).map_err(|e| e.to_string())?;
        // Both hosts have the same kernel.
        let known = records.iter().find(|record| record.path == found);
        let record = match known {
            Some(record) => record.clone(),
            None => InputRecord {
                sha256: sha256(&found).map_err(|e| e.to_string())?,
                path: found,
            },
        };
        records.push(record);
    }
    Ok(records)
}

/// The plan with the very files that were recorded; an error when one has changed since.
pub(crate) fn restore(plan: &Plan, records: &[InputRecord]) -> Result<Plan, String> {
    let mut plan = plan.clone();
    for (path, record) in paths(&mut plan).into_iter().zip(records) {
        let now = sha256(&record.path).map_err(|e| e.to_string())?;
        if now != record.sha256 {
            let path = record.path.display();
            return Err(format!("{path} is not what it was then"));
        }
        path.clone_from(&record.path);
    }
    Ok(plan)
}

/// The hash of a file, in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let hash = || -> io::Result<_> {
        let (mut hasher, mut file) = (Sha256::new(), File::open(path)?);
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finalize()),
                n => hasher.update(&buffer[..n]),
            }
        }
    };
    let bytes = hash().map_err(Error::file("read", path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
