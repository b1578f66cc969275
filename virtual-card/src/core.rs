// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One verilated core, driven signal by signal.
//!
//! A clock cycle is: set the inputs, read the outputs (a transfer takes place where valid and
//! ready are both up now), then [`edge`](Core::edge). All outputs are registers, or follow from
//! registers alone, so the inputs need not be let through before the outputs are read.

use crate::error::{Error, Result};
use midwire_trace::Port;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

#[repr(C)]
struct Model {
    create: extern "C" fn() -> *mut c_void,
    destroy: extern "C" fn(*mut c_void),
    edge: extern "C" fn(*mut c_void),
    settle: extern "C" fn(*mut c_void),
    pin: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
}

#[allow(non_upper_case_globals)] // the names that the models carry
unsafe extern "C" {
    static mw512: Model;
    static mw64: Model;
}

/// Which of the two cores: the width of a port's stream decides the line's rate as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 512 bits, a clock of 3103 ps, 100 Gbit/s.
    W512,
    /// 64 bits, a clock of 6400 ps, 10 Gbit/s.
    W64,
}

impl Width {
    /// Bytes of a beat.
    pub const fn bytes(self) -> usize {
        match self {
            Self::W512 => 64,
            Self::W64 => 8,
        }
    }

    /// Period of the core's clock in picoseconds.
    pub const fn clock_ps(self) -> u64 {
        match self {
            Self::W512 => 3103,
            Self::W64 => 6400,
        }
    }

    /// Time of a byte on the line in picoseconds.
    pub const fn byte_ps(self) -> u64 {
        match self {
            Self::W512 => 80,
            Self::W64 => 800,
        }
    }

    fn model(self) -> &'static Model {
        match self {
            // SAFETY: constant tables that the shim defines, of the layout of `Model`.
            Self::W512 => unsafe { &mw512 },
            // SAFETY: as above.
            Self::W64 => unsafe { &mw64 },
        }
    }
}

macro_rules! signals {
    (
        inputs { $($set:ident $input:ident: $input_type:ty,)* }
        outputs { $($output:ident: $output_type:ty,)* }
        wide { $($wide:ident,)* }
    ) => {
        /// Where the model keeps its signals.
        struct Pins {
            $($input: *mut $input_type,)*
            $($output: *const $output_type,)*
            $($wide: *mut u8,)*
        }

        impl Pins {
            fn find(find: impl Fn(&CStr) -> Result<*mut c_void>) -> Result<Self> {
                const fn c_str(name: &'static str) -> &'static CStr {
                    match CStr::from_bytes_with_nul(name.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without its terminating zero"),
                    }
                }
                Ok(Self {
                    $($input: find(const { c_str(concat!(stringify!($input), "\0")) })?.cast(),)*
                    $($output: find(const { c_str(concat!(stringify!($output), "\0")) })?.cast(),)*
                    $($wide: find(const { c_str(concat!(stringify!($wide), "\0")) })?.cast(),)*
                })
            }
        }

        impl Core {
            $(
                #[doc = concat!("Sets `", stringify!($input), "`.")]
                #[inline]
                pub fn $set(&mut self, value: $input_type) {
                    // SAFETY: the model lives, and keeps this signal there in this type.
                    unsafe { *self.pins.$input = value }
                }
            )*
            $(
                #[doc = concat!("Reads `", stringify!($output), "`.")]
                #[inline]
                pub fn $output(&self) -> $output_type {
                    // SAFETY: the model lives, and keeps this signal there in this type.
                    unsafe { *self.pins.$output }
                }
            )*

            /// All outputs but the wide ones.
            #[cfg(test)]
            fn outputs(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($output), u64::from(self.$output())),)*]
            }

            /// Sets all inputs but the wide ones, each to what `value` gives.
            #[cfg(test)]
            fn set_inputs(&mut self, mut value: impl FnMut() -> u64) {
                $(self.$set(value() as $input_type);)*
            }
        }
    };
}

