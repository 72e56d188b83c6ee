//! Which devices there are, and which of them to use.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ibverbs_sys as ibv;
use onesided_job::advice;
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;
use crate::verbs::raw::{CompletionQueue, Context, Gid, ProtectionDomain, QueuePair, SharedReceiveQueue};

/// What is told to people who have no device.
const HOW_TO_HAVE_ONE: &str = "this host has no RDMA device; on plain Ethernet the kernel's Soft-RoCE is one: \
    `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0`";

/// What Soft-RoCE gives as its vendor.
const SOFT_ROCE: u32 = 0xff_ffff;

/// A port of an RDMA device, for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// The port, from 1.
    pub port: u8,
    /// `InfiniBand`, `RoCE v1`, `RoCE v2`, or what the port calls itself.
    pub transport: &'static str,
    /// `active`, or what it is instead.
    pub state: &'static str,
    /// The address that connections would use; on InfiniBand the LID.
    pub address: String,
    /// Whom its atomics are atomic with, as it says: `none`, `card` (its own only), `host` (the CPU's too).
    pub atomics: &'static str,
    /// How many reads and atomics may be under way on a connection.
    pub outstanding_reads: u32,
    /// How many bytes travel inside a work request, as found by trying.
    pub inline: u32,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, transport, state, address, atomics, outstanding_reads, inline } = self;
        write!(f, "{name} port {port}: {transport}, {state}, {address}, atomics: {atomics}, ")?;
        write!(f, "outstanding reads: {outstanding_reads}, inline: {inline} B")
    }
}

/// Every port of every RDMA device of this host; none is no error.
///
/// # Errors
/// [`Error::Verbs`]: there are devices, but they cannot be used.
pub fn devices() -> Result<Vec<DeviceInfo>, Error> {
    let mut all = Vec::new();
    for device in ports()? {
        let inline = device.try_inline()?;
        all.push(DeviceInfo {
            name: device.context.name(),
            port: device.port,
            transport: device.transport(),
            state: match device.state.state {
                ibv::ibv_port_state::IBV_PORT_ACTIVE => "active",
                ibv::ibv_port_state::IBV_PORT_DOWN => "down",
                _ => "not ready",
            },
            address: match device.gid {
                Some((_, gid, _)) => Ipv6Addr::from(gid.0).to_string(),
                None => format!("LID {}", device.state.lid),
            },
            atomics: match device.attributes.atomic_cap {
                ibv::IBV_ATOMIC_NONE => "none",
                ibv::IBV_ATOMIC_HCA => "card",
                _ => "host",
            },
            outstanding_reads: u32::from(device.reads()),
            inline,
        });
    }
    Ok(all)
}

/// An open device and the port to use.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) context: Arc<Context>,
    pub(super) attributes: ibv::ibv_device_attr,
    pub(super) port: u8,
    pub(super) state: ibv::ibv_port_attr,
    /// Where RoCE connections leave from: index, address, kind.
    pub(super) gid: Option<(u8, Gid, ibv::ibv_gid_type)>,
}

impl Device {
    /// The first active port, or that of the device named in `ONESIDED_DEVICE`.
    ///
    /// # Errors
    /// [`Error::NoFabric`] without one, [`Error::Verbs`].
    pub(super) fn choose() -> Result<Self, Error> {
        let wanted = std::env::var("ONESIDED_DEVICE").ok();
        let all = ports()?;
        let nothing = |what: String| Error::NoFabric { name: "verbs".into(), what };
        if all.is_empty() {
            // The library opens some files to look, and says nothing of those that it could not open.
            let spare: io::Result<Vec<_>> = (0..4).map(|_| Ok(eventfd(0, EventfdFlags::CLOEXEC)?)).collect();
            if let Err(error) = spare {
                return Err(nothing(format!("cannot look for devices: {error}{}", advice(Some(&error)))));
            }
            return Err(nothing(HOW_TO_HAVE_ONE.into()));
        }
        let names: Vec<_> =
            all.iter().map(|device| format!("{} port {}", device.context.name(), device.port)).collect();
        all.into_iter()
            .filter(|device| wanted.as_ref().is_none_or(|wanted| *wanted == device.context.name()))
            .find(|device| device.state.state == ibv::ibv_port_state::IBV_PORT_ACTIVE && device.is_reachable())
            .ok_or_else(|| match wanted {
                Some(wanted) => nothing(format!("{wanted} has no active port; there are {}", names.join(", "))),
                None => nothing(format!("no active port with an address among {}", names.join(", "))),
            })
    }

