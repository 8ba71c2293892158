//! TLS that is asked for is had, and by every connection, or there is none. Built with the
//! feature `tls`; what a program without it does, `security` says.

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};

use certificates::Certificates;

/// A server with TLS whose certificate may be changed.
struct Guarded {
    server: Server,
    db: Db,
    certificates: Certificates,
}

impl Guarded {
    async fn start() -> Option<Self> {
        if !outbox_tests::backend::require("postgres") {
            return None;
        }
        let certificates = Certificates::make();
        let file = |name| certificates.file(name);
        let (cert, key) = (file("good.crt"), file("good.key"));
        let settings = [("ssl", "on"), ("ssl_cert_file", &*cert), ("ssl_key_file", &*key)];
        let server = Server::start(&[("fsync", "off")]).unwrap();
        let db = Db::of(&server).await;
        let guarded = Self { server, db, certificates };
        for (name, value) in settings {
            guarded.set(name, value).await;
        }
        Some(guarded)
    }

    /// A setting that new connections see.
    async fn set(&self, name: &str, value: &str) {
        self.db.exec(format!("ALTER SYSTEM SET {name} = '{value}'")).await;
        self.db.exec("SELECT pg_reload_conf()").await;
        let now = format!(
            "SELECT count(*) FROM pg_settings WHERE name = '{name}' AND setting = '{value}'"
        );
        eventually("it is set", async || self.db.int(&*now).await == 1).await;
    }

    async fn show(&self, name: &str) {
        self.set("ssl_cert_file", &self.certificates.file(&format!("{name}.crt"))).await;
        self.set("ssl_key_file", &self.certificates.file(&format!("{name}.key"))).await;
    }

    fn options(&self, host: &str, mode: PgSslMode, authority: &str) -> PgConnectOptions {
        let options: PgConnectOptions = self.server.url.parse().unwrap();
        let options = options.host(host).ssl_mode(mode).application_name("engine");
        options.ssl_root_cert(self.certificates.file(authority))
    }

    fn app(&self, options: PgConnectOptions) -> (App, outbox_tests::probe::Probe) {
        let pool = PgPoolOptions::new().connect_lazy_with(options);
        let (subscriber, probe) = free("it", "q");
        (App::postgres(pool).names(self.db.names.clone()).only([subscriber]), probe)
    }

    /// Why an app does not start.
    async fn refused(&self, host: &str, mode: PgSslMode, authority: &str) -> String {
        let (app, _) = self.app(self.options(host, mode, authority));
        let error = app.start().await.map(drop).unwrap_err().to_string();
        assert_eq!(self.db.connections().await, 0, "{error}");
        error
    }

    /// An app starts, handles a message of which it is notified, and has no connection
    /// without TLS.
    async fn works(&self, host: &str, mode: PgSslMode) {
        let (app, probe) = self.app(self.options(host, mode, "authority.crt"));
        let health = app.health();
        let running = app.start().await.unwrap();
        eventually("it listens", async || health.glance().listener_up == Some(true)).await;
        self.db.publish("q", 7).await;
        probe.start().await;
        // In one statement, so that it is of one moment: connections come and go.
        let encrypted = "SELECT count(*) FILTER (WHERE ssl) || ' of ' || count(*) \
            FROM pg_stat_activity LEFT JOIN pg_stat_ssl USING (pid) \
            WHERE application_name = 'engine'";
        let found = self.db.texts(encrypted).await.remove(0);
        let (encrypted, all) = found.split_once(" of ").unwrap();
        assert_eq!(encrypted, all);
        assert!(all.parse::<u32>().unwrap() >= 2, "the one that listens and another: {found}");
        running.stop().await.unwrap();
        eventually("it is gone", async || self.db.connections().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_that_is_required_is_had_or_nothing_is() {
    use PgSslMode::{Prefer, Require, VerifyCa, VerifyFull};

    let Some(guarded) = Guarded::start().await else { return };
    let names_none = "invalid peer certificate";
    for mode in [Prefer, Require, VerifyCa, VerifyFull] {
        guarded.works("localhost", mode).await;
    }
    // Not the name that was asked for.
    let told = guarded.refused("127.0.0.1", VerifyFull, "authority.crt").await;
    assert!(told.contains(names_none) && told.contains("not valid for name"), "{told}");
    guarded.works("127.0.0.1", VerifyCa).await;
    // Of nobody that is known.
    for mode in [VerifyCa, VerifyFull] {
        let told = guarded.refused("localhost", mode, "stranger.crt").await;
        assert!(told.contains(names_none) && told.contains("UnknownIssuer"), "{told}");
    }
    guarded.show("other").await;
    let told = guarded.refused("localhost", VerifyFull, "authority.crt").await;
    assert!(told.contains("not valid for name"), "{told}");
    guarded.show("expired").await;
    for mode in [VerifyCa, VerifyFull] {
        let told = guarded.refused("localhost", mode, "authority.crt").await;
        assert!(told.contains(names_none) && told.contains("expired"), "{told}");
    }
    // Encrypted, whoever it is.
    guarded.works("localhost", Require).await;
    guarded.set("ssl", "off").await;
    for mode in [Require, VerifyCa, VerifyFull] {
        let told = guarded.refused("localhost", mode, "authority.crt").await;
        assert!(told.contains("server does not support TLS"), "{told}");
    }
    guarded.db.close().await;
}
