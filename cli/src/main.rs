// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `midwire`.
fn main() {}
