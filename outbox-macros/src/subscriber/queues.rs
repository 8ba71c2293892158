//! The queue names, checked if they are written out.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Lit, LitStr};

use crate::errors::Errors;
use crate::literal;

/// The length of the column.
const MAX_CHARS: usize = 255;

pub(super) fn check(queue: &Expr, errors: &mut Errors) -> TokenStream {
    match literal::peel(queue) {
        Expr::Array(array) if array.elems.is_empty() => {
            errors.at(array, "the array names no queue");
        }
        Expr::Array(array) => {
            let mut seen = Vec::new();
            for queue in &array.elems {
                let Some(name) = name(queue, errors) else { continue };
                if seen.contains(&name.value()) {
                    errors.at(name, format!("the queue `{}` is named twice", name.value()));
                }
                seen.push(name.value());
            }
        }
        single => {
            name(single, errors);
        }
    }
    borrowable(queue)
}

/// The queue of `publish`: one name, or an expression that is a string.
pub(super) fn one(queue: &Expr, errors: &mut Errors) -> TokenStream {
    match literal::peel(queue) {
        Expr::Array(array) => {
            errors.at(
                array,
                "what a handler returns goes to one queue; for several, return `Outgoing`",
            );
        }
        single => {
            name(single, errors);
        }
    }
    borrowable(queue)
}

/// The expression so that an `&` can be put in front. In a sum, the `&` would belong to the first
/// term.
fn borrowable(queue: &Expr) -> TokenStream {
    let mut inner = queue;
    // The compiler does not see the groups of `macro_rules!` any more.
    while let Expr::Group(group) = inner {
        inner = &group.expr;
    }
    let binds = !matches!(inner, Expr::Binary(_) | Expr::Cast(_) | Expr::Range(_));
    if binds { queue.to_token_stream() } else { quote_spanned!(queue.span()=> (#queue)) }
}

/// The name, if it is a literal.
fn name<'a>(queue: &'a Expr, errors: &mut Errors) -> Option<&'a LitStr> {
    match literal::literal(queue) {
        Some(Lit::Str(text)) => {
            if let Some(wrong) = mistake(&text.value()) {
                errors.at(text, wrong);
            }
            Some(text)
        }
        Some(other) => {
            errors.at(other, "a queue is named by a string, as in \"orders\"");
            None
        }
        None => None,
    }
}

fn mistake(name: &str) -> Option<String> {
    let chars = name.chars().count();
    if name.is_empty() {
        Some("the name of a queue cannot be empty".into())
    } else if chars > MAX_CHARS {
        Some(format!("the name of a queue has at most {MAX_CHARS} characters; this has {chars}"))
    } else if name.contains('\0') {
        Some("the name of a queue cannot contain NUL".into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::mistake;

    #[test]
    fn length_is_counted_in_characters() {
        assert_eq!(mistake(&"é".repeat(255)), None);
        assert!(mistake(&"é".repeat(256)).is_some_and(|text| text.contains("256")));
    }
}
