// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A verilated core behind a C interface. Compiled once for each width: MW_MODEL is the
// model's class, MW_HEADER its header, MW_NAME the name of the function table.
#include "core.h"

#include MW_HEADER
#include MW_ROOT_HEADER

#include <cstring>
#include <memory>

#define MW_JOIN_(a, b) a##b
#define MW_JOIN(a, b) MW_JOIN_(a, b)
#define MW_ROOT MW_JOIN(MW_MODEL, ___024root)
#define MW_EVAL MW_JOIN(MW_MODEL, ___024root___eval)

// What the model's eval() does besides taking locks for garbage and messages, of which this
// core has none: they cost as much as a module.
void MW_EVAL(MW_ROOT* root);

namespace {

struct Core {
    // The context must outlive the model.
    std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    std::unique_ptr<MW_MODEL> model{new MW_MODEL{context.get(), "core"}};
};

void* create() {
    try {
        auto core = std::make_unique<Core>();
        // The first one initialises the model.
        core->model->clk = 0;
        core->model->eval();
        core->model->clk = 1;
        return core.release();
    } catch (...) {
        return nullptr;
    }
}

void destroy(void* core) { delete static_cast<Core*>(core); }

// An evaluation with a low clock would do nothing but show it to the next one, so that one is
// told instead. The name is the pinned Verilator's; where it is another, this does not compile.
void edge(void* core) {
    MW_ROOT* root = static_cast<Core*>(core)->model->rootp;
    root->__Vtrigprevexpr___TOP__clk__0 = 0;
    MW_EVAL(root);
}

void settle(void* core) { MW_EVAL(static_cast<Core*>(core)->model->rootp); }

template <typename T>
void* storage(T& signal) {
    return &signal;
}

void* pin(void* core, const char* name) {
    MW_MODEL& m = *static_cast<Core*>(core)->model;
#define PIN(signal) \
    if (!std::strcmp(name, #signal)) return storage(m.signal)
    PIN(rst);
    PIN(time_ns);
    PIN(s_axis_tdata);
    PIN(s_axis_tkeep);
    PIN(s_axis_tvalid);
    PIN(s_axis_tlast);
    PIN(s_axis_tuser);
    PIN(m_axis_tdata);
    PIN(m_axis_tkeep);
    PIN(m_axis_tvalid);
    PIN(m_axis_tready);
    PIN(m_axis_tlast);
    PIN(m_axis_tuser);
    PIN(s_axil_awaddr);
    PIN(s_axil_awvalid);
    PIN(s_axil_awready);
    PIN(s_axil_wdata);
    PIN(s_axil_wstrb);
    PIN(s_axil_wvalid);
    PIN(s_axil_wready);
    PIN(s_axil_bvalid);
    PIN(s_axil_bready);
    PIN(s_axil_araddr);
    PIN(s_axil_arvalid);
    PIN(s_axil_arready);
    PIN(s_axil_rdata);
    PIN(s_axil_rresp);
    PIN(s_axil_rvalid);
    PIN(s_axil_rready);
    PIN(m_axi_awaddr);
    PIN(m_axi_awlen);
    PIN(m_axi_awsize);
    PIN(m_axi_awburst);
    PIN(m_axi_awvalid);
    PIN(m_axi_awready);
    PIN(m_axi_wdata);
    PIN(m_axi_wstrb);
    PIN(m_axi_wlast);
    PIN(m_axi_wvalid);
    PIN(m_axi_wready);
    PIN(m_axi_bresp);
    PIN(m_axi_bvalid);
    PIN(m_axi_bready);
    PIN(irq_valid);
    PIN(irq_ready);
    PIN(busy);
    PIN(timer_valid);
    PIN(timer_ns);
#undef PIN
    return nullptr;
}

}  // namespace

extern "C" {
extern const mw_model MW_NAME;
const mw_model MW_NAME = {create, destroy, edge, settle, pin};
}
