//! Enums without fields that list their values.

/// Declares an enum without fields, and its values as `ALL`. Records and messages hold the index of
/// a value, so new values are only ever added at the end.
#[macro_export]
macro_rules! listed {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $value:ident,)* }) => {
        $(#[$about])*
        pub enum $name { $($(#[$what])* $value,)* }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$value,)*];
        }
    };
}
