//! How far an acquire is to go.

/// What is wanted of an acquire that is under way: asked between two operations, for it may change meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Whether, and how much.
    pub wanted: Wanted,
    /// Whether the lock is taken from the dead. Otherwise it stays theirs, and the acquire ends with their fault.
    pub inherits: bool,
}

/// Asks for the wish as it is now. A reference, of one type, so that the rest of an acquire exists once for each lock, whoever
/// asks.
pub type Asked<'a> = &'a (dyn Fn() -> Wish + Send + Sync + 'a);

/// How much a lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// However long it takes.
    Yes,
    /// If no owner has to be waited for.
    IfFree,
    /// Not any more: the acquire ends as soon as it holds nothing that others wait for.
    No,
}

impl Wish {
    /// However long it takes, but not from the dead.
    pub const LOCK: Self = Self { wanted: Wanted::Yes, inherits: false };
    /// If it can be had at once, but not from the dead.
    pub const TRY: Self = Self { wanted: Wanted::IfFree, inherits: false };
    /// Not any more.
    pub const NONE: Self = Self { wanted: Wanted::No, inherits: false };

    /// The same, from the dead as well.
    #[must_use]
    pub const fn inheriting(self) -> Self {
        Self { inherits: true, ..self }
    }

    /// Whether nobody wants the lock any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self.wanted, Wanted::No)
    }

    /// Whether others may be waited for.
    #[must_use]
    pub const fn is_patient(self) -> bool {
        matches!(self.wanted, Wanted::Yes)
    }
}
