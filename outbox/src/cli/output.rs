//! What is printed: tables and lines for people, or one JSON document.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{ColumnConstraint, Row, Table, Width, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Where a command says what it did. Results go to standard output, everything else to
/// standard error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
    colors: bool,
    /// Columns of the terminal, if there is one.
    width: Option<u16>,
}

/// Less of a column is not worth showing.
const LEAST: u16 = 20;

impl Output {
    pub(super) fn new(json: bool) -> Self {
        let terminal = !json && io::stdout().is_terminal();
        let colors = terminal && std::env::var_os("NO_COLOR").is_none();
        let width = Table::new().width().filter(|&width| terminal && width > LEAST);
        Self { json, colors, width }
    }

    /// The result: as JSON, or as the text that is made for people.
    pub(super) fn result(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        self.stream(value, text);
    }

    /// As [`Output::result`], but only as JSON: people see it without being told.
    pub(super) fn only_json(self, value: &impl Serialize) {
        if self.json {
            self.result(value, String::new);
        }
    }

    /// As [`Output::result`], for one result of many. False when nobody reads them any
    /// more.
    pub(super) fn stream(self, value: &impl Serialize, text: impl FnOnce() -> String) -> bool {
        let text = if self.json {
            serde_json::to_string(value).map(|json| without_controls(&json))
        } else {
            Ok(text())
        };
        match text {
            Ok(text) => print(&text),
            Err(error) => {
                self.error(&format!("the result cannot be written as JSON: {error}"));
                false
            }
        }
    }

    /// What is said beside the result; not with `--json`.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Why there is no result.
    pub(super) fn error(self, text: &str) {
        let _ = if self.json {
            let error = serde_json::json!({ "error": text }).to_string();
            writeln!(io::stderr(), "{}", without_controls(&error))
        } else {
            writeln!(io::stderr(), "error: {}", printable_lines(text))
        };
    }

    /// A table without lines. With a height, each row has at most so many lines: on a terminal
    /// the last column is cut. Otherwise it takes as many as it needs.
    pub(super) fn table<const N: usize>(
        self,
        head: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
        height: Option<usize>,
    ) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(head).set_truncation_indicator("…");
        for cells in rows {
            let mut row = Row::from(cells.map(|cell| printable(&cell).into_owned()));
            if let Some(height) = height {
                row.max_height(height);
            }
            table.add_row(row);
        }
        if let Some(width) = self.width {
            fit(&mut table, width);
        }
        // Columns of blanks at the ends of lines are of no use.
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    /// Text that stands out on a terminal.
    pub(super) fn strong(self, text: &str) -> String {
        if self.colors { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// For one statement that may take long: something that moves on a terminal,
    /// otherwise nothing.
    pub(super) async fn waiting<T>(self, what: &'static str, work: impl Future<Output = T>) -> T {
        let bar = self.spinner(what);
        let done = work.await;
        bar.finish_and_clear();
        done
    }

    /// For work of an unknown amount: what moves for [`Output::waiting`].
    pub(super) fn spinner(self, what: &'static str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
            .with_style(ProgressStyle::default_spinner())
            .with_message(what);
        if !self.json {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        bar
    }

    /// For letters, which take long: a bar on a terminal, otherwise nothing.
    pub(super) fn progress(self, of: u64) -> ProgressBar {
        let bar = self.spinner("letters");
        measured(&bar, of);
        bar
    }
}

/// Makes a bar of a spinner, once it is known how much there is to do.
pub(super) fn measured(spinner: &ProgressBar, of: u64) {
    spinner.set_length(of);
    let template = "{spinner} {msg} {wide_bar} {pos}/{len} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        spinner.set_style(style);
    }
}

/// Gives the last column what the other columns leave of a line. Nothing of those is cut. If too
/// little is left, the terminal goes on in the next line.
fn fit(table: &mut Table, line: u16) {
    const PADDING: u16 = 2;
    let widths = table.column_max_content_widths();
    let Some((_, before)) = widths.split_last() else { return };
    let before =
        before.iter().fold(0_u16, |sum, one| sum.saturating_add(*one).saturating_add(PADDING));
    let mut left = line - before % line;
    if left < LEAST {
        left += line;
    }
    if let Some(last) = table.column_mut(widths.len() - 1) {
        last.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(left)));
    }
}

/// Whether a result was not written: that is no success, whatever was done.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// Whether everything that was printed is where it belongs.
pub(super) fn is_written() -> bool {
    !UNWRITTEN.load(Ordering::Relaxed)
}

/// Prints to standard output; false when nobody reads it any more. A reader that closed the pipe
/// has read enough.
fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
    match written {
        Ok(()) => return true,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            UNWRITTEN.store(true, Ordering::Relaxed);
            let _ = writeln!(io::stderr(), "error: the result cannot be written: {error}");
        }
    }
    false
}

/// Text of a message, or of whoever wrote to the tables, for a terminal: what could
/// move the cursor or change colours is escaped.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let dangerous = |c: char| c.is_control() || is_direction(c);
    if !text.contains(dangerous) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if dangerous(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// As [`printable`], for a text of lines.
pub(super) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Characters that make a text appear in another order than it is in.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON escapes the control characters up to U+001F; terminals heed more.
fn without_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() || is_direction(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_command_the_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b\n";
        assert_eq!(printable(hostile), "a\\u{1b}[2J\\u{9b}31m\\u{7f}\\u{202e}b\\n");
        for direction in "\u{61c}\u{200e}\u{200f}\u{202a}\u{2066}\u{2069}".chars() {
            let shown = printable(&direction.to_string()).into_owned();
            assert_eq!(shown, direction.escape_default().to_string());
        }
        let json = without_controls(&serde_json::to_string(hostile).unwrap());
        assert!(!json.contains(|c: char| c.is_control() || is_direction(c)), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    /// What the terminal would break is not broken by the table, too.
    #[test]
    fn only_the_last_column_of_a_list_is_cut() {
        let terminal = |width| Output { json: false, colors: false, width: Some(width) };
        let (mark, error) = ("f".repeat(16), "no stock for order 7 of customer 12 ".repeat(3));
        let rows = || [[mark.clone(), "orders".to_owned(), error.clone()]];
        let text = terminal(80).table(["FINGERPRINT", "QUEUE", "ERROR"], rows(), Some(1));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].contains(&mark) && lines[1].ends_with('…'), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        // Where nothing is left of the line, the next one has the rest.
        let text = terminal(30).table(["FINGERPRINT", "QUEUE", "ERROR"], rows(), Some(1));
        assert!(text.contains(&mark) && text.contains("no stock for order 7"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        // Of a table nothing is cut.
        let text = terminal(80).table(["FINGERPRINT", "QUEUE", "ERROR"], rows(), None);
        assert!(text.lines().count() > 2 && text.matches("customer").count() == 3, "{text}");
        let none = Output { json: false, colors: false, width: None };
        assert!(none.table(["A", "B", "C"], rows(), Some(1)).contains(error.trim_end()));
    }
}
