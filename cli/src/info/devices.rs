//! The RDMA devices of this host.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// All devices.
#[derive(Debug)]
pub(super) struct Devices {
    pub(super) list: Vec<Device>,
    /// Why the verbs library cannot use them.
    pub(super) error: Option<String>,
}

/// A port of an RDMA device.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    name: String,
    port: u8,
    /// `InfiniBand`, `Ethernet`, `RoCE v2`, ...
    transport: String,
    /// `active`, or what it is instead.
    state: String,
    /// Known to builds with verbs only.
    #[serde(flatten)]
    capabilities: Option<Capabilities>,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    address: String,
    /// The scope of its atomics: `none`, `card` (its own only), `host` (the CPU's too).
    atomics: &'static str,
    outstanding_reads: u32,
    inline_bytes: u32,
}

impl Devices {
    /// Asks the verbs library, or the kernel without that.
    pub(super) fn find() -> Self {
        #[cfg(feature = "verbs")]
        match onesided_fabric::verbs::devices() {
            Ok(devices) => Self { list: devices.into_iter().map(Device::from).collect(), error: None },
            Err(error) => Self { list: listed(), error: Some(error.to_string()) },
        }
        #[cfg(not(feature = "verbs"))]
        Self { list: listed(), error: None }
    }

    pub(super) fn usable(&self) -> bool {
        self.error.is_none() && self.list.iter().any(|device| device.state == "active")
    }
}

#[cfg(feature = "verbs")]
impl From<onesided_fabric::verbs::DeviceInfo> for Device {
    fn from(info: onesided_fabric::verbs::DeviceInfo) -> Self {
        Self {
            name: info.name,
            port: info.port,
            transport: info.transport.to_owned(),
            state: info.state.to_owned(),
            capabilities: Some(Capabilities {
                address: info.address,
                atomics: info.atomics,
                outstanding_reads: info.outstanding_reads,
                inline_bytes: info.inline,
            }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, transport, state, capabilities } = self;
        write!(f, "{name} port {port}: {transport}, {state}")?;
        let Some(Capabilities { address, atomics, outstanding_reads, inline_bytes }) = capabilities else {
            return Ok(());
        };
        write!(f, ", {address}, atomics: {atomics}, ")?;
        write!(f, "outstanding reads: {outstanding_reads}, inline: {inline_bytes} B")
    }
}

/// The devices that the kernel lists.
fn listed() -> Vec<Device> {
    let class = Path::new("/sys/class/infiniband");
    let read = |file| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let mut devices = Vec::new();
    for name in entries(class) {
        let ports = class.join(&name).join("ports");
        devices.extend(entries(&ports).into_iter().filter_map(|port| {
            let directory = ports.join(&port);
            // As in "4: ACTIVE".
            let state = read(directory.join("state"));
            Some(Device {
                name: name.clone(),
                port: port.parse().ok()?,
                transport: read(directory.join("link_layer")),
                state: state.split_once(": ").map_or(&*state, |(_, state)| state).to_lowercase(),
                capabilities: None,
            })
        }));
    }
    devices.sort_by(|a, b| (&a.name, a.port).cmp(&(&b.name, b.port)));
    devices
}

/// The names in a directory; none if there is no such directory.
fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
