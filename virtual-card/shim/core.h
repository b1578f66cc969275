// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A verilated core as C sees it.
#pragma once

struct mw_model {
    // Null when there is no memory for one.
    void* (*create)();
    void (*destroy)(void*);
    void (*eval)(void*);
    // Address of the storage of a signal, in the type that Verilator gives its width, little
    // endian on the hosts that the virtual card runs on; null when the core has none of that
    // name.
    void* (*pin)(void*, const char* name);
};
