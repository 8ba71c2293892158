//! What the benches of both databases have in common.

/// In `impl Bench` and `impl SqlBench` of a database: what does not depend on which it is.
macro_rules! in_sql {
    (Bench) => {
        fn store(&self) -> &Self::Store {
            &self.store
        }

        fn publisher(&self) -> &Publisher {
            &self.publisher
        }

        async fn commit(&self, tx: Self::Tx) {
            tx.commit().await.unwrap();
        }

        async fn rollback(&self, tx: Self::Tx) {
            tx.rollback().await.unwrap();
        }

        async fn savepoint(&self, tx: &mut Self::Tx) {
            sqlx::query("SAVEPOINT mark").execute(&mut **tx).await.unwrap();
        }

        async fn rollback_to(&self, tx: &mut Self::Tx, (): &()) {
            sqlx::query("ROLLBACK TO SAVEPOINT mark").execute(&mut **tx).await.unwrap();
        }

        async fn release(&self, tx: &mut Self::Tx, (): ()) {
            sqlx::query("RELEASE SAVEPOINT mark").execute(&mut **tx).await.unwrap();
        }

        async fn pending(&self, queue: &str, limit: u32) -> Vec<Row> {
            let mut connection = self.pool().acquire().await.unwrap();
            self.publisher.pending(&mut *connection, queue, limit).await.unwrap()
        }

        async fn set_deliveries(&self, id: i64, count: u32) {
            let table = self.table();
            self.execute(&format!("UPDATE {table} SET deliveries_count = {count} WHERE id = {id}"))
                .await;
        }

        async fn break_dlq(&self) {
            self.execute("ALTER TABLE outbox_dlq RENAME TO away").await;
        }

        async fn mend_dlq(&self) {
            self.execute("ALTER TABLE away RENAME TO outbox_dlq").await;
        }
    };
    (SqlBench) => {
        fn names(&self) -> &TableNames {
            &self.names
        }

        async fn number(&self, sql: &str) -> i64 {
            let query = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
            query.fetch_one(self.pool()).await.unwrap()
        }
    };
}
pub(super) use in_sql;
