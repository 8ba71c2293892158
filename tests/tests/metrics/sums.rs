//! The text that Prometheus scrapes.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Name, labels, value.
    pub series: Vec<(String, BTreeMap<String, String>, f64)>,
    /// Name and text of every `# HELP`.
    pub help: BTreeMap<String, String>,
    /// Name and kind of every `# TYPE`.
    pub kinds: BTreeMap<String, String>,
}

impl Sums {
    pub fn read(text: &str) -> Self {
        let mut sums = Self::default();
        for line in text.lines() {
            if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' '))
            {
                sums.help.insert(name.into(), help.into());
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
            {
                sums.kinds.insert(name.into(), kind.into());
            } else if let Some((series, value)) = line.rsplit_once(' ') {
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let labels = labels.trim_end_matches('}').split("\",");
                let pairs = labels.filter_map(|label| label.split_once("=\""));
                let labels = pairs.map(|(k, v)| (k.to_owned(), v.trim_end_matches('"').to_owned()));
                sums.series.push((name.into(), labels.collect(), value.parse().unwrap()));
            }
        }
        sums
    }

    /// The values of a metric, by the values of these labels, where the queue begins so.
    pub fn by(&self, name: &str, labels: &[&str], prefix: &str) -> BTreeMap<Vec<String>, i64> {
        let mut found = BTreeMap::new();
        let of_name = self.series.iter().filter(|(known, ..)| known == name);
        for (_, has, value) in of_name {
            let Some(rest) = has.get("queue").and_then(|queue| queue.strip_prefix(prefix)) else {
                continue;
            };
            let value_of = |label: &&str| match *label {
                "queue" => rest.to_owned(),
                label => has.get(label).cloned().unwrap_or_default(),
            };
            let key: Vec<_> = labels.iter().map(value_of).collect();
            let value = *value as i64;
            *found.entry(key).or_default() += value;
        }
        found.retain(|_, value| *value != 0);
        found
    }

    /// The sum of a metric over the queues that begin so.
    pub fn total(&self, name: &str, prefix: &str) -> i64 {
        self.by(name, &[], prefix).into_values().sum()
    }

    /// The value of the only series of a metric that is for no queue.
    pub fn alone(&self, name: &str) -> Option<f64> {
        let mut found = self.series.iter().filter(|(known, ..)| known == name);
        found.next().map(|(.., value)| *value)
    }
}
