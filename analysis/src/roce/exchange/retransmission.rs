// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a requester goes back, and whether it may.

use midwire_trace::packet::ack_timeout_ns;

use super::{Exchange, Reason};
use crate::roce::{Cite, Found, Lost, Observed, Recovery, Rule, Verb};
use crate::text::span;

/// The shortest timeout there is, that of setting 1.
const SHORTEST_TIMEOUT_NS: u64 = 8_192;
/// Times are no more exact than the steps of the clock that took them: a few ns of the card's, 1 µs
/// of many others'.
const CLOCK_STEP_NS: u64 = 1_000;
/// A requester that has not obeyed a NAK for this long doesn't mean to.
const OBEYS_WITHIN_NS: u64 = 1_000_000_000;
/// A requester that goes back this long after a NAK may not have heard it.
const PATIENCE_NS: u64 = 1_000_000;

impl Exchange {
    /// The requester sends what it has sent before.
    pub(super) fn goes_back(&mut self, p: &Observed, psn: i64, verb: Verb) {
        let now = p.cite();
        let unseen = self.unseen(psn, verb, now);
        let reason = match self.reason(psn, now) {
            Some(nak) if nak.found == Found::SequenceNak && psn < nak.psn => unseen.or(Some(nak)),
            reason => reason.or(unseen),
        };
        let index = self.recoveries.len();
        let missing = reason.map_or(psn.min(self.requester.unacked), |r| r.psn);
        let found = reason.map_or(Found::Timeout, |r| r.found);
        let mut recovery = Recovery {
            again: Some(now),
            from: Some(psn),
            ..self.recovery(verb, missing, found)
        };
        match reason {
            Some(reason) => {
                if reason.found == Found::ImpliedNak {
                    self.reasked.push((psn, index));
                }
                self.obeys(reason, psn, now, &mut recovery);
            }
            None => self.times_out(p, psn, &mut recovery),
        }
        if verb == Verb::Read {
            self.check_extent(p, psn);
        }
        self.recoveries.push(recovery);
        self.requester.recovering = Some((index, self.requester.next.least));
    }

    /// A recovery of which no more is known yet.
    fn recovery(&self, verb: Verb, missing: i64, found: Found) -> Recovery {
        let missing = match found {
            Found::Timeout => self.untaken(verb, missing),
            _ => missing,
        };
        Recovery {
            connection: self.number,
            verb,
            psn: self.psn(missing),
            position: missing,
            lost: match found {
                Found::NotReady => Lost::Nothing,
                _ => self.lost(missing),
            },
            found,
            out_of_order: None,
            nak: None,
            again: None,
            from: None,
            requests: 0,
            generation_ns: None,
            reaction_ns: None,
            waited_ns: None,
            retry: None,
            generation_round_trip_ns: None,
            reaction_round_trip_ns: None,
            broken: Vec::new(),
        }
    }

    /// The requester goes back as it was told to.
    fn obeys(&mut self, reason: Reason, psn: i64, now: Cite, recovery: &mut Recovery) {
        let told = reason.told;
        let since = now.time_ns.saturating_sub(told.time_ns);
        recovery.out_of_order = reason.out_of_order;
        if reason.found == Found::ImpliedNak {
            self.counts.implied_naks += 1;
            recovery.nak = Some(now);
            recovery.again = None;
            recovery.generation_ns = Some(since);
        } else {
            recovery.nak = Some(told);
            recovery.reaction_ns = Some(since);
            recovery.generation_ns = reason.generation_ns();
        }
        let (from, asked) = (self.psn(psn), self.psn(reason.psn));
        let cites = [told.packet, now.packet];
        if psn > reason.psn {
            let what = format!("goes back to PSN {from}, where {asked} is missing");
            self.find(Rule::ResumedAbove, cites, what);
        } else if psn < reason.psn && !self.begins_read(psn) {
            let what = format!("goes back to PSN {from}, where {asked} was asked for");
            self.find(Rule::ResumedBelow, cites, what);
        }
        if since < reason.wait_ns {
            let what = format!(
                "tries again after {}, where the receiver asked for {}",
                span(since),
                span(reason.wait_ns)
            );
            self.find(Rule::RnrTooEarly, cites, what);
        }
    }

    /// Why the requester goes back.
    fn reason(&mut self, psn: i64, now: Cite) -> Option<Reason> {
        let r = &mut self.requester;
        let early = |told: Cite| now.time_ns.saturating_sub(told.time_ns) < PATIENCE_NS;
        if let Some(overtaken) = r.overtaken.take()
            && r.reason.is_none_or(|reason| psn < reason.psn)
            && overtaken.found == Found::ImpliedNak
            && overtaken.psn <= psn
            && early(overtaken.told)
        {
            // It has got some answers since, and asks for the rest.
            return Some(Reason { psn, ..overtaken });
        }
        let reason = r.reason.take();
        reason.filter(|reason| !self.unheard(reason, psn, now))
    }

