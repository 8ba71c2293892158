//! `migrate --print-grants`.

use outbox_tests::db::Db;

use crate::program::{json, run};

async fn the_sql_of_roles_is_printed(db: &Db) {
    let ran = run(db, &["migrate", "--print-grants", "--consumer", "my \"app"]).await;
    if !db.is_postgres() {
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("SQLite has no roles") && ran.err.contains("chmod 600"));
        return;
    }
    let sql = ran.good();
    assert!(sql.contains("GRANT SELECT ON \"outbox_paused\" TO \"my \"\"app\";"), "{sql}");
    assert!(sql.contains("TO \"outbox_operator\";"), "{sql}");
    assert!(!sql.contains('{'), "{sql}");
    let plain = json(db, &["migrate", "--print-grants"]).await;
    let timers = json(db, &["migrate", "--print-grants", "--producers-move-timers"]).await;
    let [plain, timers] = [plain, timers].map(|it| it["sql"].as_str().unwrap().to_owned());
    let added: Vec<_> = timers.lines().filter(|line| !plain.contains(line)).collect();
    assert!(added.iter().any(|line| line.contains("GRANT UPDATE (payload, headers")), "{added:?}");
    assert!(plain.contains("TO \"outbox_consumer\";"), "{plain}");
}

async fn names_that_cannot_be_roles_are_refused(db: &Db) {
    if db.is_postgres() {
        let ran = run(db, &["migrate", "--print-grants", "--producer", ""]).await;
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("the producer role is empty"), "{ran:?}");
    }
    assert_eq!(run(db, &["migrate", "--producer", "it"]).await.code, 2);
    assert_eq!(run(db, &["migrate", "--print", "--print-grants"]).await.code, 2);
}

outbox_tests::on_both!(the_sql_of_roles_is_printed, names_that_cannot_be_roles_are_refused);
