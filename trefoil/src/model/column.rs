//! Columns of tables: their names, the cells that they may hold, and the numbers that these become.

use models::data::TableFormat;
use serde::{Deserialize, Serialize};

use super::{NAME, Range};
use crate::base::{Error, Result, format::table};

/// The most columns of a table.
const COLUMNS: usize = 4096;

/// The most bytes of all columns of a table, written.
const WRITTEN: usize = 128 << 10;

/// The most categories of a column.
const CATEGORIES: usize = 1000;

/// The largest number that a column's description may have.
const LARGEST: f64 = 1e30;

/// The texts that stand for a missing value, as pandas reads and writes them.
const MISSING: [&str; 9] = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"];

/// A column of a table. All of it is public.
///
/// A cell holds a number, or one of a list of categories. A number `v` becomes `(v - center) / spread`. A category
/// becomes its place in the list, or as many numbers as there are categories: 1 at its place, 0 elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The categories; empty if the cells are numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The numbers that a category becomes.
    #[serde(default, skip_serializing_if = "Codes::is_default")]
    pub codes: Codes,
    /// The least and greatest number in a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// The number that becomes 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub center: f64,
    /// The distance from there of the number that becomes 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub spread: f64,
    /// The number that takes the place of a missing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<f64>,
}

/// The numbers that a category becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codes {
    /// 1 at the category's place in the list, 0 at the others'.
    #[default]
    OneHot,
    /// The category's place in the list, from 0.
    Ordinal,
}

impl Codes {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> f64 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
fn is_one(value: &f64) -> bool {
    *value == 1.0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Column {
    /// A column of numbers, of which nothing else is known.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            categories: Vec::new(),
            codes: Codes::default(),
            range: None,
            center: 0.0,
            spread: 1.0,
            missing: None,
        }
    }

    /// The numbers that a cell becomes.
    #[must_use]
    pub fn width(&self) -> usize {
        match self.codes {
            Codes::OneHot => self.categories.len().max(1),
            Codes::Ordinal => 1,
        }
    }

    /// Appends the numbers that a cell becomes.
    ///
    /// # Errors
    /// A sentence that says what the cell holds, and what it may hold.
    pub fn code(&self, cell: &str, format: TableFormat, into: &mut Vec<f64>) -> Result<(), String> {
        if self.categories.is_empty() {
            into.push(self.scaled(self.number(cell, format)?));
            return Ok(());
        }
        let place = self.category(cell)?;
        match self.codes {
            Codes::Ordinal => into.push(place as f64),
            Codes::OneHot => {
                let ones = (0..self.categories.len()).map(|at| f64::from(u8::from(at == place)));
                into.extend(ones);
            }
        }
        Ok(())
    }

    /// The number that a number of a cell becomes.
    #[must_use]
    pub fn scaled(&self, value: f64) -> f64 {
        (value - self.center) / self.spread
    }

    /// The number of a cell that becomes this one.
    #[must_use]
    pub fn unscaled(&self, value: f64) -> f64 {
        value * self.spread + self.center
    }

    /// The number in a cell, as it is written there. Words for true and false are 1 and 0.
    ///
    /// # Errors
    /// As [`Column::code`].
    pub fn number(&self, cell: &str, format: TableFormat) -> Result<f64, String> {
        if is_missing(cell) {
            return self.missing.ok_or_else(|| {
                "is missing, and no number is said to take its place (`missing` of a schema)"
                    .to_owned()
            });
        }
        let value = plain_number(cell, format);
        let value = value.ok_or_else(|| {
            let cell = shown(cell);
            format!("`{cell}` is no finite number; a schema says which categories there are")
        })?;
        self.check_range(value).map(|()| value)
    }

    /// Checks a number as a cell holds it.
    ///
    /// # Errors
    /// A sentence that states the range.
    pub fn check_range(&self, value: f64) -> Result<(), String> {
        match self.range {
            Some((low, high)) if !(low..=high).contains(&value) => {
                Err(format!("{value} is outside of its range, {low} to {high}"))
            }
            _ => Ok(()),
        }
    }

    /// The place of a cell among the categories.
    ///
    /// # Errors
    /// A sentence that lists them.
    pub fn category(&self, cell: &str) -> Result<usize, String> {
        let plain = TableFormat::default();
        let number = plain.number(cell);
        let same = |category: &String| number.is_some() && plain.number(category) == number;
        // Classes that are numbers may be written in another way, as 1.0.
        let place = self.categories.iter().position(|category| category == cell);
        place.or_else(|| self.categories.iter().position(same)).ok_or_else(|| {
            let few: Vec<String> = self.categories.iter().take(12).map(|one| shown(one)).collect();
            let more = if self.categories.len() > few.len() { ", .." } else { "" };
            format!("`{}` is none of its categories: {}{more}", shown(cell), few.join(", "))
        })
    }

