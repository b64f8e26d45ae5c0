//! Rows of a file's table, as the columns of a model or a data set take them.

use models::data::{Table, TableFormat};

use crate::{
    base::format::nearest,
    model::{Column, shown},
};

/// Rows from which a first column that counts them is taken for an index, and not for values.
const COUNTED: usize = 3;

/// The way in which tables are read.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// The column with the truth: its name, or its number from 1 if the columns have no names.
    pub label: Option<String>,
    /// Columns that are left out, named as that is.
    pub drop: Vec<String>,
    /// The way in which the file is written.
    pub format: TableFormat,
}

/// The numbers of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Those of its columns, in their order.
    pub values: Vec<f64>,
    /// That of the truth, or its place among the categories.
    pub truth: Option<f64>,
}

/// The places of columns in a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    columns: Vec<(usize, Column)>,
    label: Option<(usize, Column)>,
    named: bool,
}

impl Layout {
    /// Finds columns in a table: those that are wanted, by name, or else all that it has.
    ///
    /// The truth is in the column that the options name, or in that of `label` if the table has it. Columns without
    /// names are taken in their order, and where names are wanted only if the options say that there are none.
    ///
    /// # Errors
    /// A sentence that names the column that is missing, is too many, or has no name.
    pub fn of(
        table: &Table,
        wanted: &[Column],
        label: Option<&Column>,
        options: &TableOptions,
    ) -> Result<Self, String> {
        let names = names(table);
        let named = table.names().is_some();
        let place = |name: &str| find(&names, named, name);
        let mut left: Vec<usize> = (0..names.len()).collect();
        for name in &options.drop {
            let at = place(name)?;
            left.retain(|&known| known != at);
        }
        let truth = match (&options.label, label) {
            (Some(name), _) => Some(place(name)?),
            (None, Some(label)) if named => {
                names.iter().position(|name| *name == label.name).filter(|at| left.contains(at))
            }
            (None, _) => None,
        };
        if truth.is_some_and(|at| !left.contains(&at)) {
            return Err("the column with the truth is left out".to_owned());
        }
        left.retain(|&at| Some(at) != truth);
        let label = truth.map(|at| {
            let known = label.cloned().unwrap_or_else(|| Column::named(names[at].clone()));
            (at, known)
        });
        check_names(table, &names, &left, wanted)?;
        let said = options.format.header == Some(false);
        let columns = match (wanted.is_empty(), named) {
            (true, _) => {
                if !named && !said && left.len() > 1 {
                    check_count(table, &left)?;
                }
                left.iter().map(|&at| (at, Column::named(names[at].clone()))).collect()
            }
            (false, true) => by_name(&names, &left, wanted)?,
            (false, false) if said => by_place(&left, wanted)?,
            (false, false) => {
                let reason = format!(
                    "its columns have no names, and names are wanted: {}; write them into a first row, or say that \
                     there is none (header: no) to take the columns in this order",
                    list(wanted.iter().map(|column| column.name.as_str()))
                );
                return Err(reason);
            }
        };
        Ok(Self { columns, label, named: named || !wanted.is_empty() })
    }

    /// The column with the truth, if it has a name, and the truths of all rows. Other columns may hold anything.
    ///
    /// # Errors
    /// A sentence that names the column that is missing, or the cell that does not hold one.
    pub fn truths(
        table: &Table,
        label: Option<&Column>,
        options: &TableOptions,
    ) -> Result<(Option<Column>, Vec<f64>), String> {
        let named = table.names().is_some();
        let name = options.label.as_ref().or(label.map(|label| &label.name));
        let name = name.ok_or("say which column holds the truth (label)")?;
        let at = find(&names(table), named, name)?;
        let column = label.cloned().unwrap_or_else(|| Column::named(name.clone()));
        let layout = Self { columns: Vec::new(), label: Some((at, column)), named };
        let truths = (0..table.len()).filter_map(|row| layout.truth_of(table, row).transpose());
        Ok((layout.label().cloned(), truths.collect::<Result<_, _>>()?))
    }

