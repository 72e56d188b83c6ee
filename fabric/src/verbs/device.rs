//! The available devices, and the choice of one.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ibverbs_sys as ibv;
use onesided_job::advice;
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;
use crate::verbs::endpoint_address::PortAddress;
use crate::verbs::raw::{CompletionQueue, Context, Gid, ProtectionDomain, QueuePair, Remote, SharedReceiveQueue};

/// The advice to users without a device.
const HOW_TO_HAVE_ONE: &str = "this host has no RDMA device; on plain Ethernet the kernel's Soft-RoCE is one: \
    `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0`";

/// Soft-RoCE's vendor id.
const SOFT_ROCE: u32 = 0xff_ffff;

/// A port of an RDMA device, for display.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// The port, from 1.
    pub port: u8,
    /// `InfiniBand`, `RoCE v1`, `RoCE v2`, or the port's own name for it.
    pub transport: &'static str,
    /// `active`, or another state.
    pub state: &'static str,
    /// The address for connections; on InfiniBand the LID.
    pub address: String,
    /// The reported scope of its atomics: `none`, `card` (its own only), `host` (the CPU's too).
    pub atomics: &'static str,
    /// How many reads and atomics may be in flight on a connection.
    pub outstanding_reads: u32,
    /// How many bytes fit inside a work request, as tested.
    pub inline: u32,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, transport, state, address, atomics, outstanding_reads, inline } = self;
        write!(f, "{name} port {port}: {transport}, {state}, {address}, atomics: {atomics}, ")?;
        write!(f, "outstanding reads: {outstanding_reads}, inline: {inline} B")
    }
}

/// Every port of every RDMA device of this host; an empty list is not an error.
///
/// # Errors
/// [`Error::Verbs`]: there are devices, but they are unusable.
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
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) context: Arc<Context>,
    pub(super) attributes: ibv::ibv_device_attr,
    pub(super) port: u8,
    pub(super) state: ibv::ibv_port_attr,
    /// The source address of RoCE connections: index, address, type.
    pub(super) gid: Option<(u8, Gid, ibv::ibv_gid_type)>,
}

impl Device {
    /// The first active port, or those that `ONESIDED_DEVICE` names: devices, each of which may be
    /// followed by a colon and a port, with commas between them. Without `needs_all`, those before one that is
    /// not active.
    ///
    /// # Errors
    /// [`Error::NoFabric`] without such a port, or [`Error::Verbs`].
    pub(super) fn choose(needs_all: bool) -> Result<Vec<Self>, Error> {
        let wanted = std::env::var("ONESIDED_DEVICE").ok();
        let all = ports()?;
        let nothing = |what: String| Error::NoFabric { name: "verbs".into(), what };
        if all.is_empty() {
            // The library ignores device files that it cannot open, so descriptors are checked
            // first.
            let spare: io::Result<Vec<_>> = (0..4).map(|_| Ok(eventfd(0, EventfdFlags::CLOEXEC)?)).collect();
            if let Err(error) = spare {
                return Err(nothing(format!("cannot look for devices: {error}{}", advice(Some(&error)))));
            }
            return Err(nothing(HOW_TO_HAVE_ONE.into()));
        }
        let names: Vec<_> =
            all.iter().map(|device| format!("{} port {}", device.context.name(), device.port)).collect();
        let find = |wanted: Option<&str>| {
            let is_it = |device: &&Self| wanted.is_none_or(|wanted| device.has_name(wanted)) && device.is_usable();
            all.iter().find(is_it).cloned().ok_or_else(|| match wanted {
                Some(wanted) => nothing(format!("{wanted} has no active port; there are {}", names.join(", "))),
                None => nothing(format!("no active port with an address among {}", names.join(", "))),
            })
        };
        match wanted {
            Some(wanted) => {
                let is_taken = |at, found: &Result<_, _>| needs_all || at == 0 || found.is_ok();
                let found = wanted.split(',').map(|wanted| find(Some(wanted))).enumerate();
                found.take_while(|(at, found)| is_taken(*at, found)).map(|(_, found)| found).collect()
            }
            None => find(None).map(|device| vec![device]),
        }
    }

    fn has_name(&self, wanted: &str) -> bool {
        let name = self.context.name();
        wanted.strip_prefix(&*name).is_some_and(|port| port.is_empty() || port == format!(":{}", self.port))
    }

    fn is_usable(&self) -> bool {
        self.state.state == ibv::ibv_port_state::IBV_PORT_ACTIVE && self.is_reachable()
    }

    /// What peers need to connect to it. `home`: what they may read there.
    pub(super) fn address(&self, home: Remote) -> PortAddress {
        PortAddress {
            gid: self.gid.map_or_else(Gid::default, |(_, gid, _)| gid),
            lid: self.state.lid,
            mtu: self.state.active_mtu,
            reads: self.reads(),
            home,
        }
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

    /// How many reads and atomics may be in flight on a connection, in either direction.
    pub(super) fn reads(&self) -> u8 {
        let most = self.attributes.max_qp_rd_atom.min(self.attributes.max_qp_init_rd_atom);
        u8::try_from(most.max(1)).unwrap_or(u8::MAX)
    }

    /// Whether requests may be fenced behind earlier reads and atomics. Soft-RoCE keeps requests in
    /// order by itself. A fenced request that is lost in transit hangs there: the retransmission
    /// waits for itself (seen with Linux 6.1: no packet is sent any more, and no completion comes).
    pub(super) const fn fences(&self) -> bool {
        self.attributes.vendor_id != SOFT_ROCE
    }

    /// Whether an atomic may complete successfully without its old value. Soft-RoCE answers a
    /// duplicate write or send by acknowledging all later requests as well. If the last of them is
    /// an atomic whose own answer has not arrived, the origin's driver takes the acknowledgement
    /// for the answer and completes the atomic without writing its cell (seen with Linux 6.1 on a
    /// network that reorders). So an atomic is posted there only when no write or send is in
    /// flight: none of them is repeated then, unless a duplicate has been on its way for long. The
    /// atomic that this one hits is recognized by its cell, and its connection is given up.
    pub(super) const fn loses_answers(&self) -> bool {
        self.attributes.vendor_id == SOFT_ROCE
    }

    fn try_inline(&self) -> Result<u32, Error> {
        let domain = ProtectionDomain::new(&self.context)?;
        let completions = CompletionQueue::new(&self.context, 2)?;
        let receives = SharedReceiveQueue::new(&domain, 1, 0, 0)?;
        Ok(QueuePair::new(&domain, &completions, (&receives, &completions), 1)?.inline())
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

/// RoCE v2 over IPv4, then RoCE v2 over IPv6, then anything else; a link-local address last of its
/// type, because it is not reachable beyond the link.
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
