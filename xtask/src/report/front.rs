//! The table of figures of `docs/measured.md`, kept between two comments.

use anyhow::{Context, Result};

use super::page::{bytes, time};
use super::records::{Records, name};
use crate::record::{MEASURED, OURS, Record};

/// The other systems, by the start of their names.
const OTHERS: [&str; 2] = ["SPU", "CrypTen"];

const START: &str = "<!-- measured: written by `cargo xtask report` -->\n";
const END: &str = "<!-- end of measured -->\n";

/// The page with its table updated.
///
/// # Errors
/// If its two comments are not there.
pub(super) fn update(readme: &str, records: &Records) -> Result<String> {
    let (before, rest) =
        readme.split_once(START).with_context(|| format!("no `{}`", START.trim()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no `{}`", END.trim()))?;
    Ok(format!("{before}{START}{}{END}{after}", table(records)))
}

fn table(records: &Records) -> String {
    let mut machines: Vec<&str> = Vec::new();
    let mut rows = String::new();
    for (words, case) in MEASURED {
        let of = |is: &dyn Fn(&Record) -> bool| {
            let mut found = records.all().filter(|record| name(record) == *case && is(record));
            found.next_back()
        };
        // Ours over TLS, as it is used; newer lines come later.
        let Some(ours) = of(&|r| r.system == OURS && r.network.as_deref() == Some("tls")) else {
            continue;
        };
        if !machines.contains(&ours.machine.as_str()) {
            machines.push(&ours.machine);
        }
        let seconds = |record: &Record| record.seconds_median.map(time).unwrap_or_default();
        let other = |system: &str| {
            let same = |r: &Record| r.system.starts_with(system) && r.machine == ours.machine;
            of(&same).map(seconds).unwrap_or_default()
        };
        let (suite, case) = case.split_once('/').unwrap_or((case, ""));
        rows += &format!(
            "| {words} | {} | {} | {} | {} | {} | {} | `cargo xtask bench {suite} --only {case}` |\n",
            seconds(ours),
            ours.bytes_per_party.map(bytes).unwrap_or_default(),
            ours.rounds.map(|rounds| rounds.to_string()).unwrap_or_default(),
            other(OTHERS[0]),
            other(OTHERS[1]),
            ours.commit.get(..8).unwrap_or(&ours.commit),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "Three parties as processes on one machine ({}; each row is of one), a thread each, over \
         mutual TLS:\n\n\
         | what | time | bytes per party | rounds | {} | {} | commit | measured again by |\n\
         |---|---|---|---|---|---|---|---|\n{rows}",
        machines.join("; "),
        OTHERS[0],
        OTHERS[1],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stands_between_its_comments() {
        let record = |system: &str, seconds| Record {
            suite: "models".into(),
            case: "lenet/1".into(),
            system: system.into(),
            network: Some(if system == OURS { "tls" } else { "tcp" }.into()),
            seconds_median: Some(seconds),
            bytes_per_party: Some(1500),
            machine: "a machine".into(),
            commit: "0123abcdef".into(),
            ..Record::default()
        };
        let records = Records::of(vec![record(OURS, 0.004), record("SPU 1", 0.5)]);
        let readme = format!("a\n{START}old\n{END}b\n");
        let text = update(&readme, &records).unwrap();
        assert!(
            text.starts_with(&format!("a\n{START}Three")) && text.ends_with(&format!("{END}b\n"))
        );
        let row = "| LeNet, one image | 4.00 ms | 1.5 kB |  | 500.00 ms |  | 0123abcd | `cargo xtask bench \
                   models --only lenet/1` |";
        assert!(text.contains(row) && !text.contains("old"), "{text}");
        assert!(update("no comments", &records).is_err());
    }
}
