// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Streams of tracked packets against a model of docs/tables.md, "Rule row": random rules of
// every scope, kind and measure, strides, chances, bursts, limits and triggers, at every load;
// a rule that is replaced while the others work; results that nobody takes; then all rows.
// uses: mw_fifo mw_ram mw_rmw_ram mw_threefry
// verilate: -GLANE=1 -GRULES=16 -GACTIONS_LOG2=8 -GINFLIGHT_LOG2=5
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

static const unsigned Rules = 16, Lane = 1, Replaced = 5, Quiet = 40;  // a rule, and a connection that it alone names

static VerilatedContext ctx;
static Vtop t{&ctx};
static std::mt19937_64 rng{5};
[[noreturn]] static void fail(const char* what) { printf("%s\n", what), exit(1); }

// ---- model
enum Scope { ScopeConn, ScopeTracked, ScopePlain, ScopeAll };
enum Measure { MeasurePosition, MeasureByte, MeasureCount };
struct Rule {
    bool enable = false;
    uint8_t scope = 0, protos = 0;
    uint16_t conn = 0, kinds = 0;
    bool fresh = false, again = false;
    uint8_t measure = 0;
    uint64_t first = 0, last = 0;
    bool guarded = false;
    uint8_t trigger = 0;
    uint32_t every = 1;
    uint64_t seed = 0;
    bool burst = false;
    uint32_t loss = 0, loss_bad = 0, to_bad = 0, to_good = 0, times = 0;
    uint16_t action = 0;
    // state
    uint32_t seen = 0, fired = 0, last_id = 0;
    bool bad = false;

