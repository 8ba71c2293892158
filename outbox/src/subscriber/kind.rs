//! The kind of an error that names none: what it is called in dead letters, events and metrics.

use std::borrow::Cow;
use std::error::Error;

use super::HandlerError;
use crate::message::DecodeError;

/// The kind of an error that names none.
pub(super) fn kind_of<E>(error: &(dyn Error + 'static)) -> Cow<'static, str> {
    if error.is::<DecodeError>() { HandlerError::DECODE.into() } else { type_name::<E>() }
}

/// The name of a type, without its path and parameters. Many types are called `Error`: their
/// names have their owner in front, as in `io::Error` and `sqlx::Error`.
fn type_name<T>() -> Cow<'static, str> {
    named(std::any::type_name::<T>())
}

fn named(path: &'static str) -> Cow<'static, str> {
    let until_parameters = |path: &'static str| path.split('<').next().unwrap_or(path);
    let mut plain = until_parameters(path);
    if plain.is_empty() || plain.ends_with("::") {
        // It is declared in a method: behind `<a::Type as a::Trait>::` or `a::<impl a::Type>::`.
        plain = until_parameters(path.rsplit(">::").next().unwrap_or(path));
    }
    let (owner, name) = plain.rsplit_once("::").unwrap_or(("", plain));
    // A crate may be split into several, and a module may be named after what is in it.
    let owner = owner.strip_suffix("::error").unwrap_or(owner);
    let owner = owner.rsplit("::").next().unwrap_or(owner);
    let owner = if owner == "sqlx_core" { "sqlx" } else { owner };
    if name == "Error" && !owner.is_empty() {
        format!("{owner}::Error").into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_called_error_says_whose_it_is() {
        for (path, name) in [
            ("std::io::error::Error", "io::Error"),
            ("sqlx_core::error::Error", "sqlx::Error"),
            ("anyhow::Error", "anyhow::Error"),
            ("shop::mail::MailError", "MailError"),
            ("alloc::string::String", "String"),
            ("alloc::boxed::Box<dyn core::error::Error>", "Box"),
            ("alloc::boxed::Box<<shop::Mail as shop::Send>::send::Full>", "Box"),
        ] {
            assert_eq!(named(path), name);
        }
    }

    struct Shop;
    pub(super) struct Of;

    impl Iterator for Shop {
        type Item = Cow<'static, str>;

        fn next(&mut self) -> Option<Self::Item> {
            struct Closed<T>(std::marker::PhantomData<T>);
            Some(type_name::<Closed<Vec<u8>>>())
        }
    }

    impl Of {
        fn name() -> Cow<'static, str> {
            struct Error;
            type_name::<Error>()
        }
    }

    #[test]
    fn an_error_of_a_method_has_a_name() {
        assert_eq!(Shop.next().as_deref(), Some("Closed"));
        // In another module than its type.
        assert_eq!(Of::name(), "name::Error");
    }
}
