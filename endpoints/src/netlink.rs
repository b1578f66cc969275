// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few rtnetlink requests that set up a host. The socket belongs to the network namespace of
//! the thread that opens it.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, Stats64};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Cidr, Mac};

/// A connection to the kernel's routing and link tables.
pub(crate) struct Netlink {
    socket: Socket,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket })
    }

    /// Index and counters of the interface `name`.
    pub(crate) fn link(&self, name: &str) -> io::Result<(u32, Stats64)> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let Some(RouteNetlinkMessage::NewLink(link)) =
            self.request(RouteNetlinkMessage::GetLink(message), 0)?
        else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "no link in the kernel's answer",
            ));
        };
        let counters = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(counters) => Some(*counters),
                _ => None,
            });
        Ok((link.header.index, counters.unwrap_or_default()))
    }

    /// Changes attributes of a link.
    pub(crate) fn set_link(&self, index: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
            .map(drop)
    }

    /// Brings a link up.
    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
            .map(drop)
    }

    /// Gives a link an address, at once usable: without duplicate address detection.
    pub(crate) fn add_address(&self, index: u32, cidr: Cidr) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(cidr.address);
        message.header.prefix_len = cidr.prefix;
        message.header.index = index;
        if cidr.address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message
            .attributes
            .push(AddressAttribute::Local(cidr.address));
        message
            .attributes
            .push(AddressAttribute::Address(cidr.address));
        self.request(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Tells a link the interface address of a neighbour, for good.
    pub(crate) fn add_neighbour(&self, index: u32, address: IpAddr, mac: Mac) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message
            .attributes
            .push(NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            }));
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        self.request(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// Sends one request and returns the object it is answered with, if any.
    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut object = None;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let mut rest = answer.as_slice();
            while !rest.is_empty() {
                let message =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(|error| {
                        io::Error::new(io::ErrorKind::InvalidData, error.to_string())
                    })?;
                match message.payload {
                    NetlinkPayload::Error(answer) => {
                        return match answer.code {
                            None => Ok(object),
                            Some(code) => {
                                Err(io::Error::from_raw_os_error(code.get().wrapping_neg()))
                            }
                        };
                    }
                    NetlinkPayload::InnerMessage(inner) => object = Some(inner),
                    _ => {}
                }
                let length = (message.header.length as usize).next_multiple_of(4).max(16);
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
