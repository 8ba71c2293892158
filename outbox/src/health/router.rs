//! The probes of a container platform.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::{Health, Report};

/// Two routes for probes (feature `health`). Serve them alone, or merge them into a router of
/// your own. Both answer with the [`Report`] as JSON.
///
/// | route | 200 | 503 |
/// |---|---|---|
/// | `/live` | every loop lives, or the app has not started yet or is stopping or stopped | a loop has ended, or `run` or `run_until` has failed to start: restart the process |
/// | `/ready` | the app works | the app does not work: `reasons` says why |
///
/// `/live` does not ask the database: a restart would not mend its failure. Its `ready` is
/// therefore always false. `/ready` answers within the [limit](Health::limit) of the check, which is 2 s by default. Give the probe 3 s.
///
/// # Examples
/// ```no_run
/// # async fn main_(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let app = outbox::App::postgres(pool);
/// let probes = outbox::health::router(app.health());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// tokio::spawn(async move { axum::serve(listener, probes).await });
/// app.run().await?;
/// # Ok(()) }
/// ```
pub fn router<S: Clone + Send + Sync + 'static>(health: Health) -> Router<S> {
    let live = health.clone();
    Router::new()
        .route(
            "/live",
            get(async move || {
                let report = live.glance();
                answer(report.live, &report)
            }),
        )
        .route(
            "/ready",
            get(async move || {
                let report = health.check().await;
                answer(report.ready, &report)
            }),
        )
}

fn answer(good: bool, report: &Report) -> impl IntoResponse + use<> {
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // A struct of texts and numbers always serialises.
    let body = serde_json::to_string(report).unwrap_or_default();
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body)
}
