// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets, records, blocks, the capture file and its exports.
