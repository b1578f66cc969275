// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Frames built by hand with the header they must give, then random frames, many of them
// with a header that lies or is cut, against a model that reads them byte by byte.
// verilate: -GDATA_W=512
// verilate: -GDATA_W=64
#include <cstdio>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;

static Bytes be(u128 v, unsigned n) {
    Bytes b;
    while (n--) b.push_back(uint8_t(v >> 8 * n));
    return b;
}
static Bytes operator+(Bytes a, const Bytes& b) { return a.insert(a.end(), b.begin(), b.end()), a; }

static Bytes eth(std::vector<uint16_t> tags, uint16_t type) {
    Bytes f = be(0x020000000001, 6) + be(0x020000000002, 6);
    for (auto t : tags) f = f + be(t, 2) + be(0x0123, 2);
    return f + be(type, 2);
}
static Bytes ip4(unsigned ihl, uint8_t protocol, const Bytes& l4, int lie = 0, uint16_t frag = 0x4000) {
    Bytes h = be(0x40 | ihl, 1) + be(0, 1) + be(ihl * 4 + l4.size() + lie, 2) + be(0x1234, 2) + be(frag, 2) + be(64, 1) +
              be(protocol, 1) + be(0, 2) + be(0x0a000001, 4) + be(0x0a000002, 4);
    for (unsigned i = 5; i < ihl; i++) h = h + be(0x01010101, 4);
    return h + l4;
}
static const u128 V6A = u128(0x20010db8'00000001) << 64 | 0x11, V6B = u128(0x20010db8'00000002) << 64 | 0x22;
static Bytes ip6(uint8_t next, const Bytes& l4, int lie = 0) {
    return be(0x60000000, 4) + be(l4.size() + lie, 2) + be(next, 1) + be(64, 1) + be(V6A, 16) + be(V6B, 16) + l4;
}
static Bytes tcp(unsigned doff, uint8_t flags, unsigned payload) {
    Bytes h = be(40000, 2) + be(5001, 2) + be(0xfffffff0, 4) + be(0x12345678, 4) + be(doff << 4, 1) + be(flags, 1) +
              be(0xabcd, 2) + be(0, 4);
    for (unsigned i = 5; i < doff; i++) h = h + be(0x01010101, 4);
    return h + Bytes(payload, 0x5a);
}
static Bytes udp(uint16_t dport, const Bytes& data, int lie = 0) {
    return be(50000, 2) + be(dport, 2) + be(8 + data.size() + lie, 2) + be(0, 2) + data;
}
static Bytes bth(uint8_t opcode, unsigned rest) {
    Bytes h = be(opcode, 1) + be(0x40, 1) + be(0xffff, 2) + be(0xc0, 1) + be(0x123456, 3) + be(0x80, 1) + be(0xfffffe, 3);
    for (unsigned i = 0; i < rest; i++) h.push_back(0x60 + i);
    return h;
}

