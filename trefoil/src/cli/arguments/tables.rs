//! Options of reading tables.

use clap::{Args, ValueEnum};
use models::data::TableFormat;

use crate::inputs::TableOptions;

/// The way in which `.csv` and `.parquet` files are read. Those of Parquet have named columns.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tables")]
pub struct Tables {
    /// The column of a table with the truth: its name, or its number from 1 where columns have no names
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// A column of a table to leave out, named as with --label; may be repeated. A first column without a name is
    /// `Unnamed: 0`
    #[arg(long, value_name = "COLUMN")]
    pub drop: Vec<String>,
    /// The first row of a .csv names its columns, or does not [default: yes if it has no number]
    #[arg(long, value_enum, value_name = "yes|no", hide_possible_values = true)]
    pub header: Option<Header>,
    /// The sign between the cells of a .csv, or `tab`
    #[arg(long, default_value = ",", value_parser = separator, value_name = "SIGN")]
    pub separator: char,
    /// The sign before the fraction of a number in a .csv
    #[arg(long, default_value_t = '.', value_name = "SIGN")]
    pub decimal: char,
}

/// The content of the first row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// It names the columns.
    Yes,
    /// It holds values.
    No,
}

impl Default for Tables {
    fn default() -> Self {
        let TableFormat { separator, decimal, .. } = TableFormat::default();
        Self { label: None, drop: Vec::new(), header: None, separator, decimal }
    }
}

impl Tables {
    /// The options as tables take them.
    #[must_use]
    pub fn options(&self) -> TableOptions {
        let header = self.header.map(|header| header == Header::Yes);
        let (separator, decimal) = (self.separator, self.decimal);
        TableOptions {
            label: self.label.clone(),
            drop: self.drop.clone(),
            format: TableFormat { separator, decimal, header },
        }
    }
}

/// Reads a sign, or its name.
fn separator(text: &str) -> Result<char, String> {
    match (text, text.chars().next()) {
        ("tab" | "\\t", _) => Ok('\t'),
        (_, Some(sign)) if text.chars().count() == 1 => Ok(sign),
        _ => Err("it is one sign, or `tab`".to_owned()),
    }
}
