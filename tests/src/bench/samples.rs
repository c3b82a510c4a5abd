//! Times of one thing done many times, and what is said of them.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Times of one thing, each in seconds.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Times `work` once and keeps the time when it succeeds.
    ///
    /// # Errors
    /// What `work` says.
    pub fn time<T, E>(&mut self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = Instant::now();
        let result = work()?;
        self.push(start.elapsed());
        Ok(result)
    }

    /// Keeps one time.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// Keeps those of another, too.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time below which this share of the samples lies (nearest rank), in seconds; 0 without
    /// samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let rank = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        sorted.get(rank.min(last)).copied().unwrap_or(0.0)
    }

    /// The middle one, in seconds.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Number and spread, in seconds × `scale`.
    #[must_use]
    pub fn spread(&self, scale: f64) -> Value {
        json!({
            "samples": self.count(),
            "p10": round(self.quantile(0.1) * scale),
            "p90": round(self.quantile(0.9) * scale),
        })
    }
}

/// Four significant digits: what a measurement of this kind carries.
#[must_use]
pub(super) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// One figure beside its baseline.
#[derive(Debug)]
pub struct Figure(serde_json::Map<String, Value>);

impl Figure {
    /// Medians of both, in seconds × `scale`.
    #[must_use]
    pub fn of(unit: &str, scale: f64, value: &Samples, baseline: &Samples) -> Self {
        let mut all = serde_json::Map::new();
        all.insert("value".into(), json!(round(value.median() * scale)));
        all.insert("unit".into(), json!(unit));
        all.insert("baseline".into(), json!(round(baseline.median() * scale)));
        all.insert("spread".into(), value.spread(scale));
        all.insert("baseline_spread".into(), baseline.spread(scale));
        Self(all)
    }

    /// What `through` takes more than `direct`, in milliseconds; the baseline is `direct`.
    #[must_use]
    pub fn added(through: &Samples, direct: &Samples) -> Self {
        let mut figure = Self::of("ms", 1e3, through, direct);
        let total = through.median() * 1e3;
        let added = total - direct.median() * 1e3;
        figure.0.insert("value".into(), json!(round(added)));
        figure.0.insert("total".into(), json!(round(total)));
        figure
    }

    /// The median without a baseline, in seconds × `scale`.
    #[must_use]
    pub fn alone(unit: &str, scale: f64, value: &Samples) -> Self {
        Self::single(unit, value.median() * scale, None).with("spread", value.spread(scale))
    }

    /// One value, not a median.
    #[must_use]
    pub fn single(unit: &str, value: f64, baseline: Option<f64>) -> Self {
        let mut all = serde_json::Map::new();
        all.insert("value".into(), json!(round(value)));
        all.insert("unit".into(), json!(unit));
        all.insert("baseline".into(), json!(baseline.map(round)));
        Self(all)
    }

    /// Says something more of it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::Number(number) if number.is_f64() => {
                json!(round(number.as_f64().unwrap_or(0.0)))
            }
            other => other,
        };
        self.0.insert(name.to_owned(), value);
        self
    }

    /// The object that is printed.
    #[must_use]
    pub fn json(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), 0.0);
        for ms in [9, 1, 5, 3, 7] {
            samples.push(Duration::from_millis(ms));
        }
        let ms = |share| (samples.quantile(share) * 1e3).round();
        assert_eq!(
            [ms(0.0), ms(0.1), ms(0.5), ms(0.9), ms(1.0)],
            [1.0, 1.0, 5.0, 9.0, 9.0]
        );
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!(round(1234.56), 1235.0);
        assert_eq!(round(0.012_345_6), 0.012_35);
        assert_eq!(round(0.0), 0.0);
    }
}