    /// The least and greatest of the numbers that its cells become, if they are bounded.
    #[must_use]
    pub fn coded(&self) -> Option<Range> {
        if !self.categories.is_empty() {
            let high = match self.codes {
                Codes::OneHot => 1.0,
                Codes::Ordinal => (self.categories.len() - 1) as f64,
            };
            return Some(Range { low: 0.0, high });
        }
        let (low, high) = self.range?;
        let ends = [low, high].into_iter().chain(self.missing);
        let ends = ends.map(|end| self.scaled(end));
        ends.fold(None, |all: Option<Range>, end| {
            Some(Range {
                low: all.map_or(end, |all| all.low.min(end)),
                high: all.map_or(end, |all| all.high.max(end)),
            })
        })
    }

    /// The least and greatest of the numbers that cells of all these columns become, if all are bounded.
    #[must_use]
    pub fn hull(columns: &[Self]) -> Option<Range> {
        let ranges: Option<Vec<Range>> = columns.iter().map(Self::coded).collect();
        ranges?
            .into_iter()
            .reduce(|all, one| Range { low: all.low.min(one.low), high: all.high.max(one.high) })
    }

    /// The names of the classes of a column with the truth; none if they are numbers.
    #[must_use]
    pub fn class_names(&self) -> Vec<String> {
        let number = |name: &String| TableFormat::default().number(name).is_some();
        if self.categories.iter().all(number) { Vec::new() } else { self.categories.clone() }
    }

    /// The same column of a truth of this many classes, which are called by their numbers unless they have names.
    #[must_use]
    pub fn with_classes(mut self, classes: usize) -> Self {
        if self.categories.is_empty() {
            self.categories = (0..classes).map(|class| class.to_string()).collect();
        }
        self
    }

    /// True if cells of both mean the same and become the same numbers. Ranges may differ.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let without = |column: &Self| Self { range: None, ..column.clone() };
        without(self) == without(other)
    }

    /// Checks a description that a client wrote.
    ///
    /// # Errors
    /// A sentence that states what is not sound.
    pub fn check(&self) -> Result<(), String> {
        let name = shown(&self.name);
        let bad = |reason: &str| Err(format!("column `{name}`: {reason}"));
        let sound = |text: &String| text.len() <= NAME && !text.chars().any(char::is_control);
        if self.name.is_empty() || !sound(&self.name) {
            return bad("a name has 1 to 256 bytes, and no control characters");
        }
        if self.categories.len() > CATEGORIES || !self.categories.iter().all(sound) {
            return bad(
                "it has at most 1000 categories, of at most 256 bytes without control characters",
            );
        }
        let mut sorted: Vec<_> = self.categories.iter().collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|two| two[0] == two[1]) {
            return bad("two of its categories are the same");
        }
        let (low, high) = self.range.unwrap_or((0.0, 0.0));
        let numbers = [low, high, self.center, self.spread, self.missing.unwrap_or(0.0)];
        let sound = numbers.iter().all(|number| (-LARGEST..=LARGEST).contains(number));
        if !sound || low > high {
            return bad("its numbers must be finite, and its range go from low to high");
        }
        if self.spread.abs() < 1.0 / LARGEST {
            return bad("`spread` is a number other than 0");
        }
        let plain = Self { name: self.name.clone(), codes: self.codes, ..Self::named("") };
        let plain = Self { categories: self.categories.clone(), ..plain };
        if !self.categories.is_empty() && *self != plain {
            return bad("`range`, `center`, `spread` and `missing` are of columns of numbers");
        }
        Ok(())
    }
}

/// The columns as a table for people.
#[must_use]
pub fn columns_text(columns: &[Column]) -> String {
    let row = |column: &Column| {
        let Column { categories, codes, range, center, spread, missing, .. } = column;
        let cells = match (categories.is_empty(), range) {
            (false, _) => categories.join(", "),
            (true, Some((low, high))) => format!("{low} to {high}"),
            (true, None) => "numbers".to_owned(),
        };
        let numbers = match (categories.is_empty(), codes) {
            (true, _) if *center == 0.0 && *spread == 1.0 => "as they are".to_owned(),
            (true, _) => format!("(v - {center}) / {spread}"),
            (false, Codes::OneHot) => "one-hot".to_owned(),
            (false, Codes::Ordinal) => "ordinal".to_owned(),
        };
        let missing = missing.map_or("refused".to_owned(), |missing| missing.to_string());
        vec![column.name.clone(), cells, numbers, missing]
    };
    let rows: Vec<_> = columns.iter().map(row).collect();
    table(&["column", "cells", "become", "missing"], &rows)
}

