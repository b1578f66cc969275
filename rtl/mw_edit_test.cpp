// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What a lane does to the bytes of frames, against a model from the protocols' definitions:
// random frames (VLAN tags, IPv4 with options, IPv6; TCP, UDP, RoCEv2, others; checksums right,
// wrong or absent; lengths that lie) × random changes (set, ecn, corrupt, truncate; each
// checksum mended, broken or left). The model adds up checksums modulo 65535 and takes the CRC
// of whole packets, so it has neither RFC 1624's arithmetic nor the linearity of CRCs. A frame
// that came with right checksums and has all of them mended must verify when it leaves.
// Counted and printed: every kind of change × transport × address family.
//
// top: mw_path
// uses: mw_fifo mw_ram mw_sorted_queue mw_crc32_change mw_mend mw_act mw_reorder mw_hold mw_egress
// verilate: -GDATA_W=512
// verilate: -GDATA_W=64
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;
static constexpr unsigned Width = sizeof(Vtop::m_axis_tdata), MaxFrame = 10240;
// Cycles that a byte takes on the wire: 100 Gb/s at 3.103 ns, 10 Gb/s at 6.4 ns.
static constexpr double PerByte = Width == 64 ? 8 / 100.0 / 3.103 : 8 / 10.0 / 6.4;

static std::mt19937_64 rng{Width};
static unsigned pick(unsigned n) { return rng() % n; }

struct Frame {
    Bytes in, out;
    bool is_ip = false, ip6 = false;
    unsigned proto = ProtoOther, l3 = 14, l4 = 14, payload = 14, payload_len = 0;
    bool error = false;
    bool malformed = false;
    bool right = false;  // it came with right checksums, and lengths that hold
    Action act;
    unsigned done = 0;
    Bytes plain;  // what may leave instead, when changes come too fast
    // Where the transport's data ends; RoCE: its ICRC begins.
    unsigned end() const { return payload + payload_len; }
    unsigned l4_sum() const { return l4 + (proto == ProtoTcp ? 16 : 6); }
};
using Ref = std::shared_ptr<Frame>;

static unsigned be16(const Bytes& f, unsigned at) { return f[at] << 8 | f[at + 1]; }
static void put16(Bytes& f, unsigned at, unsigned v) { f[at] = v >> 8, f[at + 1] = v; }

// ---- the checksums, from their definitions

