//! Where ranks meet, from the environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use onesided_remote_memory::Rank;
use rustix::fs::{Mode, OFlags};

use crate::Error;
use crate::daemon::relay::suspect_after;
use crate::environment::{ADDRESS, SECRET, SECRET_FILE, rank_and_size_or_slurms, text, wrong};
use crate::host_name::{self, HostId};
use crate::{SUSPECT_AFTER, Secret};

/// Where the ranks of a job meet, and which one this is.
#[derive(Debug, Clone)]
pub struct JobCoordinates {
    /// `HOST:PORT`, where rank 0 listens.
    pub address: String,
    /// This process's rank.
    pub rank: Rank,
    /// The number of ranks.
    pub size: u32,
    /// The job's secret.
    pub secret: Secret,
    /// This process's host.
    pub(crate) host: HostId,
    /// The failure-detection timeout of another host.
    pub(crate) suspect_after: Duration,
    /// The source of the address, for errors.
    pub(crate) told_by: &'static str,
}

impl JobCoordinates {
    pub(crate) fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        if variable(SECRET).is_some() {
            return Err(wrong(SECRET_FILE, "is set, and ONESIDED_SECRET too: one of them has to go"));
        }
        let (rank, size) = rank_and_size_or_slurms(&variable)?;
        let address = text(&variable, ADDRESS)?;
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            return Err(wrong(ADDRESS, "is not HOST:PORT, where rank 0 is to listen"));
        }
        let file = variable(SECRET_FILE).unwrap_or_default();
        let suspect_after = suspect_after(variable(SUSPECT_AFTER))?;
        let secret = read_secret(Path::new(&file))?;
        Ok(Self { address, rank, size, secret, host: host_name::own(), suspect_after, told_by: ADDRESS })
    }
}

/// Reads 64 hexadecimal digits from a file that no other user may read or replace.
fn read_secret(path: &Path) -> Result<Secret, Error> {
    let failed = |what: &str, source| {
        let what = format!("the secret file {} (ONESIDED_SECRET_FILE) {what}", path.display());
        Error::Join { what, source }
    };
    // Nonblocking: opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed("cannot be read", Some(error.into())))?;
    let file = File::from(opened);
    let about = file.metadata().map_err(|error| failed("cannot be read", Some(error)))?;
    if !about.is_file() {
        return Err(failed("is no file", None));
    }
    let me = rustix::process::geteuid();
    if about.permissions().mode() & 0o077 != 0 || (about.uid() != me.as_raw() && about.uid() != 0) {
        return Err(failed("can be read or written by others; `chmod 600` it, as its owner", None));
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).map_err(|error| failed("cannot be read", Some(error)))?;
    let wanted = "does not hold 64 hexadecimal digits, as `od -An -tx1 -N32 -v /dev/urandom | tr -d ' \\n'` makes them";
    Secret::from_hex(text.trim()).ok_or_else(|| failed(wanted, None))
}
