//! Send rules: which way a message goes, as data (koop-2008, section 5.3).
//!
//! A chain of pairs, conditions and a protocol. A message goes by the first rule whose conditions hold
//! and whose protocol is there for it; the last one has no condition. Who sends and who
//! [explains](crate::Messages::explain) ask the same function, [`Features::choose`](crate::api::rules::Features::choose).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onesided_fabric::{Channel, debug, display, entries, lock};

use crate::driver::measured::{LOWEST, Measured};
use crate::{ProgressMode, Protocol};

/// The variable with the rules of a process.
pub(crate) const VARIABLE: &str = "ONESIDED_MESSAGES_RULES";

/// Messages of up to so many bytes are eager by all rules: ranks send each other such messages for locks
/// and collectives, and short messages of lists share packets.
pub(crate) const EAGER_LEAST: u64 = 128;

/// What has to hold of a message. See [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// `size<=BYTES`.
    AtMost(u64),
    /// `size>=BYTES`.
    AtLeast(u64),
    /// `size>=measured`, of [offered](Protocol::Offered) messages: it is as long as those that are faster
    /// offered than copied. Messages of 4 to 128 KiB go either way in turns, timed at both ends, until
    /// that is known.
    Measured,
    /// `ranks<=RANKS`: in the communicator.
    RanksAtMost(u32),
    /// `ranks>=RANKS`.
    RanksAtLeast(u32),
    /// `host`: the receiver is on the sender's host.
    SameHost,
    /// `remote`: it is on another one.
    OtherHost,
    /// `registered`: the message is that of a [buffer](crate::Buffer).
    Registered,
    /// `progress=MODE`: the sender's mode, as it is shown, such as `progress=hybrid`.
    Progress(ProgressMode),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bytes) => write!(f, "size<={bytes}"),
            Self::AtLeast(bytes) => write!(f, "size>={bytes}"),
            Self::Measured => f.write_str("size>=measured"),
            Self::RanksAtMost(ranks) => write!(f, "ranks<={ranks}"),
            Self::RanksAtLeast(ranks) => write!(f, "ranks>={ranks}"),
            Self::SameHost => f.write_str("host"),
            Self::OtherHost => f.write_str("remote"),
            Self::Registered => f.write_str("registered"),
            Self::Progress(mode) => write!(f, "progress={mode}"),
        }
    }
}

impl Condition {
    fn parse(word: &str) -> Option<Self> {
        let word: String = word.split_whitespace().collect();
        Some(match word.split_at_checked(6).unwrap_or((&word, "")) {
            ("host", "") => Self::SameHost,
            ("remote", "") => Self::OtherHost,
            ("regist", "ered") => Self::Registered,
            ("size>=", "measured") => Self::Measured,
            ("size<=", bytes) => Self::AtMost(bytes.parse().ok()?),
            ("size>=", bytes) => Self::AtLeast(bytes.parse().ok()?),
            ("ranks<", ranks) => Self::RanksAtMost(ranks.strip_prefix('=')?.parse().ok()?),
            ("ranks>", ranks) => Self::RanksAtLeast(ranks.strip_prefix('=')?.parse().ok()?),
            _ => {
                let mode = word.strip_prefix("progress=")?;
                let is_it = |one: &ProgressMode| one.to_string().replace(' ', "") == mode;
                Self::Progress(ProgressMode::ALL.into_iter().find(is_it)?)
            }
        })
    }
}

/// A rule of a chain: a message for which all conditions hold goes by the protocol, if that is there for
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a program writes the fields down")]
pub struct Rule {
    /// The conditions.
    pub when: Vec<Condition>,
    /// The protocol.
    pub by: Protocol,
}

fn joined(all: &[impl fmt::Display], by: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
}

display!([] Rule, |this| "{}{}{}", joined(&this.when, " & "), if this.when.is_empty() { "" } else { ": " }, this.by);

impl Rule {
    fn parse(
        text: &str,
        has: impl Fn(Channel) -> bool,
        fails: impl Fn(&str, &'static str) -> WrongRule,
    ) -> Result<Self, WrongRule> {
        let (when, by) = text.rsplit_once(':').map_or((None, text), |(when, by)| (Some(when), by));
        let words = when.into_iter().flat_map(|when| when.split('&'));
        let condition = |word| Condition::parse(word).ok_or_else(|| fails(word, CONDITIONS));
        let when = words.map(condition).collect::<Result<_, _>>()?;
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.to_string() == by.trim());
        let rule = Self { when, by: protocol.ok_or_else(|| fails(by, PROTOCOLS))? };
        rule.lacks(has).map_or(Ok(rule), |why| Err(fails(by, why)))
    }

