//! The table of forwarded methods.

/// Writes the methods of a trait for [`Either`](crate::Either). Each line is a method's signature
/// behind the way in which it is forwarded:
///
/// | way | to | result |
/// |---|---|---|
/// | `call` | whichever fabric it is | the fabric's own |
/// | `begin` | whichever fabric it is | a future |
/// | `make` | whichever fabric it is | a result whose value belongs to that fabric |
/// | `call_of` | the fabric of the first argument | a result with a `Fault` |
/// | `call_of (else E)` | the same, inlined for the second fabric as well | the fabric's own; `E` if the argument is of the other fabric |
/// | `make_of` | the fabric of the first argument | a result whose value belongs to that fabric |
///
/// Methods that fit no way are written out behind the table.
macro_rules! forward {
    () => {};
    (
        $(#[$attribute:meta])*
        call fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name(&mut self $(, $arg: $type)*) $(-> $result)? {
            match self {
                $crate::Either::First(fabric) => fabric.$name($($arg),*),
                $crate::Either::Second(fabric) => fabric.$name($($arg),*),
            }
        }
        forward! { $($rest)* }
    };
    ($(#[$attribute:meta])* call fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?; $($rest:tt)*) => {
        $(#[$attribute])*
        fn $name(&self $(, $arg: $type)*) $(-> $result)? {
            match self {
                $crate::Either::First(fabric) => fabric.$name($($arg),*),
                $crate::Either::Second(fabric) => fabric.$name($($arg),*),
            }
        }
        forward! { $($rest)* }
    };
    (
        $(#[$attribute:meta])*
        begin fn $name:ident $(<$life:lifetime>)? (&$($own_life:lifetime)? self $(, $arg:ident: $type:ty)*) -> $result:ty;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name $(<$life>)? (&$($own_life)? self $(, $arg: $type)*) -> $result {
            match self {
                $crate::Either::First(fabric) => $crate::EitherFuture::first(fabric.$name($($arg),*)),
                $crate::Either::Second(fabric) => {
                    $crate::EitherFuture::second($crate::dispatch::future::aside(move || fabric.$name($($arg),*)))
                }
            }
        }
        forward! { $($rest)* }
    };
    ($(#[$attribute:meta])* make fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty; $($rest:tt)*) => {
        $(#[$attribute])*
        fn $name(&self $(, $arg: $type)*) -> $result {
            match self {
                $crate::Either::First(fabric) => fabric.$name($($arg),*).map($crate::Either::First),
                $crate::Either::Second(fabric) => fabric.$name($($arg),*).map($crate::Either::Second),
            }
        }
        forward! { $($rest)* }
    };
    (
        $(#[$attribute:meta])*
        call_of fn $name:ident $(<$life:lifetime>)? (&self, $of:ident: $of_type:ty $(, $arg:ident: $type:ty)* $(,)?)
            -> $result:ty;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name $(<$life>)? (&self, $of: $of_type $(, $arg: $type)*) -> $result {
            match (self, $of) {
                ($crate::Either::First(fabric), $crate::Either::First($of)) => fabric.$name($of $(, $arg)*),
                ($crate::Either::Second(fabric), $crate::Either::Second($of)) => {
                    $crate::dispatch::future::aside(move || fabric.$name($of $(, $arg)*))
                }
                _ => Err($crate::dispatch::FOREIGN),
            }
        }
        forward! { $($rest)* }
    };
    (
        $(#[$attribute:meta])*
        call_of (else $foreign:expr)
        fn $name:ident $(<$life:lifetime>)? (&self, $of:ident: $of_type:ty $(, $arg:ident: $type:ty)*) -> $result:ty;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name $(<$life>)? (&self, $of: $of_type $(, $arg: $type)*) -> $result {
            match (self, $of) {
                ($crate::Either::First(fabric), $crate::Either::First($of)) => fabric.$name($of $(, $arg)*),
                ($crate::Either::Second(fabric), $crate::Either::Second($of)) => fabric.$name($of $(, $arg)*),
                _ => $foreign,
            }
        }
        forward! { $($rest)* }
    };
    (
        $(#[$attribute:meta])*
        make_of fn $name:ident $(<$life:lifetime>)? (
            &$($own_life:lifetime)? self, $of:ident: $of_type:ty $(, $arg:ident: $type:ty)*
        ) -> $result:ty;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name $(<$life>)? (&$($own_life)? self, $of: $of_type $(, $arg: $type)*) -> $result {
            match (self, $of) {
                ($crate::Either::First(fabric), $crate::Either::First($of)) => {
                    fabric.$name($of $(, $arg)*).map($crate::Either::First)
                }
                ($crate::Either::Second(fabric), $crate::Either::Second($of)) => {
                    $crate::dispatch::future::aside(move || fabric.$name($of $(, $arg)*)).map($crate::Either::Second)
                }
                _ => Err($crate::dispatch::FOREIGN),
            }
        }
        forward! { $($rest)* }
    };
}

pub(super) use forward;
