//! Tables: rows of cells, whose columns may have names.

use std::path::Path;

use csv::StringRecord;
use nn_layers::HostTensor;

use super::bytes::{read_unpacked, unpack};
use crate::{Error, Result};

const WHAT: &str = "CSV file";

/// The mark of UTF-8 that spreadsheets write before the first cell.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The way in which a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFormat {
    /// The sign between cells.
    pub separator: char,
    /// The sign before the fraction of a number.
    pub decimal: char,
    /// True if the first row names the columns, false if it holds values. If unset, a row without a single number
    /// names them, and a row that could be either is an error.
    pub header: Option<bool>,
}

/// A comma between cells, and a point in numbers.
impl Default for TableFormat {
    fn default() -> Self {
        Self { separator: ',', decimal: '.', header: None }
    }
}

impl TableFormat {
    /// The number that a cell holds, if it holds a finite one.
    #[must_use]
    pub fn number(&self, cell: &str) -> Option<f64> {
        let number = match self.decimal {
            '.' => cell.parse(),
            _ if cell.contains('.') => return None,
            sign => cell.replacen(sign, ".", 1).parse(),
        };
        number.ok().filter(|value: &f64| value.is_finite())
    }

    fn check(&self) -> Result<()> {
        let sign = |sign: char| sign.is_ascii() && !sign.is_ascii_alphanumeric();
        let free = |sign: char| !matches!(sign, '"' | '\n' | '\r' | '-' | '+');
        let sound = |c: char| sign(c) && free(c);
        if sound(self.separator) && sound(self.decimal) && self.separator != self.decimal {
            return Ok(());
        }
        let Self { separator, decimal, .. } = self;
        let reason = format!("{separator:?} cannot separate cells where {decimal:?} is in numbers");
        Err(Error::format(WHAT, reason))
    }
}

/// Rows of cells, whose columns may have names.
#[derive(Debug, Clone)]
pub struct Table {
    format: TableFormat,
    names: Option<Vec<String>>,
    /// Rows of the file above the first.
    above: usize,
    rows: Vec<StringRecord>,
}

impl Table {
    /// Reads a table, plain or gzip.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, and those of [`Table::parse`].
    pub fn read(path: &Path, format: TableFormat) -> Result<Self> {
        Self::parse(&read_unpacked(WHAT, path)?, format)
    }

    /// Reads a table in memory, plain or gzip. A first row without a single number names the columns, unless
    /// `format` says whether it does.
    ///
    /// # Errors
    /// [`Error::Format`] if rows differ in length, two columns have one name, or the first row may be names or values:
    /// if it holds both, or counts 0, 1, 2 and so on.
    pub fn parse(bytes: &[u8], format: TableFormat) -> Result<Self> {
        format.check()?;
        let bytes = unpack(WHAT, bytes.to_vec())?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(format.separator as u8)
            .trim(csv::Trim::All)
            .from_reader(bytes.strip_prefix(MARK).unwrap_or(&bytes));
        let rows: csv::Result<Vec<_>> = reader.records().collect();
        let mut rows = rows.map_err(|cause| Error::format(WHAT, cause.to_string()))?;
        let mut names = None;
        if let Some(first) = rows.first()
            && is_header(first, &format)?
        {
            let first: Vec<_> = rows.remove(0).iter().map(str::to_owned).collect();
            check_names(WHAT, &first)?;
            names = Some(first);
        }
        let above = usize::from(names.is_some());
        Ok(Self { format, names, above, rows })
    }

    /// A table from a file of this kind that has its names apart from the rows.
    pub(super) fn of_cells(
        what: &'static str,
        names: Vec<String>,
        rows: Vec<Vec<String>>,
        format: TableFormat,
    ) -> Result<Self> {
        check_names(what, &names)?;
        let rows = rows.into_iter().map(StringRecord::from).collect();
        Ok(Self { format, names: Some(names), above: 0, rows })
    }

    /// The way in which it is written.
    #[must_use]
    pub fn format(&self) -> TableFormat {
        self.format
    }

    /// The names of the columns, if the file has a row of them. A column without a name has an empty one.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        let first = self.rows.first().map_or(0, StringRecord::len);
        self.names.as_ref().map_or(first, Vec::len)
    }

    /// The number of rows, without that of the names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows below the names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The cell in a row and a column, both from 0; empty where there is none.
    #[must_use]
    pub fn cell(&self, row: usize, column: usize) -> &str {
        self.rows.get(row).and_then(|row| row.get(column)).unwrap_or("")
    }

    /// The number of a row in the file, from 1: that of the names counts if they are in a row.
    #[must_use]
    pub fn place(&self, row: usize) -> usize {
        row + 1 + self.above
    }

    /// The numbers of all cells, as `[rows, columns]`.
    ///
    /// # Errors
    /// [`Error::Format`] naming row and column of a cell that is not a finite number.
    pub fn numbers(&self) -> Result<HostTensor> {
        let (rows, columns) = (self.len(), self.columns());
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            for column in 0..columns {
                values.push(self.number(row, column).map_err(|r| Error::format(WHAT, r))?);
            }
        }
        Ok(HostTensor::new([rows, columns], values)?)
    }

    /// The number in a cell.
    ///
    /// # Errors
    /// The row and column of the cell, and the reason.
    pub fn number(&self, row: usize, column: usize) -> std::result::Result<f64, String> {
        let cell = self.cell(row, column);
        self.format.number(cell).ok_or_else(|| {
            let place = format!("row {}, column {}", self.place(row), column + 1);
            let separator = sign(self.format.separator);
            let signs = [';', '\t', ' ', ','].into_iter().filter(|&s| s != self.format.separator);
            let found = signs.into_iter().find(|&sign| cell.contains(sign));
            let found = found.map_or_else(String::new, |c| format!(", and this has {}", sign(c)));
            format!("{place}: no finite number; {separator} separates numbers{found}")
        })
    }
}

