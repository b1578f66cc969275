// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shell scripts with which a host sets itself up and runs its commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Cidr, Mac, Setting};

/// A host's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Addresses; the first is the host's name to commands.
    pub addresses: Vec<Cidr>,
    /// The other host, when it is not to be asked for: its interface and addresses.
    pub neighbour: Option<(Mac, Vec<Cidr>)>,
    /// Settings of the network stack, by their full names.
    pub sysctls: BTreeMap<String, Setting>,
    /// The default of every connection.
    pub congestion_control: Option<String>,
    /// It has Soft-RoCE over its interface, as device `rxe0`.
    pub rdma: bool,
}

/// No frame but those of the traffic.
const QUIET: [&str; 4] = [
    "net.ipv6.conf.eth0.addr_gen_mode=1",
    "net.ipv6.conf.eth0.accept_dad=0",
    "net.ipv6.conf.eth0.accept_ra=0",
    "net.ipv6.conf.eth0.router_solicitations=0",
];
/// Sets what is to be noted. The shell does it by itself: another process more or less would change
/// the random numbers of those that follow.
const SET_TRACE: &str = r#"while read -r name value; do
	echo "$value" 2>/dev/null >"/sys/kernel/tracing/$name" ||
		{ echo "the tracer takes no $value for $name"; exit 1; }
done <trace"#;

/// Packets that can wait for the line with RDMA, the most that the kernel takes: Soft-RoCE hands down
/// 64 of a queue pair at a time, and gives the queue pair up when there is no room for one.
const RDMA_QUEUE: u16 = 32767;

const NO_IPV6: [&str; 1] = ["net.ipv6.conf.eth0.disable_ipv6=1"];

impl Network {
    /// The script that sets it up; it ends at the first step that fails.
    pub fn script(&self) -> String {
        let ipv6 = self.addresses.iter().any(|cidr| cidr.address.is_ipv6());
        let quiet = if ipv6 { &QUIET[..] } else { &NO_IPV6[..] };
        let mut script = String::new();
        let mut line = |text: String| {
            // A string takes all that is written.
            let _ = writeln!(script, "{text}");
        };
        let mut set = |text: &str| line(format!("sysctl -qw {}", quoted(text)));
        quiet.iter().for_each(|setting| set(setting));
        for (name, Setting(value)) in &self.sysctls {
            set(&format!("{name}={value}"));
        }
        if let Some(name) = &self.congestion_control {
            set(&format!("net.ipv4.tcp_congestion_control={name}"));
        }
        for cidr in &self.addresses {
            line(format!("ip address add {cidr} dev eth0"));
        }
        if self.rdma {
            line(format!("ip link set eth0 txqueuelen {RDMA_QUEUE} up"));
            line("rdma link add rxe0 type rxe netdev eth0".to_owned());
        } else {
            line("ip link set eth0 up".to_owned());
        }
        if let Some((mac, addresses)) = &self.neighbour {
            let reachable = |cidr: &&Cidr| {
                let family = |own: &Cidr| own.address.is_ipv4() == cidr.address.is_ipv4();
                self.addresses.iter().any(family)
            };
            for Cidr { address, .. } in addresses.iter().filter(reachable) {
                line(format!(
                    "ip neighbour replace {address} lladdr {mac} dev eth0 nud permanent"
                ));
            }
        }
        line(SET_TRACE.to_owned());
        script
    }
}

/// A script that shows what a host knows of its connections.
pub(super) const STATE: &str = r#"ss -atinoem
tc -s qdisc show dev eth0
ip -s link show dev eth0
awk '{
	for (i = 2; i <= NF; i++)
		if (FNR % 2)
			name[i] = $i
		else if ($i)
			print $1 name[i], $i
}' /proc/net/snmp /proc/net/netstat
"#;

/// A script that runs a command with some variables.
pub(super) fn command(run: &str, variables: &[(&str, String)]) -> String {
    let mut script = String::new();
    for (name, value) in variables {
        let _ = writeln!(script, "export {name}={}", quoted(value));
    }
    script + run + "\n"
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_set_up_in_order() {
        let network = Network {
            addresses: vec!["10.77.0.1/24".parse().unwrap()],
            neighbour: Some((
                "02:00:00:00:00:0b".parse().unwrap(),
                vec![
                    "10.77.0.2/24".parse().unwrap(),
                    "fd77::2/64".parse().unwrap(),
                ],
            )),
            sysctls: [(
                "net.ipv4.tcp_rmem".to_owned(),
                Setting("4096 'x".to_owned()),
            )]
            .into(),
            congestion_control: Some("reno".to_owned()),
            rdma: true,
        };
        assert_eq!(
            network.script(),
            "sysctl -qw 'net.ipv6.conf.eth0.disable_ipv6=1'\n\
             sysctl -qw 'net.ipv4.tcp_rmem=4096 '\\''x'\n\
             sysctl -qw 'net.ipv4.tcp_congestion_control=reno'\n\
             ip address add 10.77.0.1/24 dev eth0\n\
             ip link set eth0 txqueuelen 32767 up\n\
             rdma link add rxe0 type rxe netdev eth0\n\
             ip neighbour replace 10.77.0.2 lladdr 02:00:00:00:00:0b dev eth0 nud permanent\n"
                .to_owned()
                + SET_TRACE
                + "\n"
        );
    }

    #[test]
    fn a_command_has_its_variables() {
        let script = command(
            "ping -c 1 $MIDWIRE_B",
            &[("MIDWIRE_B", "10.0.0.2".to_owned())],
        );
        assert_eq!(
            script,
            "export MIDWIRE_B='10.0.0.2'\nping -c 1 $MIDWIRE_B\n"
        );
    }
}
