//! Parses the content of the attribute's parentheses.

use proc_macro2::{Delimiter, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Lit, Token};

use super::options;
use crate::errors::Errors;
use crate::literal;

/// The queue and the options. Their values are not checked yet.
#[derive(Default)]
pub(super) struct Args {
    pub(super) queue: Option<Expr>,
    pub(super) settings: Vec<Setting>,
}

/// `name = value`.
pub(super) struct Setting {
    pub(super) name: Ident,
    pub(super) value: Expr,
}

/// The generated paths begin with `::outbox`.
const RENAMED: &str = "there is no option `crate`; if `outbox` has another name in your Cargo.toml, write \
                       `extern crate its_other_name as outbox;` in the root of your crate";

pub(super) fn parse(tokens: TokenStream, errors: &mut Errors) -> Args {
    let mut args = Args::default();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            argument(input, &mut args, errors)?;
            if !input.is_empty() && input.parse::<Option<Token![,]>>()?.is_none() {
                return Err(input.error("there is a `,` missing before this"));
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens.clone()) {
        errors.push(colon(tokens).unwrap_or(error));
    }
    // After another mistake, the queue may be missing because of that mistake.
    if args.queue.is_none() && errors.is_empty() {
        let message = "the queue is missing; it comes first, as in `#[subscriber(\"orders\")]`";
        errors.push(match args.settings.first() {
            Some(setting) => syn::Error::new_spanned(&setting.name, message),
            None => syn::Error::new(Span::call_site(), message),
        });
    }
    args
}

fn argument(input: ParseStream<'_>, args: &mut Args, errors: &mut Errors) -> syn::Result<()> {
    if input.peek(Token![crate]) && input.peek2(Token![=]) {
        errors.at(input.parse::<Token![crate]>()?, RENAMED);
        input.parse::<Token![=]>()?;
        input.parse::<Expr>()?;
        return Ok(());
    }
    if !(input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==])) {
        // It is left unparsed, so that the colon is the error.
        if input.peek(syn::Ident) && input.peek2(Token![:]) && !input.peek2(Token![::]) {
            return Err(input.error("expected `=`"));
        }
        positional(input.parse()?, args, errors);
        return Ok(());
    }
    let name: Ident = input.parse()?;
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        needs_value(&name, &name, errors);
        return Ok(());
    }
    let value = input.parse()?;
    if name == "queue" || name == "queues" {
        errors.at(
            name,
            "the queue is not a named option; write it first, as in `#[subscriber(\"orders\")]`",
        );
    } else {
        args.settings.push(Setting { name, value });
    }
    Ok(())
}

fn positional(value: Expr, args: &mut Args, errors: &mut Errors) {
    if let Some(name) = option_name(&value) {
        needs_value(name, &value, errors);
    } else if args.queue.is_some() {
        let text = matches!(literal::literal(&value), Some(Lit::Str(_)));
        errors.at(
            &value,
            if text || matches!(value, Expr::Array(_)) {
                "the queue is already given; several go into one array, as in `[\"a\", \"b\"]`"
            } else {
                "the options after the queue are named, as in `max_workers = 5`"
            },
        );
    } else if args.settings.is_empty() {
        args.queue = Some(value);
    } else {
        errors.at(&value, "the queue comes first, before the options");
    }
}

/// The name of an option that is written without `=`: `retry` or `retry(..)`.
fn option_name(value: &Expr) -> Option<&Ident> {
    let path = match literal::peel(value) {
        Expr::Path(path) => path,
        Expr::Call(call) => match literal::peel(&call.func) {
            Expr::Path(path) => path,
            _ => return None,
        },
        _ => return None,
    };
    path.path.get_ident().filter(|name| options::example(name).is_some())
}

fn needs_value(name: &Ident, tokens: impl ToTokens, errors: &mut Errors) {
    errors.at(
        tokens,
        match options::example(name) {
            Some(example) => format!("`{name}` needs a value, as in `{name} = {example}`"),
            None => options::unknown(name),
        },
    );
}

/// Finds the likeliest cause of a syntax error: `name: value`, here or in parentheses.
fn colon(tokens: TokenStream) -> Option<syn::Error> {
    let mut starts = true;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match (&token, tokens.peek()) {
            (TokenTree::Ident(name), Some(TokenTree::Punct(colon)))
                if starts && colon.as_char() == ':' && colon.spacing() == Spacing::Alone =>
            {
                return Some(syn::Error::new(
                    colon.span(),
                    format!("write `{name} = ..`, with `=`"),
                ));
            }
            (TokenTree::Group(group), _) if group.delimiter() == Delimiter::Parenthesis => {
                if let Some(error) = self::colon(group.stream()) {
                    return Some(error);
                }
            }
            _ => {}
        }
        starts = matches!(&token, TokenTree::Punct(comma) if comma.as_char() == ',');
    }
    None
}