    /// A NAK that came by here and can't be why the requester goes back: it does so much later,
    /// and further than that asks for, or had gone back for what is missing before.
    fn unheard(&self, reason: &Reason, psn: i64, now: Cite) -> bool {
        (psn < reason.psn || reason.retried) && self.is_late(reason.told, now)
    }

    /// Its timer may have made the requester go back this long after it was told to.
    fn is_late(&self, told: Cite, now: Cite) -> bool {
        let timeout = self.timer.timeout.and_then(ack_timeout_ns);
        let patience = timeout.map_or(PATIENCE_NS, |timeout| timeout / 2);
        now.time_ns.saturating_sub(told.time_ns) >= patience
    }

    /// The requester goes back, and nothing that was seen tells why: what was lost behind the
    /// capture shows in a read that is asked for again though later responses came by.
    fn unseen(&self, psn: i64, verb: Verb, now: Cite) -> Option<Reason> {
        if verb != Verb::Read || psn >= self.requester.unacked {
            return None;
        }
        let first = self.responder.log.first_behind(psn);
        let told = first.filter(|told| !self.is_late(*told, now))?;
        Some(Reason {
            found: Found::ImpliedNak,
            psn,
            out_of_order: Some(told),
            told,
            wait_ns: 0,
            stale: false,
            retried: false,
        })
    }

    /// The first request from a PSN on that the responder has not got, as far as can be seen: what
    /// a timeout begins with may only not be acknowledged.
    fn untaken(&self, verb: Verb, psn: i64) -> i64 {
        let expected = self.responder.expected.least.max(psn);
        let sent = expected < self.requester.next.least;
        if sent && !verb.awaits_data() {
            expected
        } else {
            psn
        }
    }

    /// Where the packet with a PSN was lost: a request, or a response to a read.
    fn lost(&self, psn: i64) -> Lost {
        let read = self.requester.awaiting(psn, self.mtu);
        let request = self.requester.log.lost(read.map_or(psn, |a| a.psn));
        match (self.responder.log.lost(psn), request) {
            // Nothing came back: the request itself, if that was lost.
            (Lost::Before, Lost::Behind(_)) if read.is_some() => Lost::Before,
            (Lost::Before, request) => request,
            (response, _) => response,
        }
    }

    /// A read that is awaited begins here.
    fn begins_read(&self, psn: i64) -> bool {
        self.requester.awaited.iter().any(|a| a.psn == psn)
    }

    /// The requester goes back for want of an answer.
    fn times_out(&mut self, p: &Observed, psn: i64, recovery: &mut Recovery) {
        self.counts.timeouts += 1;
        let r = &mut self.requester;
        r.timeouts += 1;
        let (retry, unacked) = (r.timeouts, r.unacked);
        let before = r.log.last(psn).map(|e| e.cite);
        // What is acknowledged here but not to the requester was lost behind.
        let progress = if psn < unacked { 0 } else { r.progress_ns };
        // The timer was begun with this packet, or with any later one.
        let begun = before.map_or(r.sent_ns, |cite| cite.time_ns);
        let since = |time: u64| p.time.0.saturating_sub(time.max(progress));
        let (waited, idle) = (since(begun), since(r.sent_ns));
        let this = (waited, p.number);
        let [shortest, longest] = r.waited.unwrap_or([this; 2]);
        r.waited = Some([shortest.min(this), longest.max(this)]);
        let cites: Vec<u64> = (before.map(|cite| cite.packet).into_iter())
            .chain([p.number])
            .collect();
        recovery.waited_ns = Some(waited);
        recovery.retry = Some(retry);
        if let Lost::Behind(_) = recovery.lost
            && let Some((ack, packet)) = self.responder.lost_ack
            && ack >= psn
        {
            recovery.lost = Lost::Answer(packet);
        }
        if psn > unacked {
            let what = format!(
                "goes back to PSN {}, where {} is not acknowledged",
                self.psn(psn),
                self.psn(unacked)
            );
            self.find(Rule::ResumedAbove, cites.iter().copied(), what);
        }
        let missing = self.responder.expected.least;
        let denied = self.responder.nak.is_some_and(|nak| nak.psn <= missing);
        if let Some(early) = self.responder.out_of_order.filter(|_| !denied) {
            recovery.out_of_order = Some(early);
            let what = format!(
                "no NAK though packet {} came where PSN {} was missing",
                early.packet,
                self.psn(missing)
            );
            self.find(Rule::NakMissing, [early.packet, p.number], what);
        }
        self.check_timeout([waited, idle], retry, &cites);
    }