// The model: what docs/formats.md, RFC 791, 8200, 9293 and the InfiniBand specification say.
static unsigned extensions(uint8_t op) {
    static const unsigned rc[32] = {0, 0, 0, 4, 0, 4, 16, 0, 0, 4, 16, 20, 16, 4, 0, 4, 4, 4, 12, 28, 28, 0, 4, 4};
    unsigned n = rc[op & 31];
    bool response = (op & 31) >= 0x0d && (op & 31) <= 0x12;
    switch (op >> 5) {
        case 0: case 1: return n;
        case 2: return n + (response ? 4 : 12);
        case 3: return n + 8;
        case 4: return op == 0x81 ? 16 : 0;
        case 5: return n + (response ? 0 : 4);
    }
    return 0;
}
static Header model(const Bytes& f) {
    Header h;
    auto u8 = [&](size_t i) { return i < f.size() ? f[i] : 0; };
    auto u = [&](size_t i, unsigned n) { u128 v = 0; while (n--) v = v << 8 | u8(i++); return v; };
    size_t l2 = 14;
    for (int i = 0; i < 2 && f.size() >= l2 && (u(l2 - 2, 2) == 0x8100 || u(l2 - 2, 2) == 0x88a8); i++) l2 += 4;
    uint16_t type = u(l2 - 2, 2);
    h.l3_offset = h.l4_offset = h.payload_offset = l2;
    auto bad = [&] { h.malformed = true; return h; };
    if (f.size() < l2) return bad();
    if (type != 0x0800 && type != 0x86dd) return h;
    bool six = type == 0x86dd;
    size_t hl = six ? 40 : (u8(l2) & 15) * 4;
    // headers are read when 64 bytes are there and suffice, at 128 bytes, or at the end
    bool ended = f.size() <= 64 || (f.size() <= 128 && (six || l2 + hl + 24 > 64));
    size_t len = six ? 40 + size_t(u(l2 + 4, 2)) : size_t(u(l2 + 2, 2));
    if (u8(l2) >> 4 != (six ? 6 : 4) || hl < 20 || f.size() < l2 + hl || len < hl) return bad();
    if (ended && f.size() < l2 + len) return bad();
    size_t l4 = l2 + hl, l4_len = len - hl;
    h.is_ip = true, h.is_ip6 = six, h.l4_offset = h.payload_offset = l4;
    h.src = six ? u(l2 + 8, 16) : u(l2 + 12, 4), h.dst = six ? u(l2 + 24, 16) : u(l2 + 16, 4);
    uint8_t protocol = u8(l2 + (six ? 6 : 9));
    bool more = !six && u8(l2 + 6) & 0x20, later = !six && u(l2 + 6, 2) & 0x1fff;
    if (later) return h;
    if (protocol == 6) {
        size_t doff = (u8(l4 + 12) >> 4) * 4;
        if (l4_len < 20 || doff < 20 || doff > l4_len) return bad();
        h.proto = ProtoTcp, h.payload_offset = l4 + doff, h.payload_len = l4_len - doff;
        h.f0 = u(l4 + 4, 4), h.f1 = u(l4 + 8, 4), h.f2 = u(l4 + 14, 2), h.flags = u8(l4 + 13);
    } else if (protocol == 17) {
        size_t ul = u(l4 + 4, 2);
        if (more) ul = l4_len;
        if (l4_len < 8 || ul < 8 || ul > l4_len) return bad();
        h.proto = ProtoUdp, h.payload_offset = l4 + 8, h.payload_len = ul - 8;
        if (u(l4 + 2, 2) == 4791 && !more) {
            size_t b = l4 + 8, op = u8(b), ext = extensions(op);
            if (ul < 8 + 12 + ext + 4) { h.proto = 0, h.payload_offset = l4, h.payload_len = 0; return bad(); }
            h.proto = ProtoRoce, h.payload_offset = b + 12 + ext, h.payload_len = ul - 8 - 12 - ext - 4;
            h.qpn = u(b + 5, 3), h.f0 = op << 24 | uint32_t(u(b + 9, 3));
            bool aeth = (op >> 5 == 0 || op >> 5 == 5) && ((op & 31) == 0x0d || ((op & 31) >= 0x0f && (op & 31) <= 0x12));
            h.f1 = aeth ? uint32_t(u(b + 12, 4)) : 0;
            h.f2 = u8(b + 1) << 8 | (u8(b + 4) & 0xc0) | (u8(b + 8) & 0x80) >> 2;
        }
    } else return h;
    h.sport = u(l4, 2), h.dport = u(l4 + 2, 2);
    return h;
}

