//! The names of lock designs, and the variables that choose them.

use std::str::FromStr;

use onesided_lock_algos::{LockAlgorithm, TestAndSet};

use crate::{Error, LockAllDesign, LockDesign};

impl LockDesign {
    /// The design that `ONESIDED_LOCK` names.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        named_by("ONESIDED_LOCK").unwrap_or_else(|| Ok(Self::default()))
    }
}

impl LockAllDesign {
    /// The design that `ONESIDED_LOCK_ALL` names, or the default with such a lock.
    pub(crate) fn from_environment(lock: LockDesign) -> Result<Self, Error> {
        named_by("ONESIDED_LOCK_ALL").unwrap_or_else(|| Ok(Self::usual(lock)))
    }
}

/// The design that an environment variable names, if it is set.
fn named_by<D: FromStr<Err = Error>>(variable: &'static str) -> Option<Result<D, Error>> {
    // A name that is not UTF-8 matches no design.
    let design = std::env::var_os(variable)?.to_string_lossy().parse();
    Some(design.map_err(|error| match error {
        Error::Design { what, name, known, .. } => Error::Design { what, variable: Some(variable), name, known },
        other => other,
    }))
}

impl FromStr for LockAllDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|design| design.name() == name);
        known.copied().ok_or_else(|| unknown("lock_all", name, Self::NAMES))
    }
}

impl FromStr for LockDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let name = if name == "tas" { TestAndSet::NAME } else { name };
        let known = Self::ALL.iter().find(|design| design.name() == name);
        known.copied().ok_or_else(|| unknown("lock", name, Self::NAMES))
    }
}

pub(crate) fn unknown(what: &'static str, name: &str, known: &'static str) -> Error {
    Error::Design { what, variable: None, name: name.into(), known }
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
