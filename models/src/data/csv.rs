//! Tables of numbers.

use std::path::Path;

use nn_layers::HostTensor;

use super::bytes::{read_unpacked, unpack};
use crate::{Error, Result};

const WHAT: &str = "CSV file";

/// Reads a table of numbers, plain or gzip, as `[rows, columns]`.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`from_csv`].
pub fn read_csv(path: &Path) -> Result<HostTensor> {
    from_csv(&read_unpacked(WHAT, path)?)
}

/// Reads a table of numbers in memory, plain or gzip. A first row without a single number is taken
/// as names of the columns.
///
/// # Errors
/// [`Error::Format`] naming row and column of an entry that is not a finite number, or a row of another length.
pub fn from_csv(bytes: &[u8]) -> Result<HostTensor> {
    let bytes = unpack(WHAT, bytes.to_vec())?;
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_reader(bytes.as_slice());
    let (mut values, mut rows, mut columns) = (vec![], 0, None);
    for (i, record) in reader.records().enumerate() {
        let record = record.map_err(|e| Error::format(WHAT, e.to_string()))?;
        let numbers: Vec<_> =
            record.iter().map(|field| field.parse::<f64>().map_err(|_| field)).collect();
        if i == 0 && numbers.iter().all(Result::is_err) {
            continue;
        }
        for (j, number) in numbers.into_iter().enumerate() {
            match number {
                Ok(v) if v.is_finite() => values.push(v),
                other => {
                    let text = other.err().unwrap_or_default();
                    let found = [(';', "a semicolon"), ('\t', "a tab"), (' ', "a space")]
                        .into_iter()
                        .find_map(|(sign, name)| text.contains(sign).then_some(name));
                    let found =
                        found.map_or_else(String::new, |name| format!(", and this has {name}"));
                    let reason = format!(
                        "row {}, column {}: no finite number; a comma separates numbers{found}",
                        i + 1,
                        j + 1
                    );
                    return Err(Error::format(WHAT, reason));
                }
            }
        }
        columns.get_or_insert(record.len());
        rows += 1;
    }
    Ok(HostTensor::new([rows, columns.unwrap_or(0)], values)?)
}
