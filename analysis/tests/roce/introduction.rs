// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ends tell each other before the first request.

use midwire_analysis::roce::{self, Analysis, Rule, Seen, Settings, Timer};

use crate::conversation::{Conversation, Frame, observed};
use crate::mad;

/// The ends of a conversation tell each other their queue pairs and timers.
fn introduction(conversation: &Conversation, id: u32, timer: [u8; 2], seen: Seen) -> [Frame; 2] {
    let [own, other] = conversation.qps;
    let request = mad::request(&conversation.requester, id, own, timer);
    let reply = mad::reply(&conversation.responder, id, other);
    let frame = |data| Frame {
        time: 0,
        seen,
        data,
    };
    [request, reply].map(frame)
}

/// Of packets in the order of their times.
fn analysis(mut frames: Vec<Frame>, settings: Settings) -> Analysis {
    frames.sort_by_key(|frame| frame.time);
    roce::analyze(observed(&frames), settings)
}

#[test]
fn queue_pairs_that_were_told_belong_together() {
    let pairs = |told: Option<Seen>| {
        // Alike in all but their queue pairs, and the later one is answered first.
        let mut frames = Vec::new();
        for (id, qps, answered) in [(31, [0x101, 0x201], 5_000), (32, [0x102, 0x202], 4_000)] {
            let mut conversation = Conversation::new(7);
            conversation.after(id.into()).write(0, 1, 0);
            conversation.after(answered).ack(0);
            conversation.relabel(qps, 50_000);
            let told = told.map(|seen| introduction(&conversation, id, [14, 7], seen));
            frames.extend(told.into_iter().flatten());
            frames.extend(conversation.frames);
        }
        let analysis = analysis(frames, Settings::default());
        let ends = |c: &roce::Connection| [c.requester.qp, c.responder.qp].map(Option::unwrap);
        analysis.connections.iter().map(ends).collect::<Vec<_>>()
    };
    assert_eq!(pairs(Some(Seen::Passing)), [[0x101, 0x201], [0x102, 0x202]]);
    // Otherwise the first answer is taken for that to the first request.
    assert_eq!(pairs(None), [[0x102, 0x201], [0x101, 0x202]]);
    assert_eq!(pairs(Some(Seen::Sent)), pairs(None));
}

#[test]
fn timers_that_were_told_are_held_against_what_is_done() {
    let rules = |told, settings| {
        let mut conversation = Conversation::new(0);
        conversation.dropped().write(0, 1, 0);
        // 4.096 us * 2^13
        conversation.after(33_600_000).write(0, 1, 0);
        conversation.after(2_000).ack(0);
        let introduction = introduction(&conversation, 1, told, Seen::Passing);
        let frames = introduction.into_iter().chain(conversation.frames);
        let analysis = analysis(frames.collect(), settings);
        let rules = analysis.findings.iter().map(|finding| finding.rule);
        rules.collect::<Vec<_>>()
    };
    assert_eq!(rules([13, 7], Settings::default()), []);
    assert_eq!(rules([14, 7], Settings::default()), [Rule::TimeoutTooEarly]);
    assert_eq!(rules([13, 0], Settings::default()), [Rule::TooManyRetries]);
    // Whoever asks knows better.
    let asked = Settings {
        timer: Timer {
            timeout: Some(13),
            retry_count: None,
        },
        ..Settings::default()
    };
    assert_eq!(rules([14, 7], asked), []);
}
