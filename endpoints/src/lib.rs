// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is plugged into the ports: hosts in network namespaces and the traffic between them.
