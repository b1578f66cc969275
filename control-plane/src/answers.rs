// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that a plan's events inject, as the card makes them. Equal ones share a template.

use midwire_driver::{
    Answer, Pause, RoceAnswer, RoceMessage, SequenceNumber, TcpAnswer, Template, Toward,
};
use midwire_trace::Lane;
use midwire_trace::packet::syndrome;
use midwire_trace::packet::tcp_flags::{ACK, RST};

use crate::plan::{self, Action, Inject};

/// Templates that the card holds.
pub(crate) const MAX_TEMPLATES: usize = 64;

/// Templates in use, by their number.
#[derive(Debug, Default)]
pub(crate) struct Templates(Vec<Template>);

impl Templates {
    /// Number of the template for what an action injects into the way of its packet, if it does.
    /// Numbers that the card does not have are not in a checked plan.
    pub fn number(&mut self, action: &Action, way: Lane) -> Option<u8> {
        let template = template(action, way)?;
        let known = self.0.iter().position(|other| *other == template);
        let number = known.unwrap_or_else(|| {
            self.0.push(template);
            self.0.len() - 1
        });
        u8::try_from(number).ok()
    }

    /// All of them.
    pub fn list(self) -> Vec<Template> {
        self.0
    }
}

fn template(action: &Action, way: Lane) -> Option<Template> {
    let inject = action.inject.as_ref()?;
    let is_back = inject.toward().is_back(way);
    // The receiver takes a segment at once when it begins where the last one that it got ends; one
    // that is lost or held back it does not have yet.
    let has_packet = !action.drop && action.delay.is_none() && action.reorder.is_none();
    let number = match is_back || has_packet {
        true => SequenceNumber::Next,
        false => SequenceNumber::First,
    };
    let tcp = |flags, window| {
        Answer::Tcp(TcpAnswer {
            flags,
            window,
            number,
        })
    };
    let roce = |message, queue_pair, dscp: u8| {
        Answer::Roce(RoceAnswer {
            message,
            queue_pair,
            traffic_class: dscp << 2,
        })
    };
    let acknowledge = |syndrome, msn| RoceMessage::Ack {
        syndrome,
        msn: Some(msn),
    };
    let answer = match inject {
        Inject::Rst(_) => tcp(RST | ACK, 0),
        Inject::Ack(plan::Ack {
            qp: None, window, ..
        }) => tcp(ACK, window.unwrap_or(u16::MAX)),
        Inject::Ack(ack) => roce(
            acknowledge(
                ack.syndrome.unwrap_or(syndrome::NO_CREDITS),
                ack.msn.unwrap_or(0),
            ),
            ack.qp,
            ack.dscp.unwrap_or(0),
        ),
        Inject::Nak(nak) => roce(acknowledge(nak.syndrome, nak.msn), nak.qp, nak.dscp),
        Inject::Cnp(cnp) => roce(RoceMessage::Cnp, cnp.qp, cnp.dscp),
        Inject::Pause(pause) => Answer::Pause(Pause {
            priorities: pause.priority.as_ref().map(plan::Priorities::mask),
            quanta: pause.quanta,
        }),
        Inject::Frame(frame) => Answer::Bytes(frame.bytes.0.clone()),
    };
    Some(Template {
        toward: match is_back {
            true => Toward::Sender,
            false => Toward::Receiver,
        },
        answer,
    })
}
