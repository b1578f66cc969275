// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card as the host sees it: backends, registers, tables, the ring and the capture to disk.
