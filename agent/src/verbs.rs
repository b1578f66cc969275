// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verbs, as far as reliable connections over RoCEv2 need them, made safe: whatever the NIC uses
//! lives as long as it does, and is freed in the order that verbs want.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::CStr;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use ibverbs_sys as ffi;
use midwire_endpoints::rnic::Operation;

use crate::error::Error;

/// An address that queue pairs can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    pub address: IpAddr,
    index: u8,
    port: u8,
}

/// An open NIC, and the domain of all that is made of it.
struct Domain {
    context: NonNull<ffi::ibv_context>,
    domain: NonNull<ffi::ibv_pd>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: both were made by verbs and are not used any more; what was made in the domain
        // holds it by an Rc, so it is gone. What can't be freed stays until the process ends.
        unsafe {
            ffi::ibv_dealloc_pd(self.domain.as_ptr());
            ffi::ibv_close_device(self.context.as_ptr());
        }
    }
}

/// A NIC.
pub struct Nic {
    pub name: String,
    /// Of RoCEv2, IPv4 first.
    pub gids: Vec<Gid>,
    domain: Rc<Domain>,
}

impl Nic {
    /// Opens every RDMA device, or the one of this name.
    pub fn open(name: Option<&str>) -> Result<Vec<Self>, Error> {
        let mut count = 0;
        // SAFETY: verbs write the number of entries of the list that they return.
        let list = unsafe { ffi::ibv_get_device_list(&mut count) };
        if list.is_null() {
            return Err(Error::last("can't list RDMA devices"));
        }
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has so many entries, and lives until it is freed below.
        let devices = unsafe { std::slice::from_raw_parts(list, count) };
        let named =
            |device: &&*mut ffi::ibv_device| name.is_none_or(|n| n == device_name(**device));
        let nics = devices.iter().filter(named).map(|device| open(*device));
        let nics: Result<Vec<_>, _> = nics.collect();
        // SAFETY: devices that were opened stay after their list is gone.
        unsafe { ffi::ibv_free_device_list(list) };
        nics
    }

    /// Makes memory that peers can reach by RDMA, zeroed; `atomic`: and by atomic operations.
    pub fn memory(&self, bytes: usize, atomic: bool) -> Result<Rc<Memory>, Error> {
        Memory::new(Rc::clone(&self.domain), bytes, atomic).map(Rc::new)
    }

    /// Makes a completion queue.
    pub fn completions(&self, entries: u32) -> Result<Rc<Completions>, Error> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let context = self.domain.context.as_ptr();
        // SAFETY: the context is open.
        let queue =
            unsafe { ffi::ibv_create_cq(context, entries, ptr::null_mut(), ptr::null_mut(), 0) };
        let queue = NonNull::new(queue)
            .ok_or_else(|| Error::last(format!("can't queue {entries} completions")))?;
        let domain = Rc::clone(&self.domain);
        Ok(Rc::new(Completions { queue, domain }))
    }
}

fn device_name(device: *mut ffi::ibv_device) -> String {
    // SAFETY: the device is of a list that is not freed yet; its name ends with 0.
    let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) };
    name.to_string_lossy().into_owned()
}

fn open(device: *mut ffi::ibv_device) -> Result<Nic, Error> {
    let name = device_name(device);
    // SAFETY: the device is of a list that is not freed yet.
    let context = NonNull::new(unsafe { ffi::ibv_open_device(device) })
        .ok_or_else(|| Error::last(format!("can't open {name}")))?;
    // SAFETY: the context is open.
    let Some(domain) = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.as_ptr()) }) else {
        let error = Error::last(format!("{name} gives no protection domain"));
        // SAFETY: nothing uses the context.
        unsafe { ffi::ibv_close_device(context.as_ptr()) };
        return Err(error);
    };
    let domain = Rc::new(Domain { context, domain });
    let gids = gids(&domain).map_err(Error::refused(format!("can't read the GIDs of {name}")))?;
    Ok(Nic { name, gids, domain })
}