    /// A timer runs as long as it was set to, and as often. It was begun so long before, or any
    /// time after that, but not after the requester was idle.
    fn check_timeout(&mut self, [waited, idle]: [u64; 2], retry: u32, cites: &[u64]) {
        let timer = self.timer;
        let mut find = |rule, what| self.find(rule, cites.iter().copied(), what);
        if waited < SHORTEST_TIMEOUT_NS {
            let what = format!(
                "sent again after {}: no NAK, and shorter than any timeout",
                span(waited)
            );
            find(Rule::Unprovoked, what);
        }
        if let Some(setting) = timer.timeout
            && let Some(least) = ack_timeout_ns(setting)
        {
            let what = |waited| {
                format!(
                    "timeout after {}, where timeout {setting} is {} to {}",
                    span(waited),
                    span(least),
                    span(4 * least)
                )
            };
            if waited + CLOCK_STEP_NS < least {
                find(Rule::TimeoutTooEarly, what(waited));
            } else if idle > 4 * least + CLOCK_STEP_NS {
                find(Rule::TimeoutTooLate, what(idle));
            }
        }
        if let Some(most) = timer.retry_count
            && retry == u32::from(most) + 1
        {
            let what = format!(
                "tries again for the {retry}. time without progress, where {most} retries are allowed"
            );
            find(Rule::TooManyRetries, what);
        }
    }

    /// A read that is asked for again asks for what remains.
    fn check_extent(&mut self, p: &Observed, psn: i64) {
        let (Some(mtu), Some(reth)) = (self.mtu, p.roce.reth) else {
            return;
        };
        let Some(a) = self.requester.awaiting(psn, Some(mtu)) else {
            return;
        };
        let had = (psn - a.psn) as u64 * u64::from(mtu);
        let remain = u64::from(a.dma_len).saturating_sub(had);
        let va = a.va.wrapping_add(had);
        if u64::from(reth.dma_len) != remain || reth.va != va {
            let what = format!(
                "asks for {} bytes at {:#x}, where {remain} at {va:#x} remain from PSN {}",
                reth.dma_len,
                reth.va,
                self.psn(psn)
            );
            self.find(Rule::ReadExtent, [p.number], what);
        }
    }

    /// What is still missing when the capture ends.
    pub(super) fn unfinished(&mut self, latest: u64) {
        let (requester, responder) = (&self.requester, &self.responder);
        let request = Some(responder.expected.least).filter(|&psn| psn < requester.next.least);
        let response = (requester.awaited.front())
            .map(|a| a.next)
            .filter(|&psn| matches!(responder.log.lost(psn), Lost::Here(_)));
        let reason = requester.reason.filter(|reason| !reason.retried);
        let Some(missing) = reason.map(|r| r.psn).or(request).or(response) else {
            return;
        };
        let read = self.begins_read(missing) || response == Some(missing);
        let verb = match self.verbs.iter().position(|&packets| packets > 0) {
            Some(verb) if !read => Verb::ALL[verb],
            _ => Verb::Read,
        };
        let found = reason.map_or(Found::NotYet, |r| r.found);
        self.recoveries.push(Recovery {
            out_of_order: match reason {
                Some(reason) => reason.out_of_order,
                None => responder.out_of_order.filter(|_| request.is_some()),
            },
            nak: (reason.map(|r| r.told)).filter(|_| found != Found::ImpliedNak),
            generation_ns: reason.and_then(|r| r.generation_ns()),
            ..self.recovery(verb, missing, found)
        });
        if let Some(Reason { told, wait_ns, .. }) = reason
            && latest.saturating_sub(told.time_ns) >= OBEYS_WITHIN_NS + wait_ns
        {
            let what = format!(
                "PSN {} is not sent again in {}",
                self.psn(missing),
                span(latest.saturating_sub(told.time_ns))
            );
            self.find(Rule::NotResumed, [told.packet], what);
        }
    }

    /// A timer of one setting runs between once and four times its time.
    pub(super) fn varying_timeouts(&mut self) {
        let Some([shortest, longest]) = self.requester.waited else {
            return;
        };
        let round_trip = self.requester.round_trip_ns.unwrap_or(0);
        if self.timer.timeout.is_none()
            && longest.0 > shortest.0.saturating_mul(4).saturating_add(round_trip)
        {
            let what = format!(
                "timeouts from {} to {}: no setting allows both",
                span(shortest.0),
                span(longest.0)
            );
            self.find(Rule::TimeoutVaries, [shortest.1, longest.1], what);
        }
    }
}
