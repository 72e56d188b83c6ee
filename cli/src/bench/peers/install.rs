//! Installs the peers from PyPI and compiles the C programs against them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::say;

/// An MPI on PyPI.
#[derive(Debug)]
pub(crate) struct Mpi {
    /// Its common name.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Its name on PyPI.
    package: &'static str,
    /// Options of `mpiexec` that leave the choice of cores to the ranks, and allow more ranks than
    /// cores.
    pub(crate) options: &'static [&'static str],
}

pub(crate) const MPIS: [Mpi; 2] = [
    Mpi { name: "MPICH", version: "5.0.2", package: "mpich", options: &["-bind-to", "none"] },
    Mpi { name: "Open MPI", version: "5.0.11", package: "openmpi", options: &["--bind-to", "none", "--oversubscribe"] },
];

/// An installed MPI.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) mpi: &'static Mpi,
    pub(crate) mpiexec: PathBuf,
    /// The C program, compiled against it.
    pub(crate) program: PathBuf,
    /// The output of its jobs.
    pub(crate) log: PathBuf,
}

const SOURCES: [(&str, &str); 6] = [
    ("peer.h", include_str!("../../../peers/peer.h")),
    ("peer.c", include_str!("../../../peers/peer.c")),
    ("probes.c", include_str!("../../../peers/probes.c")),
    ("messages.c", include_str!("../../../peers/messages.c")),
    ("collectives.c", include_str!("../../../peers/collectives.c")),
    ("overlap.c", include_str!("../../../peers/overlap.c")),
];

/// The longest that a download may take.
const DEADLINE: Duration = Duration::from_secs(600);

/// Installs an MPI below `folder`, unless it is there, and compiles the C program.
///
/// # Errors
/// A line that says why it failed.
pub(crate) fn install(folder: &Path, mpi: &'static Mpi) -> Result<Installed, String> {
    let failed = |what: &Path, error: io::Error| format!("{}: {error}", what.display());
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let folder = folder.canonicalize().map_err(|error| failed(folder, error))?;
    let root = folder.join(format!("{}-{}", mpi.package, mpi.version));
    let bin = root.join("bin");
    let complete = root.join("complete"); // missing after an interrupted installation
    if !complete.exists() {
        let package = format!("{}=={}", mpi.package, mpi.version);
        say(&format!("installing {package} from PyPI into {}", root.display()));
        let log = folder.join(format!("{}-install.log", mpi.package));
        run(Command::new("python3").args(["-m", "venv"]).arg(&root), &log, "apt install python3-venv")?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1"];
        run(Command::new(bin.join("python")).args(pip).arg(&package), &log, "apt install python3-pip")?;
        File::create(&complete).map_err(|error| failed(&complete, error))?;
    }
    for (name, text) in SOURCES {
        let path = root.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    let program = root.join("peer");
    let mut compiler = Command::new(bin.join("mpicc"));
    let sources = SOURCES.iter().map(|(name, _)| name).filter(|name| name.ends_with(".c"));
    compiler.current_dir(&root).args(["-O2", "-o", "peer"]).args(sources).arg("-lpthread");
    run(&mut compiler, &root.join("compile.log"), "apt install gcc libc6-dev")?;
    Ok(Installed { mpi, mpiexec: bin.join("mpiexec"), program, log: root.join("run.log") })
}

/// Runs a command to its end. `debian` is the command that installs it on Debian.
///
/// # Errors
/// A line that says why it failed.
fn run(command: &mut Command, log: &Path, debian: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{name} was not found (Debian: {debian})"),
        _ => format!("{name}: {error}"),
    };
    let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let output = file.try_clone().map_err(failed)?;
    let mut child = command.stdin(Stdio::null()).stdout(output).stderr(file).spawn().map_err(failed)?;
    let Some(status) = ends_within(&mut child, DEADLINE).map_err(failed)? else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{name} was not done within {} s", DEADLINE.as_secs()));
    };
    if status.success() {
        return Ok(());
    }
    Err(format!("{name}: {} (Debian: {debian}; all it said is in {})", reason(log, &status.to_string()), log.display()))
}

/// How a process ends, if it does in time.
pub(super) fn ends_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() > deadline {
            return Ok(ended);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The error in a log: the last line that names one, or else the last line, or else `otherwise`.
pub(crate) fn reason(log: &Path, otherwise: &str) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let names_one = |line: &&str| line.to_lowercase().contains("error") || line.contains("not found");
    lines().find(names_one).or_else(|| lines().next()).unwrap_or(otherwise).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_says_why_in_a_line() {
        let log = std::env::temp_dir().join(format!("onesided-install-{}", std::process::id()));
        let script = |text: &str| run(Command::new("sh").args(["-c", text]), &log, "apt install it");
        assert_eq!(script("true"), Ok(()));
        let why = script("echo ERROR: no network; echo notice; exit 3").unwrap_err();
        assert!(why.starts_with("sh: ERROR: no network (Debian: apt install it;"), "{why}");
        let why = script("exit 3").unwrap_err();
        assert!(why.contains("exit status: 3"), "{why}");
        let why = run(&mut Command::new("/nonexistent/python3"), &log, "apt install it").unwrap_err();
        assert_eq!(why, "/nonexistent/python3 was not found (Debian: apt install it)");
        fs::remove_file(&log).unwrap();
    }
}
