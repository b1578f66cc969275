// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What the benches of the record path know of docs/formats.md, independent of the RTL.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

inline uint16_t load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
inline uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

// Bit by bit, so that no table or matrix can share a mistake with the RTL. `crc` is the sum
// of what stands before.
inline uint32_t crc32c(const uint8_t *p, size_t n, uint32_t crc = 0) {
    crc = ~crc;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

constexpr uint8_t FLAG_SNAPSHOT = 1 << 3;  // of a record, byte 5

// 32-byte units of an entry: the record and its snapshot.
inline unsigned entry_units(const uint8_t *record, unsigned snapshot_bytes) {
    const unsigned length = load16(record + 6), n = length < snapshot_bytes ? length : snapshot_bytes;
    return 1 + (record[5] & FLAG_SNAPSHOT ? (n + 31) / 32 : 0);
}
