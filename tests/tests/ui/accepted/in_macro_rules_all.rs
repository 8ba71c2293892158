//! Everything inside `macro_rules!`: the queue, the types, the error.
#![deny(warnings)]

macro_rules! service {
    ($error:ident, $orders:ident, $handler:ident, $batch:ident, $lent:ident, $ty:ty, $name:literal) => {
        #[derive(Debug, outbox::Failure)]
        enum $error {
            #[retry(after = "5m")]
            Down,
            #[reject]
            Wrong,
        }

        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:?}")
            }
        }

        impl std::error::Error for $error {}

        static $orders: outbox::Queue<$ty> = outbox::Queue::new($name);

        #[outbox::subscriber($orders, publish = "next")]
        async fn $handler(order: $ty, ctx: outbox::Context) -> Result<Option<$ty>, $error> {
            if ctx.attempts() > 3 { Err($error::Down) } else { Ok(Some(order)) }
        }

        #[outbox::subscriber("batches", batch = 10)]
        async fn $batch(orders: Vec<$ty>) -> Result<(), $error> {
            if orders.is_empty() { Err($error::Wrong) } else { Ok(()) }
        }

        #[outbox::subscriber("lent")]
        fn $lent(_: $ty, outbox::State(d): outbox::State<u8>) {
            let _ = d;
        }
    };
}

service!(OrderError, ORDERS, d, run, result, i64, "orders");

pub(super) fn main() {
    assert_eq!(d::subscriber().queues(), ["orders"]);
    let _ = (run::subscriber(), result::subscriber());
}
