//! What many types of all crates are given: macros.

/// The `Debug` form of a type by one format, where a derived one would ask for that of its parameters or say too
/// much. Arguments: the parameters, the type, and the format with the value's name.
#[doc(hidden)]
#[macro_export]
macro_rules! debug {
    (@$shown:ident [$($parameters:tt)*] $of:ty, |$this:ident| $($format:tt)+) => {
        impl<$($parameters)*> ::core::fmt::$shown for $of {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let $this = self;
                ::core::write!(f, $($format)+)
            }
        }
    };
    ($($shown:tt)+) => { $crate::debug!(@Debug $($shown)+); };
}

/// The same for `Display`.
#[doc(hidden)]
#[macro_export]
macro_rules! display {
    ($($shown:tt)+) => { $crate::debug!(@Display $($shown)+); };
}

/// Makes a type `Copy` whatever its parameters are, where a derive would ask for theirs. Arguments: the parameters and the
/// type.
#[doc(hidden)]
#[macro_export]
macro_rules! copied {
    ([$($parameters:tt)*] $of:ty) => {
        impl<$($parameters)*> Copy for $of {}

        impl<$($parameters)*> Clone for $of {
            #[inline(always)] // nothing is left of it
            fn clone(&self) -> Self {
                *self
            }
        }
    };
}

/// An enumeration, and after it what is made of its entries: a constant of all in their order; a function of the
/// name of each, which is its `Display` too.
#[doc(hidden)]
#[macro_export]
macro_rules! entries {
    (@made $of:ident $entries:tt) => {};
    (@made $of:ident [$($entry:ident $text:tt,)*] $(#[$doc:meta])* $visible:vis const $all:ident; $($made:tt)*) => {
        impl $of {
            $(#[$doc])*
            $visible const $all: [Self; [$(stringify!($entry)),*].len()] = [$(Self::$entry),*];
        }
        $crate::entries!(@made $of [$($entry $text,)*] $($made)*);
    };
    (@made $of:ident [$($entry:ident [$text:expr],)*] $(#[$doc:meta])* $visible:vis fn $name:ident;) => {
        impl $of {
            $(#[$doc])*
            $visible const fn $name(self) -> &'static str {
                match self {
                    $(Self::$entry => $text,)*
                }
            }
        }

        impl ::core::fmt::Display for $of {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.$name())
            }
        }
    };
    (
        $(#[$about:meta])* $visible:vis enum $of:ident {
            $($(#[$doc:meta])* $entry:ident $(= $number:literal)? $(=> $text:expr)?,)*
        }
        $($made:tt)*
    ) => {
        $(#[$about])*
        $visible enum $of {
            $($(#[$doc])* $entry $(= $number)?,)*
        }
        $crate::entries!(@made $of [$($entry [$($text)?],)*] $($made)*);
    };
}

/// Writes methods that call those of the same name of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate {
    ($field:ident: $(
        fn $name:ident $(<$life:lifetime>)? (
            &$($own_life:lifetime)? self $(, $arg:ident: $type:ty)* $(,)?
        ) $(-> $result:ty)?;
    )*) => {
        $(
            fn $name $(<$life>)? (&$($own_life)? self $(, $arg: $type)*) $(-> $result)? {
                self.$field.$name($($arg),*)
            }
        )*
    };
}
