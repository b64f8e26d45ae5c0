//! The table for people.

use crate::record::{OURS, Record};

/// The heading over the rows.
pub(super) const HEADING: &str = "suite/case                           median       min  runs         \
rate            ratio to reference              bytes/party  rounds  max error  set-up";

/// One row.
pub(super) fn row(record: &Record) -> String {
    let name = format!("{}/{}", record.suite, record.case);
    let other = (record.system != OURS).then(|| record.system.clone());
    let rate = record.rate.map_or(String::new(), |rate| {
        format!("{} {}", digits(rate), record.rate_unit.as_deref().unwrap_or(""))
    });
    let reference = record.ratio.map_or(String::new(), |ratio| {
        format!("{ratio:.2} x {}", record.reference.as_deref().unwrap_or(""))
    });
    let set_up: Vec<String> = [
        other,
        record.protocol.clone(),
        record.engine.clone(),
        record.network.clone(),
        record.size.clone(),
        record.threads.map(|n| format!("{n} thr")),
        record.cpu_seconds.map(|s| format!("cpu {}", time(s))),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!(
        "{name:<34} {:>9} {:>9} {:>5}  {rate:<18} {reference:<32} {:>11} {:>7} {:>10}  {}",
        record.seconds_median.map(time).unwrap_or_default(),
        record.seconds_min.map(time).unwrap_or_default(),
        record.runs.map(|n| n.to_string()).unwrap_or_default(),
        record.bytes_per_party.map(|n| n.to_string()).unwrap_or_default(),
        record.rounds.map(|n| n.to_string()).unwrap_or_default(),
        record.max_abs_error.map(|e| format!("{e:.2e}")).unwrap_or_default(),
        set_up.join(", "),
    )
}

/// Seconds with a fitting unit and three significant digits.
fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", digits(s)),
        s if s >= 1e-3 => format!("{} ms", digits(s * 1e3)),
        s if s >= 1e-6 => format!("{} us", digits(s * 1e6)),
        s => format!("{} ns", digits(s * 1e9)),
    }
}

/// Three significant digits, without an exponent.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_three_digits_and_a_fitting_unit() {
        assert_eq!(time(12.345), "12.3 s");
        assert_eq!(time(0.0456), "45.6 ms");
        assert_eq!(time(7.89e-6), "7.89 us");
    }

    #[test]
    fn a_row_leaves_out_what_does_not_apply() {
        let record = Record {
            suite: "ring".into(),
            case: "gemm/512".into(),
            system: OURS.into(),
            ..Record::default()
        };
        assert_eq!(row(&record).trim(), "ring/gemm/512");
    }
}
