//! Panics of a lock's own code, as violations.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether panics of this thread are expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function that is expected to panic, on this thread and without output: a backtrace does
/// not fit loom's small stacks.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                others(panic);
            }
        }));
    });
    let before = EXPECTED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(before);
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The same; a panic is an error with its message.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(|| quietly(work))).map_err(message)
}

/// A violation that the kit itself found, thrown as a panic to end an execution.
pub(crate) struct Violation(pub(crate) String);

fn message(panic: Box<dyn Any + Send>) -> String {
    let said = match panic.downcast::<Violation>() {
        Ok(violation) => return violation.0,
        Err(other) => match other.downcast::<String>() {
            Ok(said) => *said,
            Err(other) => other.downcast::<&str>().map_or_else(|_| "?".into(), |said| said.to_string()),
        },
    };
    format!("the lock panicked: {said}")
}
