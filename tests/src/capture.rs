//! Everything that is logged in this process, for the tests to look at.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Identity, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// One log line, or what is said of a span.
#[derive(Clone, Debug)]
pub struct Line {
    pub target: String,
    pub level: Level,
    pub fields: BTreeMap<String, String>,
}

impl Line {
    pub fn event(&self) -> Option<&str> {
        self.get("event")
    }

    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// Whether a field has this in it.
    pub fn says(&self, field: &str, text: &str) -> bool {
        self.get(field).is_some_and(|value| value.contains(text))
    }

    pub fn text(&self) -> String {
        format!("{} {} {:?}", self.target, self.level, self.fields)
    }
}

type Hook = Arc<dyn Fn(&Line) + Send + Sync>;

static LINES: LazyLock<Mutex<Vec<Line>>> = LazyLock::new(Mutex::default);
static DRIVER: AtomicBool = AtomicBool::new(false);
static HOOKS: LazyLock<Mutex<Vec<Hook>>> = LazyLock::new(Mutex::default);

struct Capture;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(line) = line(event.metadata(), |fields| event.record(fields)) {
            let hooks = HOOKS.lock().unwrap().clone();
            hooks.iter().for_each(|hook| hook(&line));
        }
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        line(span.metadata(), |fields| span.record(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        line(span.metadata(), |fields| values.record(fields));
    }
}

fn line(metadata: &Metadata<'_>, record: impl FnOnce(&mut Fields<'_>)) -> Option<Line> {
    let target = metadata.target();
    let driver = target.starts_with("sqlx") && DRIVER.load(Ordering::Relaxed);
    if !target.starts_with("outbox") && !driver {
        return None;
    }
    let mut fields = BTreeMap::new();
    record(&mut Fields(&mut fields));
    let line = Line { target: target.to_owned(), level: *metadata.level(), fields };
    LINES.lock().unwrap().push(line.clone());
    Some(line)
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

/// Starts to keep what is logged, at every level. May be called often.
pub fn start() {
    start_with(Identity::new());
}

/// The same, for another layer as well. Only the first call of a process counts.
pub fn start_with(other: impl Layer<Registry> + Send + Sync) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let all = tracing_subscriber::registry().with(other).with(Capture);
        tracing::subscriber::set_global_default(all).unwrap();
    });
}

/// Keeps from now on what the database driver logs as well.
pub fn with_the_driver() {
    start();
    DRIVER.store(true, Ordering::Relaxed);
}

/// Calls `hook` with every line, while the line is being logged.
pub fn hook(hook: impl Fn(&Line) + Send + Sync + 'static) {
    HOOKS.lock().unwrap().push(Arc::new(hook));
}

/// The lines so far.
pub fn lines() -> Vec<Line> {
    LINES.lock().unwrap().clone()
}

/// How many of them are such ones. For who asks again and again: it copies none.
pub fn count(which: impl Fn(&Line) -> bool) -> usize {
    LINES.lock().unwrap().iter().filter(|line| which(line)).count()
}

/// The events of a queue so far. Tests run side by side, so each has queues of
/// its own.
pub fn events(queue: &str) -> Vec<Line> {
    let of = |line: &&Line| line.event().is_some() && line.get("queue") == Some(queue);
    LINES.lock().unwrap().iter().filter(of).cloned().collect()
}

/// Their names.
pub fn names(queue: &str) -> Vec<String> {
    events(queue).iter().filter_map(|line| line.event().map(str::to_owned)).collect()
}
