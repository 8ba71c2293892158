//! The options, and what their values may be.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Expr, Lit, Path};

use super::args::Setting;
use super::{queues, retry};
use crate::errors::Errors;
use crate::{duration, literal, suggest};

#[derive(Clone, Copy)]
enum Kind {
    Ack,
    Count,
    Duration,
    DurationOrZero,
    Publish,
    Retry,
}

/// Each option except `publish` is also a builder method of `Subscriber`.
const OPTIONS: [(&str, Kind); 12] = [
    ("retry", Kind::Retry),
    ("max_deliveries", Kind::Count),
    ("max_workers", Kind::Count),
    ("fetch_batch", Kind::Count),
    ("lease_ttl", Kind::Duration),
    ("min_poll", Kind::Duration),
    ("max_poll", Kind::Duration),
    ("ack", Kind::Ack),
    ("timeout", Kind::Duration),
    ("publish", Kind::Publish),
    ("batch", Kind::Count),
    ("batch_wait", Kind::DurationOrZero),
];

const POLICIES: [&str; 4] = ["NackOnError", "RejectOnError", "AckFirst", "Manual"];

/// The result of the settings.
pub(super) struct Options {
    pub(super) calls: Vec<Call>,
    /// The queue for what the handler returns.
    pub(super) publish: Option<TokenStream>,
    /// True if the option `batch` is given.
    pub(super) batch: bool,
    /// True if the policy is `AckFirst`, as far as the macro can see.
    pub(super) acked_first: bool,
}

/// A call of a builder method, which a setting becomes.
pub(super) struct Call {
    pub(super) method: Ident,
    pub(super) value: TokenStream,
}

/// A value to show in an error. `None` if there is no such option.
pub(super) fn example(name: &Ident) -> Option<&'static str> {
    Some(match kind(name)? {
        Kind::Ack => "Manual",
        Kind::Count => "5",
        Kind::Duration | Kind::DurationOrZero => "\"5s\"",
        Kind::Publish => "\"confirmed\"",
        Kind::Retry => "Exponential(initial = \"1s\")",
    })
}

/// Names of other libraries for the tries of a message. The nearest name here, `max_deliveries`,
/// counts claims.
const TRIES: [&str; 4] = ["max_retries", "max_attempts", "retries", "attempts"];

pub(super) fn unknown(name: &Ident) -> String {
    if TRIES.iter().any(|tries| name == tries) {
        return format!(
            "unknown option `{name}`; the retry strategy says how often a message is tried: `retry = \
             Exponential(initial = \"1s\", max_attempts = 5)`"
        );
    }
    suggest::unknown(("option", "options"), &name.to_string(), &OPTIONS.map(|(name, _)| name))
}

pub(super) fn check(settings: &[Setting], errors: &mut Errors) -> Options {
    let (mut calls, mut publish) = (Vec::new(), None);
    for (at, Setting { name, value }) in settings.iter().enumerate() {
        let Some(kind) = kind(name) else {
            errors.at(name, unknown(name));
            continue;
        };
        if settings[..at].iter().any(|earlier| earlier.name == *name) {
            errors.at(name, format!("`{name}` is given twice"));
            continue;
        }
        let value = match kind {
            Kind::Ack => ack(value, errors),
            Kind::Count => count(name, value, errors),
            Kind::Duration => duration::check(name, value, errors),
            Kind::DurationOrZero => duration::check_or_zero(name, value, errors),
            Kind::Retry => retry::check(value, errors),
            Kind::Publish => {
                publish = Some(queues::one(value, errors));
                continue;
            }
        };
        calls.push(Call { method: name.clone(), value });
    }
    let acked_first = acked_first(settings, errors);
    let named = |wanted| settings.iter().map(|setting| &setting.name).find(|name| *name == wanted);
    let batch = named("batch").is_some();
    if let (false, Some(wait)) = (batch, named("batch_wait")) {
        errors.at(wait, "`batch_wait` needs `batch`, as in `batch = 100`");
    }
    Options { calls, publish, batch, acked_first }
}

/// A number of at least 1.
pub(super) fn count(name: &Ident, value: &Expr, errors: &mut Errors) -> TokenStream {
    let valid = match literal::literal(value) {
        Some(Lit::Int(number)) => number.base10_parse::<u64>().is_ok_and(|number| number > 0),
        Some(_) => false,
        None => !literal::is_negative(value),
    };
    if !valid {
        errors.at(value, format!("`{name}` is a whole number of at least 1"));
    }
    value.to_token_stream()
}

fn ack(value: &Expr, errors: &mut Errors) -> TokenStream {
    let Expr::Path(path) = literal::peel(value) else {
        if literal::is_literal(value) {
            errors.at(value, format!("`ack` is one of {}", suggest::list(&POLICIES)));
        }
        return value.to_token_stream();
    };
    let is_const = |name: &Ident| !name.to_string().contains(char::is_lowercase);
    let Some(policy) = policy(&path.path).filter(|_| !path.path.get_ident().is_some_and(is_const))
    else {
        return value.to_token_stream();
    };
    if !POLICIES.iter().any(|name| policy == name) {
        let kind = ("ack policy", "policies");
        errors.at(policy, suggest::unknown(kind, &policy.to_string(), &POLICIES));
    }
    if path.path.get_ident().is_none() {
        return value.to_token_stream();
    }
    quote_spanned!(policy.span()=> ::outbox::AckPolicy::#policy)
}

/// The policy's name in `Manual`, `AckPolicy::Manual`, `outbox::AckPolicy::Manual`.
fn policy(path: &Path) -> Option<&Ident> {
    let mut segments = path.segments.iter().rev();
    let last = segments.next()?;
    let named = segments.next().is_none_or(|parent| parent.ident == "AckPolicy");
    named.then_some(&last.ident)
}

/// Invariant: under `AckFirst` the row is gone before a failure could ask for a retry, and before
/// the handler returns anything.
fn acked_first(settings: &[Setting], errors: &mut Errors) -> bool {
    let find = |wanted: &str| settings.iter().find(|setting| setting.name == wanted);
    let Some(ack) = find("ack") else { return false };
    let Expr::Path(path) = literal::peel(&ack.value) else { return false };
    if policy(&path.path).is_none_or(|policy| policy != "AckFirst") {
        return false;
    }
    if let Some(retry) = find("retry") {
        errors.at(&retry.name, "`AckFirst` never retries; remove `retry` or the `ack` policy");
    }
    if let Some(publish) = find("publish") {
        let why = "`AckFirst` has acked before there is anything to publish with the ack; remove \
                   `publish` or the `ack` policy";
        errors.at(&publish.name, why);
    }
    true
}

fn kind(name: &Ident) -> Option<Kind> {
    OPTIONS.iter().find(|(option, _)| name == option).map(|&(_, kind)| kind)
}
