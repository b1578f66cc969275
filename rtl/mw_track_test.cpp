// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Streams of headers in both lanes, at full rate and with gaps, against a model of
// docs/tables.md: the same connection in every cycle, new flows back to back, reused
// 4-tuples, retransmissions whole and in part, wraps of sequence numbers and PSNs, more
// than 4 GiB on one connection, more flows than numbers, declared connections.
// uses: mw_fifo mw_ram mw_rmw_ram mw_hash_table
// verilate: -GCONNS_LOG2=6 -GFLOW_ROWS_LOG2=8 -GSELECTORS=4 -GINFLIGHT_LOG2=5
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

static const unsigned Conns = 64, Inflight = 32;
enum Flags { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

struct Key {
    uint8_t proto;
    bool v6;
    u128 lo, hi;
    uint32_t lo_port, hi_port;
    bool operator<(const Key& o) const {
        return std::tie(proto, v6, lo, hi, lo_port, hi_port) < std::tie(o.proto, o.v6, o.lo, o.hi, o.lo_port, o.hi_port);
    }
    void io(Bits& b, bool write) {
        b.field(write, 24, hi_port), b.field(write, 16, lo_port), b.field(write, 128, hi), b.field(write, 128, lo);
        b.field(write, 1, v6), b.field(write, 2, proto);
    }
    bool operator==(const Key& o) const { return !(*this < o) && !(o < *this); }
};
static bool src_is_hi(const Header& h) { return h.proto == ProtoTcp && std::tie(h.src, h.sport) > std::tie(h.dst, h.dport); }
static Key key_of(const Header& h) {
    if (h.proto == ProtoRoce) return {h.proto, h.is_ip6, h.src, h.dst, 0, h.qpn};
    if (src_is_hi(h)) return {h.proto, h.is_ip6, h.dst, h.src, h.dport, h.sport};
    return {h.proto, h.is_ip6, h.src, h.dst, h.sport, h.dport};
}

struct Lane {
    bool based = false;
    uint32_t base = 0;
    int64_t highest = 0;
    uint32_t segments = 0, again = 0, count[9] = {};
};
struct Conn {
    Key key;
    bool opener_hi, opener_lane;
    Lane lane[2];
};
struct Flow {
    uint32_t isn;
    bool fixed;
    unsigned conn;
};
struct Model {
    std::map<Key, Flow> flows;
    std::map<unsigned, Conn> conns;
    unsigned learnt = 0, lost = 0;
    bool enabled = true;
    bool (*admits)(const Header&) = [](const Header&) { return true; };

