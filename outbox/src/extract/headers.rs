//! `Headers`, `Context` and `Publisher` as parameters.

use std::convert::Infallible;

use super::{Context, FromContext};
use crate::message::Headers;
use crate::publish::Publisher;
use crate::subscriber::HandlerError;

/// Refused, as a payload that does not decode, if those of the row are not a JSON object.
impl FromContext for Headers {
    type Rejection = HandlerError;

    async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
        let headers = ctx.parsed_headers().cloned();
        headers.map_err(|error| HandlerError::new(HandlerError::DECODE, error))
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
