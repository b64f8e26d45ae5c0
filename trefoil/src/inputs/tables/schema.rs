//! Schemas: descriptions of a table's columns, in a file that people write and read, or from a table itself.

use std::{borrow::Borrow, path::Path};

use models::data::{Table, TableFormat};
use serde::{Deserialize, Serialize};

use crate::{
    base::{Error, Result},
    inputs::{Layout, TableOptions, read_file},
    model::{About, Codes, Column, Input, Range, is_missing, plain_number, shown},
};

/// The largest schema that is read, in bytes.
const FILE: u64 = 4 << 20;

/// The most categories that are read from a table.
const CATEGORIES: usize = 100;

/// The columns of a table, and that of the truth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The columns, in the order of the numbers that a network takes.
    #[serde(rename = "column", default)]
    pub columns: Vec<Column>,
    /// The column with the truth: classes by categories or by number, or the number to be predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Column>,
}

/// The scaling of columns of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// All numbers are multiplied by this.
    Factor(f64),
    /// Each column has mean 0 and standard deviation 1.
    Standard,
    /// Each column goes from 0 to 1.
    MinMax,
}

impl Default for Scaling {
    fn default() -> Self {
        Self::Factor(1.0)
    }
}

/// Reads `standard`, `minmax`, `none`, or a factor.
impl std::str::FromStr for Scaling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "standard" => Ok(Self::Standard),
            "minmax" => Ok(Self::MinMax),
            "none" => Ok(Self::default()),
            factor => match factor.parse::<f64>() {
                Ok(factor) if factor.is_finite() && factor != 0.0 => Ok(Self::Factor(factor)),
                _ => Err("it is standard, minmax, none, or a number other than 0".to_owned()),
            },
        }
    }
}

impl Schema {
    /// Reads a schema from a file in TOML.
    ///
    /// # Errors
    /// [`Error::Input`] that names the file, and the line or the column that is not sound.
    pub fn read(path: &Path) -> Result<Self> {
        let bad = |reason: String| Error::input(path.display(), reason);
        let text = String::from_utf8(read_file(path, FILE)?)
            .map_err(|_| bad("is not text in UTF-8".to_owned()))?;
        let schema: Self = toml::from_str(&text).map_err(|cause| {
            let at = cause.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..at].matches('\n').count() + 1;
            bad(format!("line {line}: {}", cause.message()))
        })?;
        schema.columns.iter().chain(&schema.label).try_for_each(|one| one.check()).map_err(bad)?;
        if schema.columns.is_empty() {
            return Err(bad("has no [[column]]".to_owned()));
        }
        Ok(schema)
    }

    /// The schema as it is written to a file.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written, which does not happen.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|cause| Error::Internal(format!("schema: {cause}")))
    }

    /// The columns of each input of a model, which take those of the schema in their order, and that of the truth.
    ///
    /// # Errors
    /// A sentence that states how many numbers both have.
    pub fn divided(self, about: &About) -> Result<(Vec<Vec<Column>>, Option<Column>), String> {
        let held: usize = self.columns.iter().map(Column::width).sum();
        let wanted: usize = about.inputs.iter().map(Input::len).sum();
        let unfit = || {
            let each: Vec<_> = about.inputs.iter().map(Input::to_string).collect();
            format!(
                "its columns hold {held} numbers; the model takes {wanted}: {}",
                each.join(", ")
            )
        };
        let mut columns = self.columns.into_iter();
        let mut all = Vec::with_capacity(about.inputs.len());
        for input in &about.inputs {
            let (mut own, mut left) = (Vec::new(), input.len());
            while left > 0 {
                let column = columns.next().ok_or_else(unfit)?;
                left = left.checked_sub(column.width()).ok_or_else(unfit)?;
                own.push(column);
            }
            all.push(own);
        }
        if columns.next().is_some() { Err(unfit()) } else { Ok((all, self.label)) }
    }

    /// The schema of tables with named columns, of which the first has them in order. A column of which most cells are
    /// numbers has their range, widened by a quarter at each end unless they are `integer`; any other one has its
    /// cells as categories. Missing numbers get the column's mean.
    ///
    /// # Errors
    /// A sentence that names the column that cannot be described.
    pub fn of<T: Borrow<Table>>(
        tables: &[T],
        options: &TableOptions,
        scaling: Scaling,
        integer: bool,
    ) -> Result<Self, String> {
        let tables: Vec<&Table> = tables.iter().map(Borrow::borrow).collect();
        let Some(first) = tables.first() else { return Ok(Self::default()) };
        let layout = Layout::of(first, &[], None, options)?;
        let (columns, label) = (layout.columns(), layout.label().cloned());
        let mut layouts = vec![layout];
        for table in &tables[1..] {
            layouts.push(Layout::of(table, &columns, label.as_ref(), options)?);
        }
        let cells = |places: Vec<usize>| {
            let each = tables.iter().zip(places);
            each.flat_map(|(table, at)| (0..table.len()).map(move |row| table.cell(row, at)))
        };
        let format = options.format;
        let describe = |at: usize, column: &Column| {
            let places = layouts.iter().filter_map(|layout| layout.places().nth(at)).collect();
            let cells: Vec<&str> = cells(places).collect();
            described(column, &cells, (format, scaling, integer))
        };
        let described: Result<Vec<_>, _> =
            columns.iter().enumerate().map(|(at, column)| describe(at, column)).collect();
        let places = layouts.iter().filter_map(Layout::truth).collect();
        let label =
            label.map(|column| classes(&column, &cells(places).collect::<Vec<_>>(), format));
        Ok(Self { columns: described?, label: label.transpose()? })
    }
}

