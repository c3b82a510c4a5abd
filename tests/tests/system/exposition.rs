//! A reader of metrics that forgives nothing: what a collector would drop, or warn of, is an error.

use std::collections::{BTreeMap, BTreeSet};

/// Labels in the order in which they stand.
type Labels = Vec<(String, String)>;

/// A metric with its metadata.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
}

/// Everything on one page.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) families: BTreeMap<String, Family>,
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    OpenMetrics,
    Prometheus,
}

fn is_name(text: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(part)
}

/// `name="value",…}` up to the brace; returns the rest.
fn labels(mut text: &str) -> Result<(Labels, &str), String> {
    let mut all = Labels::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Ok((all, rest));
        }
        if !all.is_empty() {
            text = text.strip_prefix(',').ok_or("no comma between labels")?;
        }
        let (name, rest) = text.split_once("=\"").ok_or("no value")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().ok_or("an open value")? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => value.push(c),
                    other => return Err(format!("an escape of {other:?}")),
                },
                (_, c) => value.push(c),
            }
        };
        if !is_name(name) || all.iter().any(|(known, _)| known == name) {
            return Err(format!("the label name {name:?}"));
        }
        all.push((name.to_owned(), value));
        text = &rest[end..];
    }
}

/// `name{…} value`.
fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let at = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(at);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let value: f64 = value.parse().map_err(|_| format!("the value {value:?}"))?;
    if !is_name(name) || !value.is_finite() || value < 0.0 {
        return Err(format!("{name} of {value}"));
    }
    Ok((name.to_owned(), labels, value))
}

impl Exposition {
    /// Reads a page.
    pub(crate) fn read(text: &str, form: Form) -> Result<Self, String> {
        let mut page = Self::default();
        let body = match form {
            Form::OpenMetrics => text.strip_suffix("# EOF\n").ok_or("no end mark")?,
            Form::Prometheus => text,
        };
        if !body.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        let mut current = String::new();
        let mut buckets = Buckets::default();
        for line in body.lines() {
            page.line(line, form, &mut current, &mut buckets)
                .map_err(|problem| format!("{problem}: {line}"))?;
        }
        buckets.check(&page)?;
        for (name, family) in &page.families {
            if family.help.is_empty() || family.kind.is_empty() {
                return Err(format!("{name} has no help or no type"));
            }
        }
        Ok(page)
    }

    fn line(
        &mut self,
        line: &str,
        form: Form,
        current: &mut String,
        buckets: &mut Buckets,
    ) -> Result<(), String> {
        let Some(comment) = line.strip_prefix("# ") else {
            let (name, labels, value) = sample(line)?;
            let kind = &self.families.get(current).ok_or("no family yet")?.kind;
            let suffix = name.strip_prefix(current.as_str());
            let suffix = suffix.ok_or("a sample of another family")?;
            let fits = match (kind.as_str(), form) {
                ("counter", Form::OpenMetrics) => suffix == "_total",
                ("counter" | "gauge", _) => suffix.is_empty(),
                ("histogram", _) => ["_bucket", "_sum", "_count"].contains(&suffix),
                _ => return Err(format!("the type {kind:?}")),
            };
            if !fits {
                return Err(format!("a {kind} with {suffix:?}"));
            }
            if kind == "counter" && !(name.ends_with("_total") && value.fract() == 0.0) {
                return Err("no name or no value of a counter".into());
            }
            if suffix == "_bucket" {
                buckets.add(current, &labels, value)?;
            }
            let key = (name, labels.into_iter().collect());
            return match self.samples.insert(key, value) {
                None => Ok(()),
                Some(_) => Err("a second value".into()),
            };
        };
        let mut words = comment.splitn(3, ' ');
        let (what, name, rest) = (words.next(), words.next(), words.next());
        let (Some(what), Some(name), Some(rest)) = (what, name, rest) else {
            return Err("no comment of the format".into());
        };
        let family = self.families.entry(name.to_owned()).or_default();
        let seen = self.samples.keys().any(|(sample, _)| sample == name);
        if seen || !is_name(name) {
            return Err("metadata after the samples".into());
        }
        let place = match what {
            "HELP" => &mut family.help,
            "TYPE" => &mut family.kind,
            "UNIT" if form == Form::OpenMetrics && name.ends_with(&format!("_{rest}")) => {
                family.unit.get_or_insert_default()
            }
            _ => return Err("no comment of the format".into()),
        };
        if !place.is_empty() {
            return Err("metadata twice".into());
        }
        rest.clone_into(place);
        name.clone_into(current);
        Ok(())
    }

    /// The value of a sample; labels as `name=value`.
    pub(crate) fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let pairs = labels.iter().filter_map(|label| label.split_once('='));
        let labels = pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// Every value of every label but bounds.
    pub(crate) fn words(&self) -> BTreeSet<&str> {
        let labels = self.samples.keys().flat_map(|(_, labels)| labels);
        labels
            .filter(|(name, _)| *name != "le")
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// Buckets of every histogram, in the order in which they stand.
#[derive(Debug, Default)]
struct Buckets(BTreeMap<(String, Labels), Vec<(f64, f64)>>);

impl Buckets {
    fn add(&mut self, family: &str, labels: &Labels, value: f64) -> Result<(), String> {
        let bound = labels.iter().find(|(name, _)| name == "le");
        let bound = match bound.ok_or("a bucket without a bound")?.1.as_str() {
            "+Inf" => f64::INFINITY,
            number => number.parse().map_err(|_| "a bound that is no number")?,
        };
        let others = labels.iter().filter(|(name, _)| name != "le").cloned();
        let key = (family.to_owned(), others.collect());
        self.0.entry(key).or_default().push((bound, value));
        Ok(())
    }

    fn check(self, page: &Exposition) -> Result<(), String> {
        for ((family, labels), buckets) in self.0 {
            let rise = buckets
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let labels: BTreeMap<_, _> = labels.into_iter().collect();
            let count = page
                .samples
                .get(&(format!("{family}_count"), labels.clone()));
            let sum = page.samples.get(&(format!("{family}_sum"), labels));
            let last = buckets.last().copied().unwrap_or_default();
            if !rise || sum.is_none() || count != Some(&last.1) || last.0 != f64::INFINITY {
                return Err(format!("{family} is no histogram: {buckets:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn what_is_not_well_formed_is_an_error() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    let good = [
        "",
        "a_total 1\n",
        "a_total{b=\"c\\\\\\\"\\n\",d=\"\"} 1.0\n",
    ];
    for rest in good {
        Exposition::read(&format!("{head}{rest}"), Form::Prometheus).unwrap();
    }
    let bad = [
        "a_total 1",
        "a_total 1\na_total 2\n",
        "b_total 1\n",
        "a_total -1\n",
        "a_total 0.5\n",
        "a_total NaN\n",
        "a_total{b=\"c\" 1\n",
        "a_total{b=\"\\t\"} 1\n",
        "a_total{b=\"c\",b=\"d\"} 1\n",
        "a_total{b-c=\"d\"} 1\n",
        "a_total  1\n",
        "\n",
        "# HELP a_total B.\n",
        "# TYPE b counter\nb 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        "# HELP h H.\n# TYPE h summary\nh 1\n",
    ];
    for rest in bad {
        let read = Exposition::read(&format!("{head}{rest}"), Form::Prometheus);
        assert!(read.is_err(), "{rest:?}");
    }
    let open = "# HELP a A.\n# TYPE a counter\na_total 1\n";
    assert!(Exposition::read(open, Form::OpenMetrics).is_err());
    Exposition::read(&format!("{open}# EOF\n"), Form::OpenMetrics).unwrap();
}
