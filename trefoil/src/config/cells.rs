//! The number of a server among several workers of its party, and the addresses of the others.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::base::check::check_range;

/// The text that stands for a cell's number in a file.
pub(super) const CELL: &str = "{cell}";

/// The most cells.
const MOST: u64 = 4096;

/// Several workers of a party, on one store: the cells. A worker computes with the workers of its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// The greatest number of them.
    pub count: u16,
    /// The source of this worker's number.
    #[serde(default)]
    pub cell: CellSource,
    /// This worker's number, from 0.
    #[serde(skip)]
    pub number: u16,
}

/// The source of a worker's number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellSource {
    /// The file.
    Number(u16),
    /// The end of the host's name.
    #[default]
    Hostname,
}

impl Cells {
    /// The number of the worker that a file is read for, if its party has cells: `given`, or what the file says.
    pub(super) fn number(file: &Table, given: Option<u16>) -> Result<Option<u16>, String> {
        let Some(Value::Table(cells)) = file.get("cells") else {
            return match given {
                Some(_) => Err("a cell is given, and the file has no [cells]".to_owned()),
                None => Ok(None),
            };
        };
        let number = match (given, cells.get("cell")) {
            (Some(given), _) => u64::from(given),
            (None, Some(Value::Integer(number))) => u64::try_from(*number).unwrap_or(u64::MAX),
            (None, None) => number_at_end(&host_name())?,
            (None, Some(Value::String(text))) if text == "hostname" => number_at_end(&host_name())?,
            (None, Some(_)) => {
                return Err("`cells.cell` is a number, or \"hostname\" for the number at the end of the host's name"
                    .to_owned());
            }
        };
        let count = cells.get("count").and_then(Value::as_integer).unwrap_or_default();
        check_range("cells.count", u64::try_from(count).unwrap_or_default(), 1, MOST)?;
        check_range("cells.cell", number, 0, count as u64 - 1)?;
        Ok(Some(number as u16))
    }

    /// Checks that each cell has its own of what no two may share, and all have the store in common.
    pub(super) fn check(file: &Table) -> Result<(), String> {
        let texts = |key: &str| match file.get(key) {
            Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Table(table)) => {
                table.get("file").and_then(Value::as_str).into_iter().collect()
            }
            _ => Vec::new(),
        };
        if texts("data").iter().any(|folder| folder.contains(CELL)) {
            return Err(
                "`data` has {cell} in it, and all cells of a party share one folder".to_owned()
            );
        }
        if texts("audit").iter().any(|file| !file.contains(CELL)) {
            return Err("`audit.file` has no {cell} in it, and each cell writes a file of its own"
                .to_owned());
        }
        check_servers(&texts("servers"))
    }
}

/// Checks that the servers of each cell have addresses of their own.
pub(super) fn check_servers<T: AsRef<str>>(servers: &[T]) -> Result<(), String> {
    match servers.iter().find(|address| !address.as_ref().contains(CELL)) {
        Some(address) => Err(format!(
            "`servers` has {} for all cells; write {CELL} where the cell's number stands in it",
            address.as_ref()
        )),
        None => Ok(()),
    }
}

/// The addresses of the servers of a cell.
pub(super) fn addresses(servers: &[String], cell: Option<u16>) -> Vec<String> {
    let Some(cell) = cell else { return servers.to_vec() };
    servers.iter().map(|address| address.replace(CELL, &cell.to_string())).collect()
}

/// The number at the end of the first part of a host's name.
fn number_at_end(host: &str) -> Result<u64, String> {
    let first = host.split('.').next().unwrap_or_default();
    let digits = first.len() - first.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    first[first.len() - digits..].parse().map_err(|_| {
        format!(
            "the host's name `{}` ends in no number that a cell could have; set `cells.cell`, or use --cell",
            host.escape_default()
        )
    })
}

fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cells_number_is_at_the_end_of_the_hosts_name() {
        for (host, number) in [("party-3", 3), ("trefoil-party-12.svc.local", 12), ("w007", 7)] {
            assert_eq!(number_at_end(host), Ok(number));
        }
        for host in ["", "party", "party-", "3.example", "party-99999999999999999999"] {
            let outcome = number_at_end(host);
            assert!(outcome.is_err() || host == "3.example", "{host}");
        }
    }
}