    /// Why it can hold of no message: it names a channel that the fabric does not have.
    fn lacks(&self, has: impl Fn(Channel) -> bool) -> Option<&'static str> {
        Some(match self.by.channel().filter(|channel| !has(*channel))? {
            Channel::Datagrams => "this fabric has no datagrams (those of cards: ONESIDED_MESSAGES_CHANNEL)",
            Channel::FastPath => "this fabric has no fast path (that of cards: ONESIDED_MESSAGES_CHANNEL=both)",
            _ => "this fabric sends no packets over connections (those of cards: ONESIDED_MESSAGES_CHANNEL)",
        })
    }
}

/// The send rules of a rank: by which protocol its messages go (koop-2008, section 5.3). See
/// [`Messages::set_rules`](crate::Messages::set_rules).
///
/// A message goes by the first rule of the chain whose conditions hold and whose protocol is there for
/// it: one packet has room for an [eager](Protocol::Eager) message, there is a connection
/// ([`rc-sr`](Protocol::RcSr)), and a slice can be [offered](Protocol::Offered) to another process of the host.
/// The last rule is for all others. A message of up to 128 bytes is eager by all rules, unless its send is
/// synchronous.
///
/// As text: rules with commas or line ends between them, each a protocol, or conditions with `&` between
/// them, a colon and a protocol; what follows `#` in a line is a comment. An empty text is the default,
/// `eager, size>=measured: offered, rget`.
///
/// ```
/// use onesided_two_sided::{Condition, Protocol, Rule, Rules};
///
/// let rules: Rules = "size<=1000: eager, host & size>=16384: offered, rput".parse()?;
/// let offered = vec![Condition::SameHost, Condition::AtLeast(16384)];
/// let same = [
///     Rule { when: vec![Condition::AtMost(1000)], by: Protocol::Eager },
///     Rule { when: offered, by: Protocol::Offered },
///     Rule { when: vec![], by: Protocol::Rput },
/// ];
/// assert_eq!(rules, Rules::new(same)?);
/// assert_eq!("".parse(), Ok(Rules::default()));
/// let wrong = "eager, sise<=9: rput, rget".parse::<Rules>().unwrap_err();
/// assert!(wrong.to_string().starts_with("rule 2, at character 8: no condition: "));
/// # Ok::<(), onesided_two_sided::WrongRule>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Rules(Arc<[Rule]>);

/// What is wrong with [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", place(*.rule, *.at))]
#[non_exhaustive]
pub struct WrongRule {
    /// The rule, from 1; 0: there are none.
    pub rule: usize,
    /// Of a text, where the word begins that is wrong, from 1.
    pub at: Option<usize>,
    why: &'static str,
}

fn place(rule: usize, at: Option<usize>) -> String {
    match (rule, at) {
        (0, _) => String::new(),
        (rule, None) => format!("rule {rule}: "),
        (rule, Some(at)) => format!("rule {rule}, at character {at}: "),
    }
}

const CONDITIONS: &str = "no condition: they are size<=BYTES, size>=BYTES, size>=measured, ranks<=RANKS, \
    ranks>=RANKS, host, remote, registered, progress=MODE, with & between them and a colon at their end";
const PROTOCOLS: &str = "no protocol: they are eager, rc-sr, ud-sr, rc-fp, offered, rget, rput, pipeline, \
    ud-zcopy, copy";
const LAST: &str = "the last rule has no condition, and is rget, rput, pipeline, ud-zcopy or copy";
const UNREADABLE: &str = "neither a text of rules nor @ and a file that can be read";

impl Rules {
    /// A chain.
    ///
    /// # Errors
    /// The last rule has a condition, or is eager or offered; or a rule that is not offered has the condition
    /// [`Measured`](Condition::Measured).
    pub fn new(chain: impl IntoIterator<Item = Rule>) -> Result<Self, WrongRule> {
        let chain: Arc<[Rule]> = chain.into_iter().collect();
        let has_end = |last: &Rule| last.when.is_empty() && !last.by.is_eager() && last.by != Protocol::Offered;
        if !chain.last().is_some_and(has_end) {
            return Err(WrongRule { rule: chain.len(), at: None, why: LAST });
        }
        let is_wrong = |rule: &Rule| rule.by != Protocol::Offered && rule.when.contains(&Condition::Measured);
        match chain.iter().position(is_wrong) {
            Some(at) => Err(WrongRule { rule: at + 1, at: None, why: "size>=measured is for offered alone" }),
            None => Ok(Self(chain)),
        }
    }

    /// The rules in their order.
    #[must_use]
    pub fn chain(&self) -> &[Rule] {
        &self.0
    }

    /// The protocol of the last rule.
    pub(crate) fn last(&self) -> Protocol {
        self.0.last().map_or_else(Protocol::default, |rule| rule.by)
    }

