//! A queue with the type of its messages.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;

use super::{Outgoing, PublishError, Published, Transaction};
use crate::message::{Codec, Encoded, Json};
use crate::subscriber::IntoQueues;

/// A queue whose messages are `T`: publishing or handling another type does not compile.
///
/// Use it in `#[subscriber]`, and wherever a value is published to a queue by name. A queue
/// of raw bytes is named by a string instead: its messages are published by [`Outgoing::raw`],
/// and its handler takes `&[u8]` or [`Bytes`](crate::Bytes).
///
/// # Examples
/// ```
/// use outbox::{Queue, subscriber};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { id: i64 }
///
/// static ORDERS: Queue<Order> = Queue::new("orders");
///
/// #[subscriber(ORDERS)]
/// async fn confirm(order: Order) {
///     println!("order {}", order.id);
/// }
///
/// # async fn place(tx: &mut sqlx::PgTransaction<'_>) -> Result<(), outbox::PublishError> {
/// ORDERS.publish(tx, &Order { id: 7 }).await?;
/// # Ok(()) }
/// ```
pub struct Queue<T> {
    name: &'static str,
    /// `fn` keeps the queue `Send` and `Sync` whatever `T` is.
    message: PhantomData<fn(&T)>,
}

impl<T> Queue<T> {
    /// A queue by its name. In a `static` or `const` the name is checked when compiling.
    ///
    /// # Panics
    /// When the name is empty, longer than 255 characters, or holds NUL.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(!name.is_empty(), "the name of a queue cannot be empty");
        let (bytes, mut at, mut chars) = (name.as_bytes(), 0, 0);
        while at < bytes.len() {
            assert!(bytes[at] != 0, "the name of a queue cannot contain NUL");
            // Each character has exactly one byte that is no continuation.
            if bytes[at] & 0xC0 != 0x80 {
                chars += 1;
            }
            at += 1;
        }
        assert!(chars <= 255, "the name of a queue has at most 255 characters");
        Self { name, message: PhantomData }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T: Serialize> Queue<T> {
    /// Publishes a value in the caller's transaction, as [`publish`](crate::publish()) does.
    ///
    /// # Errors
    /// As [`publish`](crate::publish()).
    ///
    /// # Cancel safety
    /// As [`publish`](crate::publish()).
    pub async fn publish<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        body: &T,
    ) -> Result<Published, PublishError> {
        self.message(body).publish(tx).await
    }

    /// A message to this queue, for options or another publisher.
    pub fn message(&self, body: &T) -> Outgoing {
        Outgoing::new(self, body)
    }

    /// A message to this queue in another encoding, with the content type of that encoding.
    pub fn encoded<C: Codec>(&self, body: &T) -> Outgoing {
        Outgoing::encoded::<C>(self.name, body)
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Queue<T> {}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.name).finish()
    }
}

/// The queues that a handler whose payload is `P` can read.
#[diagnostic::on_unimplemented(
    message = "a handler of `{P}` cannot read the queue `{Self}`",
    label = "not a queue of such messages",
    note = "a queue is a string, or a `Queue<P>` of the handler's payload, by value, or an array of either"
)]
pub trait QueueOf<P: ?Sized> {
    /// The names.
    fn names(&self) -> Vec<String>;
}

macro_rules! read_as {
    ($($payload:ty: [$($generic:ident),*] $message:ty;)+) => {$(
        impl<$($generic),*> QueueOf<$payload> for Queue<$message> {
            fn names(&self) -> Vec<String> {
                vec![self.name.to_owned()]
            }
        }

        impl<$($generic,)* const N: usize> QueueOf<$payload> for [Queue<$message>; N] {
            fn names(&self) -> Vec<String> {
                self.iter().map(|queue| queue.name.to_owned()).collect()
            }
        }
    )+};
}

read_as! {
    T: [T] T;
    // The user's own encodings of the same messages.
    Encoded<C, T>: [C, T] T;
    Json<T>: [T] T;
    // Raw bytes can be read from any queue, and texts from one of texts.
    [u8]: [T] T;
    str: [] String;
    str: [] &'static str;
    str: [] Cow<'static, str>;
    str: [] Box<str>;
}

#[diagnostic::do_not_recommend]
impl<P: ?Sized, Q: IntoQueues + Clone> QueueOf<P> for Q {
    fn names(&self) -> Vec<String> {
        self.clone().into_queues()
    }
}

/// What names a queue: a string of any kind, or a [`Queue`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no queue",
    label = "neither a string nor a `Queue`",
    note = "a queue is a string, or a `Queue<T>`"
)]
pub trait QueueName {
    /// The name.
    fn name(&self) -> &str;
}

impl<T> QueueName for Queue<T> {
    fn name(&self) -> &str {
        self.name
    }
}

impl<T> QueueName for &Queue<T> {
    fn name(&self) -> &str {
        self.name
    }
}

#[diagnostic::do_not_recommend]
impl<Q: AsRef<str>> QueueName for Q {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

/// Where a `T` can be published: a string of any kind, or a [`Queue<T>`].
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be published to the queue `{Self}`",
    label = "`{Self}` is neither a string nor a `Queue<{T}>`",
    note = "a queue is a string, or a `Queue<T>` of the type that is published"
)]
pub trait QueueFor<T: ?Sized>: QueueName {}

impl<T> QueueFor<T> for Queue<T> {}

impl<T> QueueFor<T> for &Queue<T> {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized, Q: AsRef<str>> QueueFor<T> for Q {}
