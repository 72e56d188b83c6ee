//! What a process manager passes by environment variables.

use std::ffi::OsString;

use onesided_remote_memory::Rank;

use crate::Error;

/// How this process reaches its process manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnv {
    /// The connection to it.
    pub contact: Contact,
    /// This process's rank and the job's size, if the environment has them.
    pub rank_and_size: Option<(Rank, u32)>,
}

/// The connection to a process manager.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contact {
    /// `PMI_FD`: a socket that this process inherited.
    Descriptor(i32),
    /// `PMI_PORT` and `PMI_ID`: a TCP port to connect to, and this process's name there.
    Port {
        /// `HOST:PORT`.
        address: String,
        /// This process's number for the manager.
        id: u32,
    },
}

const FD: &str = "PMI_FD";
const PORT: &str = "PMI_PORT";
const ID: &str = "PMI_ID";
/// Rank and size, in the manager's variables or in Slurm's.
const NAMES: [(&str, &str); 2] = [("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")];

impl ProcessEnv {
    /// Reads the variables; `None` if no manager set any.
    pub(crate) fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let text = |name: &str| {
            let value = variable(name).map(OsString::into_string).transpose();
            value.map_err(|_| wrong(name, "is not text"))
        };
        let number = |name: &str| {
            let value = text(name)?.map(|value| value.parse::<u32>()).transpose();
            value.map_err(|_| wrong(name, "is not a whole number that a job can have"))
        };
        let mut rank_and_size = None;
        let (fd, port) = (text(FD)?, text(PORT)?);
        if fd.is_none() && port.is_none() {
            return Ok(None);
        }
        for (rank, size) in NAMES {
            if let (None, Some(r), Some(s)) = (rank_and_size, number(rank)?, number(size)?) {
                if r >= s {
                    return Err(wrong(rank, &format!("is {r}, but {size} is {s}")));
                }
                rank_and_size = Some((Rank(r), s));
            }
        }
        let contact = match (fd, port) {
            (Some(fd), _) => {
                if rank_and_size.is_none() {
                    return Err(wrong(
                        FD,
                        "is set, but PMI_RANK and PMI_SIZE, or SLURM_PROCID and SLURM_NTASKS, are not",
                    ));
                }
                Contact::Descriptor(fd.parse().map_err(|_| wrong(FD, "is no descriptor's number"))?)
            }
            (None, Some(address)) => {
                let id = number(ID)?.ok_or_else(|| wrong(PORT, "is set, but PMI_ID is not"))?;
                Contact::Port { address, id }
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { contact, rank_and_size }))
    }
}

fn wrong(name: &str, what: &str) -> Error {
    Error::Join { what: format!("{name} {what}; the process manager (mpiexec, srun) sets it"), source: None }
}