    /// Messages of up to so many bytes are eager whatever else there is of them, if a packet has room.
    pub(crate) fn surely_eager(&self) -> u64 {
        let mut most = u64::MAX;
        // A connection need not be there, and whichever message goes over it is eager.
        let may_be_absent = |rule: &&Rule| matches!(rule.by, Protocol::RcSr | Protocol::RcFp);
        for Rule { when, by } in self.0.iter().filter(|rule| !may_be_absent(rule)) {
            let bound = |condition: &Condition| match (by.is_eager(), condition) {
                (true, Condition::AtMost(bytes)) => Some(*bytes),
                (true, _) => Some(0),
                (_, Condition::AtLeast(bytes)) => Some(bytes.saturating_sub(1)),
                (_, Condition::Measured) => Some(u64::from(LOWEST) - 1),
                _ => None,
            };
            let bounds = when.iter().filter_map(bound);
            match by {
                by if by.is_eager() => return bounds.min().unwrap_or(u64::MAX).min(most),
                _ => most = bounds.max().unwrap_or(0).min(most), // none of these goes by this rule
            }
        }
        0
    }

    /// Messages of fewer bytes are eager over any channel, if a packet has room, without a look at the chain.
    fn eager_without_a_look(&self) -> u64 {
        match self.0.iter().any(|rule| rule.by.channel().is_some()) {
            true => 0,
            false => self.surely_eager().max(EAGER_LEAST).saturating_add(1),
        }
    }

    /// Reads a text, of which a rule may name the channels that a fabric `has`.
    fn parse(text: &str, has: impl Fn(Channel) -> bool) -> Result<Self, WrongRule> {
        let lines = text.lines().map(|line| line.split_once('#').map_or(line, |(rules, _)| rules));
        let rules = lines.flat_map(|line| line.split(',')).filter(|rule| !rule.trim().is_empty());
        let mut chain = Vec::new();
        for (rule, words) in (1..).zip(rules) {
            let fails = |word: &str, why| {
                let at = text[..word.trim_start().as_ptr().addr() - text.as_ptr().addr()].chars().count();
                WrongRule { rule, at: Some(at + 1), why }
            };
            chain.push(Rule::parse(words, &has, fails)?);
        }
        if chain.is_empty() { Ok(Self::default()) } else { Self::new(chain) }
    }
}

/// Eager if there is room, else by this protocol; slices are offered before [RGET](Protocol::Rget). Of
/// a protocol that not all messages can go by, the default.
impl From<Protocol> for Rules {
    fn from(by: Protocol) -> Self {
        let offered = Rule { when: vec![Condition::Measured], by: Protocol::Offered };
        let is_read = by.is_eager() || matches!(by, Protocol::Offered | Protocol::Rget);
        let last = Rule { when: vec![], by: if is_read { Protocol::Rget } else { by } };
        let eager = Rule { when: vec![], by: Protocol::Eager };
        Self([eager].into_iter().chain(is_read.then_some(offered)).chain([last]).collect())
    }
}

impl Default for Rules {
    fn default() -> Self {
        Protocol::Rget.into()
    }
}

impl FromStr for Rules {
    type Err = WrongRule;

    fn from_str(text: &str) -> Result<Self, WrongRule> {
        Self::parse(text, |_| true)
    }
}

display!([] Rules, |this| "{}", joined(&this.0, ", "));

debug!([] Rules, |this| "{:?}", this.to_string());

entries! {
    /// Who said the rules.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Origin {
        BuiltIn => "built in",
        Environment => VARIABLE,
        Program => "the program",
    }
    fn name;
}

/// The rules of a rank, as its sends read them.
#[derive(Debug)]
pub(crate) struct Applied {
    /// As of [`Rules::eager_without_a_look`].
    eager: AtomicU64,
    said: Mutex<(Rules, Origin)>,
    pub(crate) measured: Measured,
}

impl Applied {
    /// Those of the environment, or those that are built in, on a fabric that `has` these channels.
    pub(crate) fn new(has: impl Fn(Channel) -> bool) -> Result<Self, WrongRule> {
        let unreadable = WrongRule { rule: 0, at: None, why: UNREADABLE };
        let (rules, origin) = match std::env::var(VARIABLE) {
            Err(std::env::VarError::NotPresent) => (Rules::default(), Origin::BuiltIn),
            Err(std::env::VarError::NotUnicode(_)) => return Err(unreadable),
            Ok(text) => match text.strip_prefix('@') {
                Some(file) => {
                    let text = std::fs::read_to_string(file).map_err(|_| unreadable)?;
                    (Rules::parse(&text, has)?, Origin::Environment)
                }
                None => (Rules::parse(&text, has)?, Origin::Environment),
            },
        };
        let eager = AtomicU64::new(rules.eager_without_a_look());
        Ok(Self { eager, said: Mutex::new((rules, origin)), measured: Measured::default() })
    }