    /// The place of a column in a table: by its name, or its number from 1 if the columns have no names.
    ///
    /// # Errors
    /// A sentence that names the columns that there are.
    pub fn place(table: &Table, name: &str) -> Result<usize, String> {
        find(&names(table), table.names().is_some(), name)
    }

    /// The columns, in the order of the numbers of a row; none if they have no names.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        if !self.named {
            return Vec::new();
        }
        self.columns.iter().map(|(_, column)| column.clone()).collect()
    }

    /// The column with the truth, if it has a name.
    #[must_use]
    pub fn label(&self) -> Option<&Column> {
        self.label.as_ref().filter(|_| self.named).map(|(_, column)| column)
    }

    /// The numbers of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns.iter().map(|(_, column)| column.width()).sum()
    }

    /// The place of each column in the table.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|(at, _)| *at)
    }

    /// The place of the truth in the table.
    pub(super) fn truth(&self) -> Option<usize> {
        self.label.as_ref().map(|(at, _)| *at)
    }

    /// The numbers of a row of the table.
    ///
    /// # Errors
    /// A sentence that names the row and the column of a cell that its column may not hold.
    pub fn row(&self, table: &Table, row: usize) -> Result<Row, String> {
        let mut values = Vec::with_capacity(self.width());
        for (at, column) in &self.columns {
            let coded = column.code(table.cell(row, *at), table.format(), &mut values);
            coded.map_err(|reason| self.at(table, (row, *at), column, &reason))?;
        }
        Ok(Row { values, truth: self.truth_of(table, row)? })
    }

    /// The truth of a row of the table, if it has one.
    fn truth_of(&self, table: &Table, row: usize) -> Result<Option<f64>, String> {
        let Some((at, column)) = &self.label else { return Ok(None) };
        let cell = table.cell(row, *at);
        let told = match column.categories.is_empty() {
            true => column.number(cell, table.format()),
            false => column.category(cell).map(|place| place as f64),
        };
        told.map(Some).map_err(|reason| self.at(table, (row, *at), column, &reason))
    }

    /// The place of a cell, and the fault in it.
    fn at(&self, table: &Table, (row, at): (usize, usize), column: &Column, why: &str) -> String {
        let place = table.place(row);
        if self.named {
            return format!("row {place}, column `{}`: {why}", shown(&column.name));
        }
        let number = table.number(row, at).err();
        number.unwrap_or_else(|| format!("row {place}, column {}: {why}", at + 1))
    }
}

/// The names of all columns of a table, else their numbers from 1. A column without a name among others has the name
/// that pandas gives it.
fn names(table: &Table) -> Vec<String> {
    match table.names() {
        None => (1..=table.columns()).map(|at| at.to_string()).collect(),
        Some(names) => {
            let name = |(at, name): (usize, &String)| match name.as_str() {
                "" => format!("Unnamed: {at}"),
                name => name.to_owned(),
            };
            names.iter().enumerate().map(name).collect()
        }
    }
}

/// The place of a column.
fn find(names: &[String], named: bool, name: &str) -> Result<usize, String> {
    names.iter().position(|known| known == name).ok_or_else(|| {
        let each = list(names.iter().map(String::as_str));
        match named {
            true => {
                format!("has no column `{}`{}; it has {each}", shown(name), near(name, names))
            }
            false => format!(
                "has no column `{}`: its columns have no names, but the numbers 1 to {}",
                shown(name),
                names.len()
            ),
        }
    })
}

/// Refuses a column without a name among columns with names, unless one of its name is wanted.
fn check_names(
    table: &Table,
    names: &[String],
    left: &[usize],
    wanted: &[Column],
) -> Result<(), String> {
    let Some(written) = table.names() else { return Ok(()) };
    let nameless = |at: &&usize| {
        written[**at].is_empty() && !wanted.iter().any(|column| column.name == names[**at])
    };
    let Some(&at) = left.iter().find(nameless) else { return Ok(()) };
    Err(format!(
        "column {} has no name, as where pandas writes the index of a frame: write it with index=False, or leave the \
         column out (drop: {})",
        at + 1,
        names[at]
    ))
}

