//! `retry = ..`: a built-in strategy in short form, or any expression.

mod params;
mod strategies;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprCall, Path};

use self::strategies::{STRATEGIES, Strategy};
use crate::errors::Errors;
use crate::{literal, suggest};

/// The value as an expression of a type that implements `RetryStrategy`.
pub(super) fn check(value: &Expr, errors: &mut Errors) -> TokenStream {
    match literal::peel(value) {
        Expr::Path(path) => bare(&path.path, value, errors),
        Expr::Call(call) => short_form(call, value, errors),
        Expr::Array(_) => {
            errors.at(value, "`retry` is a strategy; for a list of delays write `Delays([..])`");
            TokenStream::new()
        }
        _ if literal::is_literal(value) => {
            errors.at(value, format!("`retry` is a strategy, as in `{}`", STRATEGIES[0].example));
            TokenStream::new()
        }
        _ => value.to_token_stream(),
    }
}

fn bare(path: &Path, value: &Expr, errors: &mut Errors) -> TokenStream {
    if path.is_ident("none") || path.is_ident("None") {
        errors.at(path, "`retry` is a strategy; for no retry at all write `NoRetry`");
        return TokenStream::new();
    }
    let Some(strategy) = find(path) else { return value.to_token_stream() };
    let found = known(path, strategy);
    match strategy.name {
        "Exponential" => {
            quote_spanned!(Span::mixed_site()=> <#found as ::core::default::Default>::default())
        }
        "NoRetry" => found,
        _ => {
            let Strategy { name, example, .. } = strategy;
            errors.at(path, format!("`{name}` needs arguments, as in `{example}`"));
            TokenStream::new()
        }
    }
}

fn short_form(call: &ExprCall, value: &Expr, errors: &mut Errors) -> TokenStream {
    let Expr::Path(function) = literal::peel(&call.func) else { return value.to_token_stream() };
    if let Some(strategy) = find(&function.path) {
        return params::read(strategy, &function.path, call, errors);
    }
    // `name = value` in a call means nothing in Rust, so it is no call of another fn.
    if call.args.iter().any(|arg| matches!(arg, Expr::Assign(_))) {
        let names = STRATEGIES.map(|strategy| strategy.name);
        let written = function.path.to_token_stream().to_string().replace(' ', "");
        let kind = ("strategy", "strategies");
        errors.at(&function.path, suggest::unknown(kind, &written, &names));
    }
    value.to_token_stream()
}

/// The built-in strategy that a path names: `Linear`, `retry::Linear` or
/// `outbox::retry::Linear`, but not `crate::retry::Linear`.
fn find(path: &Path) -> Option<&'static Strategy> {
    let is_in = |module: &str| path.segments.first().is_some_and(|first| first.ident == module);
    let mut segments = path.segments.iter().rev();
    let name = &segments.next()?.ident;
    let ours = segments.next().is_none_or(|parent| parent.ident == "retry")
        && !["crate", "self", "super"].into_iter().any(is_in);
    STRATEGIES.iter().find(|strategy| ours && name == strategy.name)
}

/// The type of the strategy. A longer path stays as the user wrote it, so that the import behind
/// it is used.
fn known(path: &Path, strategy: &Strategy) -> TokenStream {
    if path.get_ident().is_none() {
        return path.to_token_stream();
    }
    let name = Ident::new(strategy.name, Span::mixed_site().located_at(path.span()));
    quote_spanned!(name.span()=> ::outbox::retry::#name)
}