// Sum modulo 65535 of the bytes at even and odd places behind `from`, without two at `except`.
static unsigned add(const Bytes& f, unsigned from, unsigned to, unsigned except) {
    uint64_t sum = 0;
    for (unsigned i = from; i < to && i < f.size(); i++)
        if (i != except && i != except + 1) sum += (i - from) % 2 ? f[i] : f[i] << 8;
    return sum % 65535;
}
// RFC 791: the one's complement of the one's complement sum of the header.
static unsigned ip_sum(const Frame& f, const Bytes& b) { return add(b, f.l3, f.l4, f.l3 + 10); }
// RFC 9293, 768, 8200: addresses, protocol, length, header and data.
static unsigned l4_sum(const Frame& f, const Bytes& b) {
    unsigned end = f.end() + (f.proto == ProtoRoce ? 4 : 0);
    unsigned addresses = f.ip6 ? add(b, f.l3 + 8, f.l3 + 40, ~0u - 1) : add(b, f.l3 + 12, f.l3 + 20, ~0u - 1);
    return (addresses + (f.proto == ProtoTcp ? 6 : 17) + (end - f.l4) + add(b, f.l4, end, f.l4_sum())) % 65535;
}
// What stands in the field: never 0xffff, since no sum of a packet is 0; UDP says 0xffff for 0.
static unsigned field(unsigned sum, bool udp) {
    unsigned v = 65535 - (sum ? sum : 65535);
    return udp && v == 0 ? 0xffff : v;
}
static uint32_t crc32(uint32_t crc, const uint8_t* p, size_t n) {
    for (; n; n--, p++) {
        crc ^= *p;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return crc;
}
// InfiniBand specification volume 1, annex A17: eight bytes of ones for the link's header, then
// the packet from IP on with ones in all that a router may change.
static uint32_t icrc(const Frame& f, const Bytes& b) {
    Bytes p(b.begin() + f.l3, b.begin() + f.end());
    unsigned udp = f.l4 - f.l3;
    if (f.ip6) {
        p[0] |= 0x0f, p[1] = p[2] = p[3] = 0xff;  // traffic class, flow label
        p[7] = 0xff;                              // hop limit
    } else {
        p[1] = p[8] = p[10] = p[11] = 0xff;  // TOS, TTL, checksum
    }
    p[udp + 6] = p[udp + 7] = 0xff;  // UDP checksum
    p[udp + 12] = 0xff;              // FECN, BECN, reserved
    const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    return ~crc32(crc32(~0u, ones, 8), p.data(), p.size());
}
static uint32_t le32(const Bytes& f, unsigned at) { return f[at] | f[at + 1] << 8 | f[at + 2] << 16 | uint32_t(f[at + 3]) << 24; }

// ---- frames

static Ref make(unsigned payload, unsigned kind, bool ip6) {
    auto f = std::make_shared<Frame>();
    unsigned tags = pick(3) ? 0 : 1 + pick(2);
    f->l3 = 14 + 4 * tags;
    f->is_ip = kind < 4, f->ip6 = f->is_ip && ip6;
    unsigned header = f->ip6 ? 40 : 20 + (pick(3) ? 0 : 4 * pick(11));
    f->l4 = f->is_ip ? f->l3 + header : f->l3;
    f->proto = kind == 0 ? ProtoTcp : kind == 1 ? ProtoUdp : kind == 2 ? ProtoRoce : ProtoOther;
    unsigned l4_header = kind == 0 ? 20 + 4 * pick(11) : kind == 1 ? 8 : kind == 2 ? 20 + 4 * pick(5) : 0;
    if (f->proto == ProtoRoce && pick(8)) payload &= ~3u;
    f->payload = f->l4 + l4_header;
    f->payload_len = f->proto == ProtoOther ? 0 : payload;
    unsigned length = f->payload + payload + (f->proto == ProtoRoce ? 4 : 0);
    f->in.resize(length);
    for (auto& b : f->in) b = pick(3) ? rng() : pick(2) ? 0 : 0xff;
    if (f->is_ip) {
        f->in[f->l3] = f->ip6 ? 0x60 | pick(16) : 0x40 | header / 4;
        if (f->ip6) {
            put16(f->in, f->l3 + 4, length - f->l4);
            f->in[f->l3 + 6] = f->proto == ProtoTcp ? 6 : 17;
        } else {
            put16(f->in, f->l3 + 2, length - f->l3);
            put16(f->in, f->l3 + 6, 0);
            f->in[f->l3 + 9] = f->proto == ProtoTcp ? 6 : 17;
            put16(f->in, f->l3 + 10, 0);
        }
    }
    bool udp = f->proto == ProtoUdp || f->proto == ProtoRoce;
    if (f->proto == ProtoTcp) f->in[f->l4 + 12] = l4_header / 4 << 4;
    if (udp) put16(f->in, f->l4 + 4, length - f->l4);
    f->right = f->is_ip && f->proto != ProtoOther;
    // Sums near their wrap come up too seldom by themselves.
    if (f->is_ip && !f->ip6) {
        if (!pick(8)) put16(f->in, f->l3 + 4, 0), put16(f->in, f->l3 + 4, field(65535 - (ip_sum(*f, f->in) + 65535 - pick(3)) % 65535, false));
        put16(f->in, f->l3 + 10, field(ip_sum(*f, f->in), false));
    }
    if (f->proto == ProtoRoce) {
        uint32_t crc = icrc(*f, f->in);
        for (int i = 0; i < 4; i++) f->in[f->end() + i] = crc >> 8 * i;
    }
    if (f->proto != ProtoOther) put16(f->in, f->l4_sum(), udp && !pick(3) ? 0 : field(l4_sum(*f, f->in), udp));
    // Trailing bytes, wrong checksums, lengths that lie.
    if (f->in.size() < 60 && pick(2)) f->in.resize(60);
    if (f->is_ip && !pick(6)) f->in.resize(f->in.size() + pick(20), 0x5a);
    if (!pick(6) && f->in.size() > f->l3 + 12) f->right = false, f->in[f->l3 + pick(f->in.size() - f->l3)] ^= 1 + pick(255);
    if (!pick(40) && f->payload_len) f->right = false, f->payload_len += pick(3000);
    f->error = !pick(16);
    f->malformed = f->proto == ProtoOther && !pick(4);
    return f;
}

static void choose(Frame& f) {
    Action& a = f.act;
    auto offset = [&](uint8_t& base, uint16_t& at) {
        unsigned size = f.in.size();
        base = pick(4);
        unsigned from = base == 0 ? 0 : base == 1 ? f.l3 : base == 2 ? f.l4 : f.payload;
        unsigned to = pick(2) ? size : std::min(size, f.payload + 8);  // anywhere, or in the headers
        at = to > from && pick(12) ? pick(std::min(to - from, 4096u)) : std::min(size > from ? size - from + 4 - pick(9) % 8 : 0, 4095u);
        if (f.proto == ProtoRoce && !pick(6) && f.end() >= from && f.end() - from < 4090) at = f.end() - from + pick(8) - pick(2) * 2;
        at &= 4095;
    };
    unsigned n = 1 + !pick(3) + !pick(6), all = pick(12);  // one in twelve: set, corrupt and ecn
    for (unsigned i = 0; i < (all ? n : 3); i++) switch (all ? pick(7) : 2 + i) {
            case 0:
            case 1:
            case 2: {
                a.set = true;
                offset(a.set_base, a.set_offset);
                unsigned bytes = 1 + pick(8);
                do {
                    a.set_mask = pick(2) ? ~0ull : rng() & rng();
                    if (bytes < 8) a.set_mask &= (1ull << 8 * bytes) - 1;
                    if (pick(4) == 0) a.set_mask &= ~0xffull;
                } while (!a.set_mask);
                a.set_value = rng() & a.set_mask;
                if (a.set_base == 1) a.set_ip6_nibbles = pick(3);
                if (a.set_ip6_nibbles == 1) a.set_mask &= ~(0xfull << 56), a.set_value &= a.set_mask;
                break;
            }
            case 3: a.ecn = true, a.ecn_codepoint = pick(4); break;
            case 4: a.corrupt = true, offset(a.corrupt_base, a.corrupt_offset), a.corrupt_mask = 1 + pick(255); break;
            case 5:
                switch (pick(4)) {
                    case 0: a.break_fcs = true; break;
                    case 1: a.break_ip = true; break;
                    case 2: a.break_l4 = true; break;
                    case 3: a.break_icrc = true; break;
                }
                break;
            case 6: a.truncate = true, a.truncate_bytes = pick(8) ? pick(f.in.size() + 1) : pick(2) ? 1 + pick(MaxFrame) : f.end() + pick(6); break;
        }
    if (pick(3)) a.mend_ip = a.mend_l4 = a.mend_icrc = true;
    else a.mend_ip = pick(2), a.mend_l4 = pick(2), a.mend_icrc = pick(2);
}

// ---- the model

static void expect(Frame& f) {
    const Action& a = f.act;
    const Bytes old = f.in;
    const unsigned length = old.size(), bound = a.truncate && a.truncate_bytes ? std::min<unsigned>(a.truncate_bytes, length) : length;
    const bool udp = f.proto == ProtoUdp || f.proto == ProtoRoce, ip4 = f.is_ip && !f.ip6, roce = f.proto == ProtoRoce;
    const unsigned base[4] = {0, f.l3, f.l4, f.payload};
    const bool has[4] = {true, f.is_ip, f.proto != ProtoOther, !f.malformed};
    auto set = [&](Bytes& b) {
        if (!a.set || !has[a.set_base]) return;
        // Bit by bit, the highest of a byte first. IPv6's fields stand up to 8 bits before IPv4's.
        unsigned earlier = f.ip6 ? 4 * a.set_ip6_nibbles : 0;
        for (unsigned i = 0; i < 64; i++) {
            bool mask = a.set_mask >> (8 * (i / 8) + 7 - i % 8) & 1, value = a.set_value >> (8 * (i / 8) + 7 - i % 8) & 1;
            unsigned bit = 8 * (base[a.set_base] + a.set_offset) + i - earlier, at = bit / 8;
            if (!mask || at >= bound) continue;
            b[at] = (b[at] & ~(0x80 >> bit % 8)) | (value ? 0x80 >> bit % 8 : 0);
            f.done |= 1 << 4;
        }
    };
    auto ecn = [&](Bytes& b) {
        if (!a.ecn || !f.is_ip || f.l3 + 1 >= bound) return;
        unsigned shift = f.ip6 ? 4 : 0;
        b[f.l3 + 1] = (b[f.l3 + 1] & ~(3 << shift)) | a.ecn_codepoint << shift;
        f.done |= 1 << 1;
    };
    auto corrupt = [&](Bytes& b) {
        unsigned at = base[a.corrupt_base] + a.corrupt_offset;
        if (!a.corrupt || !has[a.corrupt_base] || at >= bound) return;
        b[at] ^= a.corrupt_mask;
        f.done |= 1 << 2;
    };
    auto all = [&](Bytes& b) { set(b), ecn(b), corrupt(b); };
    // Difference of two versions of the frame among the bytes that a checksum covers.
    auto difference = [&](unsigned (*sum)(const Frame&, const Bytes&), const Bytes& x, const Bytes& y) {
        return (sum(f, y) + 65535 - sum(f, x)) % 65535;
    };
    auto mended = [&](unsigned at, unsigned change, bool changed, bool broken, bool is_udp) {
        unsigned was = be16(old, at), now = was;
        if (changed && !(is_udp && was == 0)) {
            now = (65535 * 2 - change - (65535 - was)) % 65535;  // the one's complement of (~was + change)
            if (is_udp && now == 0) now = 0xffff;
        } else {
            changed = false;
        }
        if (broken) now ^= 0x5555;
        if (broken && is_udp && now == 0) now = 0xffff;
        return now;
    };
    Bytes base_frame = old, now = old;
    all(now);
    const bool whole = roce && f.end() + 4 <= bound;
    if (whole) {
        if (a.mend_icrc) {
            uint32_t change = icrc(f, old) ^ icrc(f, now);
            for (int i = 0; i < 4; i++) base_frame[f.end() + i] ^= change >> 8 * i;
        }
        if (a.break_icrc)
            for (int i = 0; i < 4; i++) base_frame[f.end() + i] ^= 0xff, f.done |= 1 << 2;
    }
    now = base_frame;
    all(now);
    if (ip4) {
        Bytes from = old, to = now;
        if (!a.mend_ip) set(from), to = from, ecn(to);
        bool changed = false;
        for (unsigned i = f.l3; i < f.l4; i++) changed |= i != f.l3 + 10 && i != f.l3 + 11 && from[i] != to[i];
        if (a.break_ip && f.l3 + 10 < bound) f.done |= 1 << 2;
        put16(base_frame, f.l3 + 10, mended(f.l3 + 10, difference(ip_sum, from, to), changed, a.break_ip, false));
    }
    if (f.proto != ProtoOther) {
        Bytes to = now;
        if (roce && !whole)  // an ICRC that is not there as a whole does not count
            for (unsigned i = f.end(); i < f.end() + 4 && i < length; i++) to[i] = old[i];
        bool changed = false;
        for (unsigned i = f.l3; i < std::min(length, f.end() + (roce ? 4 : 0)); i++) {
            bool address = f.ip6 ? i >= f.l3 + 8 && i < f.l3 + 40 : i >= f.l3 + 12 && i < f.l3 + 20;
            bool covered = (address && i < f.l4) || (i >= f.l4 && i != f.l4_sum() && i != f.l4_sum() + 1);
            changed |= covered && old[i] != to[i];
        }
        if (a.break_l4 && f.l4_sum() < bound) f.done |= 1 << 2;
        put16(base_frame, f.l4_sum(), mended(f.l4_sum(), difference(l4_sum, old, to), changed && a.mend_l4, a.break_l4, udp));
    }
    f.out = base_frame;
    all(f.out);
    if (a.break_fcs) f.done |= 1 << 2;
    if (a.drop) f.done = 0;
    if (bound < length) f.done |= 1 << 7;
    // The model's own check: right before, all mended and nothing broken, right behind.
    bool itself = false;  // writes to a checksum
    auto touches = [&](unsigned at, unsigned n) {
        for (int flip : {0x00, 0xff}) {
            Bytes x = old;
            for (unsigned i = at; i < at + n; i++) x[i] ^= flip;
            all(x);
            for (unsigned i = at; i < at + n; i++) itself |= x[i] != (old[i] ^ flip);
        }
    };
    if (ip4) touches(f.l3, 1), touches(f.l3 + 2, 2), touches(f.l3 + 9, 3);
    if (f.ip6) touches(f.l3, 1), touches(f.l3 + 4, 3);
    if (f.right) touches(f.l4_sum(), 2);
    if (udp && f.right) touches(f.l4 + 4, 2);
    if (roce && f.right) touches(f.end(), 4);
    if (f.right && !itself && bound == length && a.mend_ip && a.mend_l4 && a.mend_icrc && !a.break_ip && !a.break_l4 && !a.break_icrc) {
        bool ok = (f.ip6 || be16(f.out, f.l3 + 10) == field(ip_sum(f, f.out), false));
        unsigned l4 = be16(f.out, f.l4_sum());
        ok &= (udp && !be16(old, f.l4_sum())) ? l4 == 0 : l4 == field(l4_sum(f, f.out), udp);
        ok &= !roce || le32(f.out, f.end()) == icrc(f, f.out);
        if (!ok) printf("the model mends wrongly\n"), exit(1);
    }
    f.out.resize(bound);
    if (f.out.size() < 60) f.out.resize(60, 0);
}

// Mended checksums near their wrap come up too seldom by themselves: changes a word that the
// event leaves alone so that this one becomes 0, or nearly.
static void wrap(Frame& f) {
    Frame after = f;
    expect(after);
    if (!f.right || after.out.size() < f.in.size()) return;
    auto adjust = [&](unsigned word, unsigned sum) {
        for (unsigned i = 0; i < 2; i++)
            if (after.out[word + i] != f.in[word + i]) return false;
        put16(f.in, word, (be16(f.in, word) + be16(after.out, sum) + 65535 - pick(3)) % 65535);
        return true;
    };
    bool udp = f.proto != ProtoTcp, summed = be16(f.in, f.l4_sum());
    if (!f.ip6 && adjust(f.l3 + 4, f.l3 + 10)) put16(f.in, f.l3 + 10, field(ip_sum(f, f.in), false));
    if (f.proto == ProtoRoce)
        for (uint32_t crc = icrc(f, f.in), i = 0; i < 4; i++) f.in[f.end() + i] = crc >> 8 * i;
    if (f.proto != ProtoRoce && summed) adjust(f.l4, f.l4_sum());
    if (summed) put16(f.in, f.l4_sum(), field(l4_sum(f, f.in), udp));
}

// ---- the lane

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            printf("%s, cycle %llu: ", scenario, (unsigned long long)cycle); \
            printf(__VA_ARGS__); \
            printf("\n"); \
            exit(1); \
        } \
    } while (0)

