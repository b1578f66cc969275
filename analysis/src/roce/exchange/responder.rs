// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the responder does: it takes requests and answers them.

use super::{Answer, Answering, Asked, Denied, Exchange, Next, ends_answer, sample};
use crate::roce::{Observed, Rule, Verb};

impl Exchange {
    /// The responder gets a request.
    pub fn takes(&mut self, p: &Observed) {
        let (psn, verb) = (self.requested(p), Verb::of(p.roce.bth.opcode));
        let dma_len = p.roce.reth.map_or(0, |reth| reth.dma_len);
        let r = &mut self.responder;
        if psn > r.expected.most {
            r.out_of_order.get_or_insert(p.cite());
            self.counts.out_of_sequence += 1;
            self.tallies[1].early.add(p.number);
            return;
        }
        r.nak.take_if(|nak| nak.psn == psn);
        let again = psn < r.expected.least;
        self.tallies[1].request(p, verb, again);
        if !again {
            r.expected = Next::after(psn, verb, dma_len, self.mtu);
            r.out_of_order = None;
            if p.roce.bth.ack_req && r.probe.is_none() {
                r.probe = Some((psn, p.time.0));
            }
        }
        if verb.awaits_data() {
            r.asked.push_back(Asked {
                psn,
                dma_len,
                verb,
                cite: p.cite(),
            });
        }
    }

    /// The responder sends an answer.
    pub fn answers(&mut self, p: &Observed) {
        let psn = self.answered(p);
        let r = &mut self.responder;
        if let Some((probe, time)) = r.probe
            && psn >= probe
        {
            r.probe = None;
            if psn == probe {
                sample(&mut r.round_trip_ns, p.time.0.saturating_sub(time));
            }
        }
        let answer = Answer::of(p);
        if matches!(answer, Answer::Ack | Answer::Data) {
            r.nak.take_if(|nak| nak.psn <= psn);
        }
        match answer {
            Answer::Ack => {
                self.counts.acks += 1;
                if !p.is_taken() {
                    r.lost_ack = Some((psn, p.number));
                }
                self.acknowledges(p, psn);
            }
            Answer::SequenceNak => {
                self.counts.sequence_naks += 1;
                self.denies(p, psn);
            }
            Answer::NotReady(_) => {
                self.counts.not_ready += 1;
                self.tallies[1].not_ready.add(p.number);
                r.out_of_order = None;
            }
            Answer::Refusal(_) => {}
            Answer::Data => {
                self.counts.responses += 1;
                self.counts.bytes += u64::from(p.payload);
                self.returns(p, psn);
            }
        }
        self.responder.log.push(psn, p);
    }

    /// The responder acknowledges.
    fn acknowledges(&mut self, p: &Observed, psn: i64) {
        if psn < self.responder.expected.most {
            return;
        }
        let missing = self.psn(self.responder.expected.least);
        let early = self.responder.out_of_order.take();
        let what = format!(
            "acknowledges PSN {}, where {missing} has not come",
            self.psn(psn)
        );
        let cites = early.map(|c| c.packet).into_iter().chain([p.number]);
        self.find(Rule::AckUnfounded, cites, what);
        self.responder.expected = Next::at(psn + 1);
        self.responder.nak = None;
    }

    /// The responder sends a NAK: PSN sequence error.
    fn denies(&mut self, p: &Observed, psn: i64) {
        let expected = self.responder.expected;
        let asked = self.psn(psn);
        if psn > expected.most {
            let what = format!(
                "NAK asks for PSN {asked}, where {} is the first that is missing",
                self.psn(expected.least)
            );
            let early = self.responder.out_of_order.map(|c| c.packet);
            self.find(Rule::NakSkips, early.into_iter().chain([p.number]), what);
        } else if let Some(before) = self.responder.nak.filter(|nak| nak.psn == psn) {
            let what = format!("a second NAK for PSN {asked}, which has not come since");
            self.find(Rule::NakRepeated, [before.cite.packet, p.number], what);
        }
        let r = &mut self.responder;
        let log = &self.requester.log;
        let out_of_order = match psn < expected.least {
            // It came by here: lost behind, or sent again before this told of it.
            true => log.first_behind(psn).or_else(|| log.last_behind(psn)),
            false => r.out_of_order,
        };
        r.nak = Some(Denied {
            psn,
            cite: p.cite(),
            out_of_order,
        });
        if psn > expected.most {
            r.expected = Next::at(psn);
        }
        if out_of_order.is_none() {
            let what = format!("NAK for PSN {asked}, though no later request has come");
            self.find(Rule::NakUnfounded, [p.number], what);
        }
    }

