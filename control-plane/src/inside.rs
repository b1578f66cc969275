// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inside view of a run: what its hosts' kernels noted of their sockets, as a file of the run.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use midwire_endpoints::Port;
use midwire_endpoints::linux::{Call, Pair};
use midwire_trace::inside::{self, Moment};

use crate::Error;
use crate::run::{Step, said};
use crate::run_file::{ConnectionRecord, InsideRecord, files};

/// Writes what the kernels have noted, with the connections' numbers, into a run's directory.
pub(crate) fn write(
    pair: &Pair,
    connections: &[ConnectionRecord],
    directory: &Path,
) -> Step<Vec<InsideRecord>> {
    let (mut moments, mut calls, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for endpoint in Port::ALL {
        if let Some(noted) = pair.noted(directory, endpoint).map_err(said)? {
            records.push(InsideRecord {
                endpoint,
                moments: noted.moments.len() as u64,
                calls: noted.calls.len() as u64,
                lost: noted.lost,
            });
            moments.extend(noted.moments);
            calls.extend(noted.calls.into_iter().map(|call| (endpoint, call)));
        }
    }
    if records.is_empty() {
        return Ok(records);
    }
    moments.sort_by_key(|moment| moment.time_ns);
    let numbers: HashMap<&str, u16> = (connections.iter())
        .filter_map(|c| Some((c.text.as_str(), u16::try_from(c.number).ok()?)))
        .collect();
    let number = |from: SocketAddr, to: SocketAddr| numbers.get(&*name(from, to)).copied();
    for moment in &mut moments {
        if let (Some(local), Some(remote)) = (moment.local, moment.remote) {
            moment.connection = number(local, remote).or_else(|| number(remote, local));
        }
    }
    let file = File::create(directory.join(files::INSIDE)).map_err(said)?;
    inside::write(&moments, BufWriter::new(file)).map_err(said)?;
    if !calls.is_empty() {
        write_calls(&calls, &directory.join(files::CALLS)).map_err(said)?;
    }
    Ok(records)
}

/// Writes calls as CSV.
fn write_calls(calls: &[(Port, Call)], path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "time_ns,host,depth,function,duration_ns")?;
    for (host, call) in calls {
        let Call {
            time_ns,
            depth,
            function,
            duration_ns,
        } = call;
        let (time, host) = (time_ns.0, midwire_trace::Port::from(*host));
        let duration = duration_ns.map_or(String::new(), |ns| ns.to_string());
        writeln!(file, "{time},{host},{depth},{function},{duration}")?;
    }
    file.flush()
}

/// A connection in words, as [`ConnectionRecord`] has it.
pub(crate) fn name(from: SocketAddr, to: SocketAddr) -> String {
    format!("TCP {from} > {to}")
}

/// Reads what the kernels of a run have noted; nothing when they were not to.
pub fn read(directory: &Path) -> Result<Vec<Moment>, Error> {
    let path = directory.join(files::INSIDE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file = File::open(&path).map_err(Error::file("read", &path))?;
    let moments = inside::read(BufReader::new(file));
    moments.map_err(|e| Error::file("read", &path)(std::io::Error::other(e)))
}