struct Bench {
    VerilatedContext ctx;
    Vtop t{&ctx};
    const char* scenario = "";
    uint64_t cycle = 0;
    std::deque<std::pair<Ref, uint64_t>> verdicts;
    std::deque<Ref> order, tapped;
    Bytes leaving;
    uint8_t tap_done = 0;
    unsigned left = 0, marked = 0, corrupted = 0, rewritten = 0, truncated = 0;
    unsigned want[8] = {};
    unsigned passed_over = 0, mend_full = 0;
    unsigned ready_percent = 100;
    std::map<std::string, unsigned> seen;

    bool clock(const Frame* f, size_t at) {
        t.time_ns = 1000 + uint64_t(cycle * (Width == 64 ? 3.103 : 6.4));
        t.in_valid = f != nullptr;
        if (f) {
            size_t n = std::min<size_t>(Width, f->in.size() - at);
            Bytes beat(Width);
            for (auto& b : beat) b = rng();
            memcpy(beat.data(), &f->in[at], n);
            memcpy(&t.in_data, beat.data(), Width);
            t.in_keep = n == 64 ? ~0ull : (1ull << n) - 1;
            t.in_sof = at == 0, t.in_last = at + n == f->in.size();
            t.in_error = t.in_last && f->error, t.in_truncated = 0, t.in_captured = 1;
        }
        t.v_valid = !verdicts.empty() && cycle >= verdicts.front().second;
        if (t.v_valid) {
            const Frame& g = *verdicts.front().first;
            Verdict v;
            v.action = g.act, v.touched = true, v.is_ip = g.is_ip, v.is_ip6 = g.ip6;
            v.l3_offset = g.l3, v.l4_offset = g.l4, v.payload_offset = g.payload;
            v.data_end = std::min(g.payload + g.payload_len, unsigned(MaxFrame));
            v.proto = v.rec.proto = g.proto, v.malformed = v.rec.malformed = g.malformed, v.rec.payload_len = g.payload_len;
            v.io(Bits(t.v.data()), true);
            verdicts.pop_front();
        }
        t.m_axis_tready = pick(100) < ready_percent;
        t.tap_room = 1;
        t.eval();
        bool admit = t.admit;
        mend_full += t.cnt_mend_full, marked += t.cnt_marked, corrupted += t.cnt_corrupted, rewritten += t.cnt_rewritten, truncated += t.cnt_shortened;
        if (t.m_axis_tvalid && t.m_axis_tready) {
            unsigned n = __builtin_popcountll(t.m_axis_tkeep);
            const uint8_t* p = (const uint8_t*)&t.m_axis_tdata;
            leaving.insert(leaving.end(), p, p + n);
            if (t.m_axis_tlast) leave(t.m_axis_tuser);
        }
        if (t.tap_valid && t.tap_sof) tap_done = ((const uint8_t*)&t.tap_rec)[31];
        if (t.tap_valid && t.tap_last) {
            CHECK(!tapped.empty(), "a record of nothing");
            CHECK(tap_done == tapped.front()->done, "done is %02x, not %02x", tap_done, tapped.front()->done);
            tapped.pop_front();
        }
        t.clk = 1, t.eval(), t.clk = 0, t.eval();
        cycle++;
        return admit;
    }

