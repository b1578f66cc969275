// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole-card tests and the reference model.
