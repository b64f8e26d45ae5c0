//! Checks that functions of secrets state their costs, in the words of the table that tests compare
//! with counted bytes and rounds.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::workspace::for_each_source;

/// The functions over any protocol.
const FUNCTIONS: &str = "mpc-core/src/functions";

/// Their table for replicated sharing: `rss-protocols/tests/function_costs.rs` compares it with the transport's counts.
const TABLE: &str = "rss-protocols/src/costs/mod.rs";

/// Functions that talk and do not state rounds and bits, or others than the table, with their files.
pub(super) fn unstated(root: &Path) -> Result<Vec<String>> {
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| TABLE.to_owned())?;
    let table = rows(&table);
    let mut sections = HashMap::new();
    let mut places = Vec::new();
    for_each_source(&root.join(FUNCTIONS), &mut |path, text| {
        let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
        for (function, section) in talking(text) {
            places.push((function.clone(), file.clone()));
            sections.insert(function, section);
        }
    })?;
    let mut faults: Vec<String> = places
        .iter()
        .filter_map(|(function, file)| {
            Some(format!("{file}: `{function}` {}", fault(function, &sections, &table)?))
        })
        .collect();
    let lost = table.iter().filter(|row| !sections.contains_key(row.function));
    faults.extend(lost.map(|row| format!("{TABLE}: there is no function `{}`", row.function)));
    faults.sort();
    Ok(faults)
}

/// A line of the table.
struct Row<'a> {
    function: &'a str,
    rounds: &'a str,
    bits: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let field = |line: &'_ str, name: &str| -> Option<(usize, usize)> {
        let start = line.find(name)? + name.len();
        let length = line[start..].find(['"', ',', '.', ' ', '}'])?;
        Some((start, start + length))
    };
    let row = |line| -> Option<Row<'_>> {
        let line: &str = line;
        let [function, rounds, bits] = ["function: \"", "rounds: ", "bits: "]
            .map(|name| field(line, name).map(|(start, end)| &line[start..end]));
        Some(Row { function: function?, rounds: rounds?, bits: bits? })
    };
    text.lines().filter_map(row).filter(|row| !row.bits.is_empty()).collect()
}

/// Public functions of a file that send something, for they change their protocol's state, with the
/// section of their documentation that is headed `# Cost`.
fn talking(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut docs: Vec<&str> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if let Some(rest) = line.strip_prefix("pub fn ") {
            let name = rest.split(['<', '(']).next().unwrap_or(rest).to_owned();
            let mut signature = line.to_owned();
            while !signature.contains('{') {
                let Some(more) = lines.next() else { break };
                signature += more;
            }
            if signature.contains("&mut P") {
                found.push((name, cost(&docs)));
            }
            docs.clear();
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
    found
}

fn cost(docs: &[&str]) -> Option<String> {
    let start = docs.iter().position(|doc| *doc == "# Cost")? + 1;
    let section = docs[start..].iter().take_while(|doc| !doc.starts_with("# "));
    Some(section.copied().collect::<Vec<_>>().join(" "))
}

/// The fault in the stated cost of a function, if any.
fn fault(
    function: &str,
    sections: &HashMap<String, Option<String>>,
    table: &[Row<'_>],
) -> Option<String> {
    let Some(Some(section)) = sections.get(function) else {
        return Some("has no section `# Cost`".to_owned());
    };
    if let Some(row) = table.iter().find(|row| row.function == function) {
        let plural = if row.rounds == "1" { "" } else { "s" };
        let stated = format!("{} round{plural} and {} bits", row.rounds, row.bits);
        return (!section.contains(&stated)).then(|| format!("does not state {stated}"));
    }
    let has_both = section.contains("round") && section.contains("bits");
    let mut named = section.split("[`").skip(1).filter_map(|rest| rest.split('`').next());
    let stands_for_another = section.starts_with("As ")
        && named.any(|other| other != function && fault(other, sections, table).is_none());
    (!has_both && !stands_for_another).then(|| "states no rounds and bits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "    Cost { function: \"max of 16\", rounds: 22, bits: 430.0 },\n";

    fn check(source: &str) -> Vec<Option<String>> {
        let found = talking(source);
        let sections = found.iter().cloned().collect();
        found.iter().map(|(name, _)| fault(name, &sections, &rows(TABLE))).collect()
    }

    #[test]
    fn a_function_states_the_cost_of_its_row() {
        let source = "/// # Cost\n/// Here: 22 rounds and 430 bits.\n#[inline]\npub fn max<P>(\n    \
                      mpc: &mut P) {}\n/// # Cost\n/// As [`max`].\npub fn min<P>(mpc: &mut P) {}\n";
        assert_eq!(check(source), [None, None]);
        let other = source.replace("430", "43");
        assert!(check(&other)[0].as_ref().is_some_and(|fault| fault.contains("430 bits")));
        assert!(check(&other)[1].is_some());
    }

    #[test]
    fn a_function_without_a_row_states_rounds_and_bits_and_a_silent_one_nothing() {
        let source = "pub fn a<P>(mpc: &P) {}\npub fn b<P>(mpc: &mut P) {}\n/// # Cost\n/// One \
                      round.\npub fn c<P>(mpc: &mut P) {}\n/// # Cost\n/// One round, 3 bits.\npub fn \
                      d<P>(mpc: &mut P) {}\n";
        let faults = check(source);
        assert_eq!(faults.len(), 3);
        assert!(faults[0].is_some() && faults[1].is_some() && faults[2].is_none());
    }
}
