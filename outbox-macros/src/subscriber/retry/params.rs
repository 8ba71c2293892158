//! Reads the parameters of a built-in strategy.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Expr, ExprCall, Lit, LitFloat, Path};

use super::super::options;
use super::strategies::{Kind, LIMITS, Param, Strategy};
use crate::errors::Errors;
use crate::{duration, literal, suggest};

/// `Exponential(initial = "1s")` as calls of the builder.
pub(super) fn read(
    strategy: &'static Strategy,
    path: &Path,
    call: &ExprCall,
    errors: &mut Errors,
) -> TokenStream {
    if strategy.name == "NoRetry" {
        errors.at(call, "`NoRetry` takes no arguments; write it without parentheses");
        return TokenStream::new();
    }
    Reading { path, strategy, errors }.read(call)
}

/// The suffixes of a number that is a float.
const TYPES: [&str; 3] = ["", "f32", "f64"];

struct Reading<'a> {
    path: &'a Path,
    strategy: &'static Strategy,
    errors: &'a mut Errors,
}

impl Reading<'_> {
    fn read(mut self, call: &ExprCall) -> TokenStream {
        let mut given: Vec<(Ident, TokenStream)> = Vec::new();
        let mut misplaced = false;
        for (at, arg) in call.args.iter().enumerate() {
            let Some((param, value)) = self.param(at, arg) else {
                misplaced = true;
                continue;
            };
            match self.kind(&param) {
                None => {
                    // It may be meant as the parameter that is missing.
                    misplaced = true;
                    self.unknown(&param);
                }
                Some(_) if given.iter().any(|(earlier, _)| *earlier == param) => {
                    self.errors.at(arg_name(arg), format!("`{param}` is given twice"));
                }
                Some(kind) => {
                    let tokens = self.value(kind, &param, value);
                    given.push((param, tokens));
                }
            }
        }
        self.build(&given, misplaced)
    }

    /// The name and the value of one argument.
    fn param<'e>(&mut self, at: usize, arg: &'e Expr) -> Option<(Ident, &'e Expr)> {
        if let Expr::Assign(assign) = literal::peel(arg) {
            if let Expr::Path(path) = &*assign.left
                && let Some(name) = path.path.get_ident()
            {
                return Some((name.clone(), &assign.right));
            }
            self.errors.at(&assign.left, "the name of a parameter is one word");
            return None;
        }
        if let (0, true, Some((name, _))) =
            (at, self.strategy.positional, self.strategy.required.first())
        {
            return Some((Ident::new(name, Span::mixed_site()), arg));
        }
        let Strategy { name, example, .. } = self.strategy;
        self.errors.at(arg, format!("the parameters of `{name}` are named, as in `{example}`"));
        None
    }

    fn params(&self) -> impl Iterator<Item = &'static Param> {
        self.strategy.required.iter().chain(self.strategy.optional).chain(&LIMITS)
    }

    fn kind(&self, param: &Ident) -> Option<Kind> {
        self.params().find(|(name, _)| param == name).map(|&(_, kind)| kind)
    }

    fn unknown(&mut self, param: &Ident) {
        let names: Vec<_> = self.params().map(|&(name, _)| name).collect();
        let kind = format!("parameter of `{}`:", self.strategy.name);
        let message = if param == "max_retries" || param == "retries" {
            format!("unknown {kind} `{param}`; did you mean `max_attempts`, which counts all runs?")
        } else {
            suggest::unknown((&kind, "parameters"), &param.to_string(), &names)
        };
        self.errors.at(param, message);
    }

    fn value(&mut self, kind: Kind, param: &Ident, value: &Expr) -> TokenStream {
        match kind {
            Kind::Duration => duration::check(param, value, self.errors),
            Kind::DurationOrZero => duration::check_or_zero(param, value, self.errors),
            Kind::Durations => self.durations(param, value),
            Kind::Count => options::count(param, value, self.errors),
            Kind::Multiplier => {
                self.number(value, |number| number >= 1.0, "`multiplier` is a number of at least 1")
            }
            Kind::Jitter => self.number(
                value,
                |number| (0.0..=2.0).contains(&number),
                "`jitter` is a number from 0.0 to 2.0",
            ),
        }
    }

    fn durations(&mut self, param: &Ident, value: &Expr) -> TokenStream {
        match literal::peel(value) {
            Expr::Array(array) if !array.elems.is_empty() => {
                let check = |one| duration::check_or_zero(param, one, self.errors);
                let each: Vec<_> = array.elems.iter().map(check).collect();
                quote_spanned!(Span::mixed_site()=> [#(#each),*])
            }
            Expr::Array(_) => {
                let message = "`Delays` lists no delay; for no retry at all write `NoRetry`";
                self.errors.at(value, message);
                TokenStream::new()
            }
            _ if literal::is_literal(value) => {
                let message = "`Delays` takes a list, as in `Delays([\"1s\", \"10s\"])`";
                self.errors.at(value, message);
                TokenStream::new()
            }
            _ => value.to_token_stream(),
        }
    }

    fn number(&mut self, value: &Expr, valid: fn(f64) -> bool, rule: &str) -> TokenStream {
        let parsed: Option<f64> = match literal::literal(value) {
            // A unit, as in `1s`, comes as the suffix.
            Some(Lit::Int(number)) if TYPES.contains(&number.suffix()) => {
                number.base10_parse().ok()
            }
            Some(Lit::Float(number)) if TYPES.contains(&number.suffix()) => {
                number.base10_parse().ok()
            }
            None if !literal::is_negative(value) => return value.to_token_stream(),
            _ => None,
        };
        let Some(number) = parsed.filter(|&number| number.is_finite() && valid(number)) else {
            self.errors.at(value, rule);
            return TokenStream::new();
        };
        LitFloat::new(&format!("{number:?}"), Span::mixed_site()).into_token_stream()
    }

    fn build(self, given: &[(Ident, TokenStream)], misplaced: bool) -> TokenStream {
        let Self { path, strategy, errors } = self;
        let find = |param: &str| given.iter().find(|(name, _)| name == param);
        let missing = strategy.required.iter().find(|(param, _)| find(param).is_none());
        if let Some((param, _)) = missing
            && !misplaced
        {
            let Strategy { name, example, .. } = strategy;
            errors.at(path, format!("`{name}` needs `{param}`, as in `{example}`"));
        }
        let start = strategy.required.iter().filter_map(|(param, _)| find(param));
        let start = start.map(|(_, value)| value);
        let is_start = |name: &Ident| strategy.required.iter().any(|(param, _)| name == param);
        let rest = given.iter().filter(|(name, _)| !is_start(name));
        let rest = rest.map(|(name, value)| quote_spanned!(name.span()=> .#name(#value)));
        let known = super::known(path, strategy);
        quote_spanned!(Span::mixed_site()=> #known::new(#(#start),*) #(#rest)*)
    }
}

/// The user's token for a parameter that is given twice.
fn arg_name(arg: &Expr) -> &Expr {
    match literal::peel(arg) {
        Expr::Assign(assign) => &assign.left,
        other => other,
    }
}
