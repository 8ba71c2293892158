//! `#[derive(Failure)]`: parse, check, expand, or fall back.

mod verdict;

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Fields, Variant};

use crate::errors::Errors;
use crate::located::{at, located};

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let arms = check(&input, &mut errors);
    match errors.finish() {
        Ok(()) => expand(&input, &arms),
        Err(error) => fallback(&input, &error),
    }
}

/// The arms of the two methods, as far as they are known.
fn check(input: &DeriveInput, errors: &mut Errors) -> Vec<Arm> {
    let Data::Enum(data) = &input.data else {
        let why = "`Failure` says what each variant of an enum means; this is not an enum";
        errors.at(&input.ident, why);
        return Vec::new();
    };
    if !input.generics.params.is_empty() {
        let why = "`Failure` is for one concrete type; remove the generics";
        errors.at(&input.generics, why);
    }
    if let Some(misplaced) = input.attrs.iter().find(|attr| verdict::is_verdict(attr)) {
        errors.at(misplaced, "this belongs on a variant");
    }
    data.variants.iter().filter_map(|variant| Arm::of(variant, errors)).collect()
}

struct Arm {
    pattern: TokenStream,
    name: String,
    verdict: TokenStream,
}

impl Arm {
    fn of(variant: &Variant, errors: &mut Errors) -> Option<Self> {
        let verdict = verdict::read(variant, errors)?;
        let name = &variant.ident;
        let pattern = match variant.fields {
            Fields::Named(_) => quote_spanned!(Span::mixed_site()=> Self::#name { .. }),
            Fields::Unnamed(_) => quote_spanned!(Span::mixed_site()=> Self::#name(..)),
            Fields::Unit => quote_spanned!(Span::mixed_site()=> Self::#name),
        };
        Some(Self { pattern, name: name.unraw().to_string(), verdict })
    }
}

fn expand(input: &DeriveInput, arms: &[Arm]) -> TokenStream {
    let name = located(&input.ident);
    let patterns: Vec<_> = arms.iter().map(|arm| &arm.pattern).collect();
    let names = arms.iter().map(|arm| &arm.name);
    let verdicts = arms.iter().map(|arm| &arm.verdict);
    // An enum that does not implement `Error` is reported at its name.
    let header = quote_spanned!(at(&name)=> impl ::outbox::Failure for #name);
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl ::outbox::__private::Derived for #name {}

        #[automatically_derived]
        #header {
            fn verdict(&self) -> ::outbox::Verdict {
                match *self {
                    #(#patterns => #verdicts,)*
                }
            }

            fn kind(&self) -> &'static ::core::primitive::str {
                match *self {
                    #(#patterns => #names,)*
                }
            }
        }

        ::outbox::__private::inventory::submit! {
            ::outbox::__private::KnownFailure(::outbox::__private::known_failure::<#name>)
        }
    }
}

/// The errors, and an implementation without bodies, so that uses elsewhere are no further errors.
/// A generic enum gets none: it would need bounds.
fn fallback(input: &DeriveInput, error: &syn::Error) -> TokenStream {
    let errors = error.to_compile_error();
    let name = located(&input.ident);
    let stub = input.generics.params.is_empty().then(|| {
        quote_spanned! {Span::mixed_site()=>
            #[automatically_derived]
            impl ::outbox::__private::Derived for #name {}

            #[automatically_derived]
            impl ::outbox::Failure for #name {
                fn verdict(&self) -> ::outbox::Verdict {
                    ::core::unimplemented!()
                }

                fn kind(&self) -> &'static ::core::primitive::str {
                    ::core::unimplemented!()
                }
            }
        }
    });
    quote_spanned!(Span::mixed_site()=> #errors #stub)
}