    void leave(bool error) {
        CHECK(!order.empty(), "a frame that nobody sent");
        Ref f = order.front();
        order.pop_front();
        const Action& a = f->act;
        if (leaving != f->out && !f->plain.empty() && leaving == f->plain) {
            for (int i = 0; i < 8; i++) want[i] -= f->done >> i & 1;
            f->out = f->plain, f->done = 0, passed_over++;
        }
        if (leaving != f->out) {
            printf("%s, cycle %llu: %zu bytes came in, %zu left, not %zu; l3 %u l4 %u payload %u+%u proto %u ip6 %d\n", scenario,
                   (unsigned long long)cycle, f->in.size(), leaving.size(), f->out.size(), f->l3, f->l4, f->payload, f->payload_len, f->proto, f->ip6);
            printf("  set %d %u+%u %016llx %016llx, corrupt %d %u+%u %02x, ecn %d %u, truncate %d %u, break %d%d%d%d, mend %d%d%d\n", a.set, a.set_base,
                   a.set_offset, (unsigned long long)a.set_mask, (unsigned long long)a.set_value, a.corrupt, a.corrupt_base, a.corrupt_offset,
                   a.corrupt_mask, a.ecn, a.ecn_codepoint, a.truncate, a.truncate_bytes, a.break_fcs, a.break_ip, a.break_l4, a.break_icrc, a.mend_ip,
                   a.mend_l4, a.mend_icrc);
            for (size_t i = 0, n = 0; i < std::min(leaving.size(), f->out.size()) && n < 12; i++)
                if (leaving[i] != f->out[i]) n++, printf("  byte %zu: was %02x, is %02x, not %02x\n", i, i < f->in.size() ? f->in[i] : 0, leaving[i], f->out[i]);
            exit(1);
        }
        CHECK(error == (f->error || a.break_fcs), "error is %d", error);
        leaving.clear();
        left++;
        tapped.push_back(f);
    }

