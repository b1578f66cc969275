// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The structs of mw_pkg that cross module boundaries, for benches: read from and written to
// the words that Verilator gives a packed struct, field by field from the least significant.
#pragma once
#include <cstdint>
#include <cstring>

using u128 = unsigned __int128;

class Bits {
   public:
    explicit Bits(uint32_t* words) : w(words) {}
    u128 get(unsigned n) {
        u128 v = 0;
        for (unsigned i = 0; i < n; i++, at++) v |= u128(w[at / 32] >> (at % 32) & 1) << i;
        return v;
    }
    void put(unsigned n, u128 v) {
        for (unsigned i = 0; i < n; i++, at++)
            w[at / 32] = (w[at / 32] & ~(1u << (at % 32))) | uint32_t(v >> i & 1) << (at % 32);
    }
    template <class T>
    void field(bool write, unsigned n, T& v) {
        if (write) put(n, v);
        else v = T(get(n));
    }
    void seek(unsigned bit) { at = bit; }

   private:
    uint32_t* w;
    unsigned at = 0;
};

enum Proto { ProtoOther, ProtoTcp, ProtoRoce, ProtoUdp };
enum Kind { KindAny, KindData, KindAck, KindNak, KindCnp, KindRead, KindSyn, KindFin, KindRst, KindOther = 15 };

struct Header {
    uint8_t flags = 0;
    uint16_t f2 = 0;
    uint32_t f1 = 0, f0 = 0, qpn = 0;
    uint16_t dport = 0, sport = 0;
    u128 dst = 0, src = 0;
    uint16_t payload_len = 0;
    uint8_t payload_offset = 0, l4_offset = 0, l3_offset = 0;
    bool is_ip6 = false, is_ip = false, malformed = false;
    uint8_t proto = 0;
    bool lane = false;
    uint32_t packet_id = 0;
    uint64_t stamp = 0;
    static constexpr unsigned width = 542;

    void io(Bits b, bool write) {
        b.field(write, 8, flags), b.field(write, 16, f2), b.field(write, 32, f1), b.field(write, 32, f0);
        b.field(write, 24, qpn), b.field(write, 16, dport), b.field(write, 16, sport);
        b.field(write, 128, dst), b.field(write, 128, src), b.field(write, 16, payload_len);
        b.field(write, 8, payload_offset), b.field(write, 8, l4_offset), b.field(write, 8, l3_offset);
        b.field(write, 1, is_ip6), b.field(write, 1, is_ip), b.field(write, 1, malformed);
        b.field(write, 2, proto), b.field(write, 1, lane), b.field(write, 32, packet_id), b.field(write, 64, stamp);
    }
};

struct Track {
    uint64_t rel = 0;
    uint32_t again = 0;
    bool below = false, is_new = false;
    uint32_t pos_fin = 0, pos_kind = 0, pos_any = 0;
    uint16_t kinds = 0;
    uint8_t kind = 0;
    uint16_t conn = 0xffff;
    static constexpr unsigned width = 207;

    void io(Bits b, bool write) {
        b.field(write, 48, rel), b.field(write, 32, again), b.field(write, 1, below), b.field(write, 1, is_new);
        b.field(write, 32, pos_fin), b.field(write, 32, pos_kind), b.field(write, 32, pos_any);
        b.field(write, 9, kinds), b.field(write, 4, kind), b.field(write, 16, conn);
    }
};

// record_t, docs/formats.md
struct Record {
    uint32_t time = 0;
    bool lane = false, tap = false;
    uint8_t proto = 0, kind = 0;
    bool below = false, error = false, is_ip6 = false, snapshot = false, malformed = false, truncated = false;
    bool multi = false, unmatched = false;
    uint16_t length = 0;
    uint32_t packet_id = 0;
    uint16_t conn = 0, payload_len = 0;
    uint32_t f0 = 0, f1 = 0;
    uint16_t f2 = 0;
    uint8_t tcp_flags = 0, iteration = 0;
    uint32_t slot = 0;
    uint8_t done = 0;

    void io(Bits& b, bool write) {
        b.field(write, 32, time), b.field(write, 1, lane), b.field(write, 1, tap), b.field(write, 2, proto);
        b.field(write, 4, kind), b.field(write, 1, below), b.field(write, 1, error), b.field(write, 1, is_ip6);
        b.field(write, 1, snapshot), b.field(write, 1, malformed), b.field(write, 1, truncated);
        b.field(write, 1, multi), b.field(write, 1, unmatched), b.field(write, 16, length);
        b.field(write, 32, packet_id), b.field(write, 16, conn), b.field(write, 16, payload_len);
        b.field(write, 32, f0), b.field(write, 32, f1), b.field(write, 16, f2), b.field(write, 8, tcp_flags);
        b.field(write, 8, iteration), b.field(write, 24, slot), b.field(write, 8, done);
    }
};