// The types are Verilator's for the widths in mw_core.sv. Bit 0 of a port's vector is port A.
signals! {
    inputs {
        set_rst rst: u8,
        set_time_ns time_ns: u64,
        set_s_axis_tvalid s_axis_tvalid: u8,
        set_s_axis_tlast s_axis_tlast: u8,
        set_s_axis_tuser s_axis_tuser: u8,
        set_m_axis_tready m_axis_tready: u8,
        set_s_axil_awaddr s_axil_awaddr: u16,
        set_s_axil_awvalid s_axil_awvalid: u8,
        set_s_axil_wdata s_axil_wdata: u32,
        set_s_axil_wstrb s_axil_wstrb: u8,
        set_s_axil_wvalid s_axil_wvalid: u8,
        set_s_axil_bready s_axil_bready: u8,
        set_s_axil_araddr s_axil_araddr: u16,
        set_s_axil_arvalid s_axil_arvalid: u8,
        set_s_axil_rready s_axil_rready: u8,
        set_m_axi_awready m_axi_awready: u8,
        set_m_axi_wready m_axi_wready: u8,
        set_m_axi_bresp m_axi_bresp: u8,
        set_m_axi_bvalid m_axi_bvalid: u8,
        set_irq_ready irq_ready: u8,
    }
    outputs {
        m_axis_tvalid: u8,
        m_axis_tlast: u8,
        m_axis_tuser: u8,
        s_axil_awready: u8,
        s_axil_wready: u8,
        s_axil_bvalid: u8,
        s_axil_arready: u8,
        s_axil_rdata: u32,
        s_axil_rresp: u8,
        s_axil_rvalid: u8,
        m_axi_awaddr: u64,
        m_axi_awlen: u8,
        m_axi_awsize: u8,
        m_axi_awburst: u8,
        m_axi_awvalid: u8,
        m_axi_wstrb: u32,
        m_axi_wlast: u8,
        m_axi_wvalid: u8,
        m_axi_bready: u8,
        irq_valid: u8,
        busy: u8,
        timer_valid: u8,
        timer_ns: u64,
    }
    wide {
        s_axis_tdata,
        s_axis_tkeep,
        m_axis_tdata,
        m_axis_tkeep,
        m_axi_wdata,
    }
}

/// Bytes of a beat of the core's DMA master.
pub const DMA_BYTES: usize = 32;

/// A verilated core.
pub struct Core {
    width: Width,
    model: NonNull<c_void>,
    pins: Pins,
}

// SAFETY: a model has a context of its own and is bound to no thread.
unsafe impl Send for Core {}

impl Core {
    /// Makes a core and holds it in reset for some cycles.
    pub fn new(width: Width) -> Result<Self> {
        let vtable = width.model();
        let model = NonNull::new((vtable.create)())
            .ok_or_else(|| Error::Core("it could not be made".into()))?;
        let pins = Pins::find(|name| {
            let pin = (vtable.pin)(model.as_ptr(), name.as_ptr());
            match pin.is_null() {
                true => Err(Error::Core(format!("it has no signal {name:?}"))),
                false => Ok(pin),
            }
        });
        let pins = match pins {
            Ok(pins) => pins,
            Err(e) => {
                (vtable.destroy)(model.as_ptr());
                return Err(e);
            }
        };
        let mut core = Self { width, model, pins };
        core.reset();
        Ok(core)
    }

    /// The core's width.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Resets the core: 16 clocks in reset with idle inputs, and as many out of it, so that the
    /// first frame finds room.
    pub fn reset(&mut self) {
        self.set_s_axis_tvalid(0);
        self.set_s_axil_awvalid(0);
        self.set_s_axil_wvalid(0);
        self.set_s_axil_arvalid(0);
        self.set_m_axi_bvalid(0);
        self.set_irq_ready(0);
        for rst in [1, 0] {
            self.set_rst(rst);
            for _ in 0..16 {
                self.edge();
            }
        }
    }

    /// The rising edge of the clock.
    #[inline]
    pub fn edge(&mut self) {
        (self.width.model().edge)(self.model.as_ptr());
    }

