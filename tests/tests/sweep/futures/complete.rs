//! No future of the library is forgotten.

use std::collections::BTreeSet;
use std::path::Path;

use super::{app, broker, calls, handlers, store};

/// Those that no sweep calls, and why.
const ELSEWHERE: [(&str, &str); 3] = [
    ("cli/mod.rs run", "reads the arguments of its process, and then calls what is swept"),
    ("private/batch.rs blocking", "waits for what the other one does, which is swept"),
    ("store/postgres/connect.rs reach", "is the first thing that `App::start` does"),
];

#[test]
fn every_future_of_the_library_is_swept() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outbox/src");
    let mut found = BTreeSet::new();
    files(&source, &source, &mut |file, text| {
        found.extend(futures(file, text).into_iter().map(|name| format!("{file} {name}")));
    });
    assert!(found.len() > 60, "{found:#?}");
    let swept = calls::names().into_iter().chain(store::NAMES).chain(app::NAMES);
    let swept =
        swept.chain(broker::NAMES).chain(handlers::NAMES).chain(ELSEWHERE.map(|(name, _)| name));
    let swept: BTreeSet<String> = swept.map(str::to_owned).collect();
    let forgotten: Vec<_> = found.difference(&swept).collect();
    assert!(forgotten.is_empty(), "nobody drops {forgotten:#?}");
    let gone: Vec<_> = swept.difference(&found).collect();
    assert!(gone.is_empty(), "there is no such future any more: {gone:#?}");
}

/// Whose docs are for nobody, or say it of all methods at the head of their type.
const SAID_OTHERWISE: [&str; 5] = [
    "private/",
    "publish/publisher.rs",
    "store/postgres/connect.rs",
    "testing/broker.rs",
    "testing/mod.rs",
];
const HEADING: &str = "/// # Cancel safety";

#[test]
fn every_future_of_the_library_says_what_a_drop_of_it_does() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outbox/src");
    for file in ["publish/publisher.rs", "testing/broker.rs"] {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        let of_type = text.split_once("#[derive(Clone)]\npub struct").unwrap().0;
        assert!(of_type.contains(&format!("{HEADING}\n/// Of all its methods")), "{file}");
    }
    let mut silent = Vec::new();
    files(&source, &source, &mut |file, text| {
        if !SAID_OTHERWISE.iter().any(|other| file.starts_with(other)) {
            silent.extend(unsaid(text).into_iter().map(|name| format!("{file} {name}")));
        }
    });
    assert!(silent.is_empty(), "these do not say what a dropped call does: {silent:#?}");
}

/// The `pub async fn`s whose docs lack the heading.
fn unsaid(text: &str) -> Vec<String> {
    let (mut names, mut said) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start).take_while(|line| *line != "mod tests {") {
        if let Some(after) = line.strip_prefix("pub async fn ") {
            let name = after.split(['(', '<']).next().unwrap_or(after);
            names.extend((!said).then(|| name.to_owned()));
        }
        said = line == HEADING || said && (line.starts_with("///") || line.starts_with("#["));
    }
    names
}

#[test]
fn who_does_not_say_it_is_found() {
    let text = "
        /// # Cancel safety
        /// It only reads.
        #[must_use]
        pub async fn one() {}
        /// # Errors
        pub async fn two<T>() {}
        /// # Cancel safety
        pub fn other() {}
        pub async fn three() {}
    ";
    assert_eq!(unsaid(text), ["two", "three"]);
}

fn files(root: &Path, folder: &Path, see: &mut impl FnMut(&str, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, see);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap();
            see(file, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names of functions that return futures and can be reached from outside: those that
/// are `pub`, and those of traits that are.
fn futures(file: &str, text: &str) -> Vec<String> {
    let public_traits = matches!(file, "store/mod.rs" | "extract/mod.rs");
    let mut names = Vec::new();
    let mut last = None;
    for line in text.lines().map(str::trim_start).take_while(|line| *line != "mod tests {") {
        if let Some((before, after)) = line.split_once("fn ")
            && !before.contains("//")
            && before.split_whitespace().all(|word| word == "pub" || word == "async")
        {
            let name = after.split(['(', '<']).next().unwrap_or(after);
            last = (public_traits || before.starts_with("pub ")).then(|| name.to_owned());
            if before.starts_with("pub async") {
                names.extend(last.take());
            }
        } else if line.split_once("fn ").is_some_and(|(before, _)| before.starts_with("pub(")) {
            last = None;
        }
        if line.contains("-> impl Future<") || line.contains(") -> BoxFuture<") {
            names.extend(last.take());
        }
    }
    names
}

#[test]
fn futures_are_found_however_they_are_written() {
    let text = "
        pub async fn one<T>(x: T) {}
        async fn private() {}
        pub(crate) fn inner() -> impl Future<Output = ()> {}
        pub fn two(
            x: i64,
        ) -> impl Future<Output = ()> + Send {}
        pub fn not_a_future() {}
        fn three(&self) -> impl Future<Output = ()>;
    ";
    assert_eq!(futures("a.rs", text), ["one", "two"]);
    assert_eq!(futures("store/mod.rs", text), ["one", "two", "three"]);
}
