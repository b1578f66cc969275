// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inside view of a run: what its hosts' kernels noted of their sockets, as a file of the run.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::net::SocketAddr;
use std::path::Path;

use midwire_endpoints::Port;
use midwire_endpoints::linux::Pair;
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
    let (mut moments, mut records) = (Vec::new(), Vec::new());
    for endpoint in [Port::A, Port::B] {
        if let Some(noted) = pair.noted(directory, endpoint).map_err(said)? {
            records.push(InsideRecord {
                endpoint,
                moments: noted.moments.len() as u64,
                lost: noted.lost,
            });
            moments.extend(noted.moments);
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
    Ok(records)
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
