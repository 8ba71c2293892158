//! What stands beside the fn when something is wrong: enough that its uses
//! elsewhere are no further errors.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::FnArg;

use super::expand::beside;
use super::function::Function;

/// The fn, the errors, and `name::subscriber()` without a body.
pub(super) fn function(function: &Function, error: &syn::Error) -> TokenStream {
    let errors = error.to_compile_error();
    let item = &function.item;
    // A method stands in an `impl`, where no type may; a second attribute brings
    // its own.
    let method = function.sig.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_)));
    let stub = (!method && function.second_attribute().is_none())
        .then(|| beside(function, &quote_spanned!(Span::mixed_site()=> ::core::unimplemented!())));
    quote_spanned! {Span::mixed_site()=>
        #item
        #errors
        #stub
    }
}

/// The item, which is no fn, and the error.
pub(super) fn item(item: &TokenStream, error: &syn::Error) -> TokenStream {
    let error = error.to_compile_error();
    quote_spanned!(Span::mixed_site()=> #item #error)
}