    void count(const Frame& f) {
        const Action& a = f.act;
        static const char* protos[] = {"other", "TCP", "RoCEv2", "UDP"};
        std::string where = std::string(protos[f.proto]) + (!f.is_ip ? " no IP" : f.ip6 ? " IPv6" : " IPv4");
        auto note = [&](bool on, const std::string& what) { if (on) seen[what + ", " + where]++; };
        static const char* codepoints[] = {"not-ECT", "ECT(1)", "ECT(0)", "CE"};
        bool changed = f.in != f.out;
        note(f.done & 2, std::string("ecn ") + codepoints[a.ecn_codepoint]);
        note(f.done & 16, "set, checksums left");
        note(f.done & 16 && a.mend_ip && a.mend_l4 && a.mend_icrc && changed, "set, all mended");
        note(a.corrupt && f.done & 4 && !(a.mend_ip || a.mend_l4 || a.mend_icrc), "corrupt, checksums left");
        note(a.corrupt && f.done & 4 && a.mend_l4 && a.mend_icrc, "corrupt, mended");
        note(a.break_fcs, "break fcs"), note(a.break_ip, "break ip"), note(a.break_l4, "break l4"), note(a.break_icrc, "break icrc");
        note(f.done & 128, "truncate");
        note(a.set && a.ecn && a.corrupt, "set and ecn and corrupt");
        for (int i = 0; i < 8; i++) want[i] += f.done >> i & 1;
    }

