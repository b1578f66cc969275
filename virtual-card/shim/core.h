// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A verilated core as C sees it.
#pragma once

struct mw_model {
    // Null when there is no memory for one.
    void* (*create)();
    void (*destroy)(void*);
    // A rising edge of the clock, with the inputs as they are.
    void (*edge)(void*);
    // Lets the inputs reach whatever depends on them without a clock.
    void (*settle)(void*);
    // Address of the storage of a signal, in the type that Verilator gives its width, little
    // endian on the hosts that the virtual card runs on; null when the core has none of that
    // name.
    void* (*pin)(void*, const char* name);
};
