//! Profiles: the costs of a testbed, each with unit and source, from a TOML file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::microbench;
use crate::network::Network;

/// A testbed: its parameters, and the measurements that they were set from.
///
/// A file names parameters with value, unit and source; those that it does not name are those of
/// [`Network::default`], with the source `default`:
///
/// ```
/// use onesided_sim::Profile;
///
/// let profile = Profile::parse(
///     r#"
///     title = "A slow link"
///     [parameters]
///     latency = { value = 20.0, unit = "us", source = "a guess" }
///     "#,
/// )?;
/// assert_eq!(profile.network().latency.as_micros(), 20);
/// assert_eq!(profile.parameters["timeout"].source, onesided_sim::Parameter::DEFAULT);
/// assert_eq!(profile.with("latency", 10_000.0)?.network().latency.as_micros(), 10);
/// # Ok::<(), onesided_sim::ProfileError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    /// What it models.
    pub title: String,
    /// All of them, by name.
    pub parameters: BTreeMap<String, Parameter>,
    /// What the testbed is known to measure.
    pub checks: Vec<Check>,
    network: Network,
}

/// A parameter of a profile.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In its unit.
    pub value: f64,
    /// ns, us, ms, B/s, MB/s, GB/s; 1 for a number or a yes (1) or no (0).
    pub unit: String,
    /// Where the value is from.
    pub source: String,
}

impl Parameter {
    /// The source of what a file does not name.
    pub const DEFAULT: &str = "default";

    fn new((name, unit): &(&str, &str), network: &Network, source: &str) -> (String, Self) {
        let value = number(network, name).unwrap_or(f64::NAN);
        ((*name).into(), Self { value, unit: (*unit).into(), source: source.into() })
    }
}

/// A measurement that a profile was set from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What was measured: one of the names of the simulator's microbenchmarks.
    pub measures: String,
    /// In its unit.
    pub value: f64,
    /// us or MB/s.
    pub unit: String,
    /// Where the value is from.
    pub source: String,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not TOML, or has other keys.
    #[error("the profile cannot be read: {0}")]
    Syntax(String),
    /// No parameter has this name.
    #[error("no parameter is named '{0}'; there are {names}", names = Profile::names().collect::<Vec<_>>().join(", "))]
    Name(String),
    /// The unit or the value does not suit the parameter.
    #[error("parameter '{0}': {1} {2} is no value for it")]
    Value(String, String, String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    parameters: BTreeMap<String, Parameter>,
    #[serde(default)]
    checks: Vec<Check>,
}

impl Profile {
    /// The names of the profiles that come with the simulator.
    pub const SHIPPED: &'static [&'static str] = &["infinihost", "connectx7", "soft-roce", "shm"];

    /// A profile that comes with the simulator.
    ///
    /// # Errors
    /// [`ProfileError::Name`] if there is none of this name.
    pub fn shipped(name: &str) -> Result<Self, ProfileError> {
        Self::parse(match name {
            "infinihost" => include_str!("../profiles/infinihost.toml"),
            "connectx7" => include_str!("../profiles/connectx7.toml"),
            "soft-roce" => include_str!("../profiles/soft-roce.toml"),
            "shm" => include_str!("../profiles/shm.toml"),
            _ => return Err(ProfileError::Name(name.into())),
        })
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let File { title, parameters, checks } =
            toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string()))?;
        let mut network = Network::default();
        for (name, Parameter { value, unit, .. }) in &parameters {
            let factor = match unit.as_str() {
                "ns" | "1" | "B/s" => 1.0,
                "us" => 1e3,
                "ms" | "MB/s" => 1e6,
                "GB/s" => 1e9,
                _ => return Err(ProfileError::Value(name.clone(), value.to_string(), unit.clone())),
            };
            let is = if unit.ends_with("/s") {
                "B/s"
            } else if unit == "1" {
                "1"
            } else {
                "ns"
            };
            set(&mut network, name, value * factor, is)?;
        }
        let defaults = PARAMETERS.iter().map(|named| Parameter::new(named, &network, Parameter::DEFAULT));
        let parameters = defaults.chain(parameters).collect();
        Ok(Self { title, parameters, checks, network })
    }

    /// The network that it describes.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The value of a parameter in nanoseconds, bytes a second or as a number. `None`: no parameter
    /// has this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        number(&self.network, name)
    }

    /// The same with another value of one parameter, in nanoseconds, bytes a second or as a number;
    /// its source is then `changed`.
    ///
    /// # Errors
    /// [`ProfileError::Name`], [`ProfileError::Value`].
    pub fn with(mut self, name: &str, value: f64) -> Result<Self, ProfileError> {
        let named = PARAMETERS.iter().find(|(known, _)| *known == name);
        let named = named.ok_or_else(|| ProfileError::Name(name.into()))?;
        set(&mut self.network, name, value, named.1)?;
        self.parameters.extend([Parameter::new(named, &self.network, "changed")]);
        Ok(self)
    }

    /// Runs one of the simulator's microbenchmarks on the testbed, in us or MB/s: `write` (half a
    /// round trip, polling), `write to a sleeper`, `read`, `compare-swap`, `lock loop` (a
    /// compare-swap that is waited for and one that is not, on one word), `bandwidth` (RDMA writes
    /// of 64 KiB). `None`: there is none of this name.
    #[must_use]
    pub fn measure(&self, name: &str) -> Option<f64> {
        microbench::measure(&self.network, name)
    }

    /// The names of all parameters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PARAMETERS.iter().map(|(name, _)| *name)
    }
}

