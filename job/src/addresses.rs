//! The addresses at which other hosts may reach this host.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum number of addresses of each family.
const MOST: usize = 8;

/// The addresses of this network namespace's interfaces as the kernel reports them, without
/// loopback and link-local ones; IPv4 before IPv6.
pub(crate) fn own() -> Vec<IpAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let four = of_fib_trie(&read("/proc/net/fib_trie")).into_iter().take(MOST).map(IpAddr::V4);
    let six = of_if_inet6(&read("/proc/net/if_inet6")).into_iter().take(MOST).map(IpAddr::V6);
    four.chain(six).collect()
}

/// Parses `/proc/net/fib_trie`: each address has its own line, and the next says what it is: `/32
/// host LOCAL`.
fn of_fib_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            let told = last.filter(|address| !address.is_loopback() && !address.is_link_local());
            found.extend(told.filter(|address| !found.contains(address)));
        }
    }
    found
}

/// One line an address: 32 hexadecimal digits, index, prefix length, scope (0: global), flags,
/// name.
fn of_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (address, scope) = (words.next()?, words.nth(2)?);
        let address = u128::from_str_radix(address, 16).ok().map(Ipv6Addr::from)?;
        (scope == "00").then_some(address)
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_interfaces_are_found_once() {
        let table = "     +-- 127.0.0.0/31 1 0 0\n           |-- 127.0.0.1\n              /32 host LOCAL\n";
        let trie = "        +-- 192.0.2.0/30 2 0 2\n           |-- 192.0.2.0\n              /24 link UNICAST\n           \
                    |-- 192.0.2.2\n              /32 host LOCAL\n        |-- 192.0.2.255\n           \
                    /32 link BROADCAST\n";
        let both = format!("Main:\n{table}{trie}Local:\n{table}{trie}");
        assert_eq!(of_fib_trie(&both), [Ipv4Addr::new(192, 0, 2, 2)]);
        let six = "20010db8000000000000000000000005 02 40 00 80     eth0\n\
                   fe800000000000000000000000000005 02 40 20 80     eth0\n\
                   00000000000000000000000000000001 01 80 10 80       lo\nnonsense\n";
        assert_eq!(of_if_inet6(six), ["2001:db8::5".parse::<Ipv6Addr>().unwrap()]);
        assert!(own().iter().all(|address| !address.is_loopback()));
    }
}
