// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random frames that wait, go by and time out, against a list. Checked: a frame whose turn it
// is shows in the next clock when a frame that went by made it so, and soon when time did; none
// shows before; the one that waited longest comes first; its count; the hint of the next
// time-out. Half of the time nothing is let by when a frame is due: it then was passed by
// exactly as many as asked.
//
// verilate: -GSLOTS_LOG2=3 -GCONN_W=4
// verilate: -GSLOTS_LOG2=1 -GCONN_W=12
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <random>
#include <set>

#include "Vtop.h"
#include "verilated.h"

struct Frame {
    unsigned slot, conn, after, passed = 0;
    bool lane, timed, met = false;
    uint64_t until;
    uint64_t turn = ~0ull;   // clock in which it got its turn
    bool by_pass = false;    // a frame that went by gave it
    bool late = false;
    bool turned() const { return turn != ~0ull; }
};

static uint64_t cycle = 0;
#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            printf("clock %llu: ", (unsigned long long)cycle); \
            printf(__VA_ARGS__); \
            printf("\n"); \
            exit(1); \
        } \
    } while (0)

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{11};
    std::list<Frame> waiting;
    std::set<unsigned> used;
    const unsigned timeout = 400;
    const unsigned slots = sizeof t.push_conn == 1 ? 8 : 2;
    unsigned turned_by_pass = 0, turned_by_time = 0, exact = 0, timed_later = 0, ties = 0;
    uint64_t now = 1000, quiet_since = 0;

    auto edge = [&] { t.clk = 1, t.eval(), t.clk = 0, t.eval(); };
    t.clk = 0, t.rst = 1, t.timeout_ns = timeout, t.time_ns = now;
    t.push = t.pass = t.timed = t.pop = 0;
    edge(), edge();
    t.rst = 0;

    bool times_out = false;
    uint64_t before = now, out_until = 0;
    for (cycle = 0; cycle < 400000; cycle++) {
        const bool steady = (cycle / 1000) % 2;  // nothing goes by what is due
        const unsigned pace = (cycle / 3000) % 3;
        before = now;
        now += 3 + rng() % 2 + (rng() % 2000 == 0 ? 300 : 0);
        t.time_ns = now;
        t.push = t.pass = t.timed = t.pop = 0;
        t.eval();

        // What is shown now comes of what happened before this clock.
        const Frame* first = nullptr;
        bool must = false;
        for (auto& f : waiting) {
            if (!f.turned()) continue;
            if (!first) first = &f;
            must |= f.by_pass ? true : cycle >= f.turn + 2;
        }
        CHECK(!t.due || first, "due, but nobody has the turn");
        CHECK(t.due || !must, "nothing due");
        CHECK(!t.out_valid || t.due, "shown without being due");
        if (t.out_valid) {
            CHECK(t.out_slot == first->slot, "slot %u is shown, not %u", t.out_slot, first->slot);
            CHECK(t.out_passed == first->passed, "%u went by, not %u", t.out_passed, first->passed);
        } else {
            CHECK(!first || cycle < quiet_since + 4, "nothing shown in %llu quiet clocks", (unsigned long long)(cycle - quiet_since));
        }
        CHECK(t.active || !first || !t.due, "not active");
        const Frame* next = nullptr;
        for (auto& f : waiting)
            if (!f.met && !next) next = &f;
        CHECK(!t.timer_valid || waiting.size(), "a time-out of nobody");
        if (cycle > quiet_since + 3) {
            CHECK(t.timer_valid == !!next, "timer is %d", t.timer_valid);
            CHECK(!next || t.timer_ns == next->until, "time-out at %llu, not %llu", (unsigned long long)t.timer_ns, (unsigned long long)next->until);
        }

        // Time-outs: the module acts in some clock after the time, the one after it saw it.
        bool late = false;
        if (times_out)
            for (auto& f : waiting)
                if (!f.met && f.until == out_until) {
                    CHECK(before >= f.until, "timed out early");
                    f.met = true, f.late = late = true;
                    if (f.timed) f.turn = cycle, turned_by_time++;
                    break;
                }

        times_out = !times_out && t.timer_valid && now >= t.timer_ns;
        out_until = t.timer_ns;

        // What happens in this clock.
        bool event = late;
        if (t.out_valid && rng() % 4 == 0) {
            t.pop = 1, event = true;
            if (!first->late && first->by_pass) {
                CHECK(first->passed >= first->after, "released after %u of %u", first->passed, first->after);
                if (steady && first->turn / 1000 == cycle / 1000) {
                    CHECK(first->passed == first->after, "%u went by one that asked for %u", first->passed, first->after);
                    exact++;
                }
            }
            used.erase(first->slot);
            waiting.remove_if([&](const Frame& f) { return &f == first; });
        } else if (rng() % (pace == 0 ? 3 : 12) == 0 && waiting.size() < slots) {
            Frame f;
            do f.slot = rng() % slots; while (used.count(f.slot));
            f.conn = rng() % 3, f.lane = rng() % 4 == 0, f.after = rng() % 8 == 0 ? 1 + rng() % 300 : 1 + rng() % 4;
            f.timed = rng() % 4 != 0, f.until = before + timeout;
            t.push = 1, t.push_slot = f.slot, t.push_conn = f.conn, t.push_lane = f.lane, t.push_after = f.after, t.push_timed = f.timed;
            used.insert(f.slot);
            waiting.push_back(f);
            event = true;
        } else if (!(steady && t.due) && rng() % (pace == 2 ? 1 : 3) == 0) {
            unsigned conn = rng() % 4, at_once = 0;
            t.pass = 1, t.pass_conn = conn;
            event |= !waiting.empty();
            for (auto& f : waiting) {
                if (!f.lane && f.conn != conn) continue;
                f.passed++;
                if (f.met || f.passed < f.after) continue;
                f.met = true;
                if (f.timed) f.turn = cycle, f.by_pass = true, turned_by_pass++, at_once++;
            }
            ties += at_once > 1;
        }
        if (rng() % 16 == 0) {
            for (auto& f : waiting) {
                if (f.timed || (t.push && f.slot == t.push_slot)) continue;
                t.timed = 1, t.timed_slot = f.slot, f.timed = event = true;
                if (f.met && !f.turned()) f.turn = cycle, timed_later++;
                break;
            }
        }
        if (event) quiet_since = cycle;
        edge();
    }
    if (turned_by_pass < 1000 || turned_by_time < 500 || exact < 500 || timed_later < 100 || (slots > 2 && ties < 100))
        return printf("not exercised: %u by others, %u by time, %u exact, %u when timed, %u ties\n", turned_by_pass, turned_by_time, exact, timed_later, ties), 1;
    return 0;
}
