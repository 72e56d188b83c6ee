//! The hosts that a job runs on, and how to start programs there.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::Error;

/// The hosts of a job, and how to reach them.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// In the order in which ranks are assigned.
    pub list: Vec<Slots>,
    /// The remote shell and its options, at least one word. It is called with a host and a command
    /// line for a shell there.
    pub rsh: Vec<OsString>,
    /// Words between the host and the command line: none for a shell, `sh -c` for a tool that
    /// starts programs directly.
    pub before_line: Vec<OsString>,
    /// The path of this program on the other hosts.
    pub agent: PathBuf,
    /// Variables that the ranks get besides those whose name begins with `ONESIDED_`.
    pub export: Vec<OsString>,
}

/// A host, and the number of ranks that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The name that the remote shell uses.
    pub name: String,
    /// At least one.
    pub slots: u32,
}

impl Slots {
    /// Parses a list such as `a:2,b:4`. A host without a number takes one rank; an IPv6 address
    /// stands in brackets. An argument with a `/` is a file with one host a line and comments after
    /// `#`.
    ///
    /// # Errors
    /// [`Error::Launch`]: a host without a name, listed twice, or without a whole number of ranks;
    /// an unreadable file.
    pub fn parse(list: &str) -> Result<Vec<Self>, Error> {
        let failed = |what: String, source| Error::Launch { what, source };
        let text = if list.contains('/') {
            let read = fs::read_to_string(list);
            let text = read.map_err(|error| failed(format!("read the list of hosts {list}"), Some(error)))?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(",")
        } else {
            list.to_owned()
        };
        let mut hosts: Vec<Self> = Vec::new();
        for item in text.split(',').map(str::trim) {
            let wrong = |why: &str| failed(format!("the list of hosts has {item:?}, which {why}"), None);
            let (name, slots) = match item.strip_prefix('[').and_then(|item| item.split_once(']')) {
                Some((name, "")) => (name, None),
                Some((name, slots)) => {
                    let slots = slots.strip_prefix(':');
                    (name, Some(slots.ok_or_else(|| wrong("has something else than `:N` behind its brackets"))?))
                }
                None if item.matches(':').count() > 1 => {
                    return Err(wrong("has several colons: an IPv6 address is written in brackets, `[fe80::5]:4`"));
                }
                None => item.rsplit_once(':').map_or((item, None), |(name, slots)| (name, Some(slots))),
            };
            let slots = slots.map_or(Ok(1), str::parse).map_err(|_| wrong("has no whole number of ranks"))?;
            let fit = |char: char| char.is_ascii_graphic() && !"'\"\\`$;&|<>()*?".contains(char);
            if name.is_empty() || name.starts_with('-') || !name.chars().all(fit) {
                return Err(wrong("is no name of a host"));
            }
            if slots == 0 || hosts.iter().any(|host| host.name == name) {
                return Err(wrong(if slots == 0 { "has no room for a rank" } else { "is there twice" }));
            }
            hosts.push(Self { name: name.to_owned(), slots });
        }
        Ok(hosts)
    }

    /// Whether this is the current host.
    pub(crate) fn is_here(&self) -> bool {
        let here = rustix::system::uname();
        let here = here.nodename().to_string_lossy();
        self.name == "localhost" || self.name == here || here.split('.').next() == Some(&self.name)
    }
}

impl Hosts {
    /// The hosts that get ranks, and the host number of each rank. Each host is filled before the
    /// next.
    ///
    /// # Errors
    /// [`Error::Launch`]: too few slots, or two entries that are both this host.
    pub(crate) fn assign(&self, size: u32) -> Result<(Vec<&Slots>, Vec<u16>), Error> {
        let room: u64 = self.list.iter().map(|host| u64::from(host.slots)).sum();
        if u64::from(size) > room {
            let what = format!("{size} ranks, and the hosts have room for {room} (HOST:N takes N)");
            return Err(Error::Launch { what, source: None });
        }
        let mut here = self.list.iter().filter(|host| host.is_here());
        if let (Some(Slots { name, .. }), Some(Slots { name: again, .. })) = (here.next(), here.next()) {
            let what = format!("the list of hosts has {name:?} and {again:?}, and both are this host");
            return Err(Error::Launch { what, source: None });
        }
        let by_rank = self.list.iter().enumerate().flat_map(|(at, host)| (0..host.slots).map(move |_| at as u16));
        let by_rank: Vec<_> = by_rank.take(size as usize).collect();
        let used = usize::from(by_rank.last().copied().unwrap_or(0)) + 1;
        Ok((self.list.iter().take(used).collect(), by_rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(name: &str, slots: u32) -> Slots {
        Slots { name: name.to_owned(), slots }
    }

    #[test]
    fn lists_and_files_are_read() {
        assert_eq!(Slots::parse("a:2, b ,[fe80::1]:3").unwrap(), [slots("a", 2), slots("b", 1), slots("fe80::1", 3)]);
        let file = std::env::temp_dir().join(format!("onesided-hosts-{}", std::process::id()));
        fs::write(&file, "# ours\na:2 # two\n\nuser@b.example\n").unwrap();
        assert_eq!(Slots::parse(file.to_str().unwrap()).unwrap(), [slots("a", 2), slots("user@b.example", 1)]);
        fs::remove_file(&file).unwrap();
        assert!(matches!(Slots::parse(file.to_str().unwrap()), Err(Error::Launch { source: Some(_), .. })));
        for wrong in [
            "fe80::5",
            "[fe80::1]4",
            "[fe80::1]:",
            "[fe80::1",
            "",
            "a,,b",
            "a:0",
            "a:-1",
            "a:x",
            "a:99999999999",
            ":2",
            "-oProxyCommand=x",
            "a b",
            "a;b",
            "a,b,a:2",
        ] {
            assert!(Slots::parse(wrong).unwrap_err().to_string().contains("list of hosts"), "{wrong}");
        }
    }

    #[test]
    fn each_host_is_filled_before_the_next() {
        let list = vec![slots("a", 2), slots("b", 3), slots("c", 1)];
        let hosts = Hosts { list, rsh: vec![], before_line: vec![], agent: PathBuf::new(), export: vec![] };
        let (used, by_rank) = hosts.assign(4).unwrap();
        assert_eq!((used.len(), &*by_rank), (2, &[0, 0, 1, 1][..]));
        assert_eq!(hosts.assign(6).unwrap().1, [0, 0, 1, 1, 1, 2]);
        assert!(hosts.assign(7).unwrap_err().to_string().contains("room for 6"));
    }
}
