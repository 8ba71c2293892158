//! `Headers`, `Context` and `Publisher` as parameters.

use std::convert::Infallible;

use super::{Context, FromContext};
use crate::message::Headers;
use crate::publish::Publisher;

impl FromContext for Headers {
    type Rejection = Infallible;

    async fn from_context(ctx: &Context) -> Result<Self, Infallible> {
        Ok(ctx.headers().clone())
    }
}

impl FromContext for Context {
    type Rejection = Infallible;

    async fn from_context(ctx: &Context) -> Result<Self, Infallible> {
        Ok(ctx.clone())
    }
}

impl FromContext for Publisher {
    type Rejection = Infallible;

    async fn from_context(ctx: &Context) -> Result<Self, Infallible> {
        Ok(ctx.publisher())
    }
}
