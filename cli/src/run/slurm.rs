//! The hosts of a Slurm allocation, from its variables.

use std::ffi::OsString;

use onesided_fabric::bootstrap::Error;
use onesided_fabric::bootstrap::launcher::Slots;

/// `srun` as a remote shell, called with a host, `sh -c` and a command line. The step has one task,
/// takes no resources from others, and does not buffer output by line.
pub(super) const SRUN: &str =
    "srun --overlap --unbuffered --mpi=none --input=all --nodes=1 --ntasks=1 --cpu-bind=none --quiet --nodelist";
const NODES: &str = "SLURM_JOB_NODELIST";
const TASKS: &str = "SLURM_TASKS_PER_NODE";
/// An allocation with more hosts or ranks is rejected.
const MOST: usize = 65_535;

/// The nodes of this process's Slurm allocation, each with as many slots as it has tasks.
///
/// # Errors
/// [`Error::Launch`]: there is no allocation, or its variables are invalid.
pub(super) fn allocation() -> Result<Vec<Slots>, Error> {
    allocated(|name| std::env::var_os(name))
}

fn allocated(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Slots>, Error> {
    let text = |name: &str| {
        let value = variable(name).and_then(|value| value.into_string().ok());
        value.ok_or_else(|| {
            failed(format!("{name} is not set: `--hosts slurm` is for use in an allocation (sbatch, salloc)"))
        })
    };
    let (nodes, tasks) = (text(NODES)?, text(TASKS)?);
    let names = host_list(&nodes).ok_or_else(|| failed(format!("{NODES}={nodes} is no list of hosts")))?;
    let slots = repeated(&tasks).ok_or_else(|| failed(format!("{TASKS}={tasks} is no list of numbers")))?;
    if names.len() != slots.len() {
        return Err(failed(format!("{NODES}={nodes} and {TASKS}={tasks} are not of one length")));
    }
    Ok(names.into_iter().zip(slots).map(|(name, slots)| Slots { name, slots }).collect())
}

fn failed(what: String) -> Error {
    Error::Launch { what, source: None }
}

/// Expands Slurm's host lists: `a,b[1-3,07-09]c[0-1]`.
fn host_list(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let (mut begin, mut depth) = (0, 0_u32);
    for (at, char) in text.char_indices().chain([(text.len(), ',')]) {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                all.extend(expanded(&text[begin..at])?);
                begin = at + 1;
            }
            _ => {}
        }
        if depth > 1 || all.len() > MOST {
            return None;
        }
    }
    (depth == 0).then_some(all)
}

/// Expands one name with any number of brackets.
fn expanded(name: &str) -> Option<Vec<String>> {
    let fit = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    let mut all = vec![String::new()];
    let mut rest = name;
    while !rest.is_empty() {
        let (plain, inside) = rest.split_once('[').map_or((rest, None), |(plain, more)| (plain, Some(more)));
        if !plain.chars().all(fit) || name.starts_with('-') {
            return None;
        }
        all.iter_mut().for_each(|name| name.push_str(plain));
        let (inside, after) = inside.map_or(Some(("", "")), |more| more.split_once(']'))?;
        if !inside.is_empty() {
            let numbers = numbers(inside)?;
            if all.len() * numbers.len() > MOST {
                return None;
            }
            all = all.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}"))).collect();
        }
        rest = after;
    }
    (!name.is_empty()).then_some(all)
}

/// Expands `1-3,07`, and keeps leading zeros.
fn numbers(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if to < from || (to - from) as usize >= MOST {
            return None;
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Some(all)
}

/// Expands `2,1(x3)`.
fn repeated(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for item in text.split(',') {
        let (number, times) = match item.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (item, 1),
        };
        let number = number.parse::<u32>().ok().filter(|number| *number > 0)?;
        if times > MOST {
            return None;
        }
        all.extend(std::iter::repeat_n(number, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts_are_expanded() {
        let list = |text: &str| host_list(text).map(|all| all.join(" "));
        assert_eq!(list("host[0-2]").unwrap(), "host0 host1 host2");
        assert_eq!(list("a,b-1.example,n[08-10,3]x").unwrap(), "a b-1.example n08x n09x n10x n3x");
        assert_eq!(list("r[1-2]n[0-1]").unwrap(), "r1n0 r1n1 r2n0 r2n1");
        for wrong in ["", "a,", "a[", "a]", "a[1-]", "a[2-1]", "a[[1]]", "a b", "a;b", "-oX", "a[1-99999999]"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_allocation_is_hosts_and_slots() {
        let of = |nodes: &str, tasks: &str| {
            let (nodes, tasks) = (OsString::from(nodes), OsString::from(tasks));
            allocated(move |name| match name {
                NODES => Some(nodes.clone()),
                TASKS => Some(tasks.clone()),
                _ => None,
            })
        };
        let slots = of("host[0-2],x", "2,1(x3)").unwrap();
        let told: Vec<_> = slots.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect();
        assert_eq!(told, ["host0:2", "host1:1", "host2:1", "x:1"]);
        for (nodes, tasks, told) in [
            ("a[", "1", NODES),
            ("a", "0", TASKS),
            ("a", "1(x", TASKS),
            ("a", "1(x2)", "one length"),
            ("a,b", "2", "one length"),
        ] {
            assert!(of(nodes, tasks).unwrap_err().to_string().contains(told), "{nodes} {tasks}");
        }
        assert!(allocated(|_| None).unwrap_err().to_string().contains("sbatch"));
    }
}
