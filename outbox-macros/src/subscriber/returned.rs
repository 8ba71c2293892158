//! `publish = ".."`: the returned value becomes a message of the ack.
//!
//! `Result`, `Option`, `Vec` and `Outgoing` are known by their names. A trait could not tell them
//! from values that happen to be serialisable.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{ReturnType, Type};

use super::params;
use crate::errors::Errors;
use crate::located::at;

const NOTHING: &str =
    "`publish` sends what the handler returns; return a message, or remove the option";

/// If one lease of a batch is lost, the other messages are settled all the same. So what is
/// published for the batch as a whole would be lost, or come twice.
const EACH: &str = "with `batch` and `publish` a handler returns a `Vec` with one element for each message, in order; \
     publish what belongs to the whole batch in a `Tx`: `outbox::publish(&mut tx, ..)`";

/// These are serialisable under any name: an `Err` would be published, and its message acked.
const RENAMED: &str = "`publish` knows `Result`, `Option` and `Vec` by their names, but this is one under \
     another name; write its own name";

/// A handler that takes bytes takes them as one message.
const BYTES: &str = "with `publish` each element of a `Vec` is a message, so here each byte would be one; \
     return `Outgoing::raw(queue, bytes)`";

const OUTCOME: &str = "an `Outcome` cannot be published; return the message, and an `Err` to fail";

const RAW: &str =
    "with `publish` a value is published as JSON; return `Outgoing::raw(queue, bytes)`";

pub(super) fn check(output: &ReturnType, name: &Ident, of_batch: bool, errors: &mut Errors) {
    match output {
        ReturnType::Default => errors.at(name, NOTHING),
        ReturnType::Type(_, ty) if of_batch => match of_each(ty) {
            Some(each) => something(each, errors),
            None => errors.at(ty, EACH),
        },
        ReturnType::Type(_, ty) => something(ty, errors),
    }
}

/// The `T` of `Vec<T>`, inside a `Result` or not.
fn of_each(ty: &Type) -> Option<&Type> {
    match wrapper(ty)? {
        ("Vec", each) => each,
        ("Result", Some(inner)) => match wrapper(inner)? {
            ("Vec", each) => each,
            _ => None,
        },
        _ => None,
    }
}

fn something(ty: &Type, errors: &mut Errors) {
    match params::ungrouped(ty) {
        Type::Tuple(tuple) if tuple.elems.is_empty() => errors.at(ty, NOTHING),
        Type::ImplTrait(_) => errors.at(ty, "with `publish` the returned type has to be named"),
        _ => match wrapper(ty) {
            Some(("Outcome", _)) => errors.at(ty, format!("{OUTCOME}{}", params::YOURS)),
            Some(("Vec", Some(inner))) if is_u8(inner) => errors.at(ty, BYTES),
            Some(("Bytes", _)) => errors.at(ty, format!("{RAW}{}", params::YOURS)),
            Some((_, Some(inner))) => something(inner, errors),
            _ => {}
        },
    }
}

fn is_u8(ty: &Type) -> bool {
    matches!(params::ungrouped(ty), Type::Path(path) if path.path.is_ident("u8"))
}

/// Tells the subscriber where it publishes. So the start can refuse a name that is no literal.
pub(super) fn publishes(queue: &TokenStream) -> TokenStream {
    quote_spanned!(at(queue)=> .publishes(|| ::outbox::__private::returned::queue(&#queue)))
}

/// Turns the call into a result, spanned on the returned type.
pub(super) fn expand(
    output: &ReturnType,
    call: &TokenStream,
    ctx: &Ident,
    queue: &TokenStream,
) -> TokenStream {
    match output {
        // Refused by `check`.
        ReturnType::Default => TokenStream::new(),
        ReturnType::Type(_, ty) => {
            let published = unwrap(ty, call, ctx, queue);
            quote_spanned!(at(ty)=> ::outbox::__private::returned::published(#published, &#ctx))
        }
    }
}

/// Turns the call of a handler of batches into the result of each message.
pub(super) fn expand_batch(
    output: &ReturnType,
    call: &TokenStream,
    ctx: &Ident,
    answered: &Ident,
    queue: &TokenStream,
) -> TokenStream {
    // Refused by `check`.
    let ReturnType::Type(_, ty) = output else { return TokenStream::new() };
    let Some(each) = of_each(ty) else { return TokenStream::new() };
    let inner = Ident::new("__outbox_returned", Span::mixed_site());
    let one = unwrap(each, &quote_spanned!(at(each)=> #inner), ctx, queue);
    let fallible = matches!(wrapper(ty), Some(("Result", _)));
    let helper = Ident::new(if fallible { "each_of" } else { "each" }, at(ty));
    quote_spanned!(at(ty)=>
        ::outbox::__private::batch::#helper(#answered, #call, |#ctx, #inner| #one))
}

fn unwrap(ty: &Type, value: &TokenStream, ctx: &Ident, queue: &TokenStream) -> TokenStream {
    let span = at(ty);
    let inner = Ident::new("__outbox_returned", Span::mixed_site());
    let each = |ty: &Type| unwrap(ty, &quote_spanned!(at(ty)=> #inner), ctx, queue);
    match wrapper(ty) {
        Some(("Result", Some(ty))) => {
            let each = each(ty);
            quote_spanned!(span=> ::outbox::__private::returned::result(#value, |#inner| #each))
        }
        Some(("Option", Some(ty))) => {
            let each = each(ty);
            quote_spanned!(span=> ::outbox::__private::returned::option(#value, |#inner| #each))
        }
        Some(("Vec", Some(ty))) => {
            let each = each(ty);
            quote_spanned!(span=> ::outbox::__private::returned::vec(#value, |#inner| #each))
        }
        Some(("Outgoing", None)) => {
            quote_spanned!(span=> ::outbox::__private::returned::outgoing(&#ctx, #value))
        }
        _ => {
            let queue = quote_spanned!(at(queue)=> &#queue);
            quote_spanned!(span=> {
                const _: () = {
                    use ::outbox::__private::returned::NoWrapper as _;
                    ::core::assert!(!::outbox::__private::returned::Named::<#ty>::WRAPS, #RENAMED);
                };
                ::outbox::__private::returned::value::<#ty, _>(&#ctx, #queue, &#value)
            })
        }
    }
}

/// The name of a type that has a meaning here, and what it wraps.
fn wrapper(ty: &Type) -> Option<(&'static str, Option<&Type>)> {
    let last = params::last(ty)?;
    let known = ["Result", "Option", "Vec", "Outgoing", "Outcome", "Bytes"];
    let name = known.into_iter().find(|name| last.ident == name)?;
    Some((name, params::arguments(last).next()))
}
