//! Path counts of operations.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::Path;

/// How often operations on a target took each path: see [`Window::paths`](crate::Window::paths).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths([u64; Path::ALL.len()]);

impl Paths {
    /// The number of operations that took this path.
    pub fn of(&self, path: Path) -> u64 {
        index_of(path).map_or(0, |at| self.0[at])
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + other.0[at]))
    }

    /// The number of all operations.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = Path::ALL.into_iter().filter(|path| self.of(*path) > 0);
        for (at, path) in taken.enumerate() {
            write!(f, "{}{path} {}", if at == 0 { "" } else { ", " }, self.of(path))?;
        }
        if self.total() == 0 { f.write_str("none") } else { Ok(()) }
    }
}

/// The index of a path, if this crate knows it.
const fn index_of(path: Path) -> Option<usize> {
    let at = path as usize; // their order is that of `Path::ALL`
    if at < Path::ALL.len() { Some(at) } else { None }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct PathCounts([AtomicU64; Path::ALL.len()]);

impl PathCounts {
    pub(super) fn add(&self, path: Path) {
        if let Some(at) = index_of(path) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Paths {
        Paths(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told() {
        let counts = PathCounts::default();
        assert_eq!(counts.read().to_string(), "none");
        assert!(Path::ALL.iter().enumerate().all(|(at, path)| index_of(*path) == Some(at)));
        for path in [Path::Cpu, Path::Helper, Path::Cpu] {
            counts.add(path);
        }
        let paths = counts.read();
        assert_eq!((paths.of(Path::Cpu), paths.of(Path::Card), paths.total()), (2, 0, 3));
        assert_eq!(paths.to_string(), "CPU 2, helper thread 1");
    }
}
