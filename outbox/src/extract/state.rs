//! Values that the app gives to its handlers, one per type.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{Context, FromContext, Lender};

/// A clone of the value of type `T` that was given to the app with `App::state`.
///
/// # Examples
/// ```
/// use outbox::State;
///
/// #[derive(Clone)]
/// struct Mailer;
///
/// async fn welcome(name: String, State(mailer): State<Mailer>) {
///     let _ = (name, mailer);
/// }
/// ```
/// If nobody gave a value of that type, the app does not start.
#[derive(Debug, Clone, Copy, Default)]
pub struct State<T>(pub T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone + Send + Sync + 'static> FromContext for State<T> {
    type Rejection = String;

    const SAME_FOR_ALL: bool = true;

    async fn from_context(ctx: &Context) -> Result<Self, String> {
        ctx.state::<T>().cloned().map(State).ok_or_else(missing::<T>)
    }

    fn check(states: &States) -> Result<(), String> {
        states.get::<T>().map(drop).ok_or_else(missing::<T>)
    }
}

fn missing<T>() -> String {
    format!(
        "it takes `State<{0}>`, but the app was given no such value; add `.state(..)` with a value \
         of type `{0}`",
        type_name::<T>()
    )
}

/// The states of an app, by type.
#[derive(Clone, Default)]
pub struct States {
    /// There are few, and every message looks them up: a search is faster than a hash.
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    /// Where `Tx` comes from. Known when the app starts.
    lender: Option<Lender>,
    /// There is no database, and the app reports that by itself.
    deprived: bool,
}

impl States {
    /// Keeps a value. A second value of the same type replaces the first.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.set(TypeId::of::<T>(), Arc::new(value));
    }

    /// These states, overridden by the others.
    pub(crate) fn overlaid(&self, others: &Self) -> Self {
        let mut all = self.clone();
        for (id, value) in &others.values {
            all.set(*id, Arc::clone(value));
        }
        all
    }

    fn set(&mut self, id: TypeId, value: Arc<dyn Any + Send + Sync>) {
        self.values.retain(|(known, _)| *known != id);
        self.values.push((id, value));
    }

    /// The value of type `T`.
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.values.iter().find(|(known, _)| *known == id)?.1.downcast_ref()
    }

    pub(crate) fn lend(&mut self, lender: Lender) {
        self.lender = Some(lender);
    }

    /// There is no database that could lend transactions. The handlers that want one are not to
    /// blame.
    pub(crate) fn deprive(&mut self) {
        self.deprived = true;
    }

    pub(crate) fn is_deprived(&self) -> bool {
        self.deprived
    }

    pub(crate) fn lender(&self) -> Option<&Lender> {
        self.lender.as_ref()
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.values.len())
    }
}
