//! The hosts that a job runs on, and how an agent is started there.

use std::ffi::OsString;
use std::fmt;
use std::process::Command;

use crate::Error;
use crate::launcher::End;

/// The hosts of a job, and how to reach them.
#[derive(Debug)]
pub struct Hosts {
    /// In the order in which ranks are assigned.
    pub list: Vec<Slots>,
    /// How the other hosts' agents are started.
    pub start: Box<dyn StartAgent>,
    /// Variables that the ranks get besides those whose name begins with `ONESIDED_`.
    pub export: Vec<OsString>,
}

/// How an agent is started on another host: by ssh, by a scheduler, in a container. The launcher
/// knows none of these.
pub trait StartAgent: fmt::Debug {
    /// The command that runs [`agent`](crate::launcher::agent) on a host. Its standard input and
    /// output are the agent's, and it ends after the agent. The launcher sets its standard streams
    /// and its session, removes the job's own variables, and kills it at the latest when the job
    /// ends.
    fn command(&self, host: &str) -> Command;

    /// Why no agent answered from a host, and what the user can do: `end` is how the command ended;
    /// `None` while it runs. `None` if that tells nothing.
    fn explain(&self, host: &str, end: Option<End>) -> Option<String>;
}

/// A host, and the number of ranks that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The name by which [`StartAgent`] reaches it.
    pub name: String,
    /// At least one.
    pub slots: u32,
}

impl Slots {
    /// Whether this is the current host.
    pub(crate) fn is_here(&self) -> bool {
        let here = rustix::system::uname();
        let here = here.nodename().to_string_lossy();
        self.name == "localhost" || self.name == here || here.split('.').next() == Some(&self.name)
    }
}

/// The hosts that get ranks, and the host number of each rank. Each host is filled before the next.
///
/// # Errors
/// [`Error::Launch`]: too few slots, or two entries that are both this host.
pub(super) fn assign(list: &[Slots], size: u32) -> Result<(&[Slots], Vec<u16>), Error> {
    let room: u64 = list.iter().map(|host| u64::from(host.slots)).sum();
    if u64::from(size) > room {
        let what = format!("{size} ranks, and the hosts have room for {room} (HOST:N takes N)");
        return Err(Error::Launch { what, source: None });
    }
    let mut here = list.iter().filter(|host| host.is_here());
    if let (Some(Slots { name, .. }), Some(Slots { name: again, .. })) = (here.next(), here.next()) {
        let what = format!("the list of hosts has {name:?} and {again:?}, and both are this host");
        return Err(Error::Launch { what, source: None });
    }
    let by_rank = list.iter().enumerate().flat_map(|(at, host)| (0..host.slots).map(move |_| at as u16));
    let by_rank: Vec<_> = by_rank.take(size as usize).collect();
    let used = usize::from(by_rank.last().copied().unwrap_or(0)) + 1;
    Ok((list.get(..used).unwrap_or(list), by_rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_filled_before_the_next() {
        let list = [("a", 2), ("b", 3), ("c", 1)].map(|(name, slots)| Slots { name: name.to_owned(), slots });
        let (used, by_rank) = assign(&list, 4).unwrap();
        assert_eq!((used.len(), &*by_rank), (2, &[0, 0, 1, 1][..]));
        assert_eq!(assign(&list, 6).unwrap().1, [0, 0, 1, 1, 1, 2]);
        assert!(assign(&list, 7).unwrap_err().to_string().contains("room for 6"));
    }
}