    Track step(const Header& h) {
        Track t;
        t.kind = KindOther, t.kinds = 1, t.conn = 0xffff;
        bool tcp = h.proto == ProtoTcp, roce = h.proto == ProtoRoce;
        if (!enabled || (!tcp && !roce)) return t;
        bool plain_syn = tcp && (h.flags & (SYN | ACK)) == SYN;
        Key k = key_of(h);
        auto f = flows.find(k);
        if (f != flows.end() && plain_syn && !f->second.fixed && f->second.isn != h.f0) flows.erase(f), f = flows.end();
        if (f == flows.end()) {
            if (!(roce || plain_syn) || !admits(h)) return t;
            if (learnt == Conns) return lost++, t;
            f = flows.insert({k, {tcp ? h.f0 : 0, false, learnt}}).first;
            conns[learnt++] = {k, src_is_hi(h), h.lane, {}};
        }
        t.conn = f->second.conn;
        Lane& l = conns[t.conn].lane[h.lane];
        bool is[9] = {true};
        uint8_t op = h.f0 >> 24;
        if (tcp) {
            is[KindSyn] = h.flags & SYN, is[KindFin] = h.flags & FIN, is[KindRst] = h.flags & RST;
            is[KindData] = h.payload_len && !is[KindRst];
            is[KindAck] = !is[KindSyn] && !is[KindFin] && !is[KindRst] && !is[KindData];
        } else {
            is[KindAck] = (op == 0x11 && (h.f1 >> 29) == 0) || op == 0x12, is[KindNak] = op == 0x11 && !is[KindAck];
            is[KindCnp] = op == 0x81, is[KindRead] = op == 0x0c;
            is[KindData] = !is[KindAck] && !is[KindNak] && !is[KindCnp] && !is[KindRead];
        }
        t.kinds = 0;
        for (int i = 0; i < 9; i++) t.kinds |= is[i] << i, l.count[i] += is[i];
        uint32_t first = tcp ? h.f0 + is[KindSyn] : h.f0 & 0xffffff;
        uint32_t len = tcp ? h.payload_len : 1;
        bool brings = is[KindData] || is[KindRead];
        if (!l.based ? is[KindSyn] || brings : is[KindSyn] && l.highest == 0) l.based = true, l.base = first;
        // the relative position nearest to the highest that agrees with the packet
        int64_t span = tcp ? int64_t(1) << 32 : 1 << 24;
        int64_t off = (int64_t(first) - l.base - l.highest) % span;
        if (off < 0) off += span;
        if (off >= span / 2) off -= span;
        int64_t rel = l.highest + off;
        if (brings) {
            t.below = rel < l.highest;
            t.is_new = rel + len > l.highest;
            if (t.below) t.again = ++l.again;
            if (t.is_new) l.highest = rel + len, l.segments++;
        }
        if (tcp && is[KindData]) t.rel = rel & 0xffffffffffff;
        t.pos_any = l.count[0], t.pos_fin = l.count[KindFin];
        for (Kind k : {KindRst, KindSyn, KindData, KindRead, KindFin, KindAck, KindNak, KindCnp})
            if (is[k]) {
                t.kind = k;
                t.pos_kind = k == KindRead || (k == KindData && roce) ? uint32_t(rel) : k == KindData ? l.segments : l.count[k];
                break;
            }
        return t;
    }
};

static VerilatedContext ctx;
static Vtop t{&ctx};
static std::mt19937 rng{3};
static Model model;
static std::deque<Header> sent[2];
static unsigned answered, tracked, fresh, old, accesses;
static uint32_t id[2];

[[noreturn]] static void fail(const char* what) { printf("%s\n", what), exit(1); }

static void edge() {
    t.clk = 1, t.eval(), t.clk = 0, t.eval();
    if (t.out_valid == 3) fail("two answers at a time");
    if (!t.out_valid) return;
    bool lane = t.out_valid == 2;
    Header got;
    Track trk;
    // packed arrays: element 1 lies above element 0
    Bits hb(t.out_hdr.data()), tb(t.out_trk.data());
    hb.seek(lane * Header::width), tb.seek(lane * Track::width);
    got.io(hb, false), trk.io(tb, false);
    if (sent[lane].empty()) fail("an answer without a header");
    Header h = sent[lane].front();
    sent[lane].pop_front();
    if (got.packet_id != h.packet_id || got.stamp != h.stamp || got.src != h.src || got.f0 != h.f0) fail("headers out of order");
    answered++;
    Track want = model.step(h);
    tracked += want.conn != 0xffff, fresh += want.is_new, old += want.below;
    bool pos = want.conn == 0xffff || (trk.pos_any == want.pos_any && trk.rel == want.rel && trk.is_new == want.is_new &&
                                       trk.below == want.below && trk.again == want.again &&
                                       (trk.pos_kind == want.pos_kind || (want.kind == KindData && h.proto == ProtoTcp && !want.is_new)) &&
                                       (!(want.kinds >> KindFin & 1) || trk.pos_fin == want.pos_fin));
    if (trk.conn != want.conn || trk.kind != want.kind || trk.kinds != want.kinds || !pos) {
        printf("lane %d proto %d flags %02x f0 %08x len %u\n", lane, h.proto, h.flags, h.f0, h.payload_len);
        for (auto& [n, v] : {std::pair{"got ", trk}, {"want", want}})
            printf("%s conn %x kind %u kinds %03x any %u pos %u fin %u new %d below %d again %u rel %llx\n", n, v.conn, v.kind, v.kinds,
                   v.pos_any, v.pos_kind, v.pos_fin, v.is_new, v.below, v.again, (unsigned long long)v.rel);
        exit(1);
    }
}

static void set(bool lane, Header& h) {
    h.lane = lane, h.packet_id = id[lane]++, h.stamp = rng(), h.is_ip = true;
    Bits b(t.in_hdr.data());
    b.seek(lane * Header::width);
    h.io(b, true);
    t.in_valid |= 1 << lane;
    sent[lane].push_back(h);
}
static void drain() {
    t.in_valid = 0;
    for (int i = 0; i < 200 && (t.busy || !sent[0].empty() || !sent[1].empty()); i++) edge();
    if (t.busy || !sent[0].empty() || !sent[1].empty()) fail("does not come to rest");
}
static Row host(bool write, Table table, uint32_t index, Row row = {}) {
    table_request(t.tbl_req.data(), true, write, table, rng(), index, row);
    for (int i = 0; !t.tbl_ack; i++) {
        t.in_valid = 0;
        edge();
        if (i > 100) fail("no acknowledgement from a table");
    }
    Row out;
    memcpy(out.w, t.tbl_rdata.data(), sizeof out.w);
    table_request(t.tbl_req.data(), false, false, table, false, 0, row);
    edge();
    return out;
}
static void clear() {
    t.clear = 1, edge(), t.clear = 0;
    while (t.clear_busy) edge();
    model.flows.clear(), model.conns.clear(), model.learnt = model.lost = 0;
}
static void selector(unsigned n, bool enable, Header h, Header mask) {
    for (int part = 0; part < 2; part++) {
        Header& s = part ? mask : h;
        Row r;
        Bits b = r.bits();
        b.put(24, s.proto == ProtoRoce && !part ? s.qpn : s.dport), b.put(16, s.sport), b.put(128, s.dst), b.put(128, s.src);
        b.put(1, s.is_ip6), b.put(2, s.proto), b.put(1, s.lane), b.put(1, part ? 0 : enable);
        host(true, TblSelector, n << 1 | part, r);
        Row back = host(false, TblSelector, n << 1 | part);
        if (memcmp(&back, &r, sizeof r)) fail("a selector does not read back");
    }
}

static Header tcp(unsigned flow, bool lane, uint8_t flags, uint32_t seq, unsigned len) {
    Header h;
    h.proto = ProtoTcp, h.flags = flags, h.f0 = seq, h.payload_len = len, h.is_ip6 = flow % 3 == 0;
    h.src = 0x0a000001 + flow / 7, h.dst = 0x0a000100 - flow / 5, h.sport = 1000 + flow * 13 % 50, h.dport = 2000 - flow;
    if (h.is_ip6) h.src |= u128(0x20010db8'00000000) << 64, h.dst |= u128(0x20010db8'ffffffff) << 64;
    if (lane) std::swap(h.src, h.dst), std::swap(h.sport, h.dport);
    return h;
}
static Header roce(unsigned flow, uint8_t op, uint32_t psn, uint8_t syndrome = 0) {
    Header h;
    h.proto = ProtoRoce, h.src = 0x0a000001 + flow % 3, h.dst = 0x0a000002 + flow % 5, h.qpn = 100 + flow, h.sport = rng();
    h.dport = 4791, h.f0 = op << 24 | (psn & 0xffffff), h.f1 = syndrome << 24, h.payload_len = 1024;
    return h;
}

// What a flow of the random stream does next.
struct Source {
    bool is_roce;
    unsigned flow;
    uint32_t isn[2], next[2];
    Header make(bool lane) {
        if (is_roce) {
            static const uint8_t ops[] = {0x00, 0x01, 0x02, 0x0c, 0x11, 0x11, 0x12, 0x81, 0x04, 0x10, 0x13};
            uint8_t op = ops[rng() % sizeof ops];
            uint32_t psn = next[0];
            if (rng() % 4 == 0) psn += rng() % 40 - 20;
            else if (op != 0x11 && op != 0x12 && op != 0x81) next[0]++;
            static const uint8_t syndromes[] = {0x00, 0x1f, 0x20, 0x60, 0x61};
            return roce(flow, op, psn, syndromes[rng() % 5]);
        }
        uint32_t& n = next[lane];
        unsigned len = 1 + rng() % (rng() % 8 ? 1460 : 65535);
        switch (rng() % 16) {
            case 0: return tcp(flow, lane, SYN | (lane ? ACK : 0), isn[lane], rng() % 8 ? 0 : 10);
            case 1: return tcp(flow, lane, ACK, n, 0);
            case 2: return tcp(flow, lane, ACK, n - 1, rng() % 2);                       // keep-alive
            case 3: return tcp(flow, lane, ACK | PSH, n - rng() % 3000, rng() % 4000);   // old, or in part
            case 4: return tcp(flow, lane, ACK | FIN, n, rng() % 2 * len);
            case 5: return tcp(flow, lane, rng() % 2 ? RST : RST | ACK, n, rng() % 20);
            case 6:
                if (rng() % 20 == 0) {  // the ports are used again
                    isn[0] = rng() % 2 ? 0xffffffff - rng() % 5000 : rng(), isn[1] = rng();
                    next[0] = isn[0] + 1, next[1] = isn[1] + 1;
                    return tcp(flow, rng() % 8 == 0, SYN, isn[0], 0);
                }
                [[fallthrough]];
            case 7: return tcp(flow, lane, ACK, n + rng() % 3000, len);  // a gap before it
            default: return n += len, tcp(flow, lane, ACK, n - len, len);
        }
    }
};

static void random_stream(unsigned flows, unsigned packets, bool both_lanes_of_roce) {
    std::vector<Source> s;
    for (unsigned f = 0; f < flows; f++) {
        Source x{rng() % 3 == 0, f, {uint32_t(-1 - rng() % 20000), uint32_t(rng())}, {}};
        x.next[0] = x.isn[0] + 1, x.next[1] = x.isn[1] + 1;
        s.push_back(x);
    }
    unsigned until = 0, only = 0, rate = 0;
    bool asked = false;  // the host reads rows meanwhile
    Row none;
    for (unsigned n = 0, cycle = 0; n < packets; cycle++) {
        if (cycle >= until) until = cycle + 1 + rng() % 200, only = rng() % (2 * flows), rate = rng() % 3;
        t.in_valid = 0;
        for (int lane = 0; lane < 2; lane++) {
            if (sent[lane].size() >= Inflight || (rate && rng() % (1 + rate) == 0)) continue;
            Source& x = s[only < flows ? only : rng() % flows];  // often one connection in every cycle
            if (rng() % 50 == 0) {
                Header h = tcp(0, lane, SYN, 1, 0);
                h.proto = rng() % 2 ? ProtoUdp : ProtoOther;
                set(lane, h), n++;
                continue;
            }
            bool l = lane;
            Header h = x.make(l);
            if (x.is_roce && lane != int(x.flow % 2) && !both_lanes_of_roce) continue;
            set(lane, h), n++;
        }
        if (!asked && rng() % 64 == 0)
            asked = true, table_request(t.tbl_req.data(), true, false, Table(TblSelector + rng() % 3), rng(), rng(), none);
        edge();
        if (asked && t.tbl_ack) asked = false, table_request(t.tbl_req.data(), false, false, TblConn, false, 0, none), accesses++;
    }
    t.in_valid = 0;
    while (asked) {
        edge();
        if (t.tbl_ack) asked = false, table_request(t.tbl_req.data(), false, false, TblConn, false, 0, none);
    }
    edge();
    drain();
    if (t.connections != model.learnt || t.connections_lost != model.lost)
        printf("learnt %u not %u, lost %u not %u\n", t.connections, model.learnt, t.connections_lost, model.lost), exit(1);
}

static void check_rows() {
    for (auto& [n, c] : model.conns) {
        Row r = host(false, TblConn, n);
        Bits b = r.bits();
        bool valid = b.get(1);
        uint32_t base[2] = {uint32_t(b.get(32)), uint32_t(b.get(32))};
        unsigned based = b.get(2);
        bool lane = b.get(1), hi = b.get(1);
        Key k;
        k.io(b, false);
        bool ok = valid && k == c.key && lane == c.opener_lane && hi == c.opener_hi;
        for (int l = 0; l < 2; l++) ok = ok && (based >> l & 1) == c.lane[l].based && (!c.lane[l].based || base[l] == c.lane[l].base);
        if (!ok) printf("connection row %u: valid %d lane %d hi %d based %u base %08x %08x, not %08x %08x\n", n, valid, lane, hi, based, base[0], base[1], c.lane[0].base, c.lane[1].base), exit(1);
    }
}

int main() {
    table_request(t.tbl_req.data(), false, false, TblConn, false, 0, *new Row);
    t.clk = 0, t.eval();
    t.rst = 1, edge(), t.rst = 0;

    // nothing is admitted, nothing is tracked
    t.enable = 1;
    model.admits = [](const Header&) { return false; };
    for (int i = 0; i < 20; i++) {
        t.in_valid = 0;
        Header a = tcp(i, false, SYN, 7, 0), b = roce(i, 4, 9);
        set(0, a), set(1, b), edge();
    }
    drain();

    // selectors: TCP to one port, or RoCE of lane 1; a disabled one counts for nothing
    Header v, m;
    v.proto = ProtoTcp, v.dport = 1995, m.proto = 3, m.dport = 0xffff;
    selector(0, true, v, m);
    Header v2, m2;
    v2.proto = ProtoRoce, v2.lane = true, m2.proto = 3, m2.lane = true;
    selector(3, true, v2, m2);
    selector(1, false, v, Header{});
    model.admits = [](const Header& h) { return (h.proto == ProtoTcp && h.dport == 1995) || (h.proto == ProtoRoce && h.lane); };
    random_stream(12, 20000, true);
    if (model.learnt < 5) fail("selectors not exercised");
    check_rows();
    clear();

    // everything is admitted
    selector(2, true, Header{}, Header{});
    model.admits = [](const Header&) { return true; };
    for (int round = 0; round < 12; round++) {
        random_stream(round % 2 ? 3 : 20, 30000, false);
        check_rows();
        clear();
        Row r = host(false, TblConn, 0);
        for (auto x : r.w) if (x) fail("a connection outlives clear");
    }

    // more flows than numbers
    random_stream(90, 40000, false);
    if (!model.lost) fail("numbers never ran out");
    clear();

    // more than 4 GiB on one connection, data in every cycle, another lane beside it
    uint32_t seq = 0xfffffff0;
    Header syn = tcp(1, false, SYN, seq++, 0);
    t.in_valid = 0, set(0, syn), edge();
    for (int i = 0; i < 85000; i++) {
        t.in_valid = 0;
        while (sent[0].size() >= Inflight || sent[1].size() >= Inflight) edge();
        Header a = tcp(1, false, ACK, seq, 65000), b = roce(1, i % 5 ? 0x01 : 0x0c, 0xfffff0 + i * 1000);
        if (i % 7 == 3) a = tcp(1, false, ACK, seq - 65000, 65000);
        else seq += 65000;
        set(0, a), set(1, b), edge();
        t.in_valid = 0, edge();
    }
    drain();
    if (model.conns[0].lane[0].highest >> 32 == 0) fail("4 GiB not reached");
    clear();

    // declared connections: a base given, a base left to the first packet, a SYN that does not replace
    struct { Header h; bool based; uint32_t base; unsigned number; } declared[] = {
        {roce(3, 0x04, 0), true, 0xfffffe, 60}, {tcp(4, false, ACK, 0, 0), true, 5000, 61}, {tcp(5, false, ACK, 0, 0), false, 0, 62}};
    for (auto& d : declared) {
        Key k = key_of(d.h);
        Row c, f;
        Bits cb = c.bits(), fb = f.bits();
        cb.put(1, 1), cb.put(32, d.base), cb.put(32, 0), cb.put(2, d.based), cb.put(1, 0), cb.put(1, src_is_hi(d.h)), k.io(cb, true);
        host(true, TblConn, d.number, c);
        k.io(fb, true), fb.put(16, d.number), fb.put(32, 0), fb.put(1, 1), fb.put(1, 1);
        uint64_t words[5];
        memcpy(words, f.w, sizeof words);
        words[4] &= (1ull << 43) - 1;
        unsigned way = rng() % 4, index = way << 8 | hash_row(words, 299, way, 8);
        host(true, TblFlow, index, f);
        Row back = host(false, TblFlow, index);
        if (memcmp(&back, &f, sizeof f)) fail("a flow row does not read back");
        model.flows[k] = {0, true, d.number};
        model.conns[d.number] = {k, src_is_hi(d.h), false, {}};
        model.conns[d.number].lane[0].based = d.based, model.conns[d.number].lane[0].base = d.base;
    }
    check_rows();
    for (int i = 0; i < 50; i++) {
        t.in_valid = 0;
        Header hs[] = {roce(3, 0x04, 0xfffffe + i), tcp(4, false, ACK, 5000 + i * 10, 10), tcp(5, false, ACK, 77 + i * 100, 100), tcp(4, false, SYN, i, 0)};
        set(0, hs[i % 4]), edge();
    }
    drain();
    check_rows();

    // while the tables are being emptied, and while disabled, headers pass untracked
    model.enabled = false;
    t.clear = 1, edge(), t.clear = 0;
    unsigned before = answered;
    for (int i = 0; t.clear_busy; i++) {
        t.in_valid = 0;
        Header h = tcp(i, false, SYN, 7, 0);
        if (i < 100) set(0, h);
        edge();
    }
    t.enable = 0;
    for (int i = 0; i < 10; i++) {
        t.in_valid = 0;
        Header h = roce(i, 4, 0);
        set(1, h), edge();
    }
    drain();
    if (answered - before != 110 || t.connections) fail("headers lost in clear");
    if (tracked < 100000 || fresh < 50000 || old < 10000 || accesses < 1000) printf("tracked %u, new %u, old %u: not exercised\n", tracked, fresh, old), exit(1);
    return 0;
}
