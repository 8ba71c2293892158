//! What a handler can be, among names that the generated code might use itself.
#![deny(warnings)]
#![allow(dead_code, non_camel_case_types, non_upper_case_globals, unused_macros)]

mod std {}
mod core {}
mod alloc {}
mod tokio {}
mod serde {}
mod sqlx {}
mod inventory {}
struct Result;
struct Option;
struct Box;
struct Vec;
struct String;
struct Duration;
struct Queue;
struct Outcome;
struct Context;
struct Failure;
struct u64;
struct Send;
trait From {}
trait Into {}
trait Default {}
trait Iterator {}
trait IntoIterator {}
trait Future {}
trait Clone {}
trait Copy {}
trait FromContext {}
trait IntoOutcome {}
const Ok: () = ();
const Err: () = ();
const Some: () = ();
const None: () = ();
macro_rules! vec {
    () => {};
}
macro_rules! panic {
    () => {};
}
macro_rules! format {
    () => {};
}

static it: i32 = 0;
static made: i32 = 0;
static error: i32 = 0;
static split: i32 = 0;
static undecoded: i32 = 0;

static ORDERS: ::outbox::Queue<i64> = ::outbox::Queue::new("orders");

#[::outbox::subscriber(ORDERS, publish = "next")]
async fn d(n: i64) -> ::std::result::Result<::std::option::Option<i64>, Mistake> {
    ::std::result::Result::Ok(::std::option::Option::Some(n))
}

#[::outbox::subscriber("several", publish = "next")]
async fn several(n: i64) -> ::std::vec::Vec<i64> {
    ::std::iter::once(n).collect()
}

#[::outbox::subscriber("batch", batch = 10, batch_wait = "50ms")]
async fn batch(
    batch: ::std::vec::Vec<i64>,
    state: ::outbox::State<i32>,
) -> ::std::result::Result<(), Mistake> {
    ::std::mem::drop((batch, state));
    ::std::result::Result::Ok(())
}

#[::outbox::subscriber("raw", timeout = "5s", retry = Delays(["1s", "1m"]))]
fn r#fn(r#struct: &str, r#async: ::outbox::Context) -> ::std::result::Result<(), Mistake> {
    let _ = (r#struct, r#async);
    ::std::result::Result::Err(Mistake::r#try)
}

#[::outbox::subscriber("lent")]
async fn lent(handler: i64, mut tx: ::outbox::Tx<::sqlx::Sqlite>) {
    let _ = (handler, &mut tx);
}

#[derive(Debug, ::outbox::Failure)]
enum Mistake {
    #[retry(after = "5m")]
    Down,
    #[snooze("1m")]
    Night { error: i64 },
    #[reject]
    r#try,
}

impl ::std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
        f.write_str("a mistake")
    }
}

impl ::std::error::Error for Mistake {}

pub(super) fn main() {
    let all: [::outbox::Subscriber; 5] = [
        d::subscriber(),
        several::subscriber(),
        batch::subscriber(),
        r#fn::subscriber(),
        lent::subscriber(),
    ];
    assert_eq!(all[3].name(), "fn");
    assert_eq!(::outbox::Failure::kind(&Mistake::r#try), "try");
}
