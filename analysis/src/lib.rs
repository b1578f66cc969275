// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the device under test did, and reports of it.