/// True if a cell holds no value.
pub(crate) fn is_missing(cell: &str) -> bool {
    MISSING.contains(&cell)
}

/// The number in a cell, or 1 and 0 for the words for true and false.
pub(crate) fn plain_number(cell: &str, format: TableFormat) -> Option<f64> {
    match cell {
        "True" | "true" | "TRUE" => Some(1.0),
        "False" | "false" | "FALSE" => Some(0.0),
        cell => format.number(cell),
    }
}

/// A text of a file, short enough for an error and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let more = if short.len() < text.len() { ".." } else { "" };
    format!("{}{more}", short.escape_debug())
}

/// Checks the columns of a tensor whose examples have `width` numbers. None at all stand for columns without names.
///
/// # Errors
/// [`Error::Refused`] that names the column.
pub fn check_columns(what: &str, columns: &[Column], width: usize) -> Result<()> {
    let bad = |reason: String| Err(Error::refused(what, reason));
    if columns.is_empty() {
        return Ok(());
    }
    if columns.len() > COLUMNS {
        return bad(format!("{} columns; at most {COLUMNS} can have names", columns.len()));
    }
    columns.iter().try_for_each(|column| column.check().or_else(bad))?;
    let mut names: Vec<_> = columns.iter().map(|column| &column.name).collect();
    names.sort_unstable();
    if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
        return bad(format!("two columns have the name `{}`", two[0]));
    }
    let held: usize = columns.iter().map(Column::width).sum();
    if held != width {
        return bad(format!("its columns hold {held} numbers, and an example has {width}"));
    }
    Ok(())
}

/// Checks that the columns of all tensors of a model or a data set are not more than are kept.
///
/// # Errors
/// [`Error::Refused`] that states how many bytes they take.
pub fn check_size<'a>(what: &str, tensors: impl Iterator<Item = &'a [Column]>) -> Result<()> {
    let written = |columns| serde_json::to_vec(columns).map(|bytes| bytes.len());
    let bytes: serde_json::Result<usize> = tensors.map(written).sum();
    match bytes.map_err(|cause| Error::Internal(format!("columns: {cause}")))? {
        0..=WRITTEN => Ok(()),
        bytes => {
            let reason =
                format!("its columns take {bytes} bytes, written; at most {WRITTEN} are kept");
            Err(Error::refused(what, reason))
        }
    }
}