// action_t, docs/tables.md
struct Action {
    bool drop = false, ecn = false, corrupt = false, delay = false;
    uint64_t delay_ns = 0;
    uint8_t corrupt_base = 0;
    uint16_t corrupt_offset = 0;
    uint8_t corrupt_mask = 0;
    uint8_t ecn_codepoint = 0;
    bool set = false;
    uint8_t set_base = 0;
    uint16_t set_offset = 0;
    uint64_t set_mask = 0, set_value = 0;
    bool truncate = false;
    uint16_t truncate_bytes = 0;
    bool break_fcs = false, break_ip = false, break_l4 = false, break_icrc = false;
    bool mend_ip = false, mend_l4 = false, mend_icrc = false;
    bool reorder = false, reorder_lane = false;
    uint16_t reorder_packets = 0;
    bool duplicate = false;
    uint8_t duplicate_copies = 0;
    uint32_t duplicate_gap_ns = 0;
    bool inject = false;
    uint8_t inject_template = 0;
    bool arm = false;
    uint8_t arm_trigger = 0;
    bool disarm = false;
    uint8_t disarm_trigger = 0;
    uint8_t set_ip6_nibbles = 0;
    static constexpr unsigned width = 448;

    void io(Bits& b, bool write) {
        uint64_t reserved = 0;
        b.field(write, 1, drop), b.field(write, 1, ecn), b.field(write, 1, corrupt), b.field(write, 1, delay);
        b.field(write, 40, delay_ns), b.field(write, 2, corrupt_base), b.field(write, 12, corrupt_offset);
        b.field(write, 8, corrupt_mask), b.field(write, 2, ecn_codepoint), b.field(write, 1, set);
        b.field(write, 2, set_base), b.field(write, 12, set_offset), b.field(write, 64, set_mask);
        b.field(write, 64, set_value), b.field(write, 1, truncate), b.field(write, 14, truncate_bytes);
        b.field(write, 1, break_fcs), b.field(write, 1, break_ip), b.field(write, 1, break_l4), b.field(write, 1, break_icrc);
        b.field(write, 1, mend_ip), b.field(write, 1, mend_l4), b.field(write, 1, mend_icrc);
        b.field(write, 1, reorder), b.field(write, 1, reorder_lane), b.field(write, 16, reorder_packets);
        b.field(write, 1, duplicate), b.field(write, 8, duplicate_copies), b.field(write, 32, duplicate_gap_ns);
        b.field(write, 1, inject), b.field(write, 8, inject_template), b.field(write, 1, arm), b.field(write, 6, arm_trigger);
        b.field(write, 1, disarm), b.field(write, 6, disarm_trigger), b.field(write, 2, set_ip6_nibbles);
        b.field(write, 64, reserved), b.field(write, 64, reserved), b.field(write, 3, reserved);
    }
};

struct Verdict {
    Record rec;
    uint16_t data_end = 0;
    uint8_t payload_offset = 0, l4_offset = 0, l3_offset = 0;
    bool malformed = false;
    uint8_t proto = 0;
    bool is_ip6 = false, is_ip = false, touched = false;
    Action action;
    uint64_t stamp = 0;
    static constexpr unsigned words = 25;

    void io(Bits b, bool write) {
        rec.io(b, write);
        b.field(write, 14, data_end);
        b.field(write, 8, payload_offset), b.field(write, 8, l4_offset), b.field(write, 8, l3_offset);
        b.field(write, 1, malformed), b.field(write, 2, proto);
        b.field(write, 1, is_ip6), b.field(write, 1, is_ip), b.field(write, 1, touched);
        action.io(b, write);
        b.field(write, 64, stamp);
    }
};

// Table bus request: valid, write, table, lane, index, 512 bits of data (tbl_req_t).
enum Table { TblExact, TblPage, TblSlot, TblState, TblAction, TblSelector, TblConn, TblFlow, TblTemplate, TblRule, TblRuleState };
struct Row {
    uint32_t w[16] = {};
    Bits bits() { return Bits(w); }
};
inline void table_request(uint32_t* words, bool valid, bool write, Table table, bool lane, uint32_t index, Row& row) {
    memcpy(words, row.w, sizeof row.w);
    Bits b(words);
    b.seek(512);
    b.put(24, index), b.put(1, lane), b.put(4, table), b.put(1, write), b.put(1, valid);
}

// Hash of docs/tables.md: row of `key` (words of 64 bits, low first) in way `way`.
inline uint32_t hash_row(const uint64_t* key, unsigned bits, unsigned way, unsigned rows_log2) {
    const uint64_t seed[4] = {0xbc031f, 0xb2da6f, 0x8bc8f6, 0xc0bb07};
    uint32_t row = 0;
    for (unsigned j = 0; j < rows_log2; j++) {
        bool parity = false;
        for (unsigned k = 0; k * 64 < bits; k++) {
            uint64_t x = 0x9e3779b97f4a7c15 ^ seed[way] << 40 ^ uint64_t(j) << 32 ^ k;
            for (int i = 0; i < 4; i++) x ^= x >> 12, x ^= x << 25, x ^= x >> 27, x *= 0x2545f4914f6cdd1d;
            if (bits - k * 64 < 64) x &= (uint64_t(1) << (bits - k * 64)) - 1;
            parity ^= __builtin_parityll(key[k] & x);
        }
        row |= uint32_t(parity) << j;
    }
    return row;
}