    // Sends frames at the wire's rate, or faster; true if all were admitted.
    bool send(const char* name, unsigned frames, double rate, const std::function<Ref()>& next, bool late) {
        scenario = name;
        unsigned lost = 0;
        double due = cycle;
        uint64_t last_verdict = 0;
        bool admit = true;
        for (unsigned i = 0; i < frames; i++) {
            Ref f = next();
            expect(*f);
            while (cycle < due) admit = clock(nullptr, 0);
            due = std::max<double>(due, cycle - 2000.0 * !late) + (f->in.size() + 24) * PerByte / rate;
            if (!admit) {
                lost++;
                admit = clock(nullptr, 0);
                continue;
            }
            order.push_back(f);
            count(*f);
            size_t beats = (f->in.size() + Width - 1) / Width;
            // Headers are known when they are there: 128 bytes or all of a shorter frame.
            double idle = 0;
            size_t known = std::min<size_t>(beats, 128 / Width);
            for (size_t b = 0; b < beats; b++) {
                if (b + 1 == known) {
                    uint64_t at = cycle + 10 + (late ? pick(pick(8) ? 60 : 400) : 0);
                    last_verdict = std::max(last_verdict + 1, at);
                    verdicts.push_back({f, last_verdict});
                }
                admit = clock(f.get(), b * Width);
                // Beats of a frame come at the wire's rate, one in 1.65 cycles at 512 bits.
                for (idle += Width * PerByte - 1; idle >= 1 && b + 1 < beats; idle--) admit = clock(nullptr, 0);
            }
        }
        for (int i = 0; i < 200000 && (!order.empty() || !tapped.empty()); i++) clock(nullptr, 0);
        CHECK(order.empty() && tapped.empty(), "%zu frames never left", order.size());
        // What was cut off the last frame is thrown away, a beat a clock.
        for (unsigned i = 0; i < MaxFrame / Width + 10; i++) clock(nullptr, 0);
        CHECK(!t.busy, "busy at rest");
        CHECK(marked == want[1] && corrupted == want[2] && rewritten == want[4] && truncated == want[7],
              "counted %u %u %u %u, not %u %u %u %u", marked, corrupted, rewritten, truncated, want[1], want[2], want[4], want[7]);
        printf("%-32s %u frames, %u lost\n", name, frames, lost);
        return !lost;
    }
};

