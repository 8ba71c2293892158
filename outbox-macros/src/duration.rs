//! Durations: `"1m 30s"` becomes a `Duration` when compiling.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Expr, Lit};

use crate::errors::Errors;
use crate::literal;

/// The value as an expression of type `Duration`.
pub(crate) fn check(name: &Ident, value: &Expr, errors: &mut Errors) -> TokenStream {
    let mistake = match literal::literal(value) {
        Some(Lit::Str(text)) => match read(&text.value()) {
            Ok(duration) => return tokens(duration, text.span()),
            Err(mistake) => format!("`{name}`: {mistake}"),
        },
        Some(Lit::Int(number)) => needs_unit(name, number.base10_digits()),
        Some(Lit::Float(number)) => needs_unit(name, number.base10_digits()),
        Some(_) => format!("`{name}` is a duration; write a string like \"5s\""),
        None if literal::is_negative(value) => needs_unit(name, "5"),
        None => return value.to_token_stream(),
    };
    errors.at(value, mistake);
    TokenStream::new()
}

fn read(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(_) if text.contains('M') => Err(format!("{text:?} is in months; minutes are `m`")),
        Ok(Duration::ZERO) => Err("the duration is zero".into()),
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!(
            "{text:?} is not a duration; write numbers with the units \
             `ms`, `s`, `m`, `h` or `d`, as in \"500ms\" or \"1m 30s\""
        )),
    }
}

fn needs_unit(name: &Ident, digits: &str) -> String {
    let written = format!("{digits}s");
    let example = if read(&written).is_ok() { &written } else { "5s" };
    format!("`{name}` needs a unit; write \"{example}\"")
}

fn tokens(duration: Duration, span: Span) -> TokenStream {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote_spanned!(span=> ::core::time::Duration::new(#secs, #nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_become_durations() {
        for (text, millis) in
            [("1s", 1000), ("500ms", 500), ("5m", 300_000), ("1m 30s", 90_000), ("1.5s", 1500)]
        {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "5 x", "-5s", "soon", "0s", "5M", "1h 1M", "99999999999999999999s"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_shown_with_its_unit() {
        let name = Ident::new("timeout", Span::call_site());
        assert!(needs_unit(&name, "30").ends_with("write \"30s\""));
        assert!(needs_unit(&name, "0").ends_with("write \"5s\""));
    }
}
