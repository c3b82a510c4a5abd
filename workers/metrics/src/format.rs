//! The two text formats that collectors read, by what the request accepts.

use http::HeaderMap;
use http::header::ACCEPT;
use ipc_proto::figures::{Family, Figures, Kind, Unit, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as Suffix};
use std::fmt;

/// The format with metadata of units and an end mark; every newer collector asks for it.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The format that everybody reads, people too.
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl Format {
    /// What the client accepts: OpenMetrics where it names it, else the older format.
    #[must_use]
    pub fn accepted(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(ACCEPT).iter();
        let mut ranges = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        let named = ranges.any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            let refused = parts
                .filter_map(|part| part.strip_prefix("q="))
                .any(|quality| quality.parse::<f32>().is_ok_and(|quality| quality <= 0.0));
            is_it && !refused
        });
        if named {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => OPENMETRICS,
            Self::Prometheus => PROMETHEUS,
        }
    }

    /// Writes the figures.
    ///
    /// # Errors
    /// When a family has a value of another kind or labels that don't match its names.
    pub fn write(self, figures: Figures) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Snapshot(figures)));
        let mut written = String::new();
        match self {
            Self::OpenMetrics => text::encode(&mut written, &registry)?,
            Self::Prometheus => prometheus_text::encode(&mut written, &registry)?,
        }
        Ok(written)
    }
}

#[derive(Debug)]
struct Snapshot(Figures);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0.families {
            let unit = family.unit.map(|unit| match unit {
                Unit::Seconds => Suffix::Seconds,
                Unit::Bytes => Suffix::Bytes,
            });
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let encoder =
                encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
            samples(family, encoder)?;
        }
        Ok(())
    }
}

fn samples(family: &Family, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    for sample in &family.samples {
        if sample.labels.len() != family.labels.len() {
            return Err(fmt::Error);
        }
        let names = family.labels.iter().map(AsRef::as_ref);
        let labels: Vec<(&str, &str)> =
            names.zip(sample.labels.iter().map(AsRef::as_ref)).collect();
        let mut encoder = encoder.encode_family(&labels)?;
        match (family.kind, &sample.value) {
            (Kind::Counter, Value::Whole(n)) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(n, None)?;
            }
            (Kind::Gauge, Value::Whole(n)) => encoder.encode_gauge(n)?,
            (Kind::Gauge, Value::Real(n)) => encoder.encode_gauge(n)?,
            (
                Kind::Histogram,
                Value::Histogram {
                    sum,
                    count,
                    buckets,
                },
            ) => {
                let within: u64 = buckets.iter().map(|(_, n)| n).sum();
                let above = count.checked_sub(within).ok_or(fmt::Error)?;
                let mut buckets = buckets.clone();
                buckets.push((f64::INFINITY, above));
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, &buckets, None)?;
            }
            _ => return Err(fmt::Error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;
    use ipc_proto::figures::Sample;

    fn family(kind: Kind, unit: Option<Unit>, value: Value) -> Family {
        Family {
            name: "mono_things".into(),
            help: "Things.".into(),
            unit,
            kind,
            labels: vec!["role".into()],
            samples: vec![Sample {
                labels: vec!["run".into()],
                value,
            }],
        }
    }

    fn write(format: Format, family: Family) -> Result<String, fmt::Error> {
        format.write(Figures {
            families: vec![family],
        })
    }

    fn histogram(count: u64) -> Value {
        Value::Histogram {
            sum: 1.5,
            count,
            buckets: vec![(0.1, 2), (1.0, 0), (2.5, 1)],
        }
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let counter = family(Kind::Counter, None, Value::Whole(7));
        assert_eq!(
            write(Format::OpenMetrics, counter).unwrap(),
            "# HELP mono_things Things.\n# TYPE mono_things counter\n\
             mono_things_total{role=\"run\"} 7\n# EOF\n"
        );
        let gauge = family(Kind::Gauge, Some(Unit::Bytes), Value::Whole(8));
        let text = write(Format::OpenMetrics, gauge).unwrap();
        assert!(text.contains("# UNIT mono_things_bytes bytes\n"), "{text}");
        assert!(text.contains("\nmono_things_bytes{role=\"run\"} 8\n"));
    }

    #[test]
    fn the_older_format_names_a_counter_by_its_sample() {
        let counter = family(Kind::Counter, None, Value::Whole(7));
        assert_eq!(
            write(Format::Prometheus, counter).unwrap(),
            "# HELP mono_things_total Things.\n# TYPE mono_things_total counter\n\
             mono_things_total{role=\"run\"} 7\n"
        );
    }

    #[test]
    fn buckets_add_up_to_the_count() {
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let text = write(
                format,
                family(Kind::Histogram, Some(Unit::Seconds), histogram(5)),
            )
            .unwrap();
            let buckets: Vec<_> = text
                .lines()
                .filter(|line| line.contains("_bucket"))
                .map(|line| line.rsplit(' ').next().unwrap())
                .collect();
            assert_eq!(buckets, ["2", "2", "3", "5"], "{text}");
            let last = text.lines().rfind(|line| line.contains("_bucket"));
            assert!(last.unwrap().contains("le=\"+Inf\""), "{text}");
            assert!(text.contains("mono_things_seconds_count{role=\"run\"} 5\n"));
        }
    }

    #[test]
    fn what_does_not_fit_its_family_is_refused() {
        let wrong = [
            family(Kind::Counter, None, Value::Real(0.5)),
            family(Kind::Gauge, None, histogram(5)),
            // More in the buckets than there are.
            family(Kind::Histogram, None, histogram(2)),
            Family {
                labels: vec![],
                ..family(Kind::Gauge, None, Value::Whole(1))
            },
        ];
        for family in wrong {
            assert!(
                write(Format::OpenMetrics, family.clone()).is_err(),
                "{family:?}"
            );
        }
    }

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        let accepted = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(ACCEPT, HeaderValue::from_static(value));
            }
            Format::accepted(&headers)
        };
        for value in [
            "application/openmetrics-text",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "text/html, Application/OpenMetrics-Text; version=0.0.1",
        ] {
            assert_eq!(accepted(Some(value)), Format::OpenMetrics, "{value}");
        }
        for value in [
            None,
            Some("*/*"),
            Some("text/plain"),
            Some("application/openmetrics-text;q=0"),
            Some("application/openmetrics-text-not"),
        ] {
            assert_eq!(accepted(value), Format::Prometheus, "{value:?}");
        }
    }
}
