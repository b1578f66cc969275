// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the records of a capture to the TCP packets of each connection.
