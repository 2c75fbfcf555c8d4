//! What the figures say about each value of a twin: the interval in which the deviation stays near the best one, while the
//! other parameters are fitted again.

use serde::Serialize;

use super::formula;
use crate::study::{Study, StudyError, Twin, TwinFigure};

/// The deviation of the interval, as a multiple of the best one.
const TOLERANCE: f64 = 1.1;
/// A logarithm of twin ÷ published that counts in full; a figure without a value has it.
const MAX_DEVIATION: f64 = 1.0;
/// Deviations below this, in logarithms, are the rounding of the figures.
const ROUNDING: f64 = 1e-5;
/// Trials in each direction, and the factor from one to the next.
const TRIALS: i32 = 16;
const TRIAL_STEP: f64 = 0.173_286_795_139_986; // Four trials double the value.
/// Halvings of the last trial outside the interval.
const REFINEMENTS: u32 = 7;
/// The first and the last step of a fit, in logarithms.
const FIRST_STEP: f64 = 0.4;
const LAST_STEP: f64 = 0.002;

/// The values of a twin and what its figures say about them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinProfile {
    /// The name of the twin.
    pub twin: String,
    /// Number of its figures.
    pub figures: usize,
    /// The mean of their deviations by formula, without sign, in percent.
    pub deviation_percent: f64,
    /// Its values.
    pub values: Vec<ParameterProfile>,
}

/// A value of a twin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterProfile {
    /// The name.
    pub name: String,
    /// The value with its unit.
    pub value: String,
    /// The published figures determined it.
    pub fitted: bool,
    /// Its origin.
    pub source: String,
    /// The interval in which the deviation stays within 10 % of the best.
    pub interval: ProfileInterval,
}

/// The interval of a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileInterval {
    /// No figure depends on the value.
    Any,
    /// From the first to the second; `None` is beyond a sixteenth or the sixteenfold of the value.
    Between {
        /// The smallest value, with its unit.
        low: Option<String>,
        /// The largest value, with its unit.
        high: Option<String>,
        /// Some values between them are worse.
        has_gaps: bool,
        /// Whether the value of the twin is one of them. Otherwise it is that of the fitted figures, or of another twin.
        has_value: bool,
    },
}

impl ProfileInterval {
    /// Whether the figures limit the value on both sides.
    pub fn is_determined(&self) -> bool {
        matches!(self, ProfileInterval::Between { low: Some(_), high: Some(_), .. })
    }
}

/// The profiles of the twins of the selected tables.
///
/// # Errors
///
/// Fails if the study is invalid.
pub fn profile(study: &Study) -> Result<Vec<TwinProfile>, StudyError> {
    let figures = study.twin_figures()?;
    let mut profiles = Vec::new();
    for twin in study.twins() {
        let own: Vec<&TwinFigure> = figures.iter().filter(|figure| figure.twin.name == twin.name).collect();
        let fit = TwinFit { twin, names: twin.values().keys().cloned().collect(), figures: own };
        let values = fit.names.iter().enumerate().map(|(index, name)| ParameterProfile {
            name: name.clone(),
            value: display(&twin.values()[name]),
            fitted: twin.parameters.contains_key(name),
            source: match twin.parameters.contains_key(name) {
                true => {
                    format!("fitted: {}", twin.derivation.split_whitespace().collect::<Vec<_>>().join(" "))
                }
                false => study.source_of(twin, name).unwrap_or("unknown").to_owned(),
            },
            interval: fit.interval(index),
        });
        profiles.push(TwinProfile {
            twin: twin.name.clone(),
            figures: fit.figures.len(),
            deviation_percent: 100.0 * fit.deviation(&vec![0.0; fit.names.len()]),
            values: values.collect(),
        });
    }
    Ok(profiles)
}

/// A twin whose values are multiplied by exponentials.
struct TwinFit<'a> {
    twin: &'a Twin,
    names: Vec<String>,
    figures: Vec<&'a TwinFigure<'a>>,
}

