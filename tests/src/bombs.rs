//! Payloads that promise more than they hold, or hold more than they look like. Each is
//! well-formed up to where it goes wrong, and none is of a type with a field `id`.

use outbox::{Bytes, Outgoing};

pub struct Bomb {
    pub name: String,
    pub content_type: &'static str,
    pub payload: Bytes,
}

impl Bomb {
    pub fn message(&self, queue: &str) -> Outgoing {
        Outgoing::raw(queue, self.payload.clone()).content_type(self.content_type)
    }
}

const DEEP: usize = 200_000;

const JSON: &str = "application/json";
const MSGPACK: &str = "application/msgpack";
const CBOR: &str = "application/cbor";

/// All of them, of this size where they can be large; each as it is and as a field that
/// no handler knows.
#[must_use]
pub fn bombs(size: usize) -> Vec<Bomb> {
    let mut all = Vec::new();
    let mut add = |content_type, field: &[u8], name: &str, bomb: Vec<u8>, end: &[u8]| {
        let hidden = [field, &bomb, end].concat();
        let one = |name, payload: Vec<u8>| Bomb { name, content_type, payload: payload.into() };
        all.push(one(format!("{name}, hidden in {content_type}"), hidden));
        all.push(one(format!("{name} of {content_type}"), bomb));
    };
    for (name, bomb) in json(size) {
        add(JSON, b"{\"x\":", name, bomb, b"}");
    }
    for (name, bomb) in msgpack(size) {
        add(MSGPACK, b"\x81\xa1x", name, bomb, b"");
    }
    for (name, bomb) in cbor(size) {
        add(CBOR, b"\xa1\x61x", name, bomb, b"");
    }
    all
}

/// With room for the field around it.
fn filled(size: usize, begin: &[u8], unit: &[u8], end: &[u8]) -> Vec<u8> {
    let units = (size - 16 - begin.len() - end.len()) / unit.len();
    [begin, &unit.repeat(units), end].concat()
}

type Named = (&'static str, Vec<u8>);

fn json(size: usize) -> Vec<Named> {
    vec![
        ("brackets", b"[".repeat(DEEP)),
        ("objects", b"{\"a\":".repeat(DEEP)),
        ("both", b"[{\"a\":".repeat(DEEP)),
        ("as deep as can be, closed", [b"[".repeat(DEEP), b"]".repeat(DEEP)].concat()),
        ("numbers", filled(size, b"[0", b",1", b"]")),
        ("floats", filled(size, b"[0", b",1e1", b"]")),
        ("arrays", filled(size, b"[0", b",[]", b"]")),
        ("objects in an array", filled(size, b"[0", b",{}", b"]")),
        ("keys", filled(size, b"{\"\":0", b",\"a\":0", b"}")),
        ("escapes", filled(size, b"\"", b"\\u0000", b"\"")),
        ("surrogates", filled(size, b"\"", b"\\ud83d\\ude00", b"\"")),
        ("half surrogates", filled(size, b"\"", b"\\ud83d", b"\"")),
        ("digits", filled(size, b"1", b"0", b"")),
        ("digits behind the point", filled(size, b"1.", b"0", b"")),
        ("digits of an exponent", filled(size, b"1e", b"9", b"")),
        ("1e400", b"1e400".to_vec()),
        ("duplicate keys", filled(size, b"{\"a\":1", b",\"a\":2", b"}")),
        ("white space", filled(size, b"", b" ", b"1")),
        ("invalid UTF-8", filled(size, b"\"", b"\xff", b"\"")),
        ("NUL bytes", vec![0; size - 16]),
        ("empty", Vec::new()),
    ]
}

fn msgpack(size: usize) -> Vec<Named> {
    let most = [0xff; 4];
    let declared = |marker: u8| [&[marker][..], &most].concat();
    let count = u32::try_from(size / 2).unwrap().to_be_bytes();
    vec![
        ("a long array that is not there", declared(0xdd)),
        ("a long map that is not there", declared(0xdf)),
        ("a long text that is not there", declared(0xdb)),
        ("long bytes that are not there", declared(0xc6)),
        ("a long extension that is not there", declared(0xc9)),
        ("long arrays in each other", declared(0xdd).repeat(DEEP)),
        ("long maps in each other", [&declared(0xdf)[..], b"\xa1a"].concat().repeat(DEEP)),
        ("arrays", vec![0x91; DEEP]),
        ("maps", b"\x81\xa1a".repeat(DEEP)),
        ("maps as keys", vec![0x81; DEEP]),
        ("nothing, often", filled(size, &[&[0xdd][..], &count].concat(), b"\xc0", b"")),
        ("empty arrays", filled(size, &[&[0xdd][..], &count].concat(), b"\x90", b"")),
        ("a text that is not UTF-8", b"\xa4\xff\xfe\xfd\xfc".to_vec()),
        ("a marker that is none", vec![0xc1]),
        ("more than one value", vec![1, 1]),
        ("empty", Vec::new()),
    ]
}

fn cbor(size: usize) -> Vec<Named> {
    let declared = |marker: u8, long: u64| [&[marker][..], &long.to_be_bytes()].concat();
    let half = (size / 2) as u64;
    vec![
        ("a long array that is not there", declared(0x9b, u64::MAX)),
        ("a long map that is not there", declared(0xbb, u64::MAX)),
        ("a long text that is not there", declared(0x7b, u64::MAX)),
        ("long bytes that are not there", declared(0x5b, u64::MAX)),
        ("a text of a terabyte", declared(0x7b, 1 << 40)),
        ("long arrays in each other", declared(0x9b, 1 << 40).repeat(DEEP)),
        ("arrays", vec![0x81; DEEP]),
        ("arrays without an end", vec![0x9f; DEEP]),
        ("maps", b"\xa1\x61a".repeat(DEEP)),
        ("maps as keys", vec![0xa1; DEEP]),
        ("tags", vec![0xc6; DEEP]),
        ("long tags", declared(0xdb, 7).repeat(DEEP)),
        ("numbers", filled(size, &declared(0x9b, half), b"\x01", b"")),
        ("numbers without a count", filled(size, b"\x9f", b"\x01", b"\xff")),
        ("empty arrays", filled(size, b"\x9f", b"\x80", b"\xff")),
        ("empty texts", filled(size, b"\x9f", b"\x60", b"\xff")),
        ("empty maps", filled(size, b"\x9f", b"\xa0", b"\xff")),
        ("entries", filled(size, b"\xbf", b"\x00\x00", b"\xff")),
        ("tagged numbers", filled(size, b"\x9f", b"\xc6\x00", b"\xff")),
        ("a text in empty pieces", filled(size, b"\x7f", b"\x60", b"\xff")),
        ("a text in small pieces", filled(size, b"\x7f", b"\x61a", b"\xff")),
        ("bytes in small pieces", filled(size, b"\x5f", b"\x41a", b"\xff")),
        ("a large number of many bytes", filled(size, &declared(0xc2, 0)[..1], b"\x41\xff", b"")),
        ("a text that is not UTF-8", b"\x64\xff\xfe\xfd\xfc".to_vec()),
        ("an end of nothing", vec![0xff]),
        ("more than one value", vec![1, 1]),
        ("empty", Vec::new()),
    ]
}
