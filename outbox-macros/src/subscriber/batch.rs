//! `batch = 100`: a handler of several messages at once.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::{FnArg, Type};

use super::expand::returned_type;
use super::function::Function;
use super::params::{self, Param, last_segment};
use super::returned;
use crate::errors::Errors;
use crate::located::{at, located};

/// Extractors that are about one delivery.
const OF_ONE: [&str; 3] = ["Context", "Headers", "Publisher"];

const OF_RUN: &str = "this is made from one message, but only once for a whole batch: take `Batch<T>`, \
    where each item has a `context`, or set `FromContext::SAME_FOR_ALL` if it is the same for all";

/// The parameters of a handler whose first one is `Vec<T>` or `Batch<T>`.
pub(super) fn check<'a>(function: &'a Function, errors: &mut Errors) -> Vec<Param<'a>> {
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
            errors.at(ty, format!("a batch has no single `{name}`; {instead}{}", params::YOURS));
        }
        params::other(ty, errors)
    });
    std::iter::once(batch).chain(others).collect()
}

/// The `T` of `Vec<T>` and `Batch<T>`.
fn message(ty: &Type) -> Option<&Type> {
    let last = params::last(ty)?;
    let is_known = last.ident == "Vec" || last.ident == "Batch";
    params::arguments(last).next().filter(|_| is_known)
}

/// The closure that decodes the messages, makes the other arguments and calls the fn.
pub(super) fn handler(
    function: &Function,
    whole: &Type,
    message: &Type,
    params: &[Param<'_>],
    publish: Option<&TokenStream>,
) -> TokenStream {
    let site = Span::mixed_site();
    let name = located(&function.sig.ident);
    let [ctx, of, decoded, answered, made] = ["ctx", "of", "decoded", "answered", "made"]
        .map(|name| format_ident!("__outbox_{name}", span = site));
    let locals: Vec<_> =
        (0..params.len()).map(|at| format_ident!("__outbox_{at}", span = site)).collect();
    let argument = if last_segment(whole).as_deref() == Some("Batch") {
        quote_spanned!(site=> ::outbox::Batch<_>)
    } else {
        quote_spanned!(site=> ::std::vec::Vec<_>)
    };
    let plain = function.sig.asyncness.is_none();
    let refused = if plain {
        quote_spanned!(site=> ::outbox::__private::batch::refused(&#ctx, &#made))
    } else {
        quote_spanned!(site=> #decoded.refused(&#made))
    };
    let others: TokenStream = params
        .iter()
        .zip(&locals)
        .filter_map(|(param, local)| {
            let Param::Extractor(ty) = param else { return None };
            let extract = quote_spanned!(at(ty)=> ::outbox::__private::extract::<#ty>(&#of));
            Some(quote_spanned! {site=>
                let #local = match #extract.await {
                    ::core::result::Result::Ok(#made) => #made,
                    ::core::result::Result::Err(#made) => return #refused,
                };
            })
        })
        .collect();
    let of_run = params.iter().filter_map(|param| {
        let Param::Extractor(ty) = param else { return None };
        Some(quote_spanned! {at(ty)=>
            const _: () = ::core::assert!(<#ty as ::outbox::FromContext>::SAME_FOR_ALL, #OF_RUN);
        })
    });
    let of_run: TokenStream = of_run.collect();
    let decode = if params::is_bytes(message) {
        quote_spanned!(at(message)=> ::outbox::__private::batch::bytes(#ctx))
    } else {
        quote_spanned!(at(message)=> ::outbox::__private::batch::decode::<#message>(#ctx))
    };
    let first = &locals[0];
    let split = quote_spanned! {site=>
        let (#first, #answered) = match #decoded.split::<#argument>() {
            ::core::result::Result::Ok(#made) => #made,
            ::core::result::Result::Err(#made) => return #made,
        };
    };
    let ended = |waits: Option<TokenStream>| {
        let call = quote_spanned!(site=> #name(#(#locals),*) #waits);
        if let Some(queue) = publish {
            return returned::expand_batch(&function.sig.output, &call, &ctx, &answered, queue);
        }
        let returned = returned_type(&function.sig.output);
        let outcomes = quote_spanned!(at(&returned)=>
            ::outbox::__private::batch::outcomes::<#returned>());
        quote_spanned!(site=> #outcomes(#answered, #call))
    };
    let body = if plain {
        let first_of = (!others.is_empty()).then(|| {
            quote_spanned! {site=>
                let ::core::option::Option::Some(#of) =
                    ::outbox::__private::batch::first_of(&#ctx)
                else {
                    return ::std::vec::Vec::new();
                };
            }
        });
        let ended = ended(None);
        // The thread decodes the messages: they may be large.
        quote_spanned! {site=>
            #first_of
            #others
            ::outbox::__private::batch::blocking(#ctx, move |#ctx| {
                let #decoded = #decode;
                #split
                #ended
            })
            .await
        }
    } else {
        let first_of = (!others.is_empty()).then(|| {
            quote_spanned! {site=>
                let ::core::option::Option::Some(#of) = #decoded.first() else {
                    return #decoded.results();
                };
            }
        });
        let ended = ended(Some(quote_spanned!(site=> .await)));
        // What the others waited for may have taken too long for some messages.
        quote_spanned!(site=> let #decoded = #decode; #first_of #others #split #ended)
    };
    // A future that is not `Send` is reported at this block.
    let run = quote_spanned!(name.span()=> async move { #of_run #body });
    let deliveries = quote_spanned!(site=> ::std::vec::Vec<::outbox::Context>);
    quote_spanned!(site=> |#ctx: #deliveries| #run)
}