/// How a parameter takes a number in its base unit.
trait Set: Sized {
    const UNIT: &'static str;
    fn from_number(value: f64) -> Option<Self>;
    fn to_number(&self) -> f64;
}

macro_rules! kinds {
    ($($kind:ty, $unit:literal: |$number:ident| $from:expr, |$value:ident| $to:expr;)+) => {
        $(impl Set for $kind {
            const UNIT: &'static str = $unit;
            fn from_number($number: f64) -> Option<Self> {
                $from
            }
            fn to_number(&self) -> f64 {
                let $value = *self;
                $to
            }
        })+
    };
}

kinds! {
    Duration, "ns": |number| Self::try_from_secs_f64(number / 1e9).ok(), |value| value.as_nanos() as f64;
    u64, "B/s": |number| (number >= 0.0).then_some(number as Self), |value| value as f64;
    u32, "1": |number| (number >= 0.0 && number.fract() == 0.0).then_some(number as Self), |value| f64::from(value);
    // A probability.
    f64, "1": |number| (0.0..=1.0).contains(&number).then_some(number), |value| value;
    bool, "1": |number| [0.0, 1.0].contains(&number).then_some(number == 1.0), |value| f64::from(u8::from(value));
}

macro_rules! parameters {
    ($($name:literal $kind:ty: $($field:ident).+;)+) => {
        const PARAMETERS: &[(&str, &str)] = &[$(($name, <$kind as Set>::UNIT)),+];

        fn set(network: &mut Network, name: &str, value: f64, unit: &str) -> Result<(), ProfileError> {
            let refused = || ProfileError::Value(name.into(), value.to_string(), unit.into());
            match name {
                $($name if unit == <$kind as Set>::UNIT => {
                    network.$($field).+ = <$kind>::from_number(value).ok_or_else(refused)?;
                })+
                $($name)|+ => return Err(refused()),
                _ => return Err(ProfileError::Name(name.into())),
            }
            Ok(())
        }

        fn number(network: &Network, name: &str) -> Option<f64> {
            match name {
                $($name => Some(network.$($field).+.to_number()),)+
                _ => None,
            }
        }
    };
}

parameters! {
    "latency" Duration: latency;
    "same-host" Duration: same_host;
    "bandwidth" u64: bandwidth;
    "send" Duration: send;
    "receive" Duration: receive;
    "jitter" Duration: jitter;
    "loss" f64: loss;
    "timeout" Duration: timeout;
    "retries" u32: retries;
    "detection" Duration: detection;
    "detection-jitter" Duration: detection_jitter;
    "datagrams" bool: datagrams;
    "mtu" u32: mtu;
    "duplication" f64: duplication;
    "room" u32: room;
    "polling" Duration: polling;
    "wake" Duration: wake;
    "doorbell" Duration: card.doorbell;
    "deliver" Duration: card.deliver;
    "read" Duration: card.read;
    "atomic" Duration: card.atomic;
    "outstanding" u32: card.outstanding;
    "contexts" u32: card.contexts;
    "fetch" Duration: card.fetch;
    "fetch-receive" Duration: card.fetch_receive;
    "connection-memory" u32: card.connection_memory;
    "datagram-memory" u32: card.datagram_memory;
    "fast-path-memory" u32: card.fast_path_memory;
    "atomics-exclude-writes" bool: card.atomics_exclude_writes;
    "cores" u32: host.cores;
    "post" Duration: host.post;
    "poll" Duration: host.poll;
    "poll-slot" Duration: host.poll_slot;
    "progress" Duration: host.progress;
    "copy" u64: host.copy;
    "register" Duration: host.register;
    "slice" Duration: host.slice;
    "switch" Duration: host.switch;
    "interrupt" Duration: host.interrupt;
    "server-polling" Duration: host.server_polling;
    "locked-progress" bool: host.locked_progress;
    "hand-over" Duration: host.hand_over;
}
