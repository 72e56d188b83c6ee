//! The environment variables that tell a process its rank and job.

use std::ffi::OsString;

use onesided_remote_memory::Rank;

use crate::Error;
use crate::Secret;

/// This process's rank, from 0.
pub const RANK: &str = "ONESIDED_RANK";
/// How many ranks the job has.
pub const SIZE: &str = "ONESIDED_SIZE";
/// The name of the launcher's abstract Unix socket; with [`SECRET_FILE`], `HOST:PORT` of a
/// rendezvous.
pub const ADDRESS: &str = "ONESIDED_ADDRESS";
/// The job's secret, 64 hexadecimal digits.
pub const SECRET: &str = "ONESIDED_SECRET";
/// A file with the job's secret, for ranks started without `onesided run`: see
/// [`rendezvous`](super::rendezvous).
pub const SECRET_FILE: &str = "ONESIDED_SECRET_FILE";
/// Variables of one job, which are useless to any other, or secret.
pub(crate) const OF_A_JOB: [&str; 5] = [RANK, SIZE, ADDRESS, SECRET, SECRET_FILE];
/// The fabric named by `onesided run --fabric`. Users may set it for a program that runs alone.
pub const FABRIC: &str = "ONESIDED_FABRIC";

/// After how many seconds of one wait a rank reports what it waits for. At 0 it does so on SIGUSR1 alone.
pub const STUCK_AFTER: &str = "ONESIDED_STUCK_AFTER";

/// What the launcher put into this process's environment.
#[derive(Debug, Clone)]
pub struct Environment {
    /// This process's rank.
    pub rank: Rank,
    /// How many ranks the job has.
    pub size: u32,
    /// The name of the launcher's socket.
    pub address: String,
    /// The job's secret.
    pub secret: Secret,
}

impl Environment {
    /// Reads the process's environment. `None` if `onesided run` did not start the process.
    ///
    /// # Errors
    /// [`Error::Join`] names the variable that is missing or invalid.
    pub fn read() -> Result<Option<Self>, Error> {
        Self::parse(|name| std::env::var_os(name))
    }

    pub(crate) fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        if [RANK, SIZE, ADDRESS, SECRET].into_iter().all(|name| variable(name).is_none()) {
            return Ok(None);
        }
        let (rank, size) = rank_and_size(&variable)?;
        let address = text(&variable, ADDRESS)?;
        if variable(SECRET).is_none() {
            return Err(wrong(SECRET, "is not set, nor is ONESIDED_SECRET_FILE, but others of ONESIDED_* are"));
        }
        let secret = text(&variable, SECRET)?;
        let secret = Secret::from_hex(&secret).ok_or_else(|| wrong(SECRET, "is not 64 hexadecimal digits"))?;
        Ok(Some(Self { rank, size, address, secret }))
    }

    /// The variables to set for the process.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            (RANK, self.rank.0.to_string()),
            (SIZE, self.size.to_string()),
            (ADDRESS, self.address.clone()),
            (SECRET, self.secret.to_hex()),
        ]
    }
}

/// The value of a required variable.
pub(crate) fn text(variable: impl Fn(&str) -> Option<OsString>, name: &str) -> Result<String, Error> {
    let value = variable(name).ok_or_else(|| wrong(name, "is not set, but others of ONESIDED_* are"))?;
    value.into_string().map_err(|_| wrong(name, "is not text"))
}

/// The rank and the size, with Slurm's variables as the fallback.
pub(crate) fn rank_and_size_or_slurms(variable: impl Fn(&str) -> Option<OsString>) -> Result<(Rank, u32), Error> {
    let slurms = variable("SLURM_STEP_ID").is_some() && variable(RANK).is_none() && variable(SIZE).is_none();
    rank_and_size(|name| match name {
        RANK if slurms => variable("SLURM_PROCID"),
        SIZE if slurms => variable("SLURM_STEP_NUM_TASKS"),
        _ => variable(name),
    })
}

/// The rank and the size, which are required and have to be consistent.
pub(crate) fn rank_and_size(variable: impl Fn(&str) -> Option<OsString>) -> Result<(Rank, u32), Error> {
    let number = |name: &str| {
        text(&variable, name)?.parse().map_err(|_| wrong(name, "is not a whole number that a job can have"))
    };
    let (rank, size) = (number(RANK)?, number(SIZE)?);
    if rank >= size {
        return Err(wrong(RANK, &format!("is {rank}, but the job has {size} ranks")));
    }
    Ok((Rank(rank), size))
}

pub(crate) fn wrong(name: &str, what: &str) -> Error {
    let what = format!("{name} {what}; `onesided run` sets it, or whoever starts the ranks by hand");
    Error::Join { what, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Environment {
        Environment { rank: Rank(2), size: 3, address: "somewhere".into(), secret: Secret::random() }
    }

    #[test]
    fn what_is_written_is_read() {
        let variables = sample().variables();
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let read = Environment::parse(find).unwrap().unwrap();
        assert_eq!(read.variables(), variables);
    }

    #[test]
    fn nothing_set_is_alone_and_half_set_is_an_error() {
        assert!(Environment::parse(|_| None).unwrap().is_none());
        assert!(Environment::parse(|name| (name == FABRIC).then(|| "shm".into())).unwrap().is_none());
        let variables = sample().variables();
        for (missing, _) in &variables {
            let find = |name: &str| {
                variables.iter().find(|(known, _)| *known == name && known != missing).map(|(_, value)| value.into())
            };
            let text = Environment::parse(find).unwrap_err().to_string();
            assert!(text.contains(missing), "{text}");
            assert_eq!(text.contains(SECRET_FILE), *missing == SECRET, "{text}");
        }
    }

    #[test]
    fn bad_values_name_their_variable() {
        let variables = sample().variables();
        for (bad, value) in [
            (RANK, "3"),
            (RANK, "-1"),
            (RANK, ""),
            (SIZE, "0"),
            (SIZE, "2"),
            (SIZE, "99999999999"),
            (SIZE, "three"),
            (SECRET, "abc"),
            (SECRET, ""),
        ] {
            let find = |name: &str| {
                let known = variables.iter().find(|(known, _)| *known == name)?;
                Some(if name == bad { value.into() } else { known.1.clone().into() })
            };
            let error = Environment::parse(find).unwrap_err().to_string();
            assert!(error.contains("ONESIDED_"), "{bad}={value}: {error}");
        }
    }
}
