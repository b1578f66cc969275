// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A lane against a model of what must leave it: random frames at the MAC's rate with bubbles,
// random readiness, verdicts and actions, and frames that the card made. The model edits frames
// from the headers' definitions and sums IPv4 headers anew. Checked: content, order, nothing
// lost, split or merged, no gap inside a frame, the egress tap, counters, delays and gaps to one
// clock, places moved, time-outs, latency, room for admission.
//
// uses: mw_fifo mw_ram mw_sorted_queue mw_crc32_change mw_mend mw_act mw_reorder mw_hold mw_egress
// verilate: -GDATA_W=512 -GDELAY_SLOTS_LOG2=3
// verilate: -GDATA_W=64 -GDELAY_SLOTS_LOG2=3
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;
static constexpr unsigned Slots = 8, Width = sizeof(Vtop::m_axis_tdata), MaxFrame = 10240;
static constexpr double Period = Width == 64 ? 3.103 : 6.4;

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            printf("%s, cycle %llu: ", scenario, (unsigned long long)cycle); \
            printf(__VA_ARGS__); \
            printf("\n"); \
            exit(1); \
        } \
    } while (0)

// The fields of a packed struct, least significant first, as mw_pkg.sv orders them.
struct Bits {
    uint8_t b[128] = {};
    unsigned at = 0;
    void put(uint64_t v, unsigned n) {
        for (unsigned i = 0; i < n; i++, at++) b[at / 8] |= (v >> i & 1) << at % 8;
    }
};

struct Action {
    bool drop = false, ecn = false, corrupt = false, delay = false;
    uint64_t delay_ns = 0;
    unsigned base = 0, offset = 0, mask = 0;
    unsigned after = 0;  // reorder: so many go by
    bool of_lane = false;
    unsigned copies = 0, gap_ns = 0;
    bool inject = false;
    unsigned form = 0;
    bool held() const { return (delay && delay_ns) || after; }
    bool stored() const { return held() || copies; }
};

struct Frame {
    Bytes in, out;
    bool error = false, truncated = false, captured = false, touched = false, is_ip = false, ip6 = false;
    unsigned l3 = 0, l4 = 0, payload = 0;
    Action act;
    uint8_t rec[32];
    unsigned done = 0;  // without delay
    bool decided = false, held = false;
    uint64_t stamp = 0, sof_cycle = 0, release = 0, taken = 0;
    bool due = false;  // since when the port was idle for so many cycles, and other frames were taken aside
    uint64_t due_idle = 0, due_aside = 0, due_left = 0;
    uint64_t serial = 0;
    unsigned passed = 0, copies_left = 0;
    uint64_t timeout = 0;      // when it stops waiting for others
    uint64_t ripe = ~0ull;     // cycle since which nothing holds it back
    uint64_t last_left = 0;    // time
    bool made = false;         // by the card
    unsigned conn() const { return rec[12] | rec[13] << 8; }
};
using Ref = std::shared_ptr<Frame>;