/// A column as its cells show it.
fn described(
    column: &Column,
    cells: &[&str],
    (format, scaling, integer): (TableFormat, Scaling, bool),
) -> Result<Column, String> {
    let present = || cells.iter().filter(|cell| !is_missing(cell));
    let numbers: Vec<f64> = present().filter_map(|cell| plain_number(cell, format)).collect();
    let all = present().count();
    if 2 * numbers.len() < all {
        return categories(column, cells);
    }
    if numbers.len() < all {
        let other = present().find(|cell| plain_number(cell, format).is_none());
        return Err(format!(
            "column `{}` holds numbers, and `{}`",
            shown(&column.name),
            other.map_or_else(String::new, |other| shown(other))
        ));
    }
    let Some(range) = Range::of_samples(numbers.iter().copied(), integer) else {
        return Err(format!("column `{}` is empty", shown(&column.name)));
    };
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let deviation = (numbers.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt();
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // A column of one value becomes 0.
    let spread = |spread: f64| if spread > 0.0 { spread } else { 1.0 };
    let (center, spread) = match scaling {
        Scaling::Factor(factor) => (0.0, 1.0 / factor),
        Scaling::Standard => (mean, spread(deviation)),
        Scaling::MinMax => (low, spread(high - low)),
    };
    let missing = (all < cells.len()).then_some(mean);
    let range = Some((range.low, range.high));
    Ok(Column { range, center, spread, missing, ..column.clone() })
}

/// A column whose cells are categories.
fn categories(column: &Column, cells: &[&str]) -> Result<Column, String> {
    let mut all: Vec<&str> = cells.to_vec();
    all.sort_unstable();
    all.dedup();
    if all.len() > CATEGORIES {
        return Err(format!(
            "column `{}` holds {} different texts, and a category is one of at most {CATEGORIES}",
            shown(&column.name),
            all.len()
        ));
    }
    let categories = all.into_iter().map(str::to_owned).collect();
    Ok(Column { categories, codes: Codes::OneHot, ..column.clone() })
}

/// The column of the truth as its cells show it: numbers, or categories.
fn classes(column: &Column, cells: &[&str], format: TableFormat) -> Result<Column, String> {
    let numbers = cells.iter().all(|cell| plain_number(cell, format).is_some());
    if numbers { Ok(column.clone()) } else { categories(column, cells) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        Table::parse(text.as_bytes(), TableFormat::default()).unwrap()
    }

    fn options() -> TableOptions {
        TableOptions { label: Some("died".to_owned()), ..TableOptions::default() }
    }

    const TABLE: &str = "age,city,died\n40,Bern,no\n60,Basel,yes\n,Bern,no\n";

    #[test]
    fn a_table_shows_its_columns() {
        let other = table("died,city,age\nno,Chur,80\n");
        let tables = [table(TABLE), other];
        let schema = Schema::of(&tables, &options(), Scaling::default(), false).unwrap();
        let [age, city] = &schema.columns[..] else { panic!("{schema:?}") };
        assert_eq!((age.range, age.center, age.spread), (Some((30.0, 90.0)), 0.0, 1.0));
        assert_eq!(age.missing, Some(60.0));
        assert_eq!(city.categories, ["Basel", "Bern", "Chur"]);
        assert_eq!(schema.label.as_ref().unwrap().categories, ["no", "yes"]);
        let scaled = |scaling| {
            let schema = Schema::of(&tables, &options(), scaling, false).unwrap();
            (schema.columns[0].center, schema.columns[0].spread)
        };
        assert_eq!(scaled("minmax".parse().unwrap()), (40.0, 40.0));
        let (center, spread) = scaled("standard".parse().unwrap());
        assert!(center == 60.0 && (spread - 16.329_931).abs() < 1e-6, "{spread}");
        assert_eq!(scaled("0.5".parse().unwrap()), (0.0, 2.0));
        assert!("0".parse::<Scaling>().is_err() && "much".parse::<Scaling>().is_err());
    }

    #[test]
    fn a_column_that_cannot_be_described_is_named() {
        let many: String = (0..200).map(|at| format!("v{at}\n")).collect();
        for (text, reason) in [
            ("age\n1\n2\n3\n?\n".to_owned(), "column `age` holds numbers, and `?`"),
            (format!("code\n{many}"), "column `code` holds 200 different texts"),
            ("age,b\n,1\nNA,2\n".to_owned(), "column `age` is empty"),
        ] {
            let tables = [table(&text)];
            let said = Schema::of(&tables, &TableOptions::default(), Scaling::default(), false);
            assert!(said.as_ref().unwrap_err().contains(reason), "{said:?}");
        }
    }

    #[test]
    fn columns_are_divided_among_a_models_inputs() {
        let schema = Schema::of(&[table(TABLE)], &options(), Scaling::default(), false).unwrap();
        let about = |lengths: &[usize]| {
            let input = |&length: &usize| Input { dims: vec![length], ..Input::default() };
            About { inputs: lengths.iter().map(input).collect(), ..About::default() }
        };
        for lengths in [&[3][..], &[1, 2]] {
            let (columns, label) = schema.clone().divided(&about(lengths)).unwrap();
            assert_eq!((columns.concat(), label), (schema.columns.clone(), schema.label.clone()));
            let mut about = about(lengths);
            about.describe(columns, schema.label.clone());
            assert_eq!(about.labels, ["no", "yes"]);
        }
        // The two numbers of a category are of one input.
        for lengths in [&[2][..], &[4], &[2, 1], &[3, 1]] {
            let said = schema.clone().divided(&about(lengths)).unwrap_err();
            assert!(said.contains("its columns hold 3 numbers"), "{said}");
        }
    }

    #[test]
    fn schemas_are_written_and_read() {
        let schema = Schema::of(&[table(TABLE)], &options(), Scaling::Standard, false).unwrap();
        let path = crate::testing::folder("schemas").join("s.toml");
        std::fs::write(&path, schema.to_toml().unwrap()).unwrap();
        assert_eq!(Schema::read(&path).unwrap(), schema);
        for (text, reason) in [
            ("", "has no [[column]]"),
            ("[[column]]\nname = \"a\"\nsize = 3\n", "line 3"),
            ("[[column]]\nname = \"a\"\nspread = 0.0\n", "column `a`: `spread`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = Schema::read(&path).unwrap_err().to_string();
            assert!(said.contains(reason) && said.contains("s.toml"), "{said}");
        }
    }
}