static std::string differences(const Header& a, const Header& b) {
    std::string s;
    char t[160];
    auto cmp = [&](const char* name, u128 x, u128 y) {
        if (x != y) snprintf(t, sizeof t, " %s %llx not %llx", name, (unsigned long long)x, (unsigned long long)y), s += t;
    };
#define FIELD(x) cmp(#x, a.x, b.x)
    FIELD(flags), FIELD(f2), FIELD(f1), FIELD(f0), FIELD(qpn), FIELD(dport), FIELD(sport), FIELD(dst), FIELD(src);
    FIELD(payload_len), FIELD(payload_offset), FIELD(l4_offset), FIELD(l3_offset), FIELD(is_ip6), FIELD(is_ip);
    FIELD(malformed), FIELD(proto), FIELD(lane), FIELD(packet_id), FIELD(stamp);
    return s;
}

struct Case {
    const char* name;
    Bytes frame;
    std::function<void(Header&)> want;
};

static std::vector<Case> cases() {
    auto t = [](uint8_t l3, uint8_t l4, uint8_t off, uint16_t len) {
        return [=](Header& h) {
            h.proto = ProtoTcp, h.is_ip = true, h.l3_offset = l3, h.l4_offset = l4, h.payload_offset = off, h.payload_len = len;
            h.src = 0x0a000001, h.dst = 0x0a000002, h.sport = 40000, h.dport = 5001;
            h.f0 = 0xfffffff0, h.f1 = 0x12345678, h.f2 = 0xabcd, h.flags = 0x18;
        };
    };
    auto r = [](uint8_t l4, uint8_t off, uint16_t len, uint8_t op, uint32_t aeth) {
        return [=](Header& h) {
            h.proto = ProtoRoce, h.is_ip = true, h.l3_offset = 14, h.l4_offset = l4, h.payload_offset = off, h.payload_len = len;
            h.src = 0x0a000001, h.dst = 0x0a000002, h.sport = 50000, h.dport = 4791;
            h.qpn = 0x123456, h.f0 = op << 24 | 0xfffffe, h.f1 = aeth, h.f2 = 0x40e0;
        };
    };
    auto other = [](bool ip, uint8_t l3, uint8_t l4, bool malformed) {
        return [=](Header& h) {
            h.is_ip = ip, h.l3_offset = l3, h.l4_offset = h.payload_offset = l4, h.malformed = malformed;
            if (ip) h.src = 0x0a000001, h.dst = 0x0a000002;
        };
    };
    const Bytes pad(18, 0);
    auto roce = [](uint8_t op, unsigned rest, unsigned ihl = 5) { return eth({}, 0x0800) + ip4(ihl, 17, udp(4791, bth(op, rest))); };
    return {
        {"TCP", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0x18, 100)), t(14, 34, 54, 100)},
        {"TCP without payload, padded", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0x18, 0)) + Bytes(6, 0), t(14, 34, 54, 0)},
        {"TCP with options, in a long frame", eth({}, 0x0800) + ip4(5, 6, tcp(8, 0x18, 1448)), t(14, 34, 66, 1448)},
        {"one VLAN tag", eth({0x8100}, 0x0800) + ip4(5, 6, tcp(5, 0x18, 10)), t(18, 38, 58, 10)},
        {"two VLAN tags", eth({0x88a8, 0x8100}, 0x0800) + ip4(5, 6, tcp(5, 0x18, 1000)), t(22, 42, 62, 1000)},
        {"all the options", eth({0x88a8, 0x8100}, 0x0800) + ip4(15, 6, tcp(15, 0x18, 1000)), t(22, 82, 142, 1000)},
        {"all the options, no payload", eth({0x88a8, 0x8100}, 0x0800) + ip4(15, 6, tcp(15, 0x18, 0)), t(22, 82, 142, 0)},
        {"IPv6", eth({}, 0x86dd) + ip6(6, tcp(5, 0x18, 7)), [=](Header& h) { t(14, 54, 74, 7)(h), h.is_ip6 = true, h.src = V6A, h.dst = V6B; }},
        {"IPv6 and two tags", eth({0x8100, 0x8100}, 0x86dd) + ip6(6, tcp(6, 0x18, 1400)), [=](Header& h) { t(22, 62, 86, 1400)(h), h.is_ip6 = true, h.src = V6A, h.dst = V6B; }},
        {"UDP", eth({}, 0x0800) + ip4(5, 17, udp(53, Bytes(5, 1))) + pad, [=](Header& h) { other(true, 14, 34, false)(h), h.proto = ProtoUdp, h.sport = 50000, h.dport = 53, h.payload_offset = 42, h.payload_len = 5; }},
        {"RoCE SEND only", roce(0x04, 1024 + 4), r(34, 54, 1024, 0x04, 0)},
        {"RoCE WRITE only with immediate", roce(0x0b, 20 + 8 + 4), r(34, 74, 8, 0x0b, 0)},
        {"RoCE READ request", roce(0x0c, 16 + 4), r(34, 70, 0, 0x0c, 0)},
        {"RoCE READ response only", roce(0x10, 4 + 100 + 4), r(34, 58, 100, 0x10, 0x60616263)},
        {"RoCE READ response middle", roce(0x0e, 100 + 4), r(34, 54, 100, 0x0e, 0)},
        {"RoCE ACK, options", roce(0x11, 4 + 4, 15), r(74, 98, 0, 0x11, 0x60616263)},
        {"RoCE ATOMIC ACK", roce(0x12, 12 + 4), r(34, 66, 0, 0x12, 0x60616263)},
        {"RoCE CNP", roce(0x81, 16 + 4), r(34, 70, 0, 0x81, 0)},
        {"RoCE without room for ICRC", roce(0x04, 3) + pad, other(true, 14, 34, true)},
        {"ARP", eth({}, 0x0806) + Bytes(46, 3), other(false, 14, 14, false)},
        {"three tags", eth({0x8100, 0x8100, 0x8100}, 0x0800) + ip4(5, 6, tcp(5, 0, 0)), other(false, 22, 22, false)},
        {"ICMP", eth({}, 0x0800) + ip4(5, 1, Bytes(64, 8)), other(true, 14, 34, false)},
        {"later fragment", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0, 100), 0, 0x2001), other(true, 14, 34, false)},
        {"IHL 4", eth({}, 0x0800) + ip4(4, 6, tcp(5, 0, 100)), other(false, 14, 14, true)},
        {"IPv6 in an IPv4 frame", eth({}, 0x0800) + ip6(6, tcp(5, 0, 100)), other(false, 14, 14, true)},
        {"total length below the header", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0, 0), -21) + pad, other(false, 14, 14, true)},
        {"total length above the frame", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0, 0), 1), other(false, 14, 14, true)},
        {"IPv6 payload length above the frame", eth({}, 0x86dd) + ip6(6, tcp(5, 0, 4), 1), other(false, 14, 14, true)},
        {"data offset 4", eth({}, 0x0800) + ip4(5, 6, tcp(4, 0, 100)), other(true, 14, 34, true)},
        {"data offset past the packet", eth({}, 0x0800) + ip4(5, 6, tcp(5, 0, 3), -4) + pad, other(true, 14, 34, true)},
        {"UDP length past the packet", eth({}, 0x0800) + ip4(5, 17, udp(53, Bytes(20, 1), 1)), other(true, 14, 34, true)},
        {"UDP length 7", eth({}, 0x0800) + ip4(5, 17, udp(53, Bytes(20, 1), -21)), other(true, 14, 34, true)},
        {"cut in the Ethernet header", Bytes(13, 0), other(false, 14, 14, true)},
        {"cut in the tag", Bytes(12, 0) + be(0x8100, 2) + Bytes(2, 0), other(false, 18, 18, true)},
        {"cut in the IP header", eth({}, 0x0800) + Bytes(19, 0x45), other(false, 14, 14, true)},
        {"one byte", Bytes(1, 0x45), other(false, 14, 14, true)},
    };
}

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{7};
    const unsigned beat = sizeof t.in_data;
    struct Expected {
        std::string name;
        Header h;
    };
    std::deque<Expected> expected;
    unsigned seen = 0, malformed = 0, protos[4] = {};
    bool failed = false;
    auto edge = [&] {
        t.clk = 1, t.eval(), t.clk = 0, t.eval();
        if (!t.out_valid) return;
        Header got;
        got.io(Bits(t.out_hdr.data()), false);
        seen++, malformed += got.malformed, protos[got.proto]++;
        if (expected.empty()) failed = true, puts("a header without a frame");
        else if (auto d = differences(got, expected.front().h); !d.empty())
            failed = true, printf("%s:%s\n", expected.front().name.c_str(), d.c_str());
        if (!expected.empty()) expected.pop_front();
    };
    t.clk = 0, t.eval();
    t.rst = 1, edge(), t.rst = 0;
    uint32_t id = 0;
    auto send = [&](const std::string& name, const Bytes& f, Header h, unsigned bubbles) {
        h.packet_id = ++id, h.stamp = 0x1234567800000000 + id, h.lane = false;
        expected.push_back({name, h});
        for (size_t i = 0; i < f.size(); i += beat) {
            uint8_t data[64];
            for (auto& d : data) d = rng();
            size_t n = std::min<size_t>(beat, f.size() - i);
            memcpy(data, &f[i], n);
            memcpy(&t.in_data, data, beat);
            t.in_keep = n == 64 ? ~0ull : (1ull << n) - 1;
            t.in_valid = 1, t.in_sof = i == 0, t.in_last = i + n == f.size();
            t.in_stamp = i ? rng() : h.stamp, t.in_packet_id = i ? rng() : id;
            edge();
            t.in_valid = 0, t.in_sof = rng(), t.in_last = rng();
            while (bubbles && rng() % bubbles == 0) edge();
        }
    };
    for (unsigned bubbles : {0, 2})
        for (auto& c : cases()) {
            Header h;
            c.want(h);
            if (auto d = differences(model(c.frame), h); !d.empty()) return printf("model, %s:%s\n", c.name, d.c_str()), 1;
            send(c.name, c.frame, h, bubbles);
        }
    for (int i = 0; i < 200000 && !failed; i++) {
        std::vector<uint16_t> tags;
        for (unsigned n = rng() % 8; n > 5 && tags.size() < 3; n--) tags.push_back(rng() % 2 ? 0x8100 : 0x88a8);
        bool six = rng() % 4 == 0;
        auto lie = [&] { return rng() % 12 ? 0 : int(rng() % 9) - 4; };
        unsigned payload = rng() % 3 ? rng() % 40 : rng() % 300;
        Bytes l4;
        uint8_t protocol = 17;
        switch (rng() % 4) {
            case 0: l4 = tcp(rng() % 8 ? 5 + rng() % 11 : rng() % 16, rng(), payload), protocol = 6; break;
            case 1: l4 = udp(rng(), Bytes(payload, 1), lie()); break;
            case 2: l4 = udp(4791, bth(rng(), payload), lie()); break;
            case 3: l4 = Bytes(payload, 2), protocol = rng(); break;
        }
        Bytes f = six ? eth(tags, 0x86dd) + ip6(protocol, l4, lie())
                      : eth(tags, 0x0800) + ip4(rng() % 2 ? 5 : rng() % 16, protocol, l4, lie(), rng() % 8 ? 0x4000 : rng() % 4 << 12 | rng() % 2);
        if (f.size() < 60 && rng() % 4) f.resize(60);
        if (rng() % 8 == 0) f.resize(1 + rng() % f.size());
        if (rng() % 8 == 0) f[rng() % f.size()] ^= 1 << rng() % 8;
        send("random frame " + std::to_string(i), f, model(f), i / 1000 % 2 * 3);
    }
    t.in_valid = 0;
    for (int i = 0; i < 5; i++) edge();
    if (!expected.empty()) return printf("%zu headers missing\n", expected.size()), 1;
    if (!failed && (seen < 200000 || malformed < 1000 || protos[1] < 1000 || protos[2] < 1000 || protos[3] < 1000))
        return puts("not exercised"), 1;
    return failed;
}