    Row row() const {
        uint32_t odd = every, shift = 0, inverse = 1;
        while (odd % 2 == 0) odd /= 2, shift++;
        for (int i = 0; i < 5; i++) inverse *= 2 - odd * inverse;  // Newton
        Row r;
        Bits b = r.bits();
        b.put(1, enable), b.put(2, scope), b.put(4, protos), b.put(16, conn), b.put(9, kinds), b.put(1, fresh), b.put(1, again);
        b.put(2, measure), b.put(48, first), b.put(48, last), b.put(1, guarded), b.put(6, trigger);
        b.put(32, inverse), b.put(5, shift), b.put(32, 0xffffffff / every), b.put(64, seed);
        b.put(1, burst), b.put(32, loss), b.put(32, loss_bad), b.put(32, to_bad), b.put(32, to_good), b.put(32, times), b.put(16, action);
        return r;
    }
    Row state() const {
        Row r;
        Bits b = r.bits();
        b.put(32, seen), b.put(32, fired), b.put(32, last_id), b.put(1, bad);
        return r;
    }
};
struct Draw {
    uint32_t a, b;
};
static Draw threefry(uint64_t key, uint32_t a, uint32_t b) {
    const uint32_t k[3] = {uint32_t(key), uint32_t(key >> 32), 0x1bd11bda ^ uint32_t(key) ^ uint32_t(key >> 32)};
    const unsigned by[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    a += k[0], b += k[1];
    for (unsigned r = 0; r < 13; r++) {
        a += b, b = b << by[r % 8] | b >> (32 - by[r % 8]), b ^= a;
        if (r % 4 == 3) a += k[(r / 4 + 1) % 3], b += k[(r / 4 + 2) % 3] + r / 4 + 1;
    }
    return {a, b};
}
static bool falls(uint32_t draw, uint32_t chance) { return draw < chance || chance == 0xffffffff; }

struct Packet {
    Header h;
    Track t;
};
struct Fire {
    unsigned rule, action, seen;
    bool operator==(const Fire& o) const { return rule == o.rule && action == o.action && seen == o.seen; }
};
static Rule rules[Rules];
static unsigned tried[4][3], bursts, spent, guards[2], strides, plain, agains;

static std::vector<Fire> step(const Packet& p, uint64_t triggers) {
    std::vector<Fire> fires;
    const Track& k = p.t;
    bool tcp_data = p.h.proto == ProtoTcp && k.kind == KindData;
    for (unsigned n = 0; n < Rules; n++) {
        Rule& r = rules[n];
        bool tracked = k.conn != 0xffff;
        if (!r.enable || !(r.protos >> p.h.proto & 1) || !(k.below ? r.again : r.fresh)) continue;
        if (r.scope == ScopeConn ? k.conn != r.conn || !tracked : r.scope == ScopeTracked ? !tracked : r.scope == ScopePlain && tracked) continue;
        uint32_t position;
        uint8_t kind;
        if (r.kinds & 1) position = k.pos_any, kind = KindAny;
        else if (k.kind < 9 && r.kinds >> k.kind & 1) position = tcp_data && !k.is_new ? 0 : k.pos_kind, kind = k.kind;
        else if (k.kind == KindData && k.kinds >> KindFin & 1 && r.kinds >> KindFin & 1) position = k.pos_fin, kind = KindFin;
        else continue;
        if (r.measure == MeasureByte) {
            const uint64_t m48 = (uint64_t(1) << 48) - 1;
            if (!tcp_data || k.rel > r.last || ((k.rel + p.h.payload_len - 1) & m48) < r.first) continue;
            position = k.rel;
        } else if (r.measure == MeasurePosition && (position < r.first || position > r.last)) continue;
        bool open = !r.guarded || triggers >> r.trigger & 1;
        guards[open] += r.guarded;
        if (!open) continue;
        tried[r.scope][r.measure]++, plain += !tracked, agains += k.below;
        r.seen += r.seen != 0xffffffff;
        if (r.measure == MeasureCount) {
            position = r.seen;
            if (position < r.first || position > r.last) continue;
        }
        if (uint32_t(position - r.first) % r.every) continue;
        strides += r.every > 1;
        uint32_t stream = r.burst ? 0xffffu << 16 | Lane << 4 | 15 : uint32_t(k.conn) << 16 | Lane << 4 | kind;
        Draw d = threefry(r.seed ^ stream, r.burst ? r.seen : position, r.burst ? 0xffffffff : k.again);
        bool fires_now = falls(d.a, r.burst && r.bad ? r.loss_bad : r.loss);
        if (r.burst) {
            bool change = falls(d.b, r.bad ? r.to_good : r.to_bad);
            bursts += change, r.bad ^= change;
        }
        if (r.times && r.fired == r.times) spent += fires_now, fires_now = false;
        if (!fires_now) continue;
        r.fired++, r.last_id = p.h.packet_id;
        fires.push_back({n, r.action, std::min(r.seen, 255u)});
    }
    return fires;
}

// ---- bench
struct Access {
    bool write;
    Table table;
    uint32_t index;
    Row row;
    std::function<void(const Row&)> done;
};
static std::deque<Access> accesses;
static bool asked, rests;
struct Due {
    std::vector<Fire> fires;
    size_t got = 0;
};
static std::deque<Due> due;
static std::deque<Packet> compared;  // the packet that came in one edge ago
static unsigned cycles, answered, fired, full;
static std::function<void(unsigned)> judge;  // of a packet's action, 0 none, instead of the model
static unsigned untried;
static bool in_hurry;
static unsigned taking = 1;  // results are taken one time in this; 0: none

static void edge() {
    if (!asked && !rests && !accesses.empty()) {
        auto& a = accesses.front();
        table_request(t.tbl_req.data(), true, a.write, a.table, Lane, a.index, a.row);
        t.tbl_valid = asked = true;
    }
    rests = false;
    t.out_ready = taking && rng() % taking == 0;
    bool taken = t.out_valid && t.out_ready;
    Fire got{unsigned(t.out_rule), unsigned(t.out_action), unsigned(t.out_seen)};
    bool fires = t.out_fires, last = t.out_last, in = t.in_valid, skipped = t.out_untried;
    // it is compared at the edge behind that at which it comes in
    if (!compared.empty()) {
        due.push_back({step(compared.front(), t.triggers)});
        compared.pop_front();
    }
    t.clk = 1, t.eval(), t.clk = 0, t.eval();
    if (in) compared.push_back({});
    cycles++, full += !t.room;
    if (asked && t.tbl_ack) {
        Row r, none;
        memcpy(r.w, t.tbl_rdata.data(), sizeof r.w);
        Access a = accesses.front();
        accesses.pop_front();
        table_request(t.tbl_req.data(), false, false, TblExact, false, 0, none);
        t.tbl_valid = asked = false, rests = true;
        if (a.done) a.done(r);
    }
    if (!taken) return;
    if (due.empty()) fail("a result without a packet");
    Due& d = due.front();
    if (judge) {
        judge(fires ? got.action : 0), due.pop_front();
        return;
    }
    if (fires) {
        if (d.got == d.fires.size()) printf("rule %u fires besides\n", got.rule), exit(1);
        Fire want = d.fires[d.got++];
        if (in_hurry) want.seen = got.seen;  // of packets that wait, more may be left out
        if (!(got == want)) printf("rule %u action %x seen %u, not rule %u action %x seen %u\n", got.rule, got.action, got.seen, want.rule, want.action, want.seen), exit(1);
        fired++;
    }
    if (!fires && !last) fail("an empty result that is not the last");
    if (skipped && (fires || !last)) fail("rules are left out in the midst");
    if (!last) return;
    if (skipped) {  // in a hurry: the lower rules have fired, the rest knows nothing of the packet
        if (d.got == d.fires.size()) fail("none is left out");
        for (; d.got < d.fires.size(); d.got++) rules[d.fires[d.got].rule].seen--, untried++;
    }
    if (d.got != d.fires.size()) printf("rule %u did not fire\n", d.fires[d.got].rule), exit(1);
    due.pop_front(), answered++;
}
static uint32_t next_id;
static void send(Packet p) {
    p.h.packet_id = next_id++;
    p.h.io(Bits(t.in_hdr.data()), true), p.t.io(Bits(t.in_trk.data()), true);
    t.in_valid = 1;
    edge();
    t.in_valid = 0;
    compared.back() = p;
}
static void settle() {
    for (int i = 0; i < 20000 && (t.busy || !due.empty() || !compared.empty() || !accesses.empty()); i++) edge();
    if (t.busy || !due.empty() || !accesses.empty()) fail("does not come to rest");
}
static void write(unsigned n, const Rule& r, std::function<void(const Row&)> done = nullptr) { accesses.push_back({true, TblRule, n, r.row(), done}); }
static void expect(Table table, uint32_t index, const Row& want, const char* what) {
    accesses.push_back({false, table, index, Row{}, [=](const Row& r) {
                            if (!memcmp(&r, &want, sizeof r)) return;
                            printf("%s %u\n", what, index);
                            for (int i = 0; i < 16; i++) printf("%08x not %08x\n", r.w[i], want.w[i]);
                            exit(1);
                        }});
}
static void clear() {
    settle();
    t.clear = 1, edge(), t.clear = 0;
    while (t.clear_busy) edge();
    for (auto& r : rules) r = Rule{};
}

static uint32_t chance() {
    switch (rng() % 4) {
        case 0: return 0xffffffff;
        case 1: return rng() % 3;
        default: return rng();
    }
}
static Rule random_rule() {
    Rule r;
    r.enable = rng() % 8, r.scope = rng() % 4, r.protos = rng() % 3 ? 15 : rng(), r.conn = rng() % 4;
    r.kinds = rng() % 3 ? 1 << (rng() % 9) : rng() & 511;
    r.fresh = rng() % 8, r.again = rng() % 4, r.measure = rng() % 3;
    if (r.measure == MeasurePosition) r.first = rng() % 40, r.last = rng() % 2 ? 0xffffffff : r.first + rng() % 200;
    if (r.measure == MeasureByte) r.first = rng() % 50000, r.last = rng() % 2 ? ~0ull >> 16 : r.first + rng() % 60000, r.kinds |= 2;
    if (r.measure == MeasureCount) r.first = 1 + rng() % 20, r.last = rng() % 2 ? ~0ull >> 16 : r.first + rng() % 400;
    r.guarded = rng() % 3 == 0, r.trigger = rng() % 64;
    r.every = rng() % 2 ? 1 : rng() % 4 ? 1 + rng() % 12 : 1u << rng() % 8;
    if (rng() % 20 == 0) r.every = rng() | 1 << 30;
    r.seed = rng(), r.burst = rng() % 4 == 0, r.action = rng() % 256;
    r.loss = chance(), r.loss_bad = chance(), r.to_bad = chance(), r.to_good = chance();
    r.times = rng() % 3 ? 0 : 1 + rng() % 50;
    return r;
}
static uint32_t psn, highest, again, any, others[9];
static Packet random_packet() {
    Packet p;
    p.h.proto = rng() % 4;
    p.t.kinds = 1;
    if (p.h.proto == ProtoOther || p.h.proto == ProtoUdp || rng() % 8 == 0) {
        p.t.conn = 0xffff, p.t.kind = KindOther;
        return p;
    }
    p.t.conn = rng() % 5, p.t.kind = rng() % 2 ? KindData : 1 + rng() % 8, p.t.kinds |= 1 << p.t.kind;
    p.t.pos_any = ++any, p.t.pos_fin = rng() % 100, p.t.pos_kind = ++others[p.t.kind] % 1000;
    if (p.t.kind == KindData) {
        p.h.payload_len = 1 + rng() % 2000, p.t.rel = rng() % 100000, p.t.is_new = rng() % 3, p.t.below = rng() % 3 == 0;
        if (rng() % 4 == 0) p.t.kinds |= 1 << KindFin;
        if (p.t.below) p.t.again = ++again;
        if (p.h.proto == ProtoRoce && rng() % 20 == 0) p.t.pos_kind = -(rng() % 5);
    }
    return p;
}

int main() {
    Row none;
    table_request(t.tbl_req.data(), false, false, TblExact, false, 0, none);
    t.in_valid = t.out_ready = t.clear = t.hurry = t.tbl_valid = 0, t.triggers = 0;
    t.clk = 0, t.eval();
    t.rst = 1, edge(), t.rst = 0;

    for (int round = 0; round < 40; round++) {
        clear();
        any = again = 0, std::fill(others, others + 9, 0);
        for (unsigned n = 0; n < Rules; n++)
            rules[n] = n == Replaced ? Rule{} : random_rule(), write(n, rules[n]), expect(TblRule, n, rules[n].row(), "rule");
        settle();
        taking = round % 4 == 3 ? 6 : 1;
        unsigned gap = 1 + round % 3 * 8;
        bool replacing = false;
        for (unsigned n = 0; n < 3000;) {
            if (rng() % 20 == 0) t.triggers = rng();
            if (!replacing && accesses.empty() && rng() % 200 == 0) {
                // its own packets keep away meanwhile, all others come
                replacing = true;
                Rule next = random_rule();
                next.enable = true, next.scope = ScopeConn, next.conn = Quiet;
                write(Replaced, next, [=, &replacing](const Row&) { rules[Replaced] = next, replacing = false; });
            }
            if (accesses.empty() && rng() % 40 == 0) {
                unsigned n = rng() % Replaced;
                if (rng() % 2) expect(TblRule, n, rules[n].row(), "rule read in between");
                else accesses.push_back({false, TblRuleState, n, none, nullptr});
            }
            if (t.room && rng() % gap == 0) {
                Packet p = random_packet();
                if (!replacing && p.t.conn != 0xffff && rng() % 6 == 0 && accesses.empty() && !asked) p.t.conn = Quiet;
                send(p), n++;
            } else edge();
        }
        settle();
        for (unsigned n = 0; n < Rules; n++) expect(TblRuleState, n, rules[n].state(), "state"), expect(TblRule, n, rules[n].row(), "rule");
        settle();
    }
    for (auto& scope : tried)
        for (unsigned n : scope)
            if (n < (&scope == &tried[ScopePlain] ? 0u : 200u)) fail("a scope or measure is not exercised");
    if (fired < 10000 || bursts < 500 || spent < 300 || guards[0] < 1000 || guards[1] < 1000 || strides < 1000 || plain < 1000 || agains < 1000 || full < 100)
        printf("fired %u bursts %u spent %u guards %u %u strides %u plain %u again %u full %u: not exercised\n", fired, bursts, spent, guards[0], guards[1], strides, plain, agains, full), exit(1);

    // a packet a clock that passes one rule each: no arrears
    clear();
    taking = 1, t.triggers = 0;
    Rule all;
    all.enable = true, all.scope = ScopeAll, all.protos = 15, all.kinds = 1, all.fresh = all.again = true, all.last = ~0ull >> 16, all.loss = 0xffffffff;
    rules[3] = all, write(3, all);
    settle();
    if (!t.active) fail("an enabled rule does not show");
    for (int n = 0; n < 2000; n++) {
        if (!t.room) fail("falls behind at a packet a clock");
        send(random_packet());
    }
    settle();

    // packets that wait when their rule is replaced are judged by the old one
    Rule next = all;
    next.action = 1;
    rules[3].seen = rules[3].fired = 0, write(3, all);
    settle();
    taking = 0;
    while (t.room) send(random_packet());
    write(3, next, [=](const Row&) { rules[3] = next; });
    for (int n = 0; n < 100; n++) edge();
    if (accesses.empty()) fail("a row is written while packets wait for it");
    taking = 1;
    settle();
    send(random_packet());
    settle();
    expect(TblRuleState, 3, rules[3].state(), "state of the new rule");
    settle();

    // every packet is judged by the whole of a row: connection 0 by the old, 1 by the new one
    for (int round = 0; round < 20; round++) {
        Rule of[2] = {all, all};
        for (int i = 0; i < 2; i++) of[i].scope = ScopeConn, of[i].conn = i, of[i].action = 1 + i;
        write(3, of[0]), settle();
        unsigned packet = 0, late = 0;
        judge = [&](unsigned action) {
            unsigned conn = packet++ % 2;
            late |= action == (conn ? 2 : 0);
            if (action != (late ? conn * 2 : !conn)) fail("a packet is judged by two rows");
        };
        for (int n = 0; n < 200; n++) {
            Packet p = random_packet();
            p.t.conn = n % 2;
            if (n == 50 + round) write(3, of[1]);
            if (t.room) send(p);
            else n--, edge();
            if (rng() % 2) edge();
        }
        settle();
        if (!late || packet != 200) fail("the new row does not count");
        judge = nullptr;
    }
    write(3, all), settle();
    rules[3] = all;

    // in a hurry packets that wait pass what is left, and say so
    clear();
    for (unsigned n = 0; n < Rules; n++) rules[n] = all, write(n, all);
    settle();
    in_hurry = true;
    for (int n = 0; n < 3000; n++) {
        t.hurry = rng() % 200 == 0 ? !t.hurry : t.hurry;
        if (t.room && n % 3 == 0) send(random_packet());
        else edge();
    }
    settle();
    for (unsigned n = 0; n < Rules; n++) {
        accesses.push_back({false, TblRuleState, n, none, [=](const Row& got) { if (got.w[0] != rules[n].seen || got.w[1] != rules[n].seen) fail("what was left out is counted"); }});
    }
    settle();
    if (untried < 1000) fail("no hurry");
    t.hurry = in_hurry = false;

    clear();
    if (t.active) fail("active after clear");
    for (unsigned n = 0; n < Rules; n++) expect(TblRule, n, none, "rule after clear"), expect(TblRuleState, n, none, "state after clear");
    settle();
    return 0;
}
