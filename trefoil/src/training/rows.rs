//! Rows of files, as data sets hold them.

use std::path::Path;

use models::data::Table;
use ring_arith::{FixedPoint, FracBits, Shape, Tensor};

use super::RowTensor;
use crate::{
    base::{Error, Result},
    inputs::{self, Image, Layout, Reading, Schema, TableOptions, from_table},
    model::{Column, Input, Preprocess},
};

/// Fraction bits of the rows' real numbers, as many as a training's values have.
const FRACTION: u32 = 20;

/// Rows of a file, and the columns of its table if they have names.
pub struct Rows {
    /// The rows.
    pub rows: Vec<Image>,
    /// The dimensions of the values of one.
    pub dims: Vec<usize>,
    /// The columns of the values; none if they have no names.
    pub columns: Vec<Column>,
    /// The column with the truth, if it has a name.
    pub label: Option<Column>,
}

impl Rows {
    /// The rows of a table from a file. Its columns are those of the schema, by name, or else all that it has: then
    /// numbers are multiplied by `scale`. Without `dims` a row has one dimension.
    ///
    /// # Errors
    /// [`Error::Input`] that names the file, and the row and column that is wrong.
    pub fn of_table(
        path: &Path,
        table: &Table,
        schema: Schema,
        dims: &[usize],
        (options, scale): (&TableOptions, f64),
    ) -> Result<Self> {
        let Schema { columns, label } = schema;
        let layout = Layout::of(table, &columns, label.as_ref(), options)
            .map_err(|reason| Error::input(path.display(), reason))?;
        let mut input = Input { name: "values".to_owned(), ..Input::default() };
        input.dims = if dims.is_empty() { vec![layout.width()] } else { dims.to_vec() };
        input.columns = layout.columns();
        let mut how = Reading {
            preprocess: &Preprocess::default(),
            scale,
            table: options,
            label: label.as_ref(),
        };
        if !input.columns.is_empty() && columns.is_empty() {
            input.columns.iter_mut().for_each(|column| column.spread = 1.0 / scale);
            how.scale = 1.0;
        }
        let rows = from_table(path, table, &input, &how)?;
        let label = layout.label().cloned();
        Ok(Self { rows, dims: input.dims, columns: input.columns, label })
    }

    /// The truth of each row of a table, of which nothing else is wanted.
    ///
    /// # Errors
    /// As [`Rows::of_table`].
    pub fn truths_of_table(
        path: &Path,
        table: &Table,
        label: Option<&Column>,
        options: &TableOptions,
    ) -> Result<Self> {
        let bad = |reason: String| Error::input(path.display(), reason);
        let (label, truths) = Layout::truths(table, label, options).map_err(bad)?;
        let row = |(at, truth)| Image {
            source: format!("{}#{}", path.display(), at + 1),
            values: Vec::new(),
            truth: Some(truth),
        };
        let rows: Vec<_> = truths.into_iter().enumerate().map(row).collect();
        if rows.is_empty() {
            return Err(bad("holds no labels".to_owned()));
        }
        Ok(Self { rows, dims: Vec::new(), columns: Vec::new(), label })
    }

    /// The values of each row, as [`real`] encodes them.
    ///
    /// # Errors
    /// As [`real`].
    pub fn values(&self) -> Result<(RowTensor, Tensor)> {
        let (tensor, words) = real("values", &self.dims, &self.rows)?;
        Ok((RowTensor { columns: self.columns.clone(), ..tensor }, words))
    }

    /// The truth of each row: classes if they are counted or have names, else the number to be predicted.
    ///
    /// # Errors
    /// [`Error::Input`] that names the row whose truth is not known, or is none of the classes.
    pub fn labels(&self, classes: Option<u32>) -> Result<(RowTensor, Tensor)> {
        let names = self.label.as_ref().map_or(0, |label| label.categories.len());
        let count = match classes {
            Some(classes) if names != 0 && classes as usize != names => {
                let reason = format!("there are {names} in the schema");
                return Err(Error::input(format_args!("{classes} classes"), reason));
            }
            Some(classes) => classes as usize,
            None => names,
        };
        if count == 0 {
            return self.numbers();
        }
        let (tensor, words) = classes_of(count, &self.rows)?;
        let columns = self.label.clone().into_iter().map(|label| label.with_classes(count));
        let columns = columns.filter(|label| label.check().is_ok()).collect();
        Ok((RowTensor { columns, ..tensor }, words))
    }

    /// The number of each row that is to be predicted.
    fn numbers(&self) -> Result<(RowTensor, Tensor)> {
        let scaled = |truth| self.label.as_ref().map_or(truth, |label| label.scaled(truth));
        let row = |row: &Image| {
            let truth = row.truth.ok_or_else(|| no_truth(row))?;
            let (source, values) = (row.source.clone(), vec![scaled(truth)]);
            Ok(Image { source, values, truth: None })
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect::<Result<_>>()?;
        let (tensor, words) = real("labels", &[1], &rows)?;
        Ok((RowTensor { columns: self.label.clone().into_iter().collect(), ..tensor }, words))
    }
}

fn no_truth(row: &Image) -> Error {
    let reason = "nothing says what its label is: name its column (label) or a file of labels";
    Error::input(&row.source, reason)
}

/// A tensor of real numbers, with its words: 20 fraction bits, as the values of a training have.
///
/// # Errors
/// [`Error::Input`] that names the row with a number that cannot be encoded.
pub fn real(name: &str, dims: &[usize], rows: &[Image]) -> Result<(RowTensor, Tensor)> {
    let code = FixedPoint(FracBits::new(FRACTION)?);
    let mut words = Vec::with_capacity(rows.len() * dims.iter().product::<usize>());
    for row in rows {
        let encoded = code.encode(&row.values);
        words.extend(encoded.map_err(|cause| Error::input(&row.source, cause))?);
    }
    let shape = Shape::new([&[rows.len()], dims].concat())?;
    let (name, dims) = (name.to_owned(), dims.to_vec());
    let tensor = RowTensor { name, dims, fraction_bits: FRACTION, columns: Vec::new() };
    Ok((tensor, Tensor::new(shape, words)?))
}

/// The classes of the rows, of this many: a one in the place of each.
///
/// # Errors
/// [`Error::Input`] that names the row whose class is not known, or is none of them.
pub fn classes_of(classes: usize, rows: &[Image]) -> Result<(RowTensor, Tensor)> {
    let mut words = vec![0; rows.len() * classes];
    for (at, row) in rows.iter().enumerate() {
        let truth = row.truth.ok_or_else(|| no_truth(row))?;
        let class = inputs::class(truth).ok_or_else(|| {
            Error::input(&row.source, format!("its label is {truth}, and no class (0, 1, 2, ..)"))
        })?;
        if class >= classes {
            let reason =
                format!("its class is {class}; {classes} classes go from 0 to {}", classes - 1);
            return Err(Error::input(&row.source, reason));
        }
        words[at * classes + class] = 1;
    }
    let tensor =
        RowTensor { name: "labels".to_owned(), dims: vec![classes], ..RowTensor::default() };
    Ok((tensor, Tensor::new(Shape::new([rows.len(), classes])?, words)?))
}
