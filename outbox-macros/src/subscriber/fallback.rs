//! The code beside the fn if something is wrong. It is enough for the uses of the fn elsewhere to
//! be no further errors.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::FnArg;

use super::expand::beside;
use super::function::Function;

/// The fn, the errors, and `name::subscriber()` without a body.
pub(super) fn function(function: &Function, error: &syn::Error) -> TokenStream {
    let errors = error.to_compile_error();
    let item = &function.item;
    // A method is in an `impl`, where no type may be. A second attribute brings its own type.
    let method = function.sig.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_)));
    let stub = (!method && function.second_attribute().is_none())
        .then(|| beside(function, &quote_spanned!(Span::mixed_site()=> ::core::unimplemented!())));
    quote_spanned! {Span::mixed_site()=>
        #item
        #errors
        #stub
    }
}

/// An item that is no fn, and the error.
pub(super) fn item(item: &TokenStream, error: &syn::Error) -> TokenStream {
    let error = error.to_compile_error();
    quote_spanned!(Span::mixed_site()=> #item #error)
}