/// Checks that the columns of two tables mean the same, in the same order.
///
/// # Errors
/// A sentence that names the first that does not.
pub fn check_alike(mine: &[Column], other: &[Column]) -> Result<(), String> {
    match (mine.is_empty(), other.is_empty()) {
        (true, true) => return Ok(()),
        (false, false) => {}
        _ => {
            return Err("the columns of one have names and those of the other have none, so their order cannot be \
                        compared"
                .to_owned());
        }
    }
    for at in 0..mine.len().max(other.len()) {
        let name = |column: Option<&Column>| {
            column.map_or("none".to_owned(), |column| format!("`{}`", shown(&column.name)))
        };
        let (one, two) = (mine.get(at), other.get(at));
        if one.map(|c| &c.name) != two.map(|c| &c.name) {
            let (one, two) = (name(one), name(two));
            return Err(format!("column {} is {one} in one and {two} in the other", at + 1));
        }
        if let (Some(one), Some(two)) = (one, two)
            && !one.is_like(two)
        {
            return Err(format!(
                "the cells of column `{}` become other numbers in one than in the other: categories, codes, center, \
                 spread or missing differ",
                shown(&one.name)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TableFormat = TableFormat { separator: ',', decimal: '.', header: None };

    fn coded(column: &Column, cell: &str) -> Result<Vec<f64>, String> {
        let mut numbers = Vec::new();
        column.code(cell, PLAIN, &mut numbers).map(|()| numbers)
    }

    fn of(categories: &[&str], codes: Codes) -> Column {
        let categories = categories.iter().map(|&one| one.to_owned()).collect();
        Column { categories, codes, ..Column::named("city") }
    }

    #[test]
    fn cells_become_the_numbers_that_their_column_says() {
        let age = Column {
            range: Some((0.0, 120.0)),
            center: 50.0,
            spread: 20.0,
            missing: Some(40.0),
            ..Column::named("age")
        };
        assert_eq!(coded(&age, "70").unwrap(), [1.0]);
        assert_eq!(age.unscaled(1.0), 70.0);
        for missing in ["", "NA", "NaN"] {
            assert_eq!(coded(&age, missing).unwrap(), [-0.5]);
        }
        assert_eq!(age.coded(), Some(Range { low: -2.5, high: 3.5 }));
        assert!(coded(&age, "121").unwrap_err().contains("121 is outside of its range, 0 to 120"));
        assert!(coded(&age, "old").unwrap_err().contains("`old` is no finite number"));
        assert!(coded(&age, "inf").is_err());
        assert!(coded(&Column::named("x"), "").unwrap_err().contains("is missing"));
        assert_eq!(coded(&Column::named("x"), "True").unwrap(), [1.0]);

        let hot = of(&["Bern", "Basel", "Chur"], Codes::OneHot);
        assert_eq!((hot.width(), coded(&hot, "Basel").unwrap()), (3, vec![0.0, 1.0, 0.0]));
        let place = of(&["Bern", "Basel", "Chur"], Codes::Ordinal);
        assert_eq!((place.width(), coded(&place, "Chur").unwrap()), (1, vec![2.0]));
        assert_eq!(place.coded(), Some(Range { low: 0.0, high: 2.0 }));
        assert_eq!(of(&["0", "1"], Codes::OneHot).category("1.0").unwrap(), 1);
        let text = coded(&hot, "Paris").unwrap_err();
        assert!(text.contains("`Paris` is none of its categories: Bern, Basel, Chur"), "{text}");
    }

    #[test]
    fn what_a_client_says_of_its_columns_is_bounded() {
        let number = Column::named("x");
        check_columns("model", &[], 5).unwrap();
        check_columns("model", &[number.clone(), of(&["a", "b"], Codes::OneHot)], 3).unwrap();
        let many: Vec<_> = (0..COLUMNS).map(|at| Column::named(at.to_string())).collect();
        check_columns("model", &many, COLUMNS).unwrap();
        let more = [&many[..], &[Column::named("one more")]].concat();
        let long = "x".repeat(250);
        let large: Vec<_> = (0..1000).map(|at| Column::named(format!("{at}{long}"))).collect();
        for (bad, width, reason) in [
            (more, COLUMNS + 1, "at most 4096"),
            (vec![number.clone(); 2], 2, "two columns have the name `x`"),
            (vec![number.clone()], 2, "hold 1 numbers, and an example has 2"),
            (vec![Column::named("")], 1, "a name has 1"),
            (vec![Column::named("a\nb")], 1, "control"),
            (vec![of(&["a", "a"], Codes::OneHot)], 2, "are the same"),
            (vec![Column { spread: 0.0, ..number.clone() }], 1, "other than 0"),
            (vec![Column { center: f64::NAN, ..number.clone() }], 1, "finite"),
            (vec![Column { range: Some((2.0, 1.0)), ..number.clone() }], 1, "low to high"),
            (vec![Column { missing: Some(f64::INFINITY), ..number.clone() }], 1, "finite"),
            (vec![Column { center: 1.0, ..of(&["a"], Codes::OneHot) }], 1, "columns of numbers"),
        ] {
            let text = check_columns("model", &bad, width).unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
        check_columns("model", &large, 1000).unwrap();
        let text = check_size("model", [&large[..]].into_iter()).unwrap_err().to_string();
        assert!(text.contains("bytes, written"), "{text}");
        check_size("model", [&many[..], &[]].into_iter()).unwrap();
        check_size("model", [&many[..]; 3].into_iter()).unwrap_err();
    }

    #[test]
    fn tables_are_alike_if_their_columns_mean_the_same_in_the_same_order() {
        let [a, b] = ["a", "b"].map(Column::named);
        let both = [a.clone(), b.clone()];
        check_alike(&both, &both).unwrap();
        check_alike(&[], &[]).unwrap();
        let ranged = Column { range: Some((0.0, 1.0)), ..a.clone() };
        check_alike(&both, &[ranged, b.clone()]).unwrap();
        let scaled = Column { spread: 2.0, ..b.clone() };
        for (other, reason) in [
            (vec![b.clone(), a.clone()], "column 1 is `a` in one and `b` in the other"),
            (vec![a.clone()], "column 2 is `b` in one and none in the other"),
            (vec![a, scaled], "`b` become other numbers"),
            (vec![], "have none"),
        ] {
            assert!(check_alike(&both, &other).unwrap_err().contains(reason), "{reason}");
        }
    }
}