    /// The responder sends a read response or the answer to an atomic operation.
    fn returns(&mut self, p: &Observed, psn: i64) {
        if self.responder.answering.is_none_or(|a| a.next != psn) {
            self.turns_to(p, psn);
        }
        let Some(a) = &mut self.responder.answering else {
            return;
        };
        a.next = psn + 1;
        let a = *a;
        let ends = ends_answer(p);
        let end = match (a.asked.verb, self.mtu) {
            (Verb::Read, Some(mtu)) => Some(a.asked.end(mtu)),
            (Verb::Read, None) => None,
            _ => Some(a.asked.psn + 1),
        };
        let misplaced = end.filter(|&end| ends != (a.next == end));
        if ends || misplaced.is_some() {
            self.responder.answering = None;
        }
        if let Some(end) = misplaced {
            let what = format!(
                "{} PSN {}, where the {} bytes that packet {} asks for end with {}",
                if ends { "ends with" } else { "goes on behind" },
                self.psn(psn),
                a.asked.dma_len,
                a.asked.cite.packet,
                self.psn(end - 1),
            );
            self.find(Rule::ResponseCount, [a.asked.cite.packet, p.number], what);
        }
    }

    /// A response that is not the next of the current answer.
    fn turns_to(&mut self, p: &Observed, psn: i64) {
        let mtu = self.mtu;
        let r = &mut self.responder;
        let begins = r.asked.iter().position(|a| a.psn == psn).or_else(|| {
            // Its first responses were lost on the way to the capture.
            let current = r.answering.is_some_and(|a| a.covers(psn, mtu));
            let of = |a: &Asked| {
                a.verb == Verb::Read && psn > a.psn && mtu.is_none_or(|mtu| psn < a.end(mtu))
            };
            let mut asked = r.asked.iter();
            match mtu {
                Some(_) => asked.position(of),
                // How far each goes can't be told yet.
                None => asked.rposition(of),
            }
            .filter(|_| !current)
        });
        if let Some(asked) = begins.and_then(|at| r.asked.drain(..=at).next_back()) {
            r.answering = Some(Answering { asked, next: psn });
            sample(
                &mut r.round_trip_ns,
                p.time.0.saturating_sub(asked.cite.time_ns),
            );
            self.answers_again(p, asked);
        } else if let Some(a) = r.answering.filter(|a| psn > a.next) {
            // Those between were lost on the way to the capture.
            r.answering = Some(Answering { next: psn, ..a });
        } else if let Some(asked) = (r.asked.front().copied())
            .or_else(|| r.answering.map(|a| a.asked))
            .filter(|_| psn < self.requester.next.least)
        {
            let what = format!(
                "answers with PSN {}, where packet {} asks from PSN {}",
                self.psn(psn),
                asked.cite.packet,
                self.psn(asked.psn)
            );
            self.find(Rule::ResponseMisplaced, [asked.cite.packet, p.number], what);
            self.responder.answering = Some(Answering { asked, next: psn });
        }
    }

    /// The responder begins to answer, maybe what was asked for again.
    fn answers_again(&mut self, p: &Observed, asked: Asked) {
        for awaited in &mut self.requester.awaited {
            awaited.asked_again &= awaited.psn > asked.psn || awaited.next < asked.psn;
        }
        let Some(at) = self.reasked.iter().position(|&(psn, _)| psn == asked.psn) else {
            return;
        };
        let (_, index) = self.reasked.swap_remove(at);
        let recovery = &mut self.recoveries[index];
        recovery.again = Some(p.cite());
        recovery.reaction_ns = Some(p.time.0.saturating_sub(asked.cite.time_ns));
    }
}
