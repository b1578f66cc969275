// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the analysis of RoCE says of a run, with what its plan asked of the NICs.

use midwire_analysis::roce::source::{self, Read};
use midwire_analysis::roce::{Limit, NicSettings, QpSettings, Scope, Settings, Timer};
use midwire_endpoints::rnic::{CnpScope, RdmaReport};
use midwire_trace::Capture;

use crate::plan::{Dcqcn, Endpoint, RdmaTraffic, Traffic};
use crate::run_file::Recorded;

/// Reads the capture of a run; nothing when there is no RoCE in it.
pub(crate) fn read(capture: &Capture, recorded: &Recorded) -> Option<Read> {
    let read = source::capture(capture, settings(recorded));
    (read.analysis.packets > 0).then_some(read)
}

/// What the plan asks of the NICs.
fn settings(recorded: &Recorded) -> Settings {
    let plan = &recorded.plan.parsed;
    let traffic = recorded.traffic.iter();
    Settings {
        nics: (plan.endpoints.both().into_iter())
            .filter_map(|(port, endpoint)| {
                let (address, notification) = match endpoint {
                    Endpoint::Rnic(nic) => (&nic.address, notification(&nic.dcqcn)),
                    Endpoint::Linux(host) if host.rdma => (&host.address, Limit::default()),
                    Endpoint::Agent(host) => {
                        let set = host.dcqcn.as_ref().map(notification);
                        (&host.address, set.unwrap_or_default())
                    }
                    _ => return None,
                };
                let counted = recorded.nics.iter().find(|nic| nic.endpoint == port);
                Some(NicSettings {
                    name: port.to_string(),
                    addresses: address.iter().map(|cidr| cidr.address).collect(),
                    notification,
                    counters: counted.map_or_else(Default::default, |nic| nic.counters.clone()),
                })
            })
            .collect(),
        queue_pairs: traffic
            .filter_map(|record| {
                let entry = plan.traffic.get(record.number.checked_sub(1)? as usize)?;
                match entry {
                    Traffic::Rdma(rdma) => Some(of_queue_pairs(rdma, &record.rdma()?)),
                    _ => None,
                }
            })
            .flatten()
            .collect(),
        ..Settings::default()
    }
}

fn notification(dcqcn: &Dcqcn) -> Limit {
    Limit {
        notifies: Some(dcqcn.np),
        notification_interval_ns: Some(dcqcn.min_time_between_cnps.as_nanos()),
        // What a profile does of its own accord was not asked for.
        notification_scope: Some(match dcqcn.cnp_limit.unwrap_or(CnpScope::Port) {
            CnpScope::Port => Scope::Port,
            CnpScope::Ip => Scope::Ip,
            CnpScope::Qp => Scope::Qp,
        }),
    }
}

/// What the queue pairs of an entry were.
fn of_queue_pairs(rdma: &RdmaTraffic, report: &RdmaReport) -> Vec<QpSettings> {
    let classes = rdma.traffic_classes.iter().cycle();
    (report.qps.iter().zip(classes))
        .map(|(qp, class)| QpSettings {
            ends: [(qp.source, qp.qp), (qp.destination, qp.peer_qp)],
            timer: Timer {
                timeout: Some(rdma.timeout),
                retry_count: Some(rdma.retries),
            },
            mtu: Some(rdma.mtu),
            class: Some(*class),
        })
        .collect()
}
