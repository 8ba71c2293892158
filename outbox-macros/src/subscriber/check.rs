//! What a fn must be to be a handler.

use syn::{Attribute, FnArg, ReturnType, Safety, Type};

use super::batch;
use super::function::Function;
use super::options::Options;
use super::params::{self, Param};
use crate::errors::Errors;

pub(super) fn function<'a>(
    function: &'a Function,
    options: &Options,
    errors: &mut Errors,
) -> Vec<Param<'a>> {
    attribute_twice(function, errors);
    signature(function, errors);
    if !concrete(function, errors) {
        return Vec::new();
    }
    let sig = &function.sig;
    if sig.inputs.is_empty() {
        errors.at(
            &sig.ident,
            "a handler takes the payload; add a parameter for it, such as `_: &[u8]`",
        );
    }
    for cfg in sig.inputs.iter().filter_map(cfg) {
        errors.at(cfg, "a parameter of a handler cannot have a `cfg`; put it on the fn");
    }
    if options.batch && sig.receiver().is_none() {
        return batch::check(function, errors);
    }
    let alone = sig.inputs.len() == 1;
    let params = sig.inputs.iter().enumerate().filter_map(|(at, input)| match input {
        FnArg::Receiver(receiver) => {
            errors.at(receiver, "a handler is a free fn, not a method; move it out of the `impl`");
            None
        }
        FnArg::Typed(typed) => Some(if at == 0 {
            params::payload(&typed.ty, alone, errors)
        } else {
            params::other(&typed.ty, errors)
        }),
    });
    params.collect()
}

fn cfg(input: &FnArg) -> Option<&Attribute> {
    let FnArg::Typed(typed) = input else { return None };
    typed.attrs.iter().find(|attr| attr.path().is_ident("cfg"))
}

/// Invariant: under `AckFirst` there is no ack left that a transaction could commit.
pub(super) fn transaction(options: &Options, params: &[Param<'_>], errors: &mut Errors) {
    for param in params.iter().filter(|_| options.acked_first) {
        if let Param::Extractor(ty) = param
            && params::last_segment(ty).as_deref() == Some("Tx")
            && params::is_generic(ty)
        {
            let why = "`AckFirst` has acked before there is a transaction to take; remove `Tx` or \
                       the `ack` policy";
            errors.at(ty, format!("{why}{}", params::YOURS));
        }
    }
}

fn attribute_twice(function: &Function, errors: &mut Errors) {
    if let Some(second) = function.second_attribute() {
        errors.at(
            second,
            "a fn has one `#[subscriber]`; several queues go into one array, as in `[\"a\", \"b\"]`",
        );
    }
}

fn signature(function: &Function, errors: &mut Errors) {
    let sig = &function.sig;
    if let Some(constant) = sig.constness {
        errors.at(constant, "a handler is an `async fn` or a plain `fn`; remove `const`");
    }
    if let Safety::Unsafe(token) = &sig.safety {
        errors.at(token, "a handler is called by the app; remove `unsafe`");
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "a handler is called by the app; remove `extern`");
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(variadic, "a handler has a fixed list of parameters");
    }
    if let ReturnType::Type(_, ty) = &sig.output
        && let Type::Never(never) = &**ty
    {
        errors.at(never, "a handler that never returns is never done; return `()`");
    }
}

fn concrete(function: &Function, errors: &mut Errors) -> bool {
    let generics = &function.sig.generics;
    if !generics.params.is_empty() {
        errors.at(generics, "a handler is one concrete fn; remove the generics");
    } else if let Some(clause) = &generics.where_clause {
        errors.at(clause, "a handler is one concrete fn; remove the `where`");
    }
    generics.params.is_empty() && generics.where_clause.is_none()
}
