//! What the README shows and no doctest runs.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use outbox::retry::{Exponential, FailedAttempt, RetryStrategy as _};
use outbox_tests::backend::{pg_url, require, unique};
use outbox_tests::wait::soon;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const README: &str = include_str!("../../README.md");
const EXAMPLES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/examples");
const PERFORMANCE: &str = include_str!("../../docs/performance.md");
const PYTHON: &str = include_str!("../../docs/python.md");

fn blocks(language: &str) -> Vec<&'static str> {
    blocks_of(README, language)
}

fn blocks_of(page: &'static str, language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let rest = page.split(&*fence).skip(1);
    rest.filter_map(|after| after.split("```").next()).collect()
}

#[test]
fn its_test_is_one_of_the_example() {
    let source = include_str!("../../examples/testing.rs");
    let shown = blocks("rust").into_iter().find(|block| block.starts_with("#[tokio::test]"));
    let indented: Vec<_> = shown.unwrap().lines().map(|line| format!("    {line}")).collect();
    assert!(source.contains(&indented.join("\n")), "examples/testing.rs has another text");
}

/// As a new user starts it, in an empty folder. Two variables are set that it does not read.
#[cfg(unix)]
#[tokio::test]
async fn its_first_program_runs_as_it_stands() {
    let source = include_str!("../src/bin/hello.rs");
    assert_eq!(source.split_once("\n\n").unwrap().1, blocks("rust,no_run")[0]);
    let folder = std::env::temp_dir().join(unique("hello"));
    std::fs::create_dir(&folder).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_hello"))
        .current_dir(&folder)
        .env_clear()
        .envs([("OUTBOX_DLQ", "dead"), ("OUTBOX_DRAIN_TIMEOUT", "60s")])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut told = Vec::new();
    let handled = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == "mail for order 7" {
                return;
            }
            told.push(line);
        }
        panic!("it ended before");
    };
    soon("its message is handled", handled).await;
    for text in ["did you mean `OUTBOX_DLQ_TABLE`", "call `.drain_timeout(..)`"] {
        assert!(told.iter().any(|line| line.contains(text)), "{text}: {told:#?}");
    }
    let stop = format!("kill -TERM {}", program.id().unwrap());
    assert!(Command::new("/bin/sh").args(["-c", &stop]).status().await.unwrap().success());
    assert!(soon("it drains", program.wait()).await.unwrap().success());
    std::fs::remove_dir_all(folder).unwrap();
}

/// On crates.io too, which would look for `examples` beside the package's manifest: they are
/// whole, and in the repository that it names.
#[test]
fn its_links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert!(!README.contains("]("), "a link stands at the end, by its text");
    let links: Vec<_> = README.lines().filter_map(link).collect();
    assert!(links.len() > 10);
    for (text, address) in links {
        let place = address.strip_prefix(env!("CARGO_PKG_REPOSITORY")).unwrap();
        let kind = if place.ends_with("/migrations") { "/tree/main/" } else { "/blob/main/" };
        assert!(root.join(place.strip_prefix(kind).unwrap()).exists(), "{address}");
        assert!(README.matches(&format!("[{text}]")).count() > 1, "nothing refers to [{text}]");
    }
}

