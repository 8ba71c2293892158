//! `build`: what a user waits for. A clean build of the hello app, and a build again
//! after one handler was edited, against an app with sqlx (for the same databases)
//! and tokio alone. Crates and CPU seconds of the compiler are reported; no bar.
//!
//! In a folder of their own, with this repository's lock file and offline: every
//! crate was fetched when the bench was built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::bench::Bench;
use crate::counters::cpu_of_children;
use crate::meter::Figures;
use crate::report::{Report, rounded};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

struct App {
    name: &'static str,
    dependencies: &'static str,
    main: &'static str,
}

const HELLO: App = App {
    name: "hello",
    dependencies: r#"outbox = { path = "ROOT/outbox" }
tokio = { version = "1", features = ["rt-multi-thread", "macros"] }
"#,
    main: r#"use outbox::prelude::*;

#[subscriber("hello")]
async fn greet(name: String) {
    println!("hello, {name}");
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    App::from_env().run().await
}
"#,
};

const BARE: App = App {
    name: "bare",
    dependencies: r#"sqlx = { version = "0.9", default-features = false, features = [
    "runtime-tokio", "postgres", "sqlite-bundled", "migrate", "json", "uuid"] }
tokio = { version = "1", features = ["rt-multi-thread", "macros"] }
"#,
    main: r#"#[tokio::main]
async fn main() -> Result<(), sqlx::Error> {
    let pool = sqlx::PgPool::connect("postgres://localhost").await?;
    let name: String = sqlx::query_scalar("SELECT 'you'").fetch_one(&pool).await?;
    println!("hello, {name}");
    Ok(())
}
"#,
};

pub async fn run(_: &Bench) -> Result<Vec<Report>> {
    tokio::task::spawn_blocking(|| {
        let mut reports = Vec::new();
        for app in [HELLO, BARE] {
            let folder = Folder::fresh()?;
            app.write(&folder.0)?;
            let clean = build(&folder.0)?;
            let edited = app.main.replace("hello, ", "good morning, ");
            std::fs::write(folder.0.join("src/main.rs"), edited)?;
            let again = build(&folder.0)?;
            ensure!(again.crates == 1.0, "{} crates were built again", again.crates);
            reports.push(clean.report(app.name, "clean"));
            reports.push(again.report(app.name, "edited"));
        }
        Ok(reports)
    })
    .await?
}

impl App {
    fn write(&self, folder: &Path) -> Result<()> {
        let root = std::fs::canonicalize(ROOT)?;
        let dependencies = self.dependencies.replace("ROOT", &root.display().to_string());
        let manifest = format!(
            "[package]\nname = {:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\n{dependencies}\n[workspace]\n",
            self.name
        );
        std::fs::create_dir(folder.join("src"))?;
        std::fs::write(folder.join("Cargo.toml"), manifest)?;
        std::fs::write(folder.join("src/main.rs"), self.main)?;
        for same in ["Cargo.lock", "rust-toolchain.toml"] {
            std::fs::copy(root.join(same), folder.join(same))?;
        }
        Ok(())
    }
}

/// What a build took.
struct Built {
    crates: f64,
    cpu: f64,
    seconds: f64,
}

fn build(folder: &Path) -> Result<Built> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--offline", "--message-format=json", "--target-dir", "target"]);
    // As a user has it, whatever runs the bench.
    cargo.env_remove("CARGO_INCREMENTAL").env_remove("RUSTFLAGS").current_dir(folder);
    let (begun, before) = (Instant::now(), cpu_of_children());
    let output = cargo.output().context("cargo")?;
    let cpu = cpu_of_children().saturating_sub(before);
    let seconds = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo build in {}: {said}", folder.display());
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let fresh = messages
        .filter(|it| it["reason"] == "compiler-artifact" && it["fresh"] == false)
        .map(|it| it["package_id"].to_string());
    let crates = fresh.collect::<BTreeSet<_>>().len();
    Ok(Built { crates: crates as f64, cpu: cpu.as_secs_f64(), seconds })
}

impl Built {
    fn report(&self, app: &str, what: &str) -> Report {
        let name = format!("build/{app}/{what}");
        let more = [("crates", self.crates), ("cpu_s", self.cpu), ("seconds", self.seconds)];
        eprintln!("  {name}: {} crates, {:.1} CPU seconds", self.crates, self.cpu);
        Report {
            msgs_per_s: None,
            rss_mb: None,
            cpu_us_per_msg: None,
            more: BTreeMap::from(more.map(|(of, value)| (of, rounded(value)))),
            ..Report::of(&name, "none", &Figures::default())
        }
    }
}

/// Deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn fresh() -> Result<Self> {
        let folder = std::env::temp_dir().join(outbox_tests::backend::unique("outbox-build"));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
