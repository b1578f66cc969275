// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a NIC counts, under the names that NVIDIA's drivers give it, and where Intel's have other
//! ones under these too.

use std::collections::BTreeMap;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of a NIC.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64),+
        }

        impl Counters {
            const OWN_NAMES: &[&str] = &[$(stringify!($name)),+];

            /// All counters by name.
            pub fn by_name(&self) -> BTreeMap<String, u64> {
                let own = [$((stringify!($name), self.$name)),+];
                let intel = INTEL.iter().filter_map(|(name, same)| {
                    let (_, value) = own.iter().find(|(own, _)| own == same)?;
                    Some((*name, *value))
                });
                let all = own.into_iter().chain(intel);
                all.map(|(name, value)| (name.to_owned(), value)).collect()
            }
        }
    };
}

counters! {
    /// Packets sent.
    tx_packets_phy,
    /// Bytes sent, without FCS.
    tx_bytes_phy,
    /// Packets that came in.
    rx_packets_phy,
    /// Their bytes, without FCS.
    rx_bytes_phy,
    /// Frames that came with a wrong FCS.
    rx_crc_errors_phy,
    /// Packets thrown away for want of room.
    rx_discards_phy,
    /// Packets whose ICRC was wrong.
    rx_icrc_encapsulated,
    /// RDMA WRITE requests that were carried out.
    rx_write_requests,
    /// RDMA READ requests that were carried out, again included.
    rx_read_requests,
    /// Atomic requests that were carried out.
    rx_atomic_requests,
    /// Requests that came again.
    duplicate_request,
    /// Requests that came ahead of their turn.
    out_of_sequence,
    /// SENDs that found no receive posted.
    out_of_buffer,
    /// NAKs, PSN sequence error, that came in.
    packet_seq_err,
    /// READ responses and acknowledgements that came ahead of a response that is due.
    implied_nak_seq_err,
    /// Times that the acknowledgement timer ran out.
    local_ack_timeout_err,
    /// RNR NAKs that came when no retry was left.
    rnr_nak_retry_err,
    /// NAKs, invalid request, that came in.
    req_remote_invalid_request,
    /// NAKs, remote access error, that came in.
    req_remote_access_errors,
    /// Requests refused for their address or key.
    resp_remote_access_errors,
    /// Requests refused for their length.
    resp_local_length_error,
    /// Work requests that ended with an error.
    req_cqe_error,
    /// Those of them that were never tried.
    req_cqe_flush_error,
    /// Packets that came with a congestion mark.
    np_ecn_marked_roce_packets,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Congestion notifications that slowed a queue pair.
    rp_cnp_handled,
    /// Those that no queue pair reacted to.
    rp_cnp_ignored,
}

/// Intel's names, and NVIDIA's.
const INTEL: &[(&str, &str)] = &[
    ("cnpSent", "np_cnp_sent"),
    ("cnpHandled", "rp_cnp_handled"),
    ("RxECNMrkd", "np_ecn_marked_roce_packets"),
];

impl Counters {
    /// Names of all counters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let intel = INTEL.iter().map(|(name, _)| *name);
        Self::OWN_NAMES.iter().copied().chain(intel)
    }
}
