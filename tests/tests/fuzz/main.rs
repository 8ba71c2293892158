//! The targets of `fuzz/`, on stable: every file of the corpus, and some thousand inputs
//! made of them, by a fixed seed.

#[path = "../../../outbox-macros/src/duration.rs"]
mod duration;
#[path = "../../../outbox-macros/src/errors.rs"]
mod errors;
#[path = "../../../outbox-macros/src/failure/mod.rs"]
mod failure;
#[path = "../../../outbox-macros/src/literal.rs"]
mod literal;
#[path = "../../../outbox-macros/src/located.rs"]
mod located;
#[path = "../../../fuzz/targets/macros.rs"]
mod macros;
#[path = "../../../outbox-macros/src/subscriber/mod.rs"]
mod subscriber;
#[path = "../../../outbox-macros/src/suggest.rs"]
mod suggest;
#[path = "../../../fuzz/targets/mod.rs"]
mod targets;

use std::panic::catch_unwind;
use std::path::Path;

use fastrand::Rng;
use outbox_tests::hostile::names;

const MUTATIONS: usize = 2_000;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{} has a small corpus", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// One input of another, or of two.
fn mutated(rng: &mut Rng, corpus: &[Vec<u8>], words: &[String]) -> Vec<u8> {
    let mut data = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..=data.len());
        match rng.usize(..7) {
            0 => data.truncate(at),
            1 => data.insert(at, rng.u8(..)),
            2 if at < data.len() => data[at] ^= 1 << rng.u32(..8),
            3 if at < data.len() => data[at] = [0, 0xff, 0x7f, 0x80, b'"', b'\\'][rng.usize(..6)],
            4 => {
                let other = &corpus[rng.usize(..corpus.len())];
                data.splice(at..at, other[rng.usize(..=other.len())..].iter().copied());
            }
            5 => {
                let word = words[rng.usize(..words.len())].bytes();
                data.splice(at..at, word);
            }
            _ => {
                let end = rng.usize(at..=data.len());
                let piece = data[at..end].to_vec();
                data.splice(at..at, piece);
            }
        }
    }
    data.truncate(8 << 10);
    data
}

fn run(name: &str, target: fn(&[u8])) {
    let corpus = corpus(name);
    let (mut rng, words) = (Rng::with_seed(4_711), names());
    let mutations = (0..MUTATIONS).map(|_| mutated(&mut rng, &corpus, &words));
    for data in corpus.iter().cloned().chain(mutations) {
        let ended = catch_unwind(|| target(&data));
        assert!(ended.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&data));
    }
}

#[test]
fn payloads() {
    run("payload", targets::payload::target);
}

#[test]
fn headers() {
    run("headers", targets::headers::target);
}

#[test]
fn texts_of_errors() {
    run("errors", targets::errors::target);
}

#[test]
fn names_of_tables() {
    run("names", targets::names::target);
}

#[test]
fn macros_arguments_and_items() {
    run("macros", macros::target);
}
