//! The code beside the fn if nothing is wrong.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::ext::IdentExt;
use syn::{GenericArgument, PathArguments, ReturnType, Type};

use super::batch;
use super::function::Function;
use super::options::{Call, Options};
use super::params::{Param, is_bytes};
use super::returned;
use crate::located::{at, located};

pub(super) fn expand(
    function: &Function,
    queues: Option<&TokenStream>,
    options: &Options,
    params: &[Param<'_>],
) -> TokenStream {
    let site = Span::mixed_site();
    let registered = located(&function.sig.ident);
    let cfgs = function.cfgs();
    let item = &function.item;
    let beside = beside(function, &subscriber(function, queues, options, params));
    quote_spanned! {site=>
        #item
        #beside
        #(#cfgs)*
        ::outbox::__private::inventory::submit! {
            ::outbox::__private::Registered(#registered::subscriber)
        }
    }
}

/// A type with the name of the fn, which has `subscriber()`. A struct with braces has no
/// constructor that would clash with the fn.
pub(super) fn beside(function: &Function, body: &TokenStream) -> TokenStream {
    let name = located(&function.sig.ident);
    let (vis, cfgs) = (&function.vis, function.cfgs());
    let plain = function.sig.ident.unraw();
    let about = format!("The handler `{plain}` as a subscriber.");
    let make = format!("The subscriber whose handler is `{plain}`.");
    let (allowed, hidden) = (function.allowed(), function.hidden());
    quote_spanned! {Span::mixed_site()=>
        #(#cfgs)*
        #[doc = #about]
        #hidden
        #[non_exhaustive]
        #vis struct #name {}

        #(#cfgs)*
        impl #name {
            #[doc = #make]
            #[must_use]
            #allowed
            #vis fn subscriber() -> ::outbox::Subscriber {
                #body
            }
        }
    }
}