    /// Puts a beat of 1 to [`Width::bytes`] bytes on the input of a port; more are cut off.
    /// Its bits of tvalid, tlast and tuser are set apart from this.
    #[inline]
    pub fn set_s_axis_tdata(&mut self, port: Port, data: &[u8]) {
        let bytes = self.width.bytes();
        let len = data.len().min(bytes);
        let keep = u64::MAX.checked_shr(64 - len as u32).unwrap_or(0);
        // SAFETY: tdata has `bytes` bytes for each port, tkeep a bit for each of them, and
        // they lie in the model, apart from `data`.
        unsafe {
            let to = self.pins.s_axis_tdata.add(port.index() * bytes);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, len);
            let to = self.pins.s_axis_tkeep.add(port.index() * bytes / 8);
            std::ptr::copy_nonoverlapping(keep.to_le_bytes().as_ptr(), to, bytes / 8);
        }
    }

    /// The bytes on the output of a port that tkeep holds valid.
    #[inline]
    pub fn m_axis_tdata(&self, port: Port) -> &[u8] {
        let bytes = self.width.bytes();
        let mut keep = [0; 8];
        // SAFETY: as in `set_s_axis_tdata`; nothing changes the signal while `self` is
        // borrowed.
        unsafe {
            let from = self.pins.m_axis_tkeep.add(port.index() * bytes / 8);
            std::ptr::copy_nonoverlapping(from, keep.as_mut_ptr(), bytes / 8);
            let len = u64::from_le_bytes(keep).trailing_ones() as usize;
            let from = self.pins.m_axis_tdata.add(port.index() * bytes);
            std::slice::from_raw_parts(from, len)
        }
    }

    /// The beat on the DMA master's data channel.
    #[inline]
    pub fn m_axi_wdata(&self) -> &[u8; DMA_BYTES] {
        // SAFETY: the signal has 256 bits; nothing changes it while `self` is borrowed.
        unsafe { &*self.pins.m_axi_wdata.cast() }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        (self.width.model().destroy)(self.model.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_apart_and_keep_their_inputs() {
        let mut one = Core::new(Width::W512).expect("core");
        let mut two = Core::new(Width::W64).expect("core");
        one.set_s_axis_tdata(Port::B, &[1; 64]);
        two.set_s_axis_tdata(Port::A, &[2; 100]);
        assert_eq!((one.width().bytes(), two.width().bytes()), (64, 8));
        for core in [&mut one, &mut two] {
            core.edge();
            assert_eq!(core.m_axis_tvalid(), 0);
        }
    }

    /// What lets a clock cycle do without a settling of its inputs.
    #[test]
    fn no_output_depends_on_an_input_within_a_clock() {
        let mut state = 1_u64;
        let mut random = move || {
            // Knuth's MMIX; its high bits are good.
            state = state.wrapping_mul(6364136223846793005);
            state = state.wrapping_add(1442695040888963407);
            state >> 32
        };
        for width in [Width::W512, Width::W64] {
            let mut core = Core::new(width).expect("core");
            let (mut moved, mut at_rest) = (0, 0);
            for cycle in 0..4000 {
                let before = core.outputs();
                let beats = Port::ALL.map(|port| core.m_axis_tdata(port).to_vec());
                let dma = *core.m_axi_wdata();
                core.set_inputs(&mut random);
                core.set_rst(0);
                for port in Port::ALL {
                    core.set_s_axis_tdata(port, &[random() as u8; 64]);
                }
                (width.model().settle)(core.model.as_ptr());
                assert_eq!(core.outputs(), before);
                assert_eq!(
                    Port::ALL.map(|port| core.m_axis_tdata(port).to_vec()),
                    beats
                );
                assert_eq!(*core.m_axi_wdata(), dma);

                // Some beats now and then, so that the core works and rests.
                core.set_inputs(|| 0);
                core.set_time_ns(cycle * width.clock_ps() / 1000);
                core.set_m_axis_tready(3);
                match cycle % 400 {
                    0..40 => {
                        core.set_s_axis_tvalid(random() as u8 & 3);
                        core.set_s_axis_tlast(random() as u8 & 3);
                    }
                    40 => {
                        core.set_s_axis_tvalid(3);
                        core.set_s_axis_tlast(3);
                    }
                    _ => {}
                }
                core.edge();
                moved += u32::from(core.outputs() != before);
                at_rest += u32::from(core.busy() == 0);
            }
            assert!(
                moved > 100 && at_rest > 100,
                "{moved} moved, {at_rest} at rest"
            );
        }
    }
}
