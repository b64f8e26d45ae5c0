//! Data sets that servers keep for trainings.

use std::fmt;

use ring_arith::{EngineTensor, Shape, Tensor};
use serde::{Deserialize, Serialize};

use super::{openings::Conditions, privacy::Budget};
use crate::{
    base::{Error, Result, Shares},
    model::{Column, check_columns, check_size},
};

/// The most tensors of a data set.
const TENSORS: usize = 64;

/// The most bytes of a tensor's name.
const NAME: usize = 256;

/// The most dimensions of a row.
const RANK: usize = 8;

/// The public description of a data set: the number of its rows, and the tensors of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    /// The number of rows.
    pub rows: usize,
    /// The tensors of a row, the labels last.
    pub tensors: Vec<RowTensor>,
    /// The owner's conditions for runs.
    #[serde(default)]
    pub conditions: Conditions,
}

/// One tensor of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowTensor {
    /// The name.
    pub name: String,
    /// Its dimensions in one row.
    pub dims: Vec<usize>,
    /// Its fraction bits: 0 if it consists of integers.
    pub fraction_bits: u32,
    /// The columns of tables whose cells are its numbers, in their order; empty if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// `image [1, 8, 8]`, or `labels [10] of integers`.
impl fmt::Display for RowTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fraction_bits == 0 { " of integers" } else { "" };
        write!(f, "{} {:?}{kind}", self.name, self.dims)
    }
}

impl DataSet {
    /// Checks a client's description of its data set.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what is not sound.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: &str| Err(Error::refused("data set", reason));
        if self.rows == 0 {
            return bad("it has no rows");
        }
        if !(1..=TENSORS).contains(&self.tensors.len()) {
            return bad("a row has 1 to 64 tensors");
        }
        let sound = |tensor: &RowTensor| {
            let RowTensor { name, dims, fraction_bits, .. } = tensor;
            let bounded = dims.len() <= RANK && name.len() <= NAME && *fraction_bits <= 40;
            bounded && !dims.contains(&0)
        };
        let printable = |tensor: &RowTensor| !tensor.name.chars().any(char::is_control);
        if !self.tensors.iter().all(printable) {
            return bad("the names of its tensors have control characters");
        }
        if !self.tensors.iter().all(sound) {
            return bad(
                "its tensors have names of at most 256 bytes, at most 8 dimensions of 1 or more, and at \
                 most 40 fraction bits",
            );
        }
        for tensor in &self.tensors {
            let width = tensor.dims.iter().product();
            check_columns(&format!("tensor `{}`", tensor.name), &tensor.columns, width)?;
        }
        check_size("data set", self.tensors.iter().map(|tensor| tensor.columns.as_slice()))?;
        self.conditions.privacy.iter().try_for_each(Budget::check)?;
        self.shapes().map(drop)
    }

    /// Shapes of all rows of each tensor.
    ///
    /// # Errors
    /// [`Error::Ring`] if one has more elements than a tensor can have.
    pub fn shapes(&self) -> Result<Vec<Shape>> {
        let shape =
            |tensor: &RowTensor| Shape::new([&[self.rows], tensor.dims.as_slice()].concat());
        Ok(self.tensors.iter().map(shape).collect::<ring_arith::Result<_>>()?)
    }

    /// Numbers in all.
    ///
    /// # Errors
    /// As [`DataSet::shapes`].
    pub fn words(&self) -> Result<u64> {
        Ok(self.shapes()?.iter().map(|shape| shape.len() as u64).sum())
    }

    /// Puts further columns of the same rows beside these, which another client may own. A tensor with a known name
    /// is appended to it along the first dimension of a row, any other one follows the last.
    ///
    /// # Errors
    /// [`Error::Refused`] that states why they do not go together.
    pub fn beside(&mut self, other: &Self) -> Result<()> {
        let bad = |reason: String| Err(Error::refused("data sets side by side", reason));
        if self.rows != other.rows {
            return bad(format!("they have {} and {} rows", self.rows, other.rows));
        }
        for tensor in &other.tensors {
            let known = self.tensors.iter_mut().find(|known| known.name == tensor.name);
            let Some(known) = known else {
                self.tensors.push(tensor.clone());
                continue;
            };
            let alike = known.fraction_bits == tensor.fraction_bits
                && !known.dims.is_empty()
                && known.dims.get(1..) == tensor.dims.get(1..);
            if !alike {
                return bad(format!(
                    "{known} and {tensor} differ in more than the first dimension"
                ));
            }
            known.dims[0] += tensor.dims[0];
            // Names of a part of the columns would be of no use: what comes from there has no place among them.
            if known.columns.is_empty() || tensor.columns.is_empty() {
                known.columns.clear();
            } else {
                known.columns.extend_from_slice(&tensor.columns);
            }
        }
        self.conditions = self.conditions.and(&other.conditions);
        self.check()
    }

    /// True if the rows of both are alike, so that one training can use them together.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the difference.
    pub fn check_like(&self, name: &str, tensors: &[RowTensor]) -> Result<()> {
        let like = |(mine, other): (&RowTensor, &RowTensor)| {
            (&mine.dims, mine.fraction_bits) == (&other.dims, other.fraction_bits)
        };
        if self.tensors.len() == tensors.len() && self.tensors.iter().zip(tensors).all(like) {
            return Ok(());
        }
        let shown = |all: &[RowTensor]| {
            all.iter().map(|one| format!("{one} ({} bits)", one.fraction_bits)).collect::<Vec<_>>()
        };
        let (found, wanted) = (shown(&self.tensors).join(", "), shown(tensors).join(", "));
        let reason = format!("a row of it has {found}, and the training takes {wanted}");
        Err(Error::refused(format_args!("data set `{name}`"), reason))
    }
}

