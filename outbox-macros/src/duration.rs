//! Durations: `"1m 30s"` becomes a `Duration` at compile time.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Expr, Lit};

use crate::errors::Errors;
use crate::literal;

/// The value as an expression of type `Duration`. Zero is a mistake.
pub(crate) fn check(name: &Ident, value: &Expr, errors: &mut Errors) -> TokenStream {
    some(name, value, Duration::from_nanos(1), errors)
}

/// As [`check`], for options where zero means something: at once, or no wait.
pub(crate) fn check_or_zero(name: &Ident, value: &Expr, errors: &mut Errors) -> TokenStream {
    some(name, value, Duration::ZERO, errors)
}

fn some(name: &Ident, value: &Expr, least: Duration, errors: &mut Errors) -> TokenStream {
    let mistake = match literal::literal(value) {
        Some(Lit::Str(text)) => match read(&text.value()) {
            Ok(duration) if duration < least => format!("`{name}`: the duration is zero"),
            Ok(duration) => return tokens(duration, text.span()),
            Err(mistake) => format!("`{name}`: {mistake}"),
        },
        Some(Lit::Int(number)) => unquoted(name, number.base10_digits(), number.suffix(), least),
        Some(Lit::Float(number)) => unquoted(name, number.base10_digits(), number.suffix(), least),
        Some(_) => format!("`{name}` is a duration; write a string like \"5s\""),
        None if literal::is_negative(value) => unquoted(name, "5", "", least),
        None => return value.to_token_stream(),
    };
    errors.at(value, mistake);
    TokenStream::new()
}

fn read(text: &str) -> Result<Duration, String> {
    // `1 30s` would be 130 seconds.
    let (words, begins) = (text.split_whitespace(), |one: char| one.is_ascii_digit() || one == '.');
    let mut pairs = words.clone().zip(words.skip(1));
    let cut = pairs.find(|(one, next)| one.ends_with(begins) && next.starts_with(begins));
    if let Some((number, _)) = cut {
        return Err(format!("{number:?} has no unit; write one, as in \"1m 30s\""));
    }
    match humantime::parse_duration(text) {
        Ok(_) if text.contains('M') => Err(format!("{text:?} is in months; minutes are `m`")),
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!(
            "{text:?} is not a duration; write numbers with the units \
             `ms`, `s`, `m`, `h` or `d`, as in \"500ms\" or \"1m 30s\""
        )),
    }
}

/// To Rust, `5m` is a number with a suffix.
fn unquoted(name: &Ident, digits: &str, suffix: &str, least: Duration) -> String {
    let is_unit = !suffix.is_empty() && read(&format!("{digits}{suffix}")).is_ok();
    let (needs, unit) = if is_unit { ("quotes", suffix) } else { ("a unit", "s") };
    let written = format!("{digits}{unit}");
    let fits = read(&written).is_ok_and(|duration| duration >= least);
    let example = if fits { &written } else { "5s" };
    format!("`{name}` needs {needs}; write \"{example}\"")
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
        for text in ["", "5", "5 x", "-5s", "soon", "5M", "1h 1M", "1 30s", "99999999999999999999s"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_shown_with_its_unit() {
        let name = Ident::new("timeout", Span::call_site());
        let written =
            |digits, unit, least| unquoted(&name, digits, unit, Duration::from_nanos(least));
        assert!(written("30", "", 1).ends_with("a unit; write \"30s\""));
        assert!(written("0", "", 1).ends_with("write \"5s\""));
        assert!(written("0", "", 0).ends_with("write \"0s\""));
        assert!(written("500", "ms", 1).ends_with("quotes; write \"500ms\""));
        assert!(written("1.5", "h", 1).ends_with("write \"1.5h\""));
        assert!(written("30", "u64", 1).ends_with("a unit; write \"30s\""));
    }
}
