//! The names of lock designs, and the variables that choose them.

use std::str::FromStr;

use onesided_lock_algos::{LockAlgorithm, TestAndSet};

use crate::{Error, LockAllDesign, LockDesign};

impl LockDesign {
    /// The design that `ONESIDED_LOCK` names.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        // A name that is not UTF-8 matches no lock.
        std::env::var_os("ONESIDED_LOCK").map_or_else(|| Ok(Self::default()), |name| name.to_string_lossy().parse())
    }
}

impl LockAllDesign {
    /// The design that `ONESIDED_LOCK_ALL` names, or the default with such a lock.
    pub(crate) fn from_environment(lock: LockDesign) -> Result<Self, Error> {
        let name = std::env::var_os("ONESIDED_LOCK_ALL");
        name.map_or_else(|| Ok(Self::usual(lock)), |name| name.to_string_lossy().parse())
    }
}

impl FromStr for LockAllDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|design| design.name() == name);
        known.copied().ok_or_else(|| Error::LockAllDesign { name: name.into(), known: Self::NAMES })
    }
}

impl FromStr for LockDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let name = if name == "tas" { TestAndSet::NAME } else { name };
        let known = Self::ALL.iter().find(|design| design.name() == name);
        known.copied().ok_or_else(|| Error::Design { name: name.into(), known: Self::NAMES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_has_a_name_that_is_known() {
        for design in LockDesign::ALL {
            assert_eq!(design.to_string().parse::<LockDesign>().unwrap(), *design);
        }
        assert_eq!(
            LockDesign::ALL.iter().map(|design| design.name()).collect::<Vec<_>>().join(", "),
            LockDesign::NAMES
        );
        assert_eq!("tas".parse::<LockDesign>().unwrap(), LockDesign::TestAndSet);
        for design in LockAllDesign::ALL {
            assert_eq!(design.to_string().parse::<LockAllDesign>().unwrap(), *design);
        }
        let names = LockAllDesign::ALL.iter().map(|design| design.name()).collect::<Vec<_>>().join(", ");
        assert_eq!(names, LockAllDesign::NAMES);
        let error = "tree".parse::<LockAllDesign>().unwrap_err().to_string();
        assert_eq!(error, "unknown lock_all design \"tree\"; known: on-demand, each-target, global");
        let error = "peterson".parse::<LockDesign>().unwrap_err().to_string();
        assert_eq!(error, format!("unknown lock design \"peterson\"; known: {}", LockDesign::NAMES));
    }
}