/// The columns of one set after those of another, which describe the same rows.
///
/// # Errors
/// As [`DataSet::beside`].
pub(crate) fn beside(
    (description, shares): (&mut DataSet, &mut Shares),
    (more, columns): (&DataSet, Shares),
) -> Result<()> {
    description.beside(more)?;
    for (tensor, share) in more.tensors.iter().zip(columns) {
        // The description names new ones already; they come in its order.
        let at = description.tensors.iter().position(|known| known.name == tensor.name);
        match at.and_then(|at| shares.get_mut(at)) {
            Some(held) => extend(held, share, 1)?,
            None => shares.push(share),
        }
    }
    Ok(())
}

/// Rows of several tensors, one set after the other.
///
/// # Errors
/// [`Error::Ring`] if they are not alike.
pub(crate) fn concat(sets: Vec<Shares>) -> Result<Shares> {
    let mut sets = sets.into_iter();
    let mut all = sets.next().unwrap_or_default();
    for set in sets {
        for (held, more) in all.iter_mut().zip(set) {
            extend(held, more, 0)?;
        }
    }
    Ok(all)
}

/// Joins each component of a share to that of another, along an axis.
fn extend(held: &mut [Tensor], more: Vec<Tensor>, axis: usize) -> Result<()> {
    for (component, more) in held.iter_mut().zip(more) {
        *component = join(component, &more, axis)?;
    }
    Ok(())
}