fn gids(domain: &Domain) -> std::io::Result<Vec<Gid>> {
    let mut entries = [ffi::ibv_gid_entry::default(); 256];
    // SAFETY: the context is open, and there is room for so many entries of this size.
    let count = unsafe {
        ffi::_ibv_query_gid_table(
            domain.context.as_ptr(),
            entries.as_mut_ptr(),
            entries.len(),
            0,
            size_of::<ffi::ibv_gid_entry>(),
        )
    };
    let count = usize::try_from(count)
        .map_err(|_| std::io::Error::from_raw_os_error(i32::try_from(-count).unwrap_or(0)))?;
    let gid = |entry: &ffi::ibv_gid_entry| {
        // SAFETY: all bytes of the union were written, and any value is one.
        let address = Ipv6Addr::from(unsafe { entry.gid.raw });
        Some(Gid {
            address: address.to_canonical(),
            index: u8::try_from(entry.gid_index).ok()?,
            port: u8::try_from(entry.port_num).ok()?,
        })
    };
    let roce = |entry: &&ffi::ibv_gid_entry| entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2;
    let entries = entries.iter().take(count);
    let mut gids: Vec<_> = entries.filter(roce).filter_map(gid).collect();
    gids.sort_by_key(|gid| gid.address);
    Ok(gids)
}

/// Memory that the NIC reads and writes, also while others look at it: it is never a slice.
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    region: NonNull<ffi::ibv_mr>,
    _domain: Rc<Domain>,
}

impl Memory {
    const PAGE: usize = 4096;

    fn new(domain: Rc<Domain>, bytes: usize, atomic: bool) -> Result<Self, Error> {
        let what = || format!("can't have {bytes} bytes of memory for the NIC");
        let layout = Layout::from_size_align(bytes.max(8), Self::PAGE)
            .map_err(|_| Error::refused(what())(std::io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        let access = access(atomic);
        // SAFETY: the domain is there, and the memory stays where it is until Drop frees it.
        let region = unsafe {
            ffi::ibv_reg_mr(
                domain.domain.as_ptr(),
                start.as_ptr().cast(),
                layout.size(),
                i32::try_from(access).unwrap_or(0),
            )
        };
        let Some(region) = NonNull::new(region) else {
            let error = Error::last(what());
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(start.as_ptr(), layout) };
            return Err(error);
        };
        Ok(Self {
            start,
            layout,
            region,
            _domain: domain,
        })
    }

    /// Address of a place, for work requests.
    pub fn address(&self, offset: usize) -> u64 {
        self.start.as_ptr() as u64 + offset as u64
    }

    /// The key for peers.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { self.region.as_ref() }.rkey
    }

    fn local_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.region.as_ref() }.lkey
    }

    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.layout.size()),
            "in the memory"
        );
    }

    fn place(&self, offset: usize, length: u32) -> ffi::ibv_sge {
        self.check(offset, length as usize);
        ffi::ibv_sge {
            addr: self.address(offset),
            length,
            lkey: self.local_key(),
        }
    }

    /// Copies bytes into it.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the place is in the memory, which no slice is of.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }

    /// Copies bytes out of it.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: as above.
        unsafe {
            ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the region is registered, and the memory was allocated with this layout. A region
        // that can't be given back is still in use, so its memory is left to it.
        unsafe {
            if ffi::ibv_dereg_mr(self.region.as_ptr()) == 0 {
                dealloc(self.start.as_ptr(), self.layout);
            }
        }
    }
}

/// What peers may do.
fn access(atomic: bool) -> u32 {
    let flags = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
        | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
        | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    match atomic {
        true => (flags | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC).0,
        false => flags.0,
    }
}

/// A completion queue.
pub struct Completions {
    queue: NonNull<ffi::ibv_cq>,
    domain: Rc<Domain>,
}

/// A work request that has ended.
pub struct Completion {
    /// As it was posted.
    pub id: u64,
    /// Bytes that came in, for receives.
    pub bytes: u32,
    /// Why it failed.
    pub error: Option<String>,
}

impl Completions {
    const BATCH: usize = 16;