/// A line that says where a text in brackets leads.
fn link(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

/// What a new user copies into a manifest: each crate with the version and the features with
/// which this workspace builds the programs that the page shows.
#[test]
fn its_dependencies_are_those_of_the_workspace() {
    let workspace = include_str!("../../Cargo.toml");
    let of_library = include_str!("../../outbox/Cargo.toml");
    let (_, all) = workspace.split_once("[workspace.dependencies]\n").unwrap();
    let quoted = |text: &str, open: &str, close: char| {
        let (_, after) = text.split_once(open)?;
        Some(after.split(close).next().unwrap_or(after).to_owned())
    };
    let version = |text: &str| quoted(text, "version = \"", '"').or(quoted(text, "\"", '"'));
    let mut seen = 0;
    for line in blocks("toml")[0].lines().skip(1) {
        let (name, value) = line.split_once(" = ").unwrap();
        if name == "outbox" {
            let default = quoted(of_library, "default = [", ']').unwrap().replace('"', "");
            assert!(value.ends_with(&format!("default features: {default}")), "{default}");
            assert!(value.starts_with(r#"{ path = "../outbox/outbox" }"#), "{value}");
            continue;
        }
        let start = format!("{name} = ");
        let ours = all.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        assert_eq!(version(value), version(ours), "{name}");
        // Those of sqlx that choose a database are asked for by the library.
        let of_sqlx = if name == "sqlx" { of_library } else { "" };
        for feature in quoted(value, "features = [", ']').unwrap_or_default().split(", ") {
            let here = ours.contains(feature)
                || of_sqlx.contains(&format!("sqlx/{}", feature.trim_matches('"')));
            let known = name == "tokio" && feature == "\"rt-multi-thread\"";
            assert!(here || known, "{name} has {feature} here, and there {ours}");
        }
        seen += 1;
    }
    assert_eq!(seen, 6, "it has these beside the library");
}

#[test]
fn its_commands_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for script in ["scripts/test", "scripts/notify-cost"] {
        assert!(README.contains(script) && root.join(script).exists(), "{script}");
    }
    for line in blocks("sh")[0].lines() {
        assert!(
            line.starts_with("cargo run --example quickstart ")
                || line.starts_with("scripts/test ")
        );
    }
}

#[test]
fn the_default_retries_take_as_long_as_it_says() {
    let default = Exponential::default().jitter(0.0);
    let after = |n| default.next_delay(&FailedAttempt::new(n, Duration::ZERO, None));
    let delays: Vec<_> = (1..).map_while(after).collect();
    let (attempts, seconds) = (delays.len() + 1, delays.iter().sum::<Duration>().as_secs());
    let told = format!("({attempts} attempts, delays of {seconds} s before jitter)");
    assert!(README.contains(&told), "{told}");
    assert_eq!((seconds + 30) / 60, 9, "it says about nine minutes");
}

/// Figures have one source: the page that says on which machine they were measured, by
/// which command.
#[test]
fn its_figures_of_speed_are_quoted() {
    let from = README.split("- **Throughput**").nth(1).unwrap();
    let quoted = from.split("\n- **").next().unwrap();
    let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let figures: Vec<_> = quoted
        .split(|c| !is_part(c))
        .map(|text| text.trim_matches([',', '.']))
        .filter(|text| text.len() >= 4)
        .collect();
    assert!(figures.len() >= 5, "{figures:?}");
    for figure in figures {
        assert!(PERFORMANCE.contains(figure), "{figure} does not stand in docs/performance.md");
    }
}

#[test]
fn the_lines_that_met_their_bars_are_counted() {
    let table = PERFORMANCE.split("## ").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let barred: Vec<_> = rows.filter(|line| line.contains(['≥', '≤'])).collect();
    let met = barred.iter().filter(|line| !line.contains("**missed**")).count();
    let told = format!("**{met} of the {} lines that have bars met them.**", barred.len());
    assert!(PERFORMANCE.contains(&told), "{told}");
}

#[test]
fn the_command_that_measures_is_there() {
    let line = PERFORMANCE.split("```sh\n").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(line, "cargo run --release -p outbox-tests --bin bench -- all");
    let manifest = include_str!("../Cargo.toml");
    assert!(manifest.contains("name = \"outbox-tests\""));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench");
    // Every scenario of the table is one that can be run.
    let scenarios = std::fs::read_to_string(folder.join("scenario/mod.rs")).unwrap();
    let table = PERFORMANCE.split("## ").nth(1).unwrap();
    let rows: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    assert!(rows.len() > 20);
    for row in rows {
        let name = row.split(['`', '/']).next().unwrap();
        assert!(scenarios.contains(&format!("name: \"{name}\"")), "{name}");
    }
}

/// That each is run, and prints what it should, is for the test `examples`.
#[test]
fn its_examples_are_those_there_are_each_of_a_screen_or_two_and_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let tests = concat!(include_str!("examples/main.rs"), include_str!("examples/quickstart.rs"));
    for path in &files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let lines = std::fs::read_to_string(path).unwrap().lines().count();
        assert!(lines <= 80, "{name} has {lines} lines");
        assert!(README.contains(&format!("| [{name}] |")), "{name}");
        assert!(README.contains(&format!("[{name}]: {EXAMPLES}/{name}.rs\n")), "{name}");
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is not run");
    }
    let of_handlers = "transactional returned_message typed_queue failure batch sync_handler \
                       middleware router tracing";
    for name in of_handlers.split_whitespace() {
        assert!(files.iter().any(|path| path.ends_with(format!("{name}.rs"))), "{name}");
    }
}

#[tokio::test]
async fn the_indexes_for_python_are_made_and_pass_as_extra() {
    if !require("postgres") {
        return;
    }
    let url = pg_url().unwrap();
    let setup = sqlx::PgPool::connect(&url).await.unwrap();
    for statement in ["DROP SCHEMA IF EXISTS readme CASCADE", "CREATE SCHEMA readme"] {
        sqlx::query(statement).execute(&setup).await.unwrap();
    }
    let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let pool = sqlx::PgPool::connect_lazy_with(options.options([("search_path", "readme")]));
    let names = outbox::TableNames::default().with_dlq("outbox_dlq").unwrap();
    outbox::schema::migrate_tables(&pool, &names).await.unwrap();
    let [block] = blocks_of(PYTHON, "sql")[..] else { panic!("it has one block of SQL") };
    sqlx::raw_sql(block).execute(&pool).await.unwrap();
    outbox::schema::validate_schema(&pool, &names, true).await.unwrap();
    pool.close().await;
    sqlx::query("DROP SCHEMA readme CASCADE").execute(&setup).await.unwrap();
}
