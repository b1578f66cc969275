// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the requester does: it sends requests and hears answers.

use midwire_trace::packet::syndrome;

use super::{Answer, Awaited, Exchange, Next, Reason, ends_answer, sample};
use crate::roce::{Found, Observed, Rule, Verb};

impl Exchange {
    /// The requester sends a request.
    pub fn sends(&mut self, p: &Observed) {
        let (psn, verb) = (self.requested(p), Verb::of(p.roce.bth.opcode));
        self.verbs[verb as usize] += 1;
        self.counts.requests += 1;
        self.counts.bytes += u64::from(p.payload);
        let dma_len = p.roce.reth.map_or(0, |reth| reth.dma_len);
        let va = p.roce.reth.map_or(0, |reth| reth.va);
        let highest = self.requester.next;
        let cursor = self.requester.cursor;
        if psn < cursor.least {
            self.goes_back(p, psn, verb);
        } else if psn > cursor.most {
            self.skips(p, psn);
        }
        let r = &mut self.requester;
        r.recovering = r.recovering.filter(|&(_, end)| psn < end);
        if let Some((index, _)) = r.recovering {
            self.recoveries[index].requests += 1;
        }
        r.cursor = Next::after(psn, verb, dma_len, self.mtu);
        if psn >= highest.least {
            r.next = r.cursor;
            if let Some(idle) = r.idle_ns.take() {
                sample(&mut r.round_trip_ns, p.time.0.saturating_sub(idle));
            }
        } else {
            self.counts.again += 1;
        }
        r.idle_ns = None;
        if verb.awaits_data() && psn >= r.unacked {
            let at = r.awaited.partition_point(|a| a.psn <= psn);
            let open = at.checked_sub(1).and_then(|i| r.awaited.get_mut(i));
            match open {
                // Asked for again, from its beginning or from within.
                Some(a) if psn <= a.next && (psn < highest.least) && a.covers(psn, self.mtu) => {
                    (a.asked_again, a.retried) = (true, true);
                }
                _ => r.awaited.insert(
                    at,
                    Awaited {
                        psn,
                        next: psn,
                        dma_len,
                        va,
                        asked_again: false,
                        retried: false,
                    },
                ),
            }
        }
        r.sent_ns = p.time.0;
        r.log.push(psn, p);
    }

    /// The requester leaves PSNs out, or they were lost on the way to the capture.
    fn skips(&mut self, p: &Observed, psn: i64) {
        let r = &self.requester;
        let (from, highest) = (r.cursor.least, r.next);
        let to_new = (highest.least..=highest.most).contains(&psn);
        if let Some((index, end)) = r.recovering
            && from < end
            && to_new
            && r.unacked < psn
        {
            let began = self.recoveries[index].again.or(self.recoveries[index].nak);
            let what = format!(
                "goes on with PSN {} without sending {} to {} again",
                self.psn(psn),
                self.psn(from),
                self.psn(psn - 1)
            );
            let cites = began.map(|c| c.packet).into_iter().chain([p.number]);
            self.find(Rule::NotGoBackN, cites, what);
        }
    }

    /// The requester gets an answer.
    pub fn hears(&mut self, p: &Observed) {
        let psn = self.answered(p);
        let answer = Answer::of(p);
        if matches!(answer, Answer::Ack | Answer::Data) {
            self.first_answer.get_or_insert(p.number);
        }
        match answer {
            Answer::Ack => self.progress(p, psn + 1),
            Answer::SequenceNak => {
                self.tallies[0].naks.add(p.number);
                self.told(p, psn, Found::SequenceNak, 0);
            }
            Answer::NotReady(code) => {
                self.tallies[0].unready.add(p.number);
                let wait = syndrome::not_ready_us(code) * 1000;
                self.told(p, psn, Found::NotReady, wait);
            }
            Answer::Refusal(syndrome) => {
                self.progress(p, psn);
                self.refusals.push((p.number, syndrome));
                match syndrome {
                    syndrome::INVALID_REQUEST => self.tallies[0].invalid.add(p.number),
                    syndrome::REMOTE_ACCESS => self.tallies[0].denied.add(p.number),
                    _ => {}
                }
            }
            Answer::Data => self.gets(p, psn),
        }
    }

    /// The requester gets a NAK that it has to obey.
    fn told(&mut self, p: &Observed, psn: i64, found: Found, wait_ns: u64) {
        self.progress(p, psn);
        let r = &mut self.requester;
        if !r.heard {
            // The first packets were lost before the capture.
            r.unacked = r.unacked.min(psn);
        }
        r.heard = true;
        let earlier = r.reason.is_some_and(|reason| reason.psn < psn);
        if psn < r.unacked || psn >= r.next.most || earlier {
            return;
        }
        if found == Found::SequenceNak {
            self.tallies[0].new_naks.add(p.number);
        }
        self.requester.reason = Some(Reason {
            found,
            psn,
            out_of_order: (self.responder.nak)
                .filter(|nak| nak.psn == psn && found == Found::SequenceNak)
                .and_then(|nak| nak.out_of_order),
            told: p.cite(),
            wait_ns,
            stale: false,
            retried: false,
        });
    }

    /// The requester gets a read response or the answer to an atomic operation.
    fn gets(&mut self, p: &Observed, psn: i64) {
        let Some(awaited) = self.requester.awaited.front_mut() else {
            return;
        };
        if psn > awaited.next {
            // The responder has come to this read: what is before it is done.
            self.progress(p, psn);
            return;
        }
        if psn < awaited.next {
            return;
        }
        awaited.next += 1;
        (awaited.asked_again, awaited.retried) = (false, false);
        if ends_answer(p) {
            self.requester.awaited.pop_front();
        }
        self.progress(p, psn + 1);
    }

    /// An answer to something later implies that the answer that the requester awaits is lost.
    fn implies(&mut self, p: &Observed) {
        let r = &mut self.requester;
        let Some(awaited) = r.awaited.front() else {
            return;
        };
        self.tallies[0].ahead.add(p.number);
        let awaited = *awaited;
        let (psn, stale) = (awaited.next, awaited.asked_again);
        let known = |reason: Reason| reason.psn == psn && (stale || !reason.stale);
        if !r.reason.is_some_and(known) {
            r.reason = Some(Reason {
                found: Found::ImpliedNak,
                psn,
                out_of_order: Some(p.cite()),
                told: p.cite(),
                wait_ns: 0,
                stale,
                retried: awaited.retried,
            });
        }
    }

    /// Everything before a PSN is acknowledged.
    fn progress(&mut self, p: &Observed, to: i64) {
        let r = &mut self.requester;
        let mut to = to.min(r.next.most);
        if let Some(awaited) = r.awaited.front().copied()
            && to > awaited.next
        {
            to = awaited.next;
            self.implies(p);
        }
        let r = &mut self.requester;
        if to > r.unacked {
            r.heard = true;
            r.unacked = to;
            r.timeouts = 0;
            r.progress_ns = p.time.0;
            if let Some(reason) = r.reason.take_if(|reason| reason.psn < to) {
                r.overtaken = Some(reason);
            }
            if to >= r.next.least {
                r.idle_ns = Some(p.time.0);
            }
        }
    }
}
