//! How far an acquire is to go.

/// What is wanted of an acquire that is under way: asked between two operations, for it may change meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Whether, and how much.
    pub wanted: WaitPolicy,
    /// Whether the lock is taken from the dead. Otherwise it stays theirs, and the acquire ends with their fault.
    pub recovers: bool,
}

/// Asks for the wish as it is now. A reference, of one type, so that the rest of an acquire exists once for each lock, whoever
/// asks.
pub type IntentFn<'a> = &'a (dyn Fn() -> Intent + Send + Sync + 'a);

/// How much a lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// However long it takes.
    Block,
    /// If no owner has to be waited for.
    Try,
    /// Not any more: the acquire ends as soon as it holds nothing that others wait for.
    Cancelled,
}

impl Intent {
    /// However long it takes, but not from the dead.
    pub const LOCK: Self = Self { wanted: WaitPolicy::Block, recovers: false };
    /// If it can be had at once, but not from the dead.
    pub const TRY: Self = Self { wanted: WaitPolicy::Try, recovers: false };
    /// Not any more.
    pub const CANCELLED: Self = Self { wanted: WaitPolicy::Cancelled, recovers: false };

    /// The same, from the dead as well.
    #[must_use]
    pub const fn recovering(self) -> Self {
        Self { recovers: true, ..self }
    }

    /// Whether nobody wants the lock any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self.wanted, WaitPolicy::Cancelled)
    }

    /// Whether others may be waited for.
    #[must_use]
    pub const fn is_patient(self) -> bool {
        matches!(self.wanted, WaitPolicy::Block)
    }
}
