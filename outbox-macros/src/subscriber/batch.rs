//! `batch = 100`: a handler of several messages at once.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::{FnArg, GenericArgument, PathArguments, Type};

use super::expand::{at, located, returned_type};
use super::function::Function;
use super::params::{self, Param, last_segment};
use crate::errors::Errors;

/// Extractors that are about one delivery.
const OF_ONE: [&str; 3] = ["Context", "Headers", "Publisher"];

/// The parameters, where the first is `Vec<T>` or `Batch<T>`.
pub(super) fn check<'a>(
    function: &'a Function,
    option: &Ident,
    publish: bool,
    errors: &mut Errors,
) -> Vec<Param<'a>> {
    if function.sig.asyncness.is_none() {
        errors.at(function.sig.fn_token, "a handler of batches is an `async fn`; add `async`");
    }
    if publish {
        let why = "a handler of batches has no message to publish for each; collect them on the \
                   items of a `Batch<T>`: `item.context.publisher().collect(..)`";
        errors.at(option, why);
    }
    let mut inputs = function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&*typed.ty),
        FnArg::Receiver(_) => None,
    });
    let Some(first) = inputs.next() else { return Vec::new() };
    let Some(message) = message(first) else {
        errors.at(first, "with `batch` the first parameter is `Vec<T>` or `Batch<T>`");
        return Vec::new();
    };
    params::inside(message, errors);
    let batch = Param::Batch { whole: first, message };
    let others = inputs.map(|ty| {
        let name = last_segment(ty);
        if let Some(name) = OF_ONE.iter().find(|of_one| name.as_deref() == Some(**of_one)) {
            let instead = "take `Batch<T>`: each of its items has a `context`";
            errors.at(ty, format!("a batch has no single `{name}`; {instead}"));
        }
        params::other(ty, errors)
    });
    std::iter::once(batch).chain(others).collect()
}

/// The `T` of `Vec<T>` and `Batch<T>`.
fn message(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = params::ungrouped(ty) else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Vec" && last.ident != "Batch" {
        return None;
    }
    match &last.arguments {
        PathArguments::AngleBracketed(given) => given.args.iter().find_map(|arg| match arg {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        }),
        _ => None,
    }
}

/// The closure that decodes the messages, makes the other arguments and calls the
/// fn.
pub(super) fn handler(
    function: &Function,
    whole: &Type,
    message: &Type,
    params: &[Param<'_>],
) -> TokenStream {
    let site = Span::mixed_site();
    let name = located(&function.sig.ident);
    let [ctx, decoded, answered] = ["__outbox_ctx", "__outbox_decoded", "__outbox_answered"]
        .map(|name| Ident::new(name, site));
    let locals: Vec<_> =
        (0..params.len()).map(|at| format_ident!("__outbox_{at}", span = site)).collect();
    let argument = if last_segment(whole).as_deref() == Some("Batch") {
        quote_spanned!(site=> ::outbox::Batch<_>)
    } else {
        quote_spanned!(site=> ::std::vec::Vec<_>)
    };
    let first = &locals[0];
    let others = params.iter().zip(&locals).filter_map(|(param, local)| match param {
        Param::Extractor(ty) => {
            let extract = quote_spanned!(at(ty)=> ::outbox::__private::extract::<#ty>(&#ctx));
            Some(quote_spanned! {site=>
                let #local = match #extract.await {
                    ::core::result::Result::Ok(made) => made,
                    ::core::result::Result::Err(error) => return #answered.refused(&error),
                };
            })
        }
        _ => None,
    });
    let returned = returned_type(&function.sig.output);
    let span = at(&returned);
    let outcomes = quote_spanned!(span=> ::outbox::__private::batch::outcomes::<#returned>());
    let decode = quote_spanned!(at(message)=> ::outbox::__private::batch::decode::<#message>(#ctx));
    let run = quote_spanned! {name.span()=> async move {
        let #decoded = #decode;
        let #ctx = #decoded.first();
        let (#first, #answered) = #decoded.split::<#argument>();
        let ::core::option::Option::Some(#ctx) = #ctx else { return #answered.results(()) };
        #(#others)*
        #outcomes(#answered, #name(#(#locals),*).await)
    }};
    let deliveries = quote_spanned!(site=> ::std::vec::Vec<::outbox::Context>);
    quote_spanned!(site=> |#ctx: #deliveries| #run)
}
