//! Methods of a fabric around another one.

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