/// Refuses a first column without a name that counts the rows: it is an index, as pandas and R write it, and not a
/// value.
fn check_count(table: &Table, left: &[usize]) -> Result<(), String> {
    let Some(&first) = left.first() else { return Ok(()) };
    let counts = |from: usize| {
        (0..table.len()).all(|row| table.number(row, first) == Ok((from + row) as f64))
    };
    if table.len() < COUNTED || !(counts(0) || counts(1)) {
        return Ok(());
    }
    Err(format!(
        "column {0} counts the rows, as the index of a frame does: leave it out (drop: {0}), or say that the first row \
         holds no names (header: no) if it is a value",
        first + 1
    ))
}

/// The wanted columns by their names.
fn by_name(
    names: &[String],
    left: &[usize],
    wanted: &[Column],
) -> Result<Vec<(usize, Column)>, String> {
    let each = || list(wanted.iter().map(|column| column.name.as_str()));
    let mut found = Vec::with_capacity(wanted.len());
    for column in wanted {
        let at = left.iter().copied().find(|&at| names[at] == column.name);
        let at = at.ok_or_else(|| {
            let free = |name: &&String| wanted.iter().all(|column| column.name != **name);
            let have: Vec<_> = left.iter().map(|&at| &names[at]).filter(free).cloned().collect();
            format!(
                "has no column `{}`{}; wanted are {}",
                shown(&column.name),
                near(&column.name, &have),
                each()
            )
        })?;
        found.push((at, column.clone()));
    }
    match left.iter().find(|at| found.iter().all(|(known, _)| known != *at)) {
        None => Ok(found),
        Some(&at) => Err(format!(
            "column `{0}` is not among those that are wanted, {1}; leave it out (drop: {0})",
            shown(&names[at]),
            each()
        )),
    }
}

/// The wanted columns in their order.
fn by_place(left: &[usize], wanted: &[Column]) -> Result<Vec<(usize, Column)>, String> {
    if left.len() != wanted.len() {
        let each = list(wanted.iter().map(|column| column.name.as_str()));
        let (found, count) = (left.len(), wanted.len());
        return Err(format!("has {found} columns, and {count} are wanted: {each}"));
    }
    Ok(left.iter().copied().zip(wanted.iter().cloned()).collect())
}

/// A few of these names.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(shown).collect();
    match names.len() {
        0..=12 => names.join(", "),
        all => format!("{}, .. ({all} in all)", names[..12].join(", ")),
    }
}

