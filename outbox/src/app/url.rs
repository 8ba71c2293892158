//! Checks a PostgreSQL URL before the driver reads it. A password with a `/`, `?` or `#` in it
//! gives the URL another shape, and the driver's error would show parts of the password.

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::config::cause;
use crate::store::names::variable;

const MODES: &str =
    "none of `disable`, `allow`, `prefer`, `require`, `verify-ca` and `verify-full`";
const MODE: [&str; 2] = ["sslmode", "ssl-mode"];

/// No mistake repeats a part of the URL that may belong to a password.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, String> {
    let parts = Parts::of(url);
    if parts.cut_a_password() {
        return Err(no_url("an `@` follows what was read as its host"));
    }
    if parts.hosts().any(are_several) {
        return Err("`DATABASE_URL` names several hosts, but the driver takes only one; name \
             the one that takes writes"
            .into());
    }
    // The driver would ignore the wrong value, and connect without TLS where the server has none.
    if !parts.parameters().any(|(name, _)| MODE.contains(&name))
        && variable("PGSSLMODE").is_some_and(|mode| mode.parse::<PgSslMode>().is_err())
    {
        return Err(format!("`PGSSLMODE` is {MODES}"));
    }
    // In its place the driver would use 5432. Empty it means so, as for `psql`.
    if !parts.names_a_port()
        && variable("PGPORT").is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err())
    {
        return Err("`PGPORT` is not a port number".into());
    }
    without_unknown(url)
        .parse()
        .map_err(|error| wrong_parameter(url).unwrap_or_else(|| no_url(&cause(&error))))
}

fn no_url(why: &str) -> String {
    format!(
        "`DATABASE_URL` is not a PostgreSQL URL: {why}; write \
         `postgres://user:password@host/database`, and in a password `%2F` for `/`, \
         `%3F` for `?`, `%23` for `#`, `%40` for `@` and `%25` for `%`"
    )
}

/// A URL, taken apart as the driver does it.
struct Parts<'a> {
    authority: &'a str,
    path: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Self {
        let rest = url.split_once(':').map_or("", |(_, rest)| rest);
        let (authority, rest) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Self { authority, path, query, fragment }
    }

    fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.query.split('&').map(|one| one.split_once('=').unwrap_or((one, "")))
    }

    /// Whether an `@` stands where only a password that was cut in two puts one.
    fn cut_a_password(&self) -> bool {
        let bare = !self.authority.contains('@');
        let outside = |(name, value): (&str, &str)| {
            let may = matches!(name, "user" | "password" | "application_name");
            name.contains('@') || bare && !may && value.contains('@')
        };
        self.path.contains('@') || self.fragment.contains('@') || self.parameters().any(outside)
    }

    fn names_a_port(&self) -> bool {
        let host = self.authority.rsplit('@').next().unwrap_or_default();
        // An address in brackets has colons of its own.
        let behind = host.rsplit(']').next().unwrap_or_default();
        behind.split_once(':').is_some_and(|(_, port)| !port.is_empty())
            || self.parameters().any(|(name, _)| name == "port")
    }

    fn hosts(&self) -> impl Iterator<Item = &'a str> {
        let named = self.authority.rsplit('@').next();
        let more = self.parameters().filter(|(name, _)| matches!(*name, "host" | "hostaddr"));
        named.into_iter().chain(more.map(|(_, value)| value))
    }
}

/// Whether several hosts are named. A comma in the folder of a socket names no second host.
fn are_several(host: &str) -> bool {
    let host = host.to_ascii_uppercase();
    !host.starts_with('/')
        && !host.starts_with("%2F")
        && (host.contains(',') || host.contains("%2C"))
}

/// The URL without the parameters that the driver does not know. The driver would log them with
/// their values, and a value may be a password (`sslpassword`, or a mistyped name).
fn without_unknown(url: &str) -> String {
    const KNOWN: &[&str] = &[
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "statement-cache-capacity",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
        "options",
    ];
    let Some((place, parameters)) = url.split_once('?') else { return url.to_owned() };
    let (known, unknown): (Vec<_>, Vec<_>) = parameters.split('&').partition(|parameter| {
        let name = parameter.split(['=', '[', '%']).next().unwrap_or_default();
        name.is_empty() || KNOWN.contains(&name)
    });
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().filter_map(|one| one.split('=').next()).collect();
        let plain = |name: &&str| name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        // Otherwise the text behind the `?` may be the rest of a password, up to its `@`.
        let told = names.iter().all(plain) && !unknown.iter().any(|one| one.contains('@'));
        let names = if told { names.join(", ") } else { "not shown".into() };
        crate::telemetry::warn!(
            target: crate::telemetry::TARGET, names,
            "parameters of `DATABASE_URL` that the driver does not know are left out"
        );
    }
    [place, "?", &known.join("&")].concat()
}

/// The parameter of the URL whose value cannot be used. Each is read alone, because the driver's
/// error does not name the parameter, and repeats the value.
fn wrong_parameter(url: &str) -> Option<String> {
    const CHECKED: [(&str, &str); 5] = [
        (MODE[0], MODES),
        (MODE[1], MODES),
        ("hostaddr", "not an IP address"),
        ("port", "not a port number"),
        ("statement-cache-capacity", "not a number"),
    ];
    let (_, parameters) = url.split('#').next()?.split_once('?')?;
    parameters.split('&').find_map(|parameter| {
        let name = parameter.split('=').next()?;
        let (name, why) = CHECKED.iter().find(|(checked, _)| *checked == name)?;
        let alone = ["postgres://localhost?", parameter].concat();
        let wrong = alone.parse::<sqlx::postgres::PgConnectOptions>().is_err();
        wrong.then(|| format!("`{name}` of `DATABASE_URL` is {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_a_cut_password_or_of_several_hosts_may_stand_where_it_belongs() {
        for url in [
            "postgres://u:p%40s%2Fs@h/db",
            "postgres://u:p@s,s@h/db?sslmode=disable",
            "postgres://u:p@h/db?options=-csearch_path%3Da@b",
            "postgres://h/db?user=u@tenant&password=p@ss,word&application_name=a@b",
            "postgres:///db?host=/tmp/a,b",
            "postgres://%2Ftmp%2Fa%2Cb/db",
            "postgres://u@[::1]:5433/a,b",
        ] {
            assert!(options(url).is_ok(), "{url}");
        }
    }
}
