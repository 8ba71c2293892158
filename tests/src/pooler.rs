//! PgBouncer between a program and the server.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use outbox::App;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::backend::{skip, unique};
use crate::db::Db;
use crate::server::free_port;
use crate::wait::eventually;

/// How often another port is tried.
const TRIES: usize = 5;

/// PgBouncer in front of the tests' server; ended when dropped.
pub struct Pooler {
    process: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Pooler {
    /// `None`, after a line that says so, where it is not installed.
    pub async fn start(db: &Db, mode: &str) -> Option<Self> {
        Self::start_with(db, mode, "").await
    }

    /// In transaction mode, with sessions that are handed out one after the other.
    pub async fn in_turn(db: &Db) -> Option<Self> {
        Self::start_with(db, "transaction", "server_round_robin = 1\n").await
    }

    async fn start_with(db: &Db, mode: &str, more: &str) -> Option<Self> {
        let named = std::env::var("OUTBOX_TEST_PGBOUNCER").unwrap_or("pgbouncer".into());
        let runs = Command::new(&named).arg("--version").stdout(Stdio::null()).status();
        if !runs.is_ok_and(|status| status.success()) {
            skip("pgbouncer", "PgBouncer is not installed (OUTBOX_TEST_PGBOUNCER names it)");
            return None;
        }
        for _ in 0..TRIES {
            let mut pooler = Self::on(free_port().unwrap(), &named, db, mode, more);
            let mut ended = false;
            eventually("PgBouncer answers, or has ended", async || {
                let answers = TcpStream::connect(("127.0.0.1", pooler.port)).is_ok();
                ended = pooler.process.try_wait().unwrap().is_some();
                answers || ended
            })
            .await;
            // Somebody else may have taken the port before it was bound.
            if !ended {
                return Some(pooler);
            }
        }
        panic!("PgBouncer ends as soon as it has started");
    }

    fn on(port: u16, program: &str, db: &Db, mode: &str, more: &str) -> Self {
        let folder = std::env::temp_dir().join(unique("outbox-pooler"));
        std::fs::create_dir_all(&folder).unwrap();
        let server = db.pg().connect_options();
        let settings = folder.join("pgbouncer.ini");
        // So few that connections have to share them, where they can.
        let sessions = if mode == "transaction" { 2 } else { 20 };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {mode}\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits,options\n\
             default_pool_size = {sessions}\n{more}\
             [users]\n",
            server.get_port()
        );
        // With `any`, whoever connects is this user at the server.
        let text = text.replace("port=", "user=postgres port=");
        std::fs::write(&settings, text).unwrap();
        let mut command = Command::new(program);
        // It refuses to run as root.
        if std::fs::metadata("/proc/self")
            .is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
            command.args(["-u", "postgres"]);
        }
        let process = command.arg(&settings).stderr(Stdio::null()).spawn().unwrap();
        Self { process, port, folder }
    }

    /// An app behind it, whose connections remember so many statements.
    pub fn app(&self, db: &Db, statements: usize) -> App {
        App::postgres(self.pool(db, statements)).names(db.names.clone()).only([])
    }

    pub fn pool(&self, db: &Db, statements: usize) -> PgPool {
        let options = (*db.pg().connect_options()).clone().port(self.port);
        let options = options.statement_cache_capacity(statements);
        PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
