//! PgBouncer between a program and the server.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use outbox::App;
use sqlx::postgres::PgPoolOptions;

use crate::backend::{skip, unique};
use crate::db::Db;
use crate::wait::eventually;

/// PgBouncer in front of the tests' server; ended when dropped.
pub struct Pooler {
    process: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Pooler {
    /// `None`, after a line that says so, where it is not installed.
    pub async fn start(db: &Db, mode: &str) -> Option<Self> {
        let named = std::env::var("OUTBOX_TEST_PGBOUNCER").unwrap_or("pgbouncer".into());
        let runs = Command::new(&named).arg("--version").stdout(Stdio::null()).status();
        if !runs.is_ok_and(|status| status.success()) {
            skip("pgbouncer", "PgBouncer is not installed (OUTBOX_TEST_PGBOUNCER names it)");
            return None;
        }
        let folder = std::env::temp_dir().join(unique("outbox-pooler"));
        std::fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = db.pg().connect_options();
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {mode}\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits,options\n\
             [users]\n",
            server.get_port()
        );
        // With `any`, whoever connects is this user at the server.
        let text = text.replace("port=", "user=postgres port=");
        std::fs::write(&settings, text).unwrap();
        let mut command = Command::new(named);
        // It refuses to run as root.
        if std::fs::metadata("/proc/self")
            .is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
            command.args(["-u", "postgres"]);
        }
        let process = command.arg(&settings).stderr(Stdio::null()).spawn().unwrap();
        let pooler = Self { process, port, folder };
        eventually("PgBouncer answers", async || TcpStream::connect(("127.0.0.1", port)).is_ok())
            .await;
        Some(pooler)
    }

    /// An app behind it, whose connections remember so many statements.
    pub fn app(&self, db: &Db, statements: usize) -> App {
        let options = (*db.pg().connect_options()).clone().port(self.port);
        let options = options.statement_cache_capacity(statements);
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        App::postgres(pool).names(db.names.clone()).only([])
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
