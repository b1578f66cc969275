// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans and runs.
