//! The attribute of a variant: what its failure means.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Attribute, Expr, ExprAssign, Meta, MetaList, Variant};

use crate::errors::Errors;
use crate::{duration, suggest};

const VERDICTS: [&str; 3] = ["retry", "reject", "snooze"];
const MISSING: &str = "what does this failure mean? Give it `#[retry]`, \
                       `#[retry(after = \"5m\")]`, `#[reject]` or `#[snooze(\"1m\")]`";

pub(super) fn is_verdict(attr: &Attribute) -> bool {
    VERDICTS.iter().any(|name| attr.path().is_ident(name))
}

/// The verdict of a variant as an expression. `None` after a mistake.
pub(super) fn read(variant: &Variant, errors: &mut Errors) -> Option<TokenStream> {
    let mut given = variant.attrs.iter().filter(|attr| is_verdict(attr));
    let Some(verdict) = given.next() else {
        errors.at(&variant.ident, MISSING);
        return None;
    };
    if let Some(second) = given.next() {
        errors.at(second, "a variant has one verdict; remove this one or the other");
        return None;
    }
    let name = verdict.path().get_ident()?;
    match (name.to_string().as_str(), &verdict.meta) {
        ("retry", Meta::Path(_)) => Some(variant_of("Retry", name)),
        ("retry", Meta::List(list)) => retry_after(name, list, errors),
        ("reject", Meta::Path(_)) => Some(variant_of("Reject", name)),
        ("snooze", Meta::List(list)) => snooze(name, list, errors),
        (_, meta) => {
            errors.at(meta, format!("write {}", example(name)));
            None
        }
    }
}

fn example(name: &Ident) -> &'static str {
    match name.to_string().as_str() {
        "reject" => "`#[reject]` alone; the text comes from the error itself",
        "snooze" => "`#[snooze(\"1m\")]`, with the time until the message is due again",
        _ => "`#[retry]`, or `#[retry(after = \"5m\")]`",
    }
}

fn retry_after(name: &Ident, list: &MetaList, errors: &mut Errors) -> Option<TokenStream> {
    if let Ok(Expr::Assign(ExprAssign { left, right, .. })) = list.parse_args::<Expr>()
        && let Expr::Path(path) = &*left
        && let Some(parameter) = path.path.get_ident()
    {
        if parameter == "after" {
            let delay = duration::check(parameter, &right, errors);
            return Some(with_delay("RetryAfter", name, &delay));
        }
        let kind = ("parameter", "parameters");
        errors.at(parameter, suggest::unknown(kind, &parameter.to_string(), &["after"]));
        return None;
    }
    errors.at(inside(list), format!("write {}", example(name)));
    None
}

fn snooze(name: &Ident, list: &MetaList, errors: &mut Errors) -> Option<TokenStream> {
    match list.parse_args::<Expr>() {
        Ok(value) if !matches!(value, Expr::Assign(_)) => {
            let delay = duration::check(name, &value, errors);
            Some(with_delay("Snooze", name, &delay))
        }
        _ => {
            errors.at(inside(list), format!("write {}", example(name)));
            None
        }
    }
}

/// The content of the parentheses, or the whole if they are empty.
fn inside(list: &MetaList) -> TokenStream {
    if list.tokens.is_empty() { list.to_token_stream() } else { list.tokens.clone() }
}

fn variant_of(variant: &str, name: &Ident) -> TokenStream {
    let span = Span::mixed_site().located_at(name.span());
    let variant = Ident::new(variant, span);
    quote_spanned!(span=> ::outbox::Verdict::#variant)
}

fn with_delay(variant: &str, name: &Ident, delay: &TokenStream) -> TokenStream {
    let verdict = variant_of(variant, name);
    quote_spanned!(Span::mixed_site()=> #verdict(#delay))
}