impl TwinFit<'_> {
    /// The mean deviation, in logarithms, with the values changed by these logarithms.
    fn deviation(&self, changes: &[f64]) -> f64 {
        let mut values = self.twin.values();
        for (name, change) in self.names.iter().zip(changes).filter(|(_, change)| **change != 0.0) {
            let Some(scaled) = scale(&values[name], change.exp()) else { continue };
            values.insert(name.clone(), scaled);
        }
        let Ok(model) = self.twin.model_with(values) else { return f64::INFINITY };
        let deviations: Vec<f64> = self
            .figures
            .iter()
            .filter_map(|figure| {
                let published = figure.published.filter(|published| *published > 0.0)?;
                let value = formula::value(&model, figure).filter(|value| *value > 0.0);
                Some(value.map_or(MAX_DEVIATION, |value| (value / published).ln().abs().min(MAX_DEVIATION)))
            })
            .collect();
        deviations.iter().sum::<f64>() / deviations.len().max(1) as f64
    }

    /// Fits these values again, and returns the deviation.
    fn refit(&self, changes: &mut [f64], free: &[usize]) -> f64 {
        let (mut best, mut step) = (self.deviation(changes), FIRST_STEP);
        while step > LAST_STEP {
            let mut is_better = false;
            for &index in free {
                for signed in [step, -step] {
                    let before = changes[index];
                    changes[index] += signed;
                    let deviation = self.deviation(changes);
                    if deviation < best {
                        (best, is_better) = (deviation, true);
                    } else {
                        changes[index] = before;
                    }
                }
            }
            if !is_better {
                step /= 2.0;
            }
        }
        best
    }

    /// The interval of a value.
    fn interval(&self, index: usize) -> ProfileInterval {
        let others: Vec<usize> = (0..self.names.len())
            .filter(|other| *other != index && self.twin.parameters.contains_key(&self.names[*other]))
            .collect();
        let mut centre = vec![0.0; self.names.len()];
        let fitted: Vec<usize> = others.iter().copied().chain([index]).collect();
        let in_middle = self.refit(&mut centre, &fitted);
        let mut trials = vec![(centre[index], in_middle)];
        for direction in [-1.0, 1.0] {
            let mut changes = centre.clone();
            for trial in 1..=TRIALS {
                changes[index] = centre[index] + direction * f64::from(trial) * TRIAL_STEP;
                trials.push((changes[index], self.refit(&mut changes, &others)));
            }
        }
        trials.sort_by(|one, other| one.0.total_cmp(&other.0));
        let best = trials.iter().map(|(_, deviation)| *deviation).fold(f64::INFINITY, f64::min);
        let limit = (best * TOLERANCE).max(best + ROUNDING);
        if trials.iter().all(|(_, deviation)| (deviation - in_middle).abs() < ROUNDING) {
            return ProfileInterval::Any;
        }
        let inside: Vec<usize> = (0..trials.len()).filter(|trial| trials[*trial].1 <= limit).collect();
        let (Some(&first), Some(&last)) = (inside.first(), inside.last()) else {
            return ProfileInterval::Any;
        };
        // The last change inside, in logarithms.
        let edge = |inner: usize, outer: Option<usize>| -> Option<f64> {
            let (mut inner, mut outer) = (trials[inner].0, trials.get(outer?)?.0);
            for _ in 0..REFINEMENTS {
                let mut changes = centre.clone();
                changes[index] = (inner + outer) / 2.0;
                match self.refit(&mut changes, &others) <= limit {
                    true => inner = (inner + outer) / 2.0,
                    false => outer = (inner + outer) / 2.0,
                }
            }
            Some(inner)
        };
        let (low, high) = (edge(first, first.checked_sub(1)), edge(last, Some(last + 1)));
        let value = |change: Option<f64>| {
            scale(&self.twin.values()[&self.names[index]], change?.exp()).map(|value| display(&value))
        };
        let same = display(&self.twin.values()[&self.names[index]]);
        let (low_value, high_value) = (value(low), value(high));
        let is_edge = [&low_value, &high_value].iter().any(|edge| edge.as_ref() == Some(&same));
        let is_inside = low.is_none_or(|low| low <= LAST_STEP) && high.is_none_or(|high| high >= -LAST_STEP);
        ProfileInterval::Between {
            low: low_value,
            high: high_value,
            has_gaps: inside.len() < last - first + 1,
            has_value: is_inside || is_edge,
        }
    }
}

/// Significant digits of a scaled value.
const DIGITS: i32 = 4;

/// The value multiplied by a factor; `None` if it is no number.
fn scale(value: &toml::Value, factor: f64) -> Option<toml::Value> {
    let rounded = |number: f64, decimals: i32| {
        let unit = 10f64.powi(decimals);
        (number * unit).round() / unit
    };
    match value {
        toml::Value::Integer(number) => Some(((*number as f64 * factor).round() as i64).max(1).into()),
        toml::Value::Float(number) => Some((number * factor).into()),
        toml::Value::String(text) => {
            let (number, unit) = split_unit(text);
            let number = number.parse::<f64>().ok()? * factor;
            // Bytes are whole.
            let decimals = if unit == "k" { 3 } else { DIGITS - 1 - number.log10().floor() as i32 };
            Some(format!("{}{unit}", rounded(number, decimals)).into())
        }
        _ => None,
    }
}

/// The number of a value and its unit.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len()),
    )
}

/// The value for people: `19.61 ms`.
fn display(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => {
            let (number, unit) = split_unit(text);
            format!("{number} {}", unit.replacen("us", "µs", 1)).trim_end().to_owned()
        }
        toml::Value::Float(number) => format!("{:.4}", number).trim_end_matches('0').to_owned(),
        other => other.to_string(),
    }
}