/// Two tensors whose dimensions differ in that of `axis` alone, joined there.
fn join(first: &Tensor, second: &Tensor, axis: usize) -> Result<Tensor> {
    let mut dims = first.shape().dims().to_vec();
    let parts = dims[..axis].iter().product();
    dims[axis] += second.shape().dims()[axis];
    let [one, other] = [first, second].map(|x| x.words().len() / parts);
    let mut words = Vec::with_capacity(first.words().len() + second.words().len());
    for part in 0..parts {
        words.extend_from_slice(&first.words()[part * one..][..one]);
        words.extend_from_slice(&second.words()[part * other..][..other]);
    }
    Ok(Tensor::new(Shape::new(dims)?, words)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rows: usize, dims: &[usize], fraction_bits: u32) -> DataSet {
        let tensor = RowTensor {
            name: "x".to_owned(),
            dims: dims.to_vec(),
            fraction_bits,
            ..RowTensor::default()
        };
        DataSet { rows, tensors: vec![tensor], conditions: Conditions::default() }
    }

    #[test]
    fn what_a_client_says_about_its_data_is_bounded() {
        set(3, &[2, 2], 20).check().unwrap();
        set(3, &[], 0).check().unwrap();
        for (bad, reason) in [
            (set(0, &[2], 20), "no rows"),
            (DataSet { rows: 1, ..DataSet::default() }, "1 to 64 tensors"),
            (set(1, &[0], 20), "dimensions"),
            (set(1, &[1; 9], 20), "dimensions"),
            (set(1, &[1], 41), "fraction bits"),
            (set(usize::MAX, &[1 << 30, 1 << 30], 20), "elements"),
        ] {
            let text = bad.check().unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
    }

    #[test]
    fn sets_whose_rows_are_not_alike_are_told_apart() {
        let one = set(3, &[2], 20);
        one.check_like("a", &set(9, &[2], 20).tensors).unwrap();
        for other in [set(3, &[3], 20), set(3, &[2], 0), DataSet::default()] {
            let text = one.check_like("a", &other.tensors).unwrap_err().to_string();
            assert!(text.contains("data set `a`") && text.contains("x [2] (20 bits)"), "{text}");
        }
    }

    #[test]
    fn columns_of_one_set_stand_beside_those_of_the_other() {
        let mut both = set(2, &[2], 20);
        let mut shares = vec![vec![tensor(&[2, 2], &[1, 2, 3, 4])]];
        let columns = vec![vec![tensor(&[2, 1], &[5, 6])]];
        beside((&mut both, &mut shares), (&set(2, &[1], 20), columns)).unwrap();
        assert_eq!(both, set(2, &[3], 20));
        assert_eq!(shares, [[tensor(&[2, 3], &[1, 2, 5, 3, 4, 6])]]);

        let labels = RowTensor { name: "labels".to_owned(), ..RowTensor::default() };
        let labels = DataSet { rows: 2, tensors: vec![labels], ..DataSet::default() };
        beside((&mut both, &mut shares), (&labels, vec![vec![tensor(&[2], &[8, 9])]])).unwrap();
        assert_eq!(both.tensors.len(), 2);
        assert_eq!(shares[1], [tensor(&[2], &[8, 9])]);

        for (other, reason) in [
            (set(3, &[1], 20), "they have 2 and 3 rows"),
            (set(2, &[1], 0), "x [3] and x [1] of integers differ"),
            (set(2, &[1, 1], 20), "x [3] and x [1, 1] differ"),
            (set(2, &[], 20), "x [3] and x [] differ"),
            (labels, "labels [] of integers and labels [] of integers differ"),
        ] {
            let text = both.clone().beside(&other).unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
    }

    fn tensor(dims: &[usize], words: &[u64]) -> Tensor {
        Tensor::new(Shape::new(dims).unwrap(), words.to_vec()).unwrap()
    }

    #[test]
    fn rows_of_one_set_stand_behind_those_of_the_other() {
        let tensor = |rows: usize, from: u64| {
            let words = (from..from + 2 * rows as u64).collect();
            Tensor::new(Shape::new([rows, 2]).unwrap(), words).unwrap()
        };
        let sets =
            vec![vec![vec![tensor(1, 0), tensor(1, 10)]], vec![vec![tensor(2, 2), tensor(2, 12)]]];
        let all = concat(sets).unwrap();
        assert_eq!(all, [[tensor(3, 0), tensor(3, 10)]]);
    }
}