fn subscriber(
    function: &Function,
    queues: Option<&TokenStream>,
    options: &Options,
    params: &[Param<'_>],
) -> TokenStream {
    let name = function.sig.ident.unraw().to_string();
    let origin = origin(function.sig.ident.span());
    let queues = queues.map(|queues| read_by(params.first(), queues));
    let (of, handler) = if let Some(Param::Batch { whole, message }) = params.first() {
        let of = quote_spanned!(Span::mixed_site()=> batch::);
        (of, batch::handler(function, whole, message, params, options.publish.as_ref()))
    } else {
        (TokenStream::new(), handler(function, params, options.publish.as_ref()))
    };
    let checks = params.iter().filter_map(|param| match param {
        // Spanned like `extract`, so that the compiler reports a missing bound once.
        Param::Extractor(ty) => Some(quote_spanned!(at(ty)=> .requires::<#ty>())),
        _ => None,
    });
    let calls = options
        .calls
        .iter()
        .map(|Call { method, value }| quote_spanned!(method.span()=> .#method(#value)));
    let publishes = options.publish.as_ref().map(returned::publishes);
    let reads = params.first().map(reads);
    let blocks =
        function.sig.asyncness.is_none().then(|| quote_spanned!(Span::mixed_site()=> .blocks()));
    quote_spanned! {Span::mixed_site()=>
        ::outbox::__private::#of subscriber(#name, #origin, #queues, #handler)
            #blocks
            #reads
            #publishes
            #(#checks)*
            #(#calls)*
    }
}

/// The names of the queue. They compile only if the handler's payload is what the queue holds.
fn read_by(payload: Option<&Param<'_>>, queues: &TokenStream) -> TokenStream {
    let span = at(queues);
    let payload = match payload {
        Some(Param::Payload(ty) | Param::Batch { message: ty, .. }) if !is_bytes(ty) => {
            ty.to_token_stream()
        }
        Some(Param::Str(_)) => quote_spanned!(span=> ::core::primitive::str),
        _ => quote_spanned!(span=> [::core::primitive::u8]),
    };
    quote_spanned!(span=> ::outbox::__private::queues::<#payload, _>(&#queues))
}

/// The place of the fn. It is spanned on the fn's name alone: `line!` gives the line of the
/// outermost expansion, which would be that of the attribute.
fn origin(name: Span) -> TokenStream {
    let (module, file, line) = (
        quote_spanned!(name=> ::core::module_path!()),
        quote_spanned!(name=> ::core::file!()),
        quote_spanned!(name=> ::core::line!()),
    );
    quote_spanned! {Span::mixed_site()=>
        ::outbox::__private::Origin { module: #module, file: #file, line: #line }
    }
}

/// The closure that makes the arguments and calls the fn.
fn handler(
    function: &Function,
    params: &[Param<'_>],
    publish: Option<&TokenStream>,
) -> TokenStream {
    let site = Span::mixed_site();
    let name = located(&function.sig.ident);
    let ctx = Ident::new("__outbox_ctx", site);
    let locals: Vec<_> =
        (0..params.len()).map(|at| format_ident!("__outbox_{at}", span = site)).collect();
    let mut payload = TokenStream::new();
    let mut extractors = TokenStream::new();
    for (param, local) in params.iter().zip(&locals) {
        if let Param::Extractor(ty) = param {
            let value = quote_spanned!(at(ty)=> ::outbox::__private::extract::<#ty>(&#ctx).await?);
            extractors.extend(quote_spanned!(site=> let #local = #value;));
        } else {
            let value = argument(param, &ctx);
            payload.extend(quote_spanned!(site=> let #local = #value;));
        }
    }
    let waits = function.sig.asyncness.map(|_| quote_spanned!(site=> .await));
    let call = quote_spanned!(site=> #name(#(#locals),*) #waits);
    let ended = match publish {
        None => {
            let outcome = outcome(&function.sig.output);
            quote_spanned!(site=> #outcome(#call, &#ctx))
        }
        Some(queue) => returned::expand(&function.sig.output, &call, &ctx, queue),
    };
    let body = if function.sig.asyncness.is_some() {
        quote_spanned!(site=> #payload #extractors #ended)
    } else {
        // The thread decodes the payload: it may borrow, and may be large.
        quote_spanned! {name.span()=>
            #extractors
            ::outbox::__private::blocking(#ctx, move |#ctx| {
                #payload
                #ended
            }).await
        }
    };
    // A future that is not `Send` is reported at this block.
    let run = quote_spanned!(name.span()=> ::outbox::__private::run(async move { #body }));
    quote_spanned!(site=> |#ctx: ::outbox::Context| #run)
}

/// The payload as the parameter wants it.
fn argument(param: &Param<'_>, ctx: &Ident) -> TokenStream {
    match param {
        Param::Slice(ty) => quote_spanned!(at(ty)=> #ctx.payload()),
        Param::Bytes(ty) => quote_spanned!(at(ty)=> #ctx.payload_bytes()),
        Param::Str(ty) => quote_spanned!(at(ty)=> &*::outbox::__private::text(&#ctx)?),
        Param::Payload(ty) | Param::Extractor(ty) | Param::Batch { whole: ty, .. } => {
            quote_spanned!(at(ty)=> ::outbox::__private::payload::<#ty>(&#ctx)?)
        }
    }
}

/// Tells the subscriber what it decodes, so that rows can be tried without a run.
fn reads(payload: &Param<'_>) -> TokenStream {
    let site = Span::mixed_site();
    // Spanned like the argument, so that the compiler reports a missing bound once.
    let read = match payload {
        Param::Slice(_) | Param::Bytes(_) => quote_spanned!(site=> bytes),
        Param::Batch { message, .. } if is_bytes(message) => quote_spanned!(site=> bytes),
        Param::Str(_) => quote_spanned!(site=> reads_text),
        Param::Batch { message, .. } => quote_spanned!(at(message)=> batch::reads::<#message>),
        Param::Payload(ty) => {
            return quote_spanned! {at(ty)=>
                .reads(|__outbox_payload| ::core::result::Result::map(
                    ::outbox::__private::payload::<#ty>(__outbox_payload), ::core::mem::drop))
            };
        }
        Param::Extractor(_) => return TokenStream::new(),
    };
    quote_spanned!(site=> .reads(::outbox::__private::#read))
}

fn outcome(output: &ReturnType) -> TokenStream {
    let returned = returned_type(output);
    let span = at(&returned);
    quote_spanned!(span=> ::outbox::__private::outcome::<#returned>())
}

pub(super) fn returned_type(output: &ReturnType) -> TokenStream {
    match output {
        ReturnType::Default => quote_spanned!(Span::mixed_site()=> ()),
        ReturnType::Type(_, ty) => {
            let mut ty = ty.clone();
            infer_hidden(&mut ty);
            ty.to_token_stream()
        }
    }
}

/// Replaces every `impl Trait` by `_`: it cannot be named, but what it hides is inferred.
fn infer_hidden(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = Type::Verbatim(quote_spanned!(at(ty)=> _)),
        Type::Path(path) => {
            let arguments = path.path.segments.iter_mut().map(|segment| &mut segment.arguments);
            for arguments in arguments {
                let PathArguments::AngleBracketed(given) = arguments else { continue };
                given.args.iter_mut().for_each(|argument| {
                    if let GenericArgument::Type(ty) = argument {
                        infer_hidden(ty);
                    }
                });
            }
        }
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(infer_hidden),
        Type::Paren(inner) => infer_hidden(&mut inner.elem),
        Type::Group(inner) => infer_hidden(&mut inner.elem),
        _ => {}
    }
}
