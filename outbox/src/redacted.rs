//! `Debug` for types that hold secrets, or fields that cannot be printed.

/// Implements `Debug`. It prints these fields, or values computed in their place, and says
/// that there are others. Payloads, header values and error texts stay out of logs.
macro_rules! debug_only {
    ($it:ident: $type:ident => $($field:ident $(= $value:expr)?),+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &debug_only!(@ $it.$field $(, $value)?)))+
                    .finish_non_exhaustive()
            }
        }
    };
    (@ $it:ident.$field:ident) => { $it.$field };
    (@ $it:ident.$field:ident, $value:expr) => { $value };
}
pub(crate) use debug_only;
