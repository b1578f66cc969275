// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test files of Lumina, as its orchestrator reads them. Every value keeps its place.

use midwire_endpoints::Cidr;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

/// A value that may be there.
pub(super) type Maybe<T> = Option<Spanned<T>>;

/// Says where Lumina's machines, files and switch ports are: nothing that a plan has.
pub(super) type Elsewhere = Maybe<IgnoredAny>;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TestFile {
    pub traffic: Spanned<Traffic>,
    pub requester: Spanned<Host>,
    pub responder: Spanned<Host>,
    #[serde(default)]
    pub switch: Maybe<Switch>,
    #[serde(default)]
    pub requester_mirror: Maybe<Mirror>,
    #[serde(default)]
    pub responder_mirror: Maybe<Mirror>,
    #[serde(default)]
    pub num_repeats: Maybe<u32>,
    #[serde(default)]
    local_workspace: Elsewhere,
    #[serde(default)]
    result_path: Elsewhere,
    #[serde(default)]
    aggregate_pcap_filename: Elsewhere,
    #[serde(default)]
    rewrite_udp_dst_port: Elsewhere,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Traffic {
    #[serde(default)]
    pub num_qps: Maybe<IntegerOrText>,
    /// What the paper calls them.
    #[serde(default)]
    pub num_connections: Elsewhere,
    pub rdma_verb: Spanned<String>,
    pub num_msgs_per_qp: Spanned<u32>,
    pub message_size: Spanned<u64>,
    #[serde(default)]
    pub mtu: Maybe<u32>,
    #[serde(default)]
    pub multi_gid: Maybe<bool>,
    #[serde(default)]
    pub barrier_sync: Maybe<bool>,
    #[serde(default)]
    pub tx_depth: Maybe<u32>,
    #[serde(default)]
    pub min_retransmit_timeout: Maybe<u32>,
    #[serde(default)]
    pub max_retransmit_retry: Maybe<u32>,
    #[serde(default)]
    pub dscp_list: Maybe<IntegerOrText>,
    #[serde(default)]
    pub data_pkt_events: Option<Vec<Spanned<DataEvent>>>,
    #[serde(default)]
    listen_port: Elsewhere,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataEvent {
    /// From 0, among the queue pairs.
    pub qpn: Spanned<u32>,
    /// From 0, in each message; or all.
    pub psn: Spanned<IntegerOrText>,
    pub r#type: Spanned<EventType>,
    /// From 1, in each message.
    pub iter: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EventType {
    Drop,
    Ecn,
    BitError,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a text")]
pub(super) enum IntegerOrText {
    Integer(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Host {
    pub nic: Spanned<Nic>,
    #[serde(default)]
    pub roce_parameters: Option<RoceParameters>,
    #[serde(default)]
    workspace: Elsewhere,
    #[serde(default)]
    control_ip: Elsewhere,
    #[serde(default)]
    username: Elsewhere,
    #[serde(default)]
    ssh_key_filepath: Elsewhere,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Nic {
    #[serde(default)]
    pub r#type: Maybe<NicType>,
    pub ip_list: Spanned<Vec<Cidr>>,
    #[serde(default)]
    pub prio_dscp_map: Elsewhere,
    #[serde(default)]
    if_name: Elsewhere,
    #[serde(default)]
    pci_addr: Elsewhere,
    #[serde(default)]
    ib_device: Elsewhere,
    #[serde(default)]
    ib_port: Elsewhere,
    #[serde(default)]
    switch_port: Elsewhere,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum NicType {
    #[serde(rename = "CX4")]
    Cx4,
    #[serde(rename = "CX5")]
    Cx5,
    #[serde(rename = "CX6")]
    Cx6,
    E810,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RoceParameters {
    #[serde(default)]
    pub dcqcn_rp_enable: Maybe<bool>,
    #[serde(default)]
    pub dcqcn_np_enable: Maybe<bool>,
    /// Both, of Intel's NICs.
    #[serde(default)]
    pub dcqcn_enable: Maybe<bool>,
    /// µs.
    #[serde(default)]
    pub min_time_between_cnps: Maybe<u32>,
    #[serde(default)]
    pub adaptive_retrans: Maybe<bool>,
    #[serde(default)]
    pub slow_restart: Maybe<bool>,
}

/// All but the speed is of the switch as a machine.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Switch {
    #[serde(default)]
    pub port_speed: Maybe<String>,
}

/// All but the bytes that it keeps of a packet is of the mirror as a machine.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Mirror {
    #[serde(default)]
    pub pkt_dump_conf: Option<DumpConf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct DumpConf {
    #[serde(default)]
    pub snap_len: Maybe<u64>,
}

impl TestFile {
    /// Lines that say where Lumina's machines, files and switch ports are, ascending.
    pub fn elsewhere(&self) -> Vec<u64> {
        let of_host = |host: &Spanned<Host>| {
            let (host, nic) = (&host.value, &host.value.nic.value);
            [
                line(&host.workspace),
                line(&host.control_ip),
                line(&host.username),
                line(&host.ssh_key_filepath),
                line(&nic.if_name),
                line(&nic.pci_addr),
                line(&nic.ib_device),
                line(&nic.ib_port),
                line(&nic.switch_port),
            ]
        };
        let own = [
            line(&self.local_workspace),
            line(&self.result_path),
            line(&self.aggregate_pcap_filename),
            line(&self.rewrite_udp_dst_port),
            line(&self.traffic.value.listen_port),
            line(&self.switch),
            line(&self.requester_mirror),
            line(&self.responder_mirror),
        ];
        let hosts = [&self.requester, &self.responder].map(of_host);
        let mut lines: Vec<u64> = own
            .into_iter()
            .chain(hosts.into_iter().flatten())
            .flatten()
            .collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }
}

fn line<T>(value: &Maybe<T>) -> Option<u64> {
    value.as_ref().map(|value| value.referenced.line())
}
