// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real hosts that send RDMA messages, as a plan has them.

use midwire_endpoints::agent::protocol::Open;
use midwire_endpoints::agent::{PROGRAM, Reach};
use midwire_endpoints::{Cidr, one_or_several};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Dcqcn;

/// A real host with an RDMA NIC, which is plugged into a card that is there already. Its agent sends
/// the plan's `rdma` traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentEndpoint {
    /// Where SSH finds the host: `user@host`, or a name of ssh's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// The agent on that host. Default midwire-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Instead of `ssh`, a command line for `sh -c` here, whose standard input and output lead to an
    /// agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// One or several addresses of the NIC's interface: its GIDs.
    #[serde(with = "one_or_several")]
    #[schemars(schema_with = "one_or_several::schema")]
    pub address: Vec<Cidr>,
    /// Name among RDMA devices. Default the one that has the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Command lines that the agent runs on its host before all else, which set the NIC up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// What its congestion control is set to, for the analysis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dcqcn: Option<Dcqcn>,
}

impl AgentEndpoint {
    /// How its agent is reached.
    pub(crate) fn reach(&self) -> Reach {
        match &self.run {
            Some(line) => Reach::Run(line.clone()),
            None => Reach::Ssh {
                host: self.ssh.clone().unwrap_or_default(),
                program: self.program.clone().unwrap_or_else(|| PROGRAM.to_owned()),
            },
        }
    }

    /// Which NIC it is.
    pub(crate) fn nic(&self) -> Open {
        Open {
            device: self.device.clone(),
            addresses: self.address.iter().map(|cidr| cidr.address).collect(),
            setup: self.setup.clone(),
        }
    }

    /// What types can't say: the key and what is wrong there.
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        match (&self.ssh, &self.run) {
            (Some(host), None) if host.is_empty() || host.starts_with('-') => {
                faults.push((
                    "ssh",
                    format!("ssh: {host:?} is no host, expected user@host"),
                ));
            }
            (Some(_), None) => {}
            (None, Some(_)) if self.program.is_some() => {
                let message = "program: it is in the command line, expected run alone".to_owned();
                faults.push(("program", message));
            }
            (None, Some(_)) => {}
            (Some(_), Some(_)) => faults.push(("run", "expected either ssh or run".to_owned())),
            (None, None) => faults.push(("address", "expected ssh: user@host, or run".to_owned())),
        }
        faults
    }
}
