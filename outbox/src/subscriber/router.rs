//! Several subscribers with something in common.

use std::future::Future;

use super::layer::{self, Layer, Next};
use super::{HandlerResult, Subscriber};
use crate::extract::{Context, States};
use crate::redacted::debug_only;

/// Subscribers that share a prefix of their queues, layers and states.
///
/// # Examples
/// ```
/// use outbox::{App, Router, State, subscriber};
///
/// #[derive(Clone)]
/// struct Region(&'static str);
///
/// #[subscriber("orders")]
/// async fn confirm(id: i64, State(region): State<Region>) {
///     println!("order {id} of {}", region.0);
/// }
///
/// let region = |name| Router::new().prefix(name).state(Region(name)).include(confirm::subscriber());
/// // Reads the queues `eu.orders` and `us.orders`.
/// let app = App::from_env().include(region("eu.")).include(region("us."));
/// ```
/// The prefix applies to the queues that are read. What handlers publish goes to the queues
/// that they name.
///
/// A setting applies to everything that is included, before or after it. For a router inside
/// a router:
/// - The outer prefix comes first.
/// - The outer layers are outside.
/// - If both have a state of one type, the inner one counts.
#[derive(Clone, Default)]
pub struct Router {
    prefix: String,
    layers: Vec<Layer>,
    states: States,
    subscribers: Vec<Subscriber>,
}

impl Router {
    /// Makes an empty router.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts this before the name of every queue.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Puts a layer around every handler. The layer that is added first is the outermost. See
    /// [`Next`].
    #[must_use]
    pub fn layer<F>(mut self, layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        self.layers.push(layer::erased(layer));
        self
    }

    /// Gives every handler a value. It takes precedence over the app's value of the same type.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// Adds a subscriber or a router.
    #[must_use]
    pub fn include(mut self, more: impl IntoRouter) -> Self {
        self.subscribers.extend(more.into_router());
        self
    }
}

/// What can be included: a [`Subscriber`] or a [`Router`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be included",
    label = "neither a subscriber nor a router",
    note = "a handler with `#[subscriber]` is included by its name: `handler::subscriber()`"
)]
pub trait IntoRouter {
    /// Makes a router of it.
    fn into_router(self) -> Router;
}

impl IntoRouter for Router {
    fn into_router(self) -> Router {
        self
    }
}

impl IntoRouter for Subscriber {
    fn into_router(self) -> Router {
        Router { subscribers: vec![self], ..Router::default() }
    }
}

impl IntoIterator for Router {
    type Item = Subscriber;
    type IntoIter = std::vec::IntoIter<Subscriber>;

    fn into_iter(self) -> Self::IntoIter {
        let Self { prefix, layers, states, mut subscribers } = self;
        for one in &mut subscribers {
            one.queues = one.queues.iter().map(|queue| format!("{prefix}{queue}")).collect();
            one.inside(&layers);
            one.states = states.overlaid(&one.states);
        }
        subscribers.into_iter()
    }
}

debug_only!(router: Router => prefix, subscribers);