    /// Takes what has ended.
    pub fn poll(&self, found: &mut Vec<Completion>) -> Result<(), Error> {
        let mut entries = [MaybeUninit::<ffi::ibv_wc>::uninit(); Self::BATCH];
        // SAFETY: the context is open.
        let poll = unsafe { self.domain.context.as_ref() }.ops.poll_cq;
        let poll = poll.ok_or_else(|| Error::Asked("the NIC has no completions".to_owned()))?;
        // SAFETY: the queue is there, and there is room for so many entries.
        let count = unsafe {
            poll(
                self.queue.as_ptr(),
                Self::BATCH as i32,
                entries.as_mut_ptr().cast(),
            )
        };
        let count = usize::try_from(count).map_err(|_| Error::last("can't read completions"))?;
        found.extend(entries.iter().take(count).map(|entry| {
            // SAFETY: verbs have written so many entries.
            let entry = unsafe { entry.assume_init_ref() };
            Completion {
                id: entry.wr_id(),
                bytes: u32::try_from(entry.len()).unwrap_or(u32::MAX),
                error: entry.error().map(|(status, vendor)| {
                    // SAFETY: verbs have a constant text for any status.
                    let text = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(status)) };
                    format!("{} (vendor's code {vendor:#x})", text.to_string_lossy())
                }),
            }
        }));
        Ok(())
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold it by an Rc, so they are gone.
        unsafe { ffi::ibv_destroy_cq(self.queue.as_ptr()) };
    }
}

/// How a queue pair is made.
pub struct PairConfig {
    pub gid: Gid,
    pub memory: Rc<Memory>,
    pub sends: u32,
    pub receives: u32,
    pub atomic: bool,
}

/// How it is connected.
pub struct Path {
    pub address: IpAddr,
    pub number: u32,
    pub mtu: u32,
    pub first_psn: u32,
    pub peer_psn: u32,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub min_rnr_timer: u8,
    pub max_reads: u8,
    pub traffic_class: u8,
}

/// A reliable connection.
pub struct Pair {
    pair: NonNull<ffi::ibv_qp>,
    gid: Gid,
    /// Of all its messages.
    pub memory: Rc<Memory>,
    _queues: [Rc<Completions>; 2],
}

/// What is sent.
pub struct Work {
    pub id: u64,
    pub operation: Operation,
    /// Place in the memory.
    pub offset: usize,
    pub length: u32,
    pub remote: u64,
    pub remote_key: u32,
    /// What an atomic operation adds, or compares and swaps with the next number.
    pub operand: u64,
}

impl Pair {
    /// Makes one that is not connected, with queues for the ends of sends and of receives.
    pub fn new(nic: &Nic, config: PairConfig, queues: [Rc<Completions>; 2]) -> Result<Self, Error> {
        // SAFETY: zeros are a value: no shared receive queue, no context.
        let mut wish: ffi::ibv_qp_init_attr = unsafe { zeroed() };
        (wish.send_cq, wish.recv_cq) = (queues[0].queue.as_ptr(), queues[1].queue.as_ptr());
        wish.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        wish.cap.max_send_wr = config.sends.max(1);
        wish.cap.max_recv_wr = config.receives.max(1);
        (wish.cap.max_send_sge, wish.cap.max_recv_sge) = (1, 1);
        // SAFETY: domain and queues are there.
        let pair = unsafe { ffi::ibv_create_qp(nic.domain.domain.as_ptr(), &mut wish) };
        let pair = NonNull::new(pair).ok_or_else(|| {
            Error::last(format!(
                "{} gives no queue pair for {} sends and {} receives at a time",
                nic.name, config.sends, config.receives
            ))
        })?;
        let pair = Self {
            pair,
            gid: config.gid,
            memory: config.memory,
            _queues: queues,
        };
        let mut init = attributes(ffi::ibv_qp_state::IBV_QPS_INIT);
        init.port_num = config.gid.port;
        init.qp_access_flags = access(config.atomic);
        use ffi::ibv_qp_attr_mask as mask;
        let set = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        pair.modify("can't initialize a queue pair", init, set)?;
        Ok(pair)
    }

    fn modify(
        &self,
        what: &str,
        mut attributes: ffi::ibv_qp_attr,
        set: ffi::ibv_qp_attr_mask,
    ) -> Result<(), Error> {
        let set = set | ffi::ibv_qp_attr_mask::IBV_QP_STATE;
        let set = i32::try_from(set.0).unwrap_or(0);
        // SAFETY: the queue pair is there, and verbs read the attributes that the mask names.
        let answer = unsafe { ffi::ibv_modify_qp(self.pair.as_ptr(), &mut attributes, set) };
        Error::check(what, answer)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is there.
        unsafe { self.pair.as_ref() }.qp_num
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.gid.address
    }