/// A remark on the name that was probably meant.
fn near(name: &str, names: &[String]) -> String {
    nearest(name, names.iter().map(String::as_str))
        .map_or_else(String::new, |known| format!(", but `{}`: did you mean that?", shown(known)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Codes;

    fn table(text: &str) -> Table {
        written(text, TableFormat::default())
    }

    fn written(text: &str, format: TableFormat) -> Table {
        Table::parse(text.as_bytes(), format).unwrap()
    }

    fn options(label: Option<&str>, drop: &[&str]) -> TableOptions {
        let drop = drop.iter().map(|&name| name.to_owned()).collect();
        TableOptions { label: label.map(str::to_owned), drop, ..TableOptions::default() }
    }

    fn wanted() -> Vec<Column> {
        ["a", "b", "c"].map(Column::named).to_vec()
    }

    fn refused(text: &str, wanted: &[Column], options: &TableOptions) -> String {
        Layout::of(&table(text), wanted, None, options).unwrap_err()
    }

    #[test]
    fn columns_are_found_by_their_names_in_any_order() {
        let text = table("c,id,a,y,b\n3,77,1,0,2\n30,78,10,1,20\n");
        let label = Column::named("y");
        let layout = Layout::of(&text, &wanted(), Some(&label), &options(None, &["id"])).unwrap();
        assert_eq!((layout.columns(), layout.label()), (wanted(), Some(&label)));
        let rows = [0, 1].map(|row| layout.row(&text, row).unwrap());
        assert_eq!(rows[0], Row { values: vec![1.0, 2.0, 3.0], truth: Some(0.0) });
        assert_eq!(rows[1], Row { values: vec![10.0, 20.0, 30.0], truth: Some(1.0) });
        // Without names that are wanted, the file's own, in their order.
        let layout = Layout::of(&text, &[], None, &options(Some("y"), &["id", "c"])).unwrap();
        assert_eq!(layout.row(&text, 1).unwrap().values, [10.0, 20.0]);
        let names: Vec<_> = layout.columns().into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_column_that_is_missing_or_too_many_is_named() {
        let none = options(None, &[]);
        for (text, reason) in [
            ("a,B,c\n1,2,3\n", "no column `b`, but `B`: did you mean that?; wanted are a, b, c"),
            ("a,c\n1,3\n", "no column `b`; wanted are a, b, c"),
            ("a,b,c,d\n1,2,3,4\n", "column `d` is not among those that are wanted, a, b, c"),
            ("1,2,3\n4,5,7\n", "its columns have no names, and names are wanted: a, b, c"),
        ] {
            let said = refused(text, &wanted(), &none);
            assert!(said.contains(reason), "{said}");
        }
        let said = refused("a,b\n1,2\n", &[], &options(Some("bb"), &[]));
        assert!(said.contains("no column `bb`, but `b`") && said.contains("it has a, b"), "{said}");
        let said = refused("5,2\n5,2\n", &[], &options(Some("3"), &[]));
        assert!(said.contains("the numbers 1 to 2"), "{said}");
        let said = refused("a,b\n1,2\n", &[], &options(Some("b"), &["b"]));
        assert!(said.contains("truth is left out"), "{said}");
    }

    #[test]
    fn the_index_that_pandas_writes_is_no_column() {
        let none = options(None, &[]);
        // df.to_csv(f), of a frame with names.
        let named = ",a,b,c\n0,1,2,3\n1,4,5,6\n2,7,8,9\n";
        for wanted in [&wanted()[..], &[]] {
            let said = refused(named, wanted, &none);
            assert!(said.contains("index=False") && said.contains("drop: Unnamed: 0"), "{said}");
        }
        let dropped = options(None, &["Unnamed: 0"]);
        let layout = Layout::of(&table(named), &wanted(), None, &dropped).unwrap();
        assert_eq!(layout.row(&table(named), 1).unwrap().values, [4.0, 5.0, 6.0]);
        // df.to_csv(f, header=False): nothing but its numbers tells the index.
        let format = TableFormat { header: Some(false), ..TableFormat::default() };
        let kept = TableOptions { format, ..none.clone() };
        for text in ["0,5,6,7\n1,4,5,6\n2,7,8,9\n", "1,1,2,3\n2,4,5,6\n3,7,8,9\n"] {
            let said = refused(text, &[], &none);
            assert!(
                said.contains("column 1 counts the rows") && said.contains("drop: 1"),
                "{said}"
            );
            let said_so = written(text, format);
            assert_eq!(Layout::of(&said_so, &[], None, &kept).unwrap().width(), 4);
        }
        let other = table("7,5,6,7\n1,4,5,6\n2,7,8,9\n");
        assert_eq!(Layout::of(&other, &[], None, &none).unwrap().width(), 4);
        // One column alone is a value, whatever it counts.
        assert_eq!(Layout::of(&table("1\n2\n3\n"), &[], None, &none).unwrap().width(), 1);
    }

    #[test]
    fn cells_that_their_column_may_not_hold_are_named() {
        let city = Column {
            categories: vec!["Bern".to_owned(), "Basel".to_owned()],
            codes: Codes::OneHot,
            ..Column::named("city")
        };
        let age = Column { range: Some((0.0, 120.0)), ..Column::named("age") };
        let wanted = [age, city];
        let text = table("city,age\nBasel,30\nParis,30\nBern,130\nBern,\n");
        let layout = Layout::of(&text, &wanted, None, &options(None, &[])).unwrap();
        assert_eq!(layout.row(&text, 0).unwrap().values, [30.0, 0.0, 1.0]);
        for (row, reason) in [
            (1, "row 3, column `city`: `Paris` is none of its categories"),
            (2, "row 4, column `age`: 130 is outside of its range, 0 to 120"),
            (3, "row 5, column `age`: is missing"),
        ] {
            let said = layout.row(&text, row).unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }
}