    pub(crate) fn set(&self, rules: Rules, has: impl Fn(Channel) -> bool) -> Result<(), WrongRule> {
        for (rule, at) in rules.chain().iter().zip(1..) {
            rule.lacks(&has).map_or(Ok(()), |why| Err(WrongRule { rule: at, at: None, why }))?;
        }
        let mut said = lock(&self.said);
        self.eager.store(rules.eager_without_a_look(), Ordering::Relaxed);
        *said = (rules, Origin::Program);
        Ok(())
    }

    pub(crate) fn said(&self) -> (Rules, Origin) {
        lock(&self.said).clone()
    }

    /// Asks the chain.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&[Rule]) -> T) -> T {
        ask(lock(&self.said).0.chain())
    }

    /// Whether a message of so many bytes is eager over any channel, if a packet has room for it.
    #[inline]
    pub(crate) fn are_eager(&self, bytes: u64) -> bool {
        bytes < self.eager.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_shown() {
        for text in [
            "eager, size>=measured: offered, rget",
            "rput",
            "host & size>=16384: offered, ranks<=4 & size<=900: eager, copy",
            "size<=90: rc-sr, size<=900: ud-sr, rc-sr, rget",
            "size<=90: rc-fp, eager, rget",
            "eager, size>=9000: ud-zcopy, rget",
            "eager, ud-zcopy",
            "remote: rput, registered: rget, ranks>=100: copy, progress=two threads: rget, progress=hybrid: rget, pipeline",
        ] {
            assert_eq!(text.parse::<Rules>().unwrap().to_string(), text);
        }
        let file = "# for cards\nsize <= 2000:eager # short\n\n size >=9&remote : rput,\nrget\n";
        let shown = "size<=2000: eager, size>=9 & remote: rput, rget";
        assert_eq!(file.parse::<Rules>().unwrap().to_string(), shown);
        assert_eq!(" \n# nothing".parse(), Ok(Rules::default()));
        for (text, rule, at, why) in [
            ("rgett", 1, Some(1), PROTOCOLS),
            ("eager,  RGET", 2, Some(9), PROTOCOLS),
            ("host & size<9: rput, rget", 1, Some(8), CONDITIONS),
            ("eager\n: rput, rget", 2, Some(7), CONDITIONS),
            ("size<=-1: eager, rget", 1, Some(1), CONDITIONS),
            ("progress=fast: eager, rget", 1, Some(1), CONDITIONS),
            ("host&: eager, rget", 1, Some(6), CONDITIONS),
            ("eager, offered", 2, None, LAST),
            ("rc-sr, ud-sr", 2, None, LAST),
            ("rget, rc-fp", 2, None, LAST),
            ("eager, host: rget", 2, None, LAST),
            ("size>=measured: rput, rget", 1, None, "size>=measured is for offered alone"),
        ] {
            assert_eq!(text.parse::<Rules>(), Err(WrongRule { rule, at, why }), "{text}");
        }
        let lacks = |text: &str, has| Rules::parse(text, |channel| channel == has).unwrap_err();
        let by_datagrams = lacks("size<=9: ud-sr, size<=99:\trc-sr, rget", Channel::Datagrams);
        assert!(
            by_datagrams.to_string().starts_with("rule 2, at character 27: this fabric sends no packets over conn")
        );
        assert!(
            lacks("ud-sr, rget", Channel::Connection)
                .to_string()
                .starts_with("rule 1, at character 1: this fabric has no datagrams")
        );
        let wrong = crate::Error::from("eager, rgett".parse::<Rules>().unwrap_err()).to_string();
        assert_eq!(wrong, format!("{VARIABLE}: rule 2, at character 8: {PROTOCOLS}"));
    }

    #[test]
    fn what_is_surely_eager_is_known_without_the_chain() {
        for (text, bytes) in [
            ("eager, rget", u64::MAX),
            ("size<=500: eager, rget", 500),
            ("rget", 0),
            ("host: eager, rget", 0),
            ("size>=measured: offered, eager, rget", 4095),
            ("host & size>=9000: offered, size<=20000: eager, rget", 8999),
            ("host: rput, eager, rget", 0),
            ("host: rc-sr, size<=900: ud-sr, rget", 900),
            ("size>=9000: rput, rc-sr, eager, rget", 8999),
            ("rc-fp, size<=700: eager, rget", 700),
        ] {
            let rules: Rules = text.parse().unwrap();
            assert_eq!(rules.surely_eager(), bytes, "{text}");
            let names = rules.chain().iter().any(|rule| rule.by.channel().is_some());
            let bound = if names { 0 } else { bytes.max(EAGER_LEAST).saturating_add(1) };
            assert_eq!(rules.eager_without_a_look(), bound, "{text}");
        }
    }
}