    const fn is_ethernet(&self) -> bool {
        self.state.link_layer as u32 == ibv::IBV_LINK_LAYER_ETHERNET
    }

    /// Whether connections are addressed by GID.
    pub(super) const fn is_global(&self) -> bool {
        self.is_ethernet()
    }

    const fn is_reachable(&self) -> bool {
        self.gid.is_some() || !self.is_ethernet()
    }

    const fn transport(&self) -> &'static str {
        match (self.is_ethernet(), self.gid) {
            (false, _) => "InfiniBand",
            (true, Some((_, _, ibv::IBV_GID_TYPE_ROCE_V2))) => "RoCE v2",
            (true, Some(_)) => "RoCE v1",
            (true, None) => "Ethernet without an address",
        }
    }

    /// How many reads and atomics may be under way on a connection, either way.
    pub(super) fn reads(&self) -> u8 {
        let most = self.attributes.max_qp_rd_atom.min(self.attributes.max_qp_init_rd_atom);
        u8::try_from(most.max(1)).unwrap_or(u8::MAX)
    }

    /// Whether a request may be told to wait for the reads and atomics before it. Soft-RoCE keeps requests in order by itself,
    /// and one that waits and is lost on its way hangs there: sent again, it waits for itself (seen with Linux 6.1: no packet
    /// leaves any more, and no completion comes).
    pub(super) const fn fences(&self) -> bool {
        self.attributes.vendor_id != SOFT_ROCE
    }

    /// Whether an atomic may end well without its old value. To a write that comes a second time Soft-RoCE acknowledges all that
    /// it has done since; if the last of that is an atomic, whose own answer has not come yet, the origin's driver takes the
    /// acknowledgement for the answer and completes the atomic, with nothing written to its cell (seen with Linux 6.1 on a
    /// network that reorders).
    pub(super) const fn loses_answers(&self) -> bool {
        self.attributes.vendor_id == SOFT_ROCE
    }

    fn try_inline(&self) -> Result<u32, Error> {
        let domain = ProtectionDomain::new(&self.context)?;
        let completions = CompletionQueue::new(&self.context, 2)?;
        let receives = SharedReceiveQueue::new(&domain, 1)?;
        Ok(QueuePair::new(&domain, &completions, &receives, 1)?.inline())
    }
}

fn ports() -> Result<Vec<Device>, Error> {
    let mut all = Vec::new();
    for context in Context::open_all()? {
        let attributes = context.attributes()?;
        for port in 1..=attributes.phys_port_cnt {
            let state = context.port(port)?;
            let gid = choose_gid(&context, port, state.gid_tbl_len);
            all.push(Device { context: Arc::clone(&context), attributes, port, state, gid });
        }
    }
    Ok(all)
}

/// RoCE v2 over IPv4 before RoCE v2 over IPv6 before anything else; a link-local address last of its kind, because it
/// does not reach beyond the link.
fn choose_gid(context: &Context, port: u8, entries: i32) -> Option<(u8, Gid, ibv::ibv_gid_type)> {
    let entries = u8::try_from(entries).unwrap_or(u8::MAX);
    (0..entries)
        .filter_map(|index| context.gid(port, u32::from(index)).map(|(gid, kind)| (index, gid, kind)))
        .filter(|(_, gid, _)| *gid != Gid::default())
        .min_by_key(|(index, gid, kind)| {
            let address = Ipv6Addr::from(gid.0);
            let is_v4 = address.to_ipv4_mapped().is_some();
            (*kind != ibv::IBV_GID_TYPE_ROCE_V2, !is_v4, gid.0[..2] == [0xfe, 0x80], *index)
        })
}
