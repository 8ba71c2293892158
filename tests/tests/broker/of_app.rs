//! A broker that stands in for the database of an app.

use std::error::Error as StdError;

use outbox::retry::NoRetry;
use outbox::{App, Context, Error, FailureReason, Router, State, Subscriber, TableNames};
use outbox_tests::capture;

use super::*;

#[derive(Clone)]
struct Mailer(&'static str);

/// Tells the mailer in its error.
fn told() -> Subscriber {
    Subscriber::new("told", "orders", |context: Context| async move {
        Err::<(), _>(context.state::<Mailer>().unwrap().0)
    })
    .requires::<State<Mailer>>()
    .retry(NoRetry)
}

fn app() -> App {
    App::from_env()
        .names(TableNames::new("shop_outbox").unwrap())
        .only(Router::new().prefix("eu.").include(told()))
        .layer(|context, next| async move {
            assert_eq!(context.queue(), "eu.orders");
            next.run(context).await
        })
        .state(Mailer("real"))
        .error_renderer(|error: &(dyn StdError + 'static)| Some(format!("<{error}>")))
}

#[tokio::test]
async fn it_has_what_the_app_has_but_for_what_the_test_puts_in_its_place() {
    let broker = TestBroker::of(&app().dlq("shop_letters")).state(Mailer("fake"));
    broker.publish("eu.orders", &7).await.unwrap();
    assert_eq!(broker.calls("told")[0].error_kind.as_deref(), Some("&str"));
    assert_eq!(only_letter(&broker).last_exception.as_deref(), Some("<fake>"));
}

/// As where an error may hold what nobody is to keep.
#[tokio::test]
async fn a_renderer_that_gives_no_text_or_panics_keeps_the_text_out_of_the_dead_letter() {
    type Renderer = fn(&(dyn StdError + 'static)) -> Option<String>;
    let renderers: [(Renderer, Option<&str>); 2] = [
        (|_| None, None),
        (|error| panic!("{error}"), Some("the error could not be shown: its renderer panicked")),
    ];
    for (renderer, text) in renderers {
        let broker = TestBroker::of(&app().dlq("shop_letters").error_renderer(renderer));
        broker.publish("eu.orders", &7).await.unwrap();
        let letter = only_letter(&broker);
        assert_eq!(
            (letter.last_exception.as_deref(), letter.error_kind.as_deref()),
            (text, Some("&str"))
        );
    }
}

/// Or the test would send real mails, and pass.
#[tokio::test]
async fn a_fake_takes_the_place_of_what_a_router_gives_its_handlers() {
    let router = Router::new().state(Mailer("real")).include(told());
    let app = App::from_env().only(router).dlq("letters");
    for (broker, mailer) in
        [(TestBroker::of(&app), "real"), (TestBroker::of(&app).state(Mailer("fake")), "fake")]
    {
        broker.publish("orders", &7).await.unwrap();
        assert_eq!(only_letter(&broker).last_exception, Some(format!("{mailer:?}")));
    }
}

/// Or a test of what is logged would see less than production.
#[tokio::test]
async fn errors_are_logged_if_the_app_logs_them() {
    capture::start();
    for logs in [false, true] {
        let failing =
            Subscriber::new("it", "of_app: fails", |_| async { Err::<(), _>("no stamps") });
        let app = App::from_env().only([failing.retry(NoRetry)]).log_errors(logs);
        TestBroker::of(&app).publish("of_app: fails", &7).await.unwrap();
        let told = capture::count(|line| {
            line.says("queue", "of_app: fails") && line.says("message", "no stamps")
        });
        assert_eq!(told, usize::from(logs));
    }
}

#[tokio::test]
async fn dead_letters_are_kept_if_the_app_keeps_them() {
    let broker = TestBroker::of(&app());
    broker.publish("eu.orders", &7).await.unwrap();
    assert_eq!(broker.calls("told")[0].ending, Ending::Terminal(FailureReason::RetryTerminal));
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
}

#[tokio::test]
async fn what_keeps_the_app_from_starting_keeps_the_broker_from_publishing() {
    let broker = TestBroker::of(&App::from_env().dlq("").only([told()]));
    let Err(Error::Launch(reasons)) = broker.publish("orders", &7).await else {
        panic!("it was published")
    };
    let [table, state] = &reasons[..] else { panic!("{reasons:?}") };
    assert!(table.contains("dead-letter table") && state.contains("Mailer"), "{reasons:?}");
}

/// Handlers publish to the tables that the app has.
#[tokio::test]
async fn what_a_transaction_publishes_is_found_in_the_table_of_the_app() {
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
    let pool = pool.connect("sqlite::memory:").await.unwrap();
    let names = TableNames::new("shop_outbox").unwrap();
    let app = App::sqlite(pool.clone()).names(names).only([placed::subscriber()]);
    let publisher = app.publisher();
    let app = app.state(publisher);
    let broker = TestBroker::of(&app).transactions(pool);
    broker.publish("placed", &7).await.unwrap();
    assert_eq!(broker.calls("placed")[0].ending, Ending::Acked);
    let queues: Vec<_> = broker.rows().into_iter().map(|row| row.queue).collect();
    assert_eq!(queues, ["mails"]);
}

#[outbox::subscriber("placed", retry = NoRetry)]
async fn placed(
    order: i64,
    State(publisher): State<outbox::Publisher>,
    mut tx: outbox::Tx<sqlx::Sqlite>,
) -> Result<(), outbox::PublishError> {
    publisher.publish(&mut tx, "mails", &order).await.map(drop)
}
