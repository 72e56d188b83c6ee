//! The hosts of `onesided run --hosts`, as the user lists them.

use std::fs;

use onesided_fabric::bootstrap::Error;
use onesided_fabric::bootstrap::launcher::Slots;

/// Parses a list such as `a:2,b:4`. A host without a number takes one rank; an IPv6 address
/// stands in brackets. An argument with a `/` is a file with one host a line and comments after
/// `#`.
///
/// # Errors
/// [`Error::Launch`]: a host without a name, listed twice, or without a whole number of ranks;
/// an unreadable file.
pub(super) fn parse(list: &str) -> Result<Vec<Slots>, Error> {
    let failed = |what: String, source| Error::Launch { what, source };
    let text = if list.contains('/') {
        let read = fs::read_to_string(list);
        let text = read.map_err(|error| failed(format!("read the list of hosts {list}"), Some(error)))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(",")
    } else {
        list.to_owned()
    };
    let mut hosts: Vec<Slots> = Vec::new();
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
        hosts.push(Slots { name: name.to_owned(), slots });
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(name: &str, slots: u32) -> Slots {
        Slots { name: name.to_owned(), slots }
    }

    #[test]
    fn lists_and_files_are_read() {
        assert_eq!(parse("a:2, b ,[fe80::1]:3").unwrap(), [slots("a", 2), slots("b", 1), slots("fe80::1", 3)]);
        let file = std::env::temp_dir().join(format!("onesided-hosts-{}", std::process::id()));
        fs::write(&file, "# ours\na:2 # two\n\nuser@b.example\n").unwrap();
        assert_eq!(parse(file.to_str().unwrap()).unwrap(), [slots("a", 2), slots("user@b.example", 1)]);
        fs::remove_file(&file).unwrap();
        assert!(matches!(parse(file.to_str().unwrap()), Err(Error::Launch { source: Some(_), .. })));
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
            assert!(parse(wrong).unwrap_err().to_string().contains("list of hosts"), "{wrong}");
        }
    }
}
