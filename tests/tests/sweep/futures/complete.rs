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
    read(&source, &source, &mut found);
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

fn read(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(root, &path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(futures(file, &text).into_iter().map(|name| format!("{file} {name}")));
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
