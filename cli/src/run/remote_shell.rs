//! The remote shell that starts agents on other hosts: ssh, srun, or what the user names.

use std::path::Path;
use std::process::Command;

use onesided_fabric::bootstrap::launcher::{End, StartAgent};

/// The variable that sets the remote shell.
pub(crate) const RSH: &str = "ONESIDED_RSH";
/// The default remote shell.
pub(crate) const SSH: &str = "ssh -x -T -o BatchMode=yes";

/// A remote shell: a command that is called with a host and a command line.
#[derive(Debug)]
pub(super) struct RemoteShell {
    program: String,
    options: Vec<String>,
    /// Words between the host and the command line: none for a shell, `sh -c` for a tool that
    /// starts programs directly.
    before_line: &'static [&'static str],
    /// The command line of the agent.
    line: String,
}

impl RemoteShell {
    /// `command`: the remote shell and its options, with white space between. `onesided`: the path
    /// of this program on the other hosts. `None`: `command` is empty.
    pub(super) fn new(command: &str, before_line: &'static [&'static str], onesided: &Path) -> Option<Self> {
        let mut words = command.split_whitespace().map(str::to_owned);
        let line = format!("'{}' agent", onesided.to_string_lossy().replace('\'', "'\\''"));
        Some(Self { program: words.next()?, options: words.collect(), before_line, line })
    }

    /// What the user can try by hand.
    fn advice(&self, host: &str) -> String {
        let words: Vec<_> = [&self.program].into_iter().chain(&self.options).map(String::as_str).collect();
        format!("`{} {host} true` has to succeed here without asking anything", words.join(" "))
    }
}

impl StartAgent for RemoteShell {
    fn command(&self, host: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).arg(host).args(self.before_line).arg(&self.line);
        command
    }

    /// A shell's exit status is 126 or 127 for a program that cannot be executed; ssh's is 255 if
    /// it has no connection.
    fn explain(&self, host: &str, end: Option<End>) -> Option<String> {
        match end {
            None => Some(self.advice(host)),
            Some(End::Exited(127)) => Some(
                "no `onesided` is there where this one is here; install it there, or say where it is (--agent)".into(),
            ),
            Some(End::Exited(126)) => Some("the `onesided` there cannot be executed".into()),
            Some(End::Exited(255)) => {
                let (program, advice) = (&self.program, self.advice(host));
                Some(format!("{program} did not reach it (exit status 255), and says above why; {advice}"))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_shell_gets_a_host_and_one_line() {
        assert!(RemoteShell::new(" ", &[], Path::new("onesided")).is_none());
        let words = |shell: &RemoteShell| {
            let command = shell.command("alpha");
            let words = [command.get_program()].into_iter().chain(command.get_args());
            words.map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let ssh = RemoteShell::new("ssh  -x", &[], Path::new("/it's/onesided")).unwrap();
        assert_eq!(words(&ssh), ["ssh", "-x", "alpha", r"'/it'\''s/onesided' agent"]);
        let srun = RemoteShell::new("srun", &["sh", "-c"], Path::new("/onesided")).unwrap();
        assert_eq!(words(&srun), ["srun", "alpha", "sh", "-c", "'/onesided' agent"]);
        assert!(ssh.explain("alpha", None).unwrap().starts_with("`ssh -x alpha true` has"));
        assert!(ssh.explain("alpha", Some(End::Killed(9))).is_none());
    }
}