int main() {
    Bench b;
    b.t.clk = 0, b.t.rst = 1, b.t.in_valid = b.t.v_valid = b.t.m_axis_tready = 0, b.t.tap_room = 1;
    for (int i = 0; i < 4; i++) b.t.clk = 1, b.t.eval(), b.t.clk = 0, b.t.eval();
    b.t.rst = 0;
    for (int i = 0; i < 4; i++) b.clock(nullptr, 0);

    auto any = [](unsigned most) {
        return [=] {
            Ref f = make(pick(4) ? pick(200) : pick(most), pick(5), pick(2));
            if (pick(8)) choose(*f);
            if (!pick(4)) wrap(*f);
            return f;
        };
    };
    const unsigned n = Width == 64 ? 2 : 1;
    b.send("all lengths, verdicts late", 16000 * n, 1.0, any(1480), true);
    b.send("longest frames", 600 * n, 1.0, any(10000), true);
    b.ready_percent = 80;
    b.send("MAC not always ready", 6000 * n, 0.7, any(1480), true);
    b.ready_percent = 100;
    // One change with its checksums mended on every frame, at the rate of the wire.
    for (unsigned kind = 0; kind < 3; kind++) {
        for (unsigned payload : {0u, 6u, 26u, 120u, 400u, 1400u}) {
            auto every = [=] {
                Ref f = make(payload, kind, pick(2));
                Action& a = f->act;
                a.set = true, a.set_base = pick(4), a.set_offset = pick(payload + 12), a.set_mask = ~0ull, a.set_value = rng();
                a.mend_ip = a.mend_l4 = a.mend_icrc = true;
                return f;
            };
            char name[64];
            snprintf(name, sizeof name, "set in every frame, %s %u", kind == 0 ? "TCP" : kind == 1 ? "UDP" : "RoCE", payload);
            if (!b.send(name, 4000, 1.0, every, false)) return printf("frames were lost at line rate\n"), 1;
        }
    }
    // More changes than can be worked out at this rate: what is too much passes as it came.
    for (unsigned kind = 0; kind < 3; kind++) {
        auto every = [=] {
            Ref f = make(0, kind, false);
            Action& a = f->act;
            a.set = a.ecn = a.corrupt = true;
            a.set_base = 2, a.set_offset = 0, a.set_mask = ~0ull, a.set_value = rng();
            a.corrupt_base = 0, a.corrupt_offset = pick(12), a.corrupt_mask = 1 + pick(255);
            a.mend_ip = a.mend_l4 = a.mend_icrc = true;
            f->plain = f->in;
            f->plain.resize(std::max<size_t>(60, f->in.size()));
            return f;
        };
        b.passed_over = b.mend_full = 0;
        const unsigned frames = 6000;
        if (!b.send("three changes in every frame", frames, 1.0, every, false)) return printf("frames were lost at line rate\n"), 1;
        printf("%-32s %u of them passed over\n", "", b.passed_over);
        if (b.passed_over != b.mend_full) return printf("the card counts %u\n", b.mend_full), 1;
        if (b.passed_over > (Width == 64 ? frames / 2 : 0)) return printf("too many were passed over\n"), 1;
    }
    unsigned least = ~0u;
    for (auto& [what, count] : b.seen) printf("%6u  %s\n", count, what.c_str()), least = std::min(least, count);
    for (const char* proto : {"TCP", "UDP", "RoCEv2"})
        for (const char* family : {"IPv4", "IPv6"})
            for (const char* what : {"ecn not-ECT", "ecn ECT(1)", "ecn ECT(0)", "ecn CE", "set, checksums left", "set, all mended",
                                     "corrupt, checksums left", "corrupt, mended", "break fcs", "break ip", "break l4", "break icrc",
                                     "truncate", "set and ecn and corrupt"}) {
                std::string key = std::string(what) + ", " + proto + " " + family;
                if (b.seen[key] < 10) return printf("too seldom: %s\n", key.c_str()), 1;
            }
    return 0;
}
