//! A program that was built without TLS does not connect where TLS is asked for.

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use sqlx::postgres::{PgPoolOptions, PgSslMode};

#[tokio::test]
async fn without_the_feature_tls_a_connection_that_needs_it_is_refused() {
    let Some(db) = Db::postgres().await else { return };
    for mode in [PgSslMode::Require, PgSslMode::VerifyCa, PgSslMode::VerifyFull] {
        let options = (*db.pg().connect_options()).clone();
        let options = options.application_name("engine").ssl_mode(mode);
        let pool = PgPoolOptions::new().connect_lazy_with(options);
        let app = App::postgres(pool).names(db.names.clone()).only([free("it", "q").0]);
        let error = app.start().await.unwrap_err().to_string();
        assert!(error.contains("TLS") && error.contains("built without"), "{mode:?}: {error}");
        assert!(error.contains("feature `tls`"), "{mode:?}: {error}");
        assert_eq!(db.connections().await, 0, "{mode:?}");
    }
    db.close().await;
}
