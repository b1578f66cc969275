// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's RTL under Verilator, as a PCI device over vfio-user.