    /// Connects it with its peer, ready to receive and to send.
    pub fn connect(&self, path: &Path) -> Result<(), Error> {
        use ffi::ibv_qp_attr_mask as mask;
        let mut receive = attributes(ffi::ibv_qp_state::IBV_QPS_RTR);
        receive.ah_attr.is_global = 1;
        receive.ah_attr.port_num = self.gid.port;
        receive.ah_attr.grh.dgid.raw = match path.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        receive.ah_attr.grh.sgid_index = self.gid.index;
        receive.ah_attr.grh.hop_limit = 64;
        receive.ah_attr.grh.traffic_class = path.traffic_class;
        receive.path_mtu = match path.mtu {
            256 => ffi::IBV_MTU_256,
            512 => ffi::IBV_MTU_512,
            2048 => ffi::IBV_MTU_2048,
            4096 => ffi::IBV_MTU_4096,
            _ => ffi::IBV_MTU_1024,
        };
        receive.dest_qp_num = path.number;
        receive.rq_psn = path.peer_psn;
        receive.max_dest_rd_atomic = path.max_reads;
        receive.min_rnr_timer = path.min_rnr_timer;
        let set = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        let what = format!(
            "can't connect a queue pair to {} with an mtu of {} and {} reads at a time",
            path.address, path.mtu, path.max_reads
        );
        self.modify(&what, receive, set)?;
        let mut send = attributes(ffi::ibv_qp_state::IBV_QPS_RTS);
        send.timeout = path.timeout;
        send.retry_cnt = path.retries;
        send.rnr_retry = path.rnr_retries;
        send.sq_psn = path.first_psn;
        send.max_rd_atomic = path.max_reads;
        let set = mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("can't make a queue pair ready to send", send, set)
    }

    /// Posts a message from or into the memory.
    pub fn post(&self, work: &Work) -> Result<(), Error> {
        let mut place = self.memory.place(work.offset, work.length);
        // SAFETY: zeros are a value.
        let mut request: ffi::ibv_send_wr = unsafe { zeroed() };
        request.wr_id = work.id;
        (request.sg_list, request.num_sge) = (&mut place, 1);
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        use ffi::ibv_wr_opcode as opcode;
        request.opcode = match work.operation {
            Operation::Send => opcode::IBV_WR_SEND,
            Operation::Write => opcode::IBV_WR_RDMA_WRITE,
            Operation::Read => opcode::IBV_WR_RDMA_READ,
            Operation::FetchAdd => opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
            Operation::CompareSwap => opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
        };
        if work.operation.is_atomic() {
            request.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                remote_addr: work.remote,
                compare_add: work.operand,
                swap: work.operand.wrapping_add(1),
                rkey: work.remote_key,
            };
        } else {
            request.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                remote_addr: work.remote,
                rkey: work.remote_key,
            };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is there, and verbs copy the request; its memory stays as long as
        // the queue pair does.
        let answer = unsafe {
            let context = &*self.pair.as_ref().context;
            (context.ops.post_send).map(|post| post(self.pair.as_ptr(), &mut request, &mut bad))
        };
        Error::check("can't post a message", answer.unwrap_or(libc::ENOSYS))
    }

    /// Posts a receive into the memory.
    pub fn post_receive(&self, id: u64, offset: usize, length: u32) -> Result<(), Error> {
        let mut place = self.memory.place(offset, length);
        let mut request = ffi::ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut place,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: as above.
        let answer = unsafe {
            let context = &*self.pair.as_ref().context;
            (context.ops.post_recv).map(|post| post(self.pair.as_ptr(), &mut request, &mut bad))
        };
        Error::check("can't post a receive", answer.unwrap_or(libc::ENOSYS))
    }
}

fn attributes(state: ffi::ibv_qp_state::Type) -> ffi::ibv_qp_attr {
    // SAFETY: zeros are a value.
    let mut attributes: ffi::ibv_qp_attr = unsafe { zeroed() };
    attributes.qp_state = state;
    attributes
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { ffi::ibv_destroy_qp(self.pair.as_ptr()) };
    }
}
