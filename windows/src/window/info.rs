//! A window's properties, for programs and people (`MPI_Win_get_info`, `MPI_Win_get_name`).

use std::fmt;
use std::sync::Arc;

use onesided_fabric::{AtomicAgent, Fabric, Path, Segment};

use crate::info::{Flavor, Paths};
use crate::window::target::Target;
use crate::{Element, LockAllDesign, LockDesign, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// How often this rank's operations on a target took each [path](onesided_fabric::Path). An
    /// operation on many elements, or on a shape, counts as one; where the agent of memory without
    /// words executes it, each request to the agent counts.
    ///
    /// Operations that are an instruction of the calling thread are counted only in windows made
    /// with [`count_paths`](crate::Builder::count_paths) or under `ONESIDED_COUNT=1`; all others
    /// always. Locks are not counted. The counts of [attached](crate::Access::attached) memory are
    /// summed over all of it. On `mixed`, a put or get that takes the card because atomics are
    /// under way counts as the CPU's.
    pub fn paths(&self, target: u32) -> Paths {
        self.inner.memory.paths(target)
    }

    /// Describes, for a human reader, which path operations on a target take and why.
    pub fn explain(&self, target: u32) -> String {
        let fabric = self.inner.fabric();
        let capabilities = fabric.capabilities();
        let reached = self.inner.target(target);
        let path = reached.as_ref().map_or(Path::Helper, |target| target.data.path());
        let way = match path {
            _ if reached.is_err() => "it cannot be reached",
            Path::Cpu if self.inner.memory.flavor == Flavor::Created => {
                "puts and gets by the CPU, because it is user memory in this process"
            }
            Path::Cpu if capabilities.agent != AtomicAgent::Cpu => {
                "puts and gets by the CPU, because it is mapped here"
            }
            Path::Cpu => "operations are done when the call returns, by the CPU, because it is mapped here",
            Path::ProcessVm => {
                "puts and gets by process_vm, because it is user memory in another process, done when the call \
                 returns"
            }
            Path::Helper => {
                "puts and gets by the owner's helper thread, because it is user memory in another process and \
                 process_vm does not work here or is switched off; done when the call returns"
            }
            _ => "operations are posted, completed by the fabric",
        };
        let agent = match reached {
            Ok(Target { wordless: true, .. }) => "CPU of the owner's process",
            _ => agent_name(capabilities.agent),
        };
        format!(
            "window \"{}\", rank {target}: {} elements of {} bytes over {}; {way}; atomics by the {agent}; lock {}{}",
            self.name(),
            self.len(target),
            size_of::<T>(),
            capabilities.name,
            self.inner.locks.design,
            lock_all_note(self.inner.locks.design, self.inner.locks.lock_all),
        )
    }
}

/// The properties of a window: see [`Window::info`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The window's name.
    pub name: Arc<str>,
    /// The name of the element type in this program, and its size in bytes.
    pub element: (&'static str, usize),
    /// How its memory was made.
    pub flavor: Flavor,
    /// The number of elements of each rank.
    pub lengths: Vec<usize>,
    /// Its lock.
    pub lock: LockDesign,
    /// How `lock_all` locks.
    pub lock_all: LockAllDesign,
    /// `shm`, `verbs`, `sim`.
    pub fabric: &'static str,
    /// What executes atomics.
    pub agent: AtomicAgent,
    /// The path counts of this rank's operations on each rank.
    pub paths: Vec<Paths>,
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// The window's properties, with a `Display`.
    ///
    /// ```
    /// # use onesided_windows::{Window, info::Flavor};
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u32>::builder().name("scores").create(&world, vec![0; 10]).wait()?;
    /// let info = window.info();
    /// assert_eq!((&*info.name, info.flavor, info.lengths.as_slice()), ("scores", Flavor::Created, &[10, 10][..]));
    /// assert!(info.to_string().starts_with("window \"scores\": created over user memory, 2 ranks with 10 u32"));
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    pub fn info(&self) -> Info {
        let (inner, size) = (self.inner(), self.world().size());
        let capabilities = inner.fabric().capabilities();
        Info {
            name: inner.name.clone(),
            element: (std::any::type_name::<T>(), size_of::<T>()),
            flavor: inner.memory.flavor,
            lengths: (0..size).map(|rank| self.len(rank)).collect(),
            lock: inner.locks.design,
            lock_all: inner.locks.lock_all,
            fabric: capabilities.name,
            agent: capabilities.agent,
            paths: (0..size).map(|rank| self.paths(rank)).collect(),
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, element: (element, bytes), flavor, lengths, lock, lock_all, fabric, agent, paths } = self;
        write!(f, "window \"{name}\": {flavor}, {} ranks", lengths.len())?;
        let even = lengths.first().filter(|first| lengths.iter().all(|len| len == *first));
        match even {
            Some(len) => write!(f, " with {len} {element}")?,
            None => write!(f, " with {lengths:?} {element}")?,
        }
        write!(f, " ({bytes} bytes each) over {fabric}, atomics by the {}, lock {lock}", agent_name(*agent))?;
        f.write_str(&lock_all_note(*lock, *lock_all))?;
        for (rank, paths) in paths.iter().enumerate().filter(|(_, paths)| paths.total() > 0) {
            write!(f, "; operations on rank {rank}: {paths}")?;
        }
        Ok(())
    }
}

/// The description of `lock_all`, after the lock's; empty if it is the default with such a lock.
pub(crate) fn lock_all_note(lock: LockDesign, all: LockAllDesign) -> String {
    if all == LockAllDesign::usual(lock) { String::new() } else { format!(", lock_all {all}") }
}

/// The name of the agent that executes atomics.
pub(crate) const fn agent_name(agent: AtomicAgent) -> &'static str {
    match agent {
        AtomicAgent::Cpu => "CPU",
        AtomicAgent::Card => "card",
        _ => "simulator",
    }
}