static uint16_t header_sum(const Bytes& f, unsigned l3) {
    uint32_t sum = 0;
    unsigned n = (f[l3] & 15) * 4;
    for (unsigned i = 0; i < n; i += 2)
        if (i != 10) sum += f[l3 + i] << 8 | f[l3 + i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

static void expect(Frame& f) {
    f.out = f.in;
    if (f.act.ecn && f.is_ip) {
        f.done |= 2;
        if (f.ip6) {
            f.out[f.l3 + 1] |= 0x30;
        } else {
            f.out[f.l3 + 1] |= 0x03;
            uint16_t sum = header_sum(f.out, f.l3);
            f.out[f.l3 + 10] = sum >> 8;
            f.out[f.l3 + 11] = sum;
        }
    }
    unsigned base[4] = {0, f.l3, f.l4, f.payload};
    const bool has[4] = {true, f.is_ip, (f.rec[4] >> 2 & 3) != 0, !(f.rec[5] >> 4 & 1)};  // IP, a transport, sound
    unsigned at = base[f.act.base] + f.act.offset;
    if (f.act.corrupt && has[f.act.base] && at < f.in.size()) {
        f.done |= 4;
        f.out[at] ^= f.act.mask;
    }
    if (f.out.size() < 60) f.out.resize(60, 0);
}

struct Config {
    unsigned frames;
    unsigned min_len, max_len;
    double rate;        // beats a cycle inside a frame
    unsigned gap;       // idle cycles between frames, up to
    unsigned ready;     // of 100 cycles, those in which the MAC is ready
    unsigned act;       // of 100 frames, those with an action
    uint64_t delay_max;
    bool late_verdicts; // some only after the end of the frame
    bool lossless;      // nothing may be lost: the MAC takes what comes
    bool jumbos = false;  // one frame in 200 is a longest one and is delayed
    unsigned added = 0;   // of 1000 idle cycles of the card's own, those in which it begins a frame
};

struct Bench {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937_64 rng{Width};
    const char* scenario = "";
    uint64_t cycle = 0, skew = 0;

    std::deque<Ref> verdicts;                       // frames whose verdict is still to come
    std::deque<uint64_t> verdict_at;
    uint64_t last_verdict = 0;
    std::deque<Ref> order;                          // to leave, as they came
    std::list<Ref> held;                            // taken aside, not yet left
    std::list<Ref> copying;                         // has left, and will again
    std::list<Ref> made;                            // by the card, given to the lane
    Ref adding;                                     // the same, on its way
    size_t add_beat = 0;
    struct Left {
        Ref frame;
        uint64_t time;
        bool copy;
    };
    std::deque<size_t> dropping;                    // beats of frames that are to be dropped
    std::deque<Left> tapped;                        // left, not yet seen at the tap
    Bytes leaving, at_tap;
    bool mid = false, was_stalled = false;
    uint64_t leave_time = 0, leave_cycle = 0;
    Bytes stalled;
    unsigned left = 0, lost = 0, bytes_out = 0;
    unsigned tx = 0, tx_bytes = 0, dropped = 0, marked = 0, corrupted = 0, delayed = 0, full = 0, done = 0;
    unsigned want_dropped = 0, want_marked = 0, want_corrupted = 0, captured = 0;
    unsigned reordered = 0, copied = 0, injected = 0, captured_copied = 0, captured_injected = 0, captured_tx = 0;
    unsigned want_copied = 0, want_injected = 0, want_captured_copied = 0, want_captured_injected = 0, want_captured_tx = 0;
    unsigned timed_out = 0, moved = 0;
    uint64_t serial = 0;
    unsigned want_more = 0, add_permille = 0;
    uint64_t last_departure = 0;  // cycle in which the first beat of the last frame was shown

    // the beat that ingress shows in the next cycle
    Ref next_frame;
    size_t next_beat = 0;
    bool next_valid = false;

    unsigned pick(unsigned n) { return rng() % n; }
    uint64_t now() const { return 1000 + skew + uint64_t(cycle * Period); }

    // One clock. Returns admit as it was during it.
    bool clock(bool ready) {
        t.time_ns = now();
        t.in_valid = next_valid;
        if (next_valid) {
            Frame& f = *next_frame;
            size_t at = next_beat * Width, n = std::min<size_t>(Width, f.in.size() - at);
            Bytes beat(Width);
            for (auto& b : beat) b = rng();  // what lies beyond keep is anything
            memcpy(beat.data(), &f.in[at], n);
            memcpy(&t.in_data, beat.data(), Width);
            t.in_keep = n == 64 ? ~0ull : (1ull << n) - 1;
            t.in_sof = at == 0;
            t.in_last = at + n == f.in.size();
            t.in_error = t.in_last && f.error;
            t.in_truncated = t.in_last && f.truncated;
            t.in_captured = f.captured;
        }
        t.v_valid = !verdicts.empty() && cycle >= verdict_at.front();
        if (t.v_valid) {
            Frame& f = *verdicts.front();
            Bits v;
            for (uint8_t b : f.rec) v.put(b, 8);
            v.put(std::min(f.payload + (f.rec[14] | f.rec[15] << 8), unsigned(MaxFrame)), 14);
            v.put(f.payload, 8), v.put(f.l4, 8), v.put(f.l3, 8);
            v.put(f.rec[5] >> 4 & 1, 1), v.put(f.rec[4] >> 2 & 3, 2), v.put(f.ip6, 1), v.put(f.is_ip, 1), v.put(f.touched, 1);
            v.put(f.act.drop, 1), v.put(f.act.ecn, 1), v.put(f.act.corrupt, 1), v.put(f.act.delay, 1);
            v.put(f.act.delay_ns, 40), v.put(f.act.base, 2), v.put(f.act.offset, 12), v.put(f.act.mask, 8), v.put(3, 2), v.at += 165;
            v.put(f.act.after != 0, 1), v.put(f.act.of_lane, 1), v.put(f.act.after, 16);
            v.put(f.act.copies != 0, 1), v.put(f.act.copies, 8), v.put(f.act.gap_ns, 32);
            v.put(f.act.inject, 1), v.put(f.act.form, 8), v.at += 147;
            v.put(f.stamp, 64);
            memcpy(&t.v, v.b, sizeof t.v);
            verdicts.pop_front(), verdict_at.pop_front();
        }
        t.m_axis_tready = ready;
        t.tap_room = 1;
        drive_added();
        t.eval();
        bool admit = t.admit;
        counters();
        output(ready);
        idle += !t.m_axis_tvalid;
        for (auto& f : held) {
            if (f->ripe == ~0ull && (!f->act.delay || now() >= f->release) && (f->passed >= f->act.after || now() >= f->timeout)) f->ripe = cycle;
            if (f->due || f->ripe == ~0ull || cycle < f->ripe + 5 || cycle < f->taken + f->in.size() / Width + 10) continue;
            f->due = true, f->due_idle = idle, f->due_aside = aside, f->due_left = left;
        }
        tap();
        take_added();
        see();
        next_valid = false;
        t.clk = 1, t.eval();
        t.clk = 0, t.eval();
        cycle++;
        return admit;
    }

    // Of frames that ask for an answer, dropped or not, the first bytes are shown as they came.
    void see() {
        if (!t.seen_valid) return;
        CHECK(!answered.empty(), "a beginning that nobody asked for");
        Frame& f = *answered.front();
        if (t.seen_sof) {
            CHECK(beginning.empty(), "the beginning of another frame");
            uint32_t words[9] = {};
            memcpy(words, &t.seen, sizeof t.seen);
            CHECK(!memcmp(words, f.rec, 32), "record of a beginning");
            unsigned l4 = words[8] & 255, l3 = words[8] >> 8 & 255, form = words[8] >> 16 & 255, captured = words[8] >> 24 & 1;
            CHECK(l3 == f.l3 && l4 == f.l4 && form == f.act.form && captured == f.captured, "beginning: %u %u %u %u", l3, l4, form, captured);
        }
        const uint8_t* d = (const uint8_t*)&t.seen_data;
        beginning.insert(beginning.end(), d, d + Width);
        if (!t.seen_last) return;
        size_t want = std::min<size_t>(128, f.in.size());
        CHECK(beginning.size() == (want + Width - 1) / Width * Width, "%zu bytes of a beginning, not %zu", beginning.size(), want);
        CHECK(!memcmp(beginning.data(), f.in.data(), want), "bytes of a beginning");
        answered.pop_front(), beginning.clear(), seen++;
    }
    std::deque<Ref> answered;
    Bytes beginning;
    unsigned seen = 0;

    // Frames that the card made come beat by beat, each when there is room for it.
    void drive_added() {
        if (!adding && add_permille && pick(1000) < add_permille) {
            adding = make(pick(4) ? 60 + pick(100) : 60 + pick(1400));
            adding->out = adding->in;
            adding->error = adding->truncated = false;
            adding->rec[4] = 0x92 | (adding->rec[4] & 0xd);
            adding->touched = adding->captured;
            adding->made = true, add_beat = 0;
        }
        t.add_valid = adding && (t.add_ready || pick(4) != 0);
        if (!adding) return;
        size_t at = add_beat * Width, n = std::min<size_t>(Width, adding->in.size() - at);
        Bytes beat(Width);
        for (auto& b : beat) b = rng();
        memcpy(beat.data(), &adding->in[at], n);
        memcpy(&t.add_data, beat.data(), Width);
        t.add_sof = at == 0, t.add_last = at + n == adding->in.size(), t.add_len = n - 1;
        t.add_captured = adding->captured;
        memcpy(&t.add_rec, adding->rec, 32);
    }
    void take_added() {
        want_more = 0;
        if (!t.add_valid || !t.add_ready) return;
        if (!add_beat) {
            adding->serial = serial;
            want_injected++, want_captured_injected += adding->captured;
            captured += adding->captured, want_more = adding->captured;
        }
        add_beat++;
        if (t.add_last) made.push_back(adding), adding = nullptr;
    }

    void counters() {
        tx += t.cnt_tx_frame;
        if (t.cnt_tx_frame) tx_bytes += t.cnt_tx_bytes;
        if (t.cnt_dropped) dropped++, aside += dropping.front(), dropping.pop_front();
        marked += t.cnt_marked, corrupted += t.cnt_corrupted;
        copied += t.cnt_copied, injected += t.cnt_injected;
        captured_tx += t.cnt_captured_tx, captured_copied += t.cnt_captured_copied, captured_injected += t.cnt_captured_injected;
        done += t.done_captured;
        CHECK(!((t.cnt_delayed || t.cnt_reordered) && t.cnt_delay_full), "held back and not at once");
        // Each frame that is to be stored is told of once: those with copies are all captured.
        bool copies = t.more_captured && !want_more;
        CHECK(!want_more || t.more_captured == 1, "a frame that the card made is not counted as captured");
        if (!t.cnt_delayed && !t.cnt_reordered && !t.cnt_delay_full && !copies) return;
        auto f = order.begin();
        while (f != order.end() && ((*f)->decided || !(*f)->act.stored())) ++f;
        CHECK(f != order.end(), "stored, and nobody asked for it");
        Frame& g = **f;
        g.decided = true;
        if (t.cnt_delay_full) {
            size_t used = held.size() + copying.size() + made.size() + (adding && add_beat);
            for (auto& o : order) used += o->decided && o->copies_left;
            CHECK(used >= Slots, "not stored, with %zu of %u slots in use", used, Slots);
            full++;
            return;
        }
        CHECK(t.cnt_delayed == (g.act.delay && g.act.delay_ns) && t.cnt_reordered == (g.act.after != 0), "delayed %d, reordered %d", t.cnt_delayed, t.cnt_reordered);
        CHECK(t.more_captured == g.act.copies, "%u copies, not %u", t.more_captured, g.act.copies);
        g.copies_left = g.act.copies;
        want_copied += g.act.copies, want_captured_copied += g.act.copies, captured += g.act.copies;
        aside += last_aside;
        last_aside = 0;
        if (!g.act.held()) return;
        g.held = true;
        g.release = now() + (g.act.delay ? g.act.delay_ns : 0);
        g.timeout = now() + t.reorder_timeout_ns - 2 * Period;
        g.taken = cycle;
        last_aside = (g.in.size() + Width - 1) / Width;
        held.push_back(*f);
        order.erase(f);
        delayed += t.cnt_delayed, reordered += t.cnt_reordered;
    }

    void output(bool ready) {
        CHECK(!mid || t.m_axis_tvalid, "starved inside a frame");
        if (!t.m_axis_tvalid) {
            CHECK(!was_stalled, "valid fell without ready");
            return;
        }
        unsigned n = __builtin_popcountll(t.m_axis_tkeep);
        CHECK(n && t.m_axis_tkeep == (n == 64 ? ~0ull : (1ull << n) - 1), "keep has holes");
        CHECK(n == Width || t.m_axis_tlast, "a short beat inside a frame");
        Bytes beat(Width + 2);
        memcpy(beat.data(), &t.m_axis_tdata, Width);
        beat[Width] = n, beat[Width + 1] = t.m_axis_tlast | t.m_axis_tuser << 1;
        CHECK(!was_stalled || beat == stalled, "a beat changed while it waited");
        if (!mid && !was_stalled) leave_cycle = cycle;
        was_stalled = !ready;
        stalled = beat;
        if (!ready) return;
        if (!mid) leave_time = now(), leaving.clear();
        leaving.insert(leaving.end(), beat.begin(), beat.begin() + n);
        mid = !t.m_axis_tlast;
        if (t.m_axis_tlast) leave(t.m_axis_tuser);
    }

    void leave(bool error) {
        Ref f;
        bool copy = false;
        auto take = [&](std::list<Ref>& list) {
            for (auto h = list.begin(); h != list.end() && !f; ++h) {
                if ((*h)->out != leaving) continue;
                f = *h;
                list.erase(h);
                break;
            }
            return !!f;
        };
        if (!order.empty() && order.front()->out == leaving && (!order.front()->act.stored() || order.front()->decided)) {
            f = order.front();
            order.pop_front();
            for (auto& h : held) h->passed += h->act.after && h->serial < f->serial && (h->act.of_lane || h->conn() == f->conn());
        } else if (take(held)) {
            left_held(*f);
        } else if (take(copying)) {
            copy = true;
            // Stalls of the MAC move the first beats that are seen here.
            CHECK(was_not_steady || leave_time + Period + 1 >= f->last_left + f->act.gap_ns, "a copy left after %llu ns, not %u",
                  (unsigned long long)(leave_time - f->last_left), f->act.gap_ns);
            f->copies_left--;
            last_gap = leave_time - f->last_left;
        } else if (!take(made)) {
            explain();
            CHECK(false, "a frame of %zu bytes left that must not now (%zu in order, %zu held, %zu copied, %zu made)", leaving.size(), order.size(), held.size(), copying.size(), made.size());
        }
        CHECK(error == f->error, "error is %d", error);
        bytes_out += leaving.size();
        left++;
        want_captured_tx += f->captured;
        last_departure = leave_cycle;
        f->last_left = leave_time;
        if (f->copies_left) copying.push_back(f);
        tapped.push_back({f, leave_time, copy});
    }
    uint64_t last_gap = 0;

    // A frame that was held back.
    void left_held(Frame& f) {
        CHECK(!f.act.delay || leave_time >= f.stamp + f.act.delay_ns, "left too early");
        bool late = f.act.after && f.passed < f.act.after;
        CHECK(!late || leave_time >= f.timeout, "left after %u of %u frames", f.passed, f.act.after);
        timed_out += late;
        if (f.act.after && !late) {
            bool waited = f.act.delay || leave_time >= f.timeout;
            CHECK(!exact_places || waited || f.passed == f.act.after, "%u frames went by, not %u", f.passed, f.act.after);
            moved += f.passed == f.act.after;
        }
        // Late only by what the port, or a frame on its way aside, was busy for, and two clocks
        // for each frame that is found to be due; a frame may have to wait for another's verdict
        // when that comes after the frame's end.
        uint64_t idled = f.due ? idle - f.due_idle : 0, spent = f.due ? aside + last_aside + (dropping.empty() ? 0 : dropping.front()) - f.due_aside + 2 * (left - f.due_left) : 0;
        CHECK(was_late_verdicts || idled <= spent + 8 * 4, "a frame left %llu idle cycles after it was due", (unsigned long long)idled);
        for (auto& o : held) {
            bool was_there = o->taken + o->in.size() / Width + 12 < leave_cycle - 12;
            bool by_time = !o->act.after && !f.act.after;
            CHECK(!was_there || was_not_steady || !by_time || o->release + 8 >= f.release, "held frames left out of order");
            // Those that wait for others go by the order in which their turn came, then that in which they came.
            CHECK(was_not_steady || !f.act.after || !o->act.after || o->ripe == ~0ull || o->ripe > f.ripe || o->serial > f.serial || o->act.delay || f.act.delay || f.ripe == ~0ull,
                  "frames were reordered out of order");
        }
    }
    bool exact_places = false;
    bool was_not_steady = false, was_late_verdicts = false;
    uint64_t idle = 0, aside = 0, last_aside = 0;  // idle cycles of the port; beats taken aside or dropped, but for those of the last frame aside

    // The first difference to every frame of the same length.
    void explain() {
        auto one = [&](const Ref& f, const char* where) {
            if (f->out.size() != leaving.size()) return;
            size_t i = 0;
            while (i < leaving.size() && f->out[i] == leaving[i]) i++;
            if (i == leaving.size()) return (void)printf("  equals one %s: decided %d\n", where, f->decided);
            printf("  %s: byte %zu is %02x, not %02x; drop %d ecn %d (ip %d ip6 %d l3 %u) corrupt %d (%u+%u) delay %d\n", where, i, leaving[i],
                   f->out[i], f->act.drop, f->act.ecn, f->is_ip, f->ip6, f->l3, f->act.corrupt, f->act.base, f->act.offset, f->act.delay);
        };
        for (auto& f : order) one(f, "in order");
        for (auto& f : held) one(f, "held");
        for (auto& f : copying) one(f, "copied");
        for (auto& f : made) one(f, "made");
    }

    void tap() {
        if (!t.tap_valid) return;
        if (t.tap_sof) {
            at_tap.clear();
            tap_time = t.tap_time;
            tap_wanted = t.tap_wanted;
            memcpy(tap_rec, &t.tap_rec, 32);
        }
        unsigned n = __builtin_popcountll(t.tap_keep);
        const uint8_t* p = (const uint8_t*)&t.tap_data;
        at_tap.insert(at_tap.end(), p, p + n);
        if (!t.tap_last) return;
        CHECK(!tapped.empty(), "the tap shows a frame that did not leave");
        auto [f, time, copy] = tapped.front();
        tapped.pop_front();
        CHECK(at_tap == f->out, "the tap shows other bytes");
        CHECK(tap_time == time, "tap time %llu, not %llu", (unsigned long long)tap_time, (unsigned long long)time);
        CHECK(t.tap_error == f->error && t.tap_truncated == f->truncated, "tap error or truncated");
        CHECK(tap_wanted == (f->touched && f->captured), "tap_wanted is %d", tap_wanted);
        uint8_t rec[32];
        memcpy(rec, f->rec, 32);
        rec[4] |= 2;
        if (!f->made) {
            rec[31] = f->done;
            if (copy) rec[31] |= 0x40;
            else if (f->held) rec[31] |= (f->act.delay && f->act.delay_ns ? 8 : 0) | (f->act.after ? 32 : 0);
            if (rec[31] & 32) rec[24] = f->passed, rec[25] = f->passed >> 8;
        }
        CHECK(!memcmp(rec, tap_rec, 32), "tap record: done %02x, not %02x, f2 %02x%02x, not %02x%02x", tap_rec[31], rec[31], tap_rec[25], tap_rec[24], rec[25], rec[24]);
    }
    uint64_t tap_time = 0;
    bool tap_wanted = false;
    uint8_t tap_rec[32];

    Ref make(unsigned len) {
        auto f = std::make_shared<Frame>();
        f->in.resize(len);
        for (auto& b : f->in) b = rng();
        for (auto& b : f->rec) b = rng();
        f->rec[4] &= ~2;
        if (f->rec[4] >> 4 == 9) f->rec[4] &= 0x0f;
        f->rec[12] = pick(3), f->rec[13] = 0;  // of few connections
        f->captured = pick(2), f->touched = pick(2);
        f->error = pick(8) == 0;
        f->truncated = len == MaxFrame && f->error;
        f->l3 = 14 + 4 * (pick(4) ? pick(3) : pick(9) % 3);
        f->ip6 = pick(2);
        unsigned ihl = f->ip6 ? 10 : 5 + (pick(3) ? 0 : pick(11));
        f->l4 = f->l3 + ihl * 4, f->payload = f->l4 + 20;
        f->is_ip = len >= f->l4 && pick(8);
        if (len >= f->l4 && !f->ip6) {
            f->in[f->l3] = 0x40 | ihl;
            if (!pick(8)) f->in[f->l3 + 8] = f->in[f->l3 + 9] = 0xff;  // reach sums near the wrap
            uint16_t sum = header_sum(f->in, f->l3);
            if (!pick(4)) {  // a checksum of 0 to 3 borrows when it is updated
                uint32_t word = f->in[f->l3 + 4] << 8 | f->in[f->l3 + 5];
                word += sum - pick(4);
                if (word < 0xffff) f->in[f->l3 + 4] = word >> 8, f->in[f->l3 + 5] = word;
                sum = header_sum(f->in, f->l3);
            }
            f->in[f->l3 + 10] = sum >> 8, f->in[f->l3 + 11] = sum;
        }
        return f;
    }

    void choose(Frame& f, const Config& c) {
        if (pick(100) >= c.act) return;
        switch (pick(8)) {
            case 0: f.act.drop = true; break;
            case 1: f.act.ecn = true; break;
            case 2: f.act.corrupt = true; break;
            case 3: f.act.delay = true; break;
            case 4: f.act.after = 1; break;
            case 5: f.act.copies = 1; break;
            default:
                f.act.drop = !pick(8), f.act.ecn = pick(2), f.act.corrupt = pick(2), f.act.delay = pick(2);
                f.act.after = pick(3) == 0, f.act.copies = pick(3) == 0;
        }
        if (f.act.after) f.act.after = pick(8) ? 1 + pick(5) : 1 + pick(60000), f.act.of_lane = pick(2);
        if (f.act.copies) {
            f.act.copies = pick(8) ? 1 + pick(3) : 1 + pick(20), f.captured = true;
            f.act.gap_ns = pick(4) ? rng() % (c.delay_max + 1) : 0;
        }
        f.act.inject = pick(4) == 0, f.act.form = pick(256);
        f.act.delay_ns = pick(16) ? rng() % (c.delay_max + 1) : 0;
        f.act.base = pick(4);
        f.act.offset = pick(3) ? pick(std::min<size_t>(f.in.size() + 10, 4096)) : pick(4096);
        f.act.mask = 1 + pick(255);
    }

    void admit_frame(const Ref& f) {
        expect(*f);
        f->serial = ++serial;
        if (f->act.inject) answered.push_back(f);
        captured += f->captured;
        if (f->act.drop) {
            want_dropped++;
            dropping.push_back((f->in.size() + Width - 1) / Width);
        } else {
            order.push_back(f);
            want_marked += f->done >> 1 & 1, want_corrupted += f->done >> 2 & 1;
        }
    }
    void plan_verdict(const Ref& f, uint64_t at) {
        last_verdict = std::max(last_verdict + 1, at);
        verdicts.push_back(f), verdict_at.push_back(last_verdict);
    }

    void drain() {
        add_permille = 0;
        for (unsigned i = 0; i < 4000000 && (t.busy || pending_any()); i++) clock(true);
        clock(true), clock(true);
        CHECK(answered.empty() && beginning.empty(), "%zu frames were not shown", answered.size());
        CHECK(!pending_any() && tapped.empty() && !mid, "%zu frames in order, %zu held, %zu copied, %zu made never left", order.size(), held.size(), copying.size(), made.size());
        CHECK(!t.busy && !t.timer_valid, "busy %d, timer %d at rest", t.busy, t.timer_valid);
        CHECK(tx == left && tx_bytes == bytes_out, "sent %u frames, %u bytes, not %u, %u", tx, tx_bytes, left, bytes_out);
        CHECK(dropped == want_dropped, "dropped %u, not %u", dropped, want_dropped);
        CHECK(marked == want_marked, "marked %u, not %u", marked, want_marked);
        CHECK(corrupted == want_corrupted, "corrupted %u, not %u", corrupted, want_corrupted);
        CHECK(done == captured, "%u of %u captured frames came to rest", done, captured);
        CHECK(copied == want_copied && injected == want_injected, "%u copied, not %u; %u injected, not %u", copied, want_copied, injected, want_injected);
        CHECK(captured_tx == want_captured_tx && captured_copied == want_captured_copied && captured_injected == want_captured_injected,
              "captured: %u of %u left, %u of %u copies, %u of %u injected", captured_tx, want_captured_tx, captured_copied, want_captured_copied, captured_injected, want_captured_injected);
    }
    bool pending_any() const {
        return !order.empty() || !held.empty() || !copying.empty() || !made.empty() || adding || !verdicts.empty();
    }

    void random(const char* name, Config c) {
        scenario = name;
        was_not_steady = c.ready != 100, was_late_verdicts = c.late_verdicts;
        add_permille = c.added, exact_places = false;
        unsigned reordered_before = reordered, copied_before = copied, injected_before = injected;
        unsigned lost_before = lost, delayed_before = delayed, full_before = full;
        bool steady = true;  // readiness comes in stretches
        double tokens = 0;
        for (unsigned i = 0; i < c.frames; i++) {
            unsigned len = c.min_len + pick(c.max_len - c.min_len + 1);
            if (c.max_len > 2000 && pick(4)) len = 14 + pick(200);
            if (c.max_len >= MaxFrame && !pick(40)) len = MaxFrame - pick(2);
            bool jumbo = c.jumbos && !pick(200);
            if (jumbo) len = MaxFrame;
            Ref f = make(len);
            choose(*f, c);
            if (jumbo) f->act = Action{}, f->act.delay = true, f->act.delay_ns = 1 + rng() % c.delay_max;
            auto tick = [&] {
                if (!pick(64)) steady = pick(100) < c.ready;
                return clock(c.ready == 100 || (steady ? pick(8) != 0 : pick(8) == 0));
            };
            for (unsigned g = c.gap ? pick(c.gap + 1) : 0; g; g--) tick();
            size_t beats = (len + Width - 1) / Width;
            bool admitted = true;
            for (size_t b = 0; b < beats; b++) {
                // Bubbles: never more than three beats behind the rate.
                tokens = std::min(tokens + c.rate, 4.0);
                while (tokens < 1 || (tokens < 3 && c.rate < 1 && !pick(3))) tick(), tokens = std::min(tokens + c.rate, 4.0);
                tokens -= 1;
                if (b == 0) f->stamp = now(), f->sof_cycle = cycle;
                bool a = tick();
                if (b == 0) {
                    admitted = a;
                    if (!a) lost++;
                    if (a) {
                        admit_frame(f);
                        if (!c.late_verdicts || pick(2)) plan_verdict(f, cycle + 20 + pick(c.late_verdicts ? 21 : 1));
                        else pending = f;
                    }
                }
                if (admitted) next_frame = f, next_beat = b, next_valid = true;
                if (admitted && b + 1 == beats && pending == f) plan_verdict(f, cycle + 2 + pick(60)), pending = nullptr;
            }
        }
        tick_end();
        drain();
        CHECK(!c.lossless || lost == lost_before, "%u frames lost", lost - lost_before);
        printf("%-28s %u frames, %u lost, %u delayed, %u reordered, %u copies, %u made, %u not stored for want of a slot\n", name, c.frames,
               lost - lost_before, delayed - delayed_before, reordered - reordered_before, copied - copied_before, injected - injected_before, full - full_before);
    }
    Ref pending;
    void tick_end() { clock(true); }

    // One frame alone. Cycles from its first beat on the bus of ingress to its first at the MAC.
    uint64_t alone(const Ref& f, unsigned verdict, bool skip) {
        size_t beats = (f->in.size() + Width - 1) / Width;
        uint64_t start = cycle;
        double tokens = 1;
        for (size_t b = 0; b < beats; b++) {
            if (b == 0) f->stamp = now(), f->sof_cycle = cycle;
            clock(true);
            if (b == 0) {
                admit_frame(f);
                plan_verdict(f, start + verdict);
            }
            next_frame = f, next_beat = b, next_valid = true;
            for (tokens += 0.606 - 1; tokens < 1 && b + 1 < beats; tokens += 0.606) clock(true);
        }
        clock(true);
        while (t.busy || pending_any()) {
            clock(true);
            if (each_cycle) each_cycle();
            // An idle core is clocked again at the time it asked for.
            if (skip && !t.busy && t.timer_valid && t.timer_ns > now()) skew += t.timer_ns - now();
        }
        return start;
    }

    void exact() {
        scenario = "delay of a lone frame";
        was_not_steady = false;
        double worst = 0, least = 1e9;
        for (unsigned len : {60u, 64u, 65u, 300u, 1514u, 4096u, 9000u, MaxFrame}) {
            Ref plain = make(len);
            alone(plain, 30, false);
            uint64_t latency = last_departure - plain->sof_cycle;
            for (int i = 0; i < 60; i++) {
                uint64_t beats = (len + Width - 1) / Width;
                Ref f = make(len);
                f->act.delay = true;
                f->act.delay_ns = uint64_t((2 * beats + 30) * Period) + rng() % 100000;
                bool skip = i % 2;
                alone(f, 30, skip);
                // leave_time is the time on the clock in which the frame was shown
                double late = double(leave_time - f->stamp - f->act.delay_ns) - latency * Period;
                worst = std::max(worst, late), least = std::min(least, late);
                // Times are whole nanoseconds, cut off.
                CHECK(late > -2 && late < Period + 2, "%u bytes: delay of %llu ns is %.1f ns off", len, (unsigned long long)f->act.delay_ns, late);
            }
        }
        drain();
        printf("%-28s off by %.1f to %.1f ns\n", scenario, least, worst);
    }

    void gaps() {
        scenario = "gaps of copies";
        was_not_steady = false;
        double worst = 0, least = 1e9;
        for (unsigned len : {60u, 65u, 300u, 1514u, MaxFrame}) {
            for (int i = 0; i < 40; i++) {
                uint64_t beats = (len + Width - 1) / Width;
                Ref f = make(len);
                f->captured = true;
                f->act.copies = 1 + pick(5);
                f->act.gap_ns = uint64_t((beats + 10) * Period) + rng() % 20000;
                if (i % 4 == 0) f->act.delay = true, f->act.delay_ns = 1 + rng() % 5000;
                auto check = [&] {
                    if (!last_gap) return;
                    double off = double(last_gap) - f->act.gap_ns;
                    worst = std::max(worst, off), least = std::min(least, off);
                    CHECK(off > -2 && off < Period + 2, "%u bytes: a gap of %u ns is %.1f ns off", len, f->act.gap_ns, off);
                    last_gap = 0;
                };
                each_cycle = check;
                alone(f, 30, i % 2);
                each_cycle = nullptr;
            }
        }
        drain();
        printf("%-28s off by %.1f to %.1f ns\n", scenario, least, worst);
    }
    std::function<void()> each_cycle;

    // Frames one behind the other; some move back by exactly so many as asked, others of the
    // connection or of the lane.
    void places() {
        scenario = "places";
        was_not_steady = false, was_late_verdicts = false, exact_places = true;
        unsigned before = moved, asked = 0;
        for (int i = 0; i < 4000; i++) {
            Ref f = make(pick(3) ? 60 + pick(5) : 60 + pick(400));
            if (!pick(6)) f->act.after = 1 + pick(4), f->act.of_lane = pick(2), asked++;
            size_t beats = (f->in.size() + Width - 1) / Width;
            for (size_t b = 0; b < beats; b++) {
                if (b == 0) f->stamp = now(), f->sof_cycle = cycle;
                bool a = clock(true);
                CHECK(a || b, "no room");
                if (b == 0) admit_frame(f), plan_verdict(f, cycle + 20);
                next_frame = f, next_beat = b, next_valid = true;
                if (Width == 8 && pick(3) == 0) clock(true);
            }
            for (unsigned g = pick(8) ? 0 : pick(20); g; g--) clock(true);
        }
        clock(true);
        drain();
        exact_places = false;
        CHECK(moved - before + 16 >= asked, "%u of %u frames moved as far as asked", moved - before, asked);
        printf("%-28s %u of %u frames, the others at the end\n", scenario, moved - before, asked);
    }

    // Nobody goes by.
    void timeouts() {
        scenario = "time-out";
        was_not_steady = false;
        double worst = 0;
        for (int i = 0; i < 40; i++) {
            unsigned before = timed_out;
            Ref f = make(60 + pick(1400));
            f->act.after = 1 + pick(3);
            if (i % 4 == 0) f->act.delay = true, f->act.delay_ns = 1 + rng() % (2 * t.reorder_timeout_ns);
            alone(f, 30, i % 2);
            double late = double(leave_time - std::max<uint64_t>(f->timeout, f->act.delay ? f->release : 0));
            worst = std::max(worst, late);
            CHECK(timed_out == before + 1 && late < 16 * Period, "left %.1f ns after its time-out", late);
        }
        drain();
        printf("%-28s %.1f ns late at the most\n", scenario, worst);
    }

    void latency() {
        scenario = "latency";
        t.tap_room = 0, t.eval();
        CHECK(!t.admit, "admits without room at the tap");
        t.tap_room = 1, t.eval();
        CHECK(t.admit, "does not admit at rest");
        Ref f = make(64);
        alone(f, 0, false);
        uint64_t frame = last_departure - f->sof_cycle;
        f = make(64);
        alone(f, 30, false);
        uint64_t verdict = last_departure - f->sof_cycle - 30;
        drain();
        printf("%-28s %llu cycles from the first beat at ingress, %llu from the verdict\n", scenario, (unsigned long long)frame, (unsigned long long)verdict);
        CHECK(frame <= 10 + (Width == 8 ? 12 : 0), "too slow");
    }

    // A byte that may or may not exist, of frames about as long as what is awaited before they
    // begin: 64 bits are issued when 4160 bytes are there.
    void corrupt_late() {
        scenario = "corrupt late";
        for (int i = 0; i < 400; i++) {
            Ref f = make(4150 + pick(60));
            f->touched = f->captured = true;
            f->act.corrupt = true, f->act.base = 3, f->act.mask = 0x80;
            f->act.offset = 4095 - pick(30);
            alone(f, 30, false);
        }
        drain();
    }

    // Dropped frames leave the FIFO at a beat a cycle.
    void drops() {
        scenario = "drop";
        Ref f[3] = {make(1514), make(1514), make(60)};
        f[0]->act.drop = f[1]->act.drop = true;
        uint64_t when = 0;
        for (auto& g : f) {
            for (size_t b = 0; b * Width < g->in.size(); b++) {
                if (!b) g->stamp = now(), g->sof_cycle = cycle;
                clock(true);
                if (!b) admit_frame(g);
                next_frame = g, next_beat = b, next_valid = true;
            }
        }
        clock(true), clock(true);
        when = cycle;
        for (auto& g : f) plan_verdict(g, cycle);
        drain();
        uint64_t took = last_departure - when, most = 2 * ((1514 + Width - 1) / Width) + 10;
        CHECK(took <= most, "two frames took %llu cycles to drop, not %llu", (unsigned long long)took, (unsigned long long)most);
    }
};

int main() {
    Bench b;
    b.t.clk = 0;
    b.t.rst = 1;
    b.t.in_valid = b.t.v_valid = b.t.m_axis_tready = b.t.add_valid = 0;
    b.t.reorder_timeout_ns = 20000;
    b.t.tap_room = 1;
    for (int i = 0; i < 4; i++) b.t.clk = 1, b.t.eval(), b.t.clk = 0, b.t.eval();
    b.t.rst = 0;
    for (int i = 0; i < 4; i++) b.clock(true);

    b.latency();
    b.drops();
    b.exact();
    b.gaps();
    b.places();
    b.timeouts();
    b.corrupt_late();
    const unsigned n = Width == 64 ? 1 : 0;
    //                                       frames       len            rate   gap ready act delay  late   lossless
    b.random("one beat a cycle", Config{n ? 20000u : 3000u, 60, 64, 1.0, 0, 100, 0, 0, false, true});
    b.random("worst rate on the bus", Config{n ? 20000u : 3000u, 65, 65, 1.0, 0, 100, 0, 0, false, true});
    b.random("all lengths", Config{n ? 4000u : 1500u, 14, MaxFrame, 0.606, 3, 100, 30, 50000, false, false});
    b.random("late verdicts", Config{n ? 4000u : 1500u, 14, MaxFrame, 0.606, 3, 100, 30, 50000, true, false});
    b.random("MAC not always ready", Config{n ? 4000u : 1500u, 14, MaxFrame, 0.606, 3, 70, 40, 20000, true, false});
    b.random("overload", Config{n ? 4000u : 1500u, 14, MaxFrame, 1.0, 0, 40, 20, 20000, true, false});
    b.random("short frames, many actions", Config{20000, 14, 200, 0.606, 5, 90, 80, 3000, true, false, false, 20});
    b.random("stored under load", Config{n ? 6000u : 2000u, 60, 1514, 0.606, 2, 100, 20, 100000, false, true, false, 20});
    b.random("longest frames released", Config{n ? 40000u : 8000u, 60, 64, n ? 0.606 : 0.8, 0, 100, 0, 40000, false, true, true, 5});
    if (!b.full || !b.lost || b.delayed < 1000 || b.marked < 500 || b.corrupted < 500 || b.reordered < 1000 || b.copied < 1000 || b.injected < 1000 || b.timed_out < 100 || b.seen < 1000)
        return printf("not exercised: %u full, %u lost, %u delayed, %u marked, %u corrupted, %u reordered, %u copied, %u made, %u timed out, %u shown\n", b.full, b.lost, b.delayed, b.marked,
                      b.corrupted, b.reordered, b.copied, b.injected, b.timed_out, b.seen), 1;
    return 0;
}