/// Refuses names of which two are equal. Columns without a name have empty ones.
fn check_names(what: &'static str, names: &[String]) -> Result<()> {
    let twice =
        (1..names.len()).find(|&at| !names[at].is_empty() && names[..at].contains(&names[at]));
    let Some(at) = twice else { return Ok(()) };
    let reason = format!("two columns have the name `{}`", names[at].escape_default());
    Err(Error::format(what, reason))
}

/// The name of a sign.
fn sign(sign: char) -> String {
    match sign {
        ',' => "a comma".to_owned(),
        ';' => "a semicolon".to_owned(),
        '\t' => "a tab".to_owned(),
        ' ' => "a space".to_owned(),
        other => format!("`{other}`"),
    }
}

/// True if the first row of a table names its columns.
fn is_header(row: &StringRecord, format: &TableFormat) -> Result<bool> {
    if let Some(said) = format.header {
        return Ok(said);
    }
    let numbers: Vec<_> = row.iter().map(|cell| format.number(cell)).collect();
    let count = numbers.iter().flatten().count();
    let unsure = |what: &str| {
        let reason = format!("row 1 {what}: say whether it names the columns (header: yes or no)");
        Err(Error::format(WHAT, reason))
    };
    let counts = |(at, value): (usize, &Option<f64>)| *value == Some(at as f64);
    match count {
        0 => Ok(true),
        _ if count < row.len() => unsure("holds numbers and other cells"),
        2.. if numbers.iter().enumerate().all(counts) => unsure("counts 0, 1, 2 and so on"),
        _ => Ok(false),
    }
}

/// Reads a table of numbers, plain or gzip, as `[rows, columns]`.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`from_csv`].
pub fn read_csv(path: &Path) -> Result<HostTensor> {
    Table::read(path, TableFormat::default())?.numbers()
}

/// Reads a table of numbers in memory, plain or gzip. A first row without a single number is taken
/// as names of the columns.
///
/// # Errors
/// Those of [`Table::parse`] and [`Table::numbers`].
pub fn from_csv(bytes: &[u8]) -> Result<HostTensor> {
    Table::parse(bytes, TableFormat::default())?.numbers()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, format: TableFormat) -> Result<Table> {
        Table::parse(text.as_bytes(), format)
    }

    #[test]
    fn a_row_of_names_is_told_from_one_of_values_or_is_an_error() {
        let auto = TableFormat::default();
        let named = parse("\u{feff}age, city\n1,2\n", auto).unwrap();
        assert_eq!(named.names().unwrap(), ["age", "city"]);
        assert_eq!((named.len(), named.columns(), named.place(0)), (1, 2, 2));
        let plain = parse("5,1\n1,2\n", auto).unwrap();
        assert_eq!((plain.names(), plain.len(), plain.place(0)), (None, 2, 1));
        // One column that begins with 0 holds numbers.
        assert_eq!(parse("0\n1\n", auto).unwrap().len(), 2);
        for unsure in ["0,1,2\n5,6,7\n", ",0,1\n0,5,6\n", "id,2019\n1,5\n"] {
            let text = parse(unsure, auto).unwrap_err().to_string();
            assert!(text.contains("row 1") && text.contains("header: yes or no"), "{text}");
            for header in [true, false] {
                let told = parse(unsure, TableFormat { header: Some(header), ..auto }).unwrap();
                assert_eq!(told.len(), 2 - usize::from(header));
            }
        }
        let text = parse("a,b,a\n1,2,3\n", auto).unwrap_err().to_string();
        assert!(text.contains("two columns have the name `a`"), "{text}");
    }

    #[test]
    fn separators_and_decimal_commas_are_said() {
        let told = TableFormat { separator: ';', decimal: ',', header: None };
        let table = parse("a;b\n1,5;-2\n", told).unwrap();
        assert_eq!(table.numbers().unwrap().floats()[..], [1.5, -2.0]);
        // A point would be one of thousands there.
        assert_eq!(told.number("1.234,5"), None);
        assert_eq!(told.number("1,234,5"), None);
        let text = parse("a;b\n1,5;-2\n", TableFormat::default()).unwrap_err().to_string();
        assert!(text.contains("fields"), "{text}");
        let text =
            parse("a;b\n1;2\n", TableFormat::default()).unwrap().numbers().unwrap_err().to_string();
        assert!(text.contains("row 2, column 1") && text.contains("has a semicolon"), "{text}");
        for (separator, decimal) in [(',', ','), ('1', '.'), ('"', '.'), ('é', '.'), (';', '-')] {
            assert!(parse("1\n", TableFormat { separator, decimal, header: None }).is_err());
        }
    }
}
