//! Data sets that servers keep for trainings.

use std::fmt;

use ring_arith::Shape;
use serde::{Deserialize, Serialize};

use super::{Join, openings::Conditions, privacy::Budget};
use crate::{
    base::{Error, Result},
    model::{Column, check_columns, check_size},
};

/// The most tensors of a data set.
const TENSORS: usize = 64;

/// The most bytes of a tensor's name.
const NAME: usize = 256;

/// The most columns of a key.
const KEYS: usize = 16;

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
    /// The columns from which the rows' keys were made, for joins; empty if rows have no keys. The keys are secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
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
        let sound = |name: &String| name.len() <= NAME && !name.chars().any(char::is_control);
        if self.key.len() > KEYS || !self.key.iter().all(sound) {
            return bad(
                "a key has at most 16 columns, with names of at most 256 bytes and no control characters",
            );
        }
        self.conditions.privacy.iter().try_for_each(Budget::check)?;
        self.shapes().map(drop)
    }

    /// Shapes of all rows of each tensor, and of the keys if there are some.
    ///
    /// # Errors
    /// [`Error::Ring`] if one has more elements than a tensor can have.
    pub fn shapes(&self) -> Result<Vec<Shape>> {
        let keys = (!self.key.is_empty()).then_some(&[][..]);
        let dims = self.tensors.iter().map(|tensor| tensor.dims.as_slice()).chain(keys);
        let shapes = dims.map(|dims| Shape::new([&[self.rows], dims].concat()));
        Ok(shapes.collect::<ring_arith::Result<_>>()?)
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
        if self.rows != other.rows {
            let reason = format!("they have {} and {} rows", self.rows, other.rows);
            return Err(Error::refused("data sets side by side", reason));
        }
        self.add_columns("data sets side by side", other)
    }

    /// Joins the rows of another set to these by their keys. Its columns follow as in [`DataSet::beside`]. `names` are
    /// those of both sets.
    ///
    /// # Errors
    /// [`Error::Refused`] that states why they cannot be joined.
    pub fn join(&mut self, other: &Self, join: Join, names: [&str; 2]) -> Result<()> {
        let what = format!("join of `{}` with `{}`", names[0], names[1]);
        join.check([self, other], names).map_err(|reason| Error::refused(&what, reason))?;
        let labels = self.tensors.last().cloned();
        self.add_columns(&what, other)?;
        if join == Join::Left && self.tensors.last() != labels.as_ref() {
            let reason = format!(
                "rows without a partner get zeros, and `{}` brings the last tensor of a row, which holds the labels: \
                 name the set with the labels first",
                names[1]
            );
            return Err(Error::refused(&what, reason));
        }
        if let Join::Inner { rows } = join {
            self.rows = rows;
        }
        self.key.clear();
        Ok(())
    }

    /// The place of each tensor of another set among these, once its columns have been added.
    pub(crate) fn places(&self, other: &Self) -> Vec<Option<usize>> {
        let place =
            |tensor: &RowTensor| self.tensors.iter().position(|known| known.name == tensor.name);
        other.tensors.iter().map(place).collect()
    }

    fn add_columns(&mut self, what: &str, other: &Self) -> Result<()> {
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
                let reason =
                    format!("{known} and {tensor} differ in more than the first dimension");
                return Err(Error::refused(what, reason));
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
        let reason = format!("a row of it has {found}, and {wanted} are wanted");
        Err(Error::refused(format_args!("data set `{name}`"), reason))
    }
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
        DataSet { rows, tensors: vec![tensor], ..DataSet::default() }
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
            (keyed(set(1, &[1], 20), &["id"; 17]), "at most 16 columns"),
            (keyed(set(1, &[1], 20), &["a\nb"]), "no control characters"),
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

    fn labels() -> DataSet {
        let labels = RowTensor { name: "labels".to_owned(), ..RowTensor::default() };
        DataSet { rows: 2, tensors: vec![labels], ..DataSet::default() }
    }

    #[test]
    fn columns_of_one_set_stand_beside_those_of_the_other() {
        let mut both = set(2, &[2], 20);
        both.beside(&set(2, &[1], 20)).unwrap();
        assert_eq!(both, set(2, &[3], 20));
        both.beside(&labels()).unwrap();
        assert_eq!(both.places(&labels()), [Some(1)]);
        for (other, reason) in [
            (set(3, &[1], 20), "they have 2 and 3 rows"),
            (set(2, &[1], 0), "x [3] and x [1] of integers differ"),
            (set(2, &[1, 1], 20), "x [3] and x [1, 1] differ"),
            (set(2, &[], 20), "x [3] and x [] differ"),
            (labels(), "labels [] of integers and labels [] of integers differ"),
        ] {
            let text = both.clone().beside(&other).unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
    }

    fn keyed(set: DataSet, columns: &[&str]) -> DataSet {
        DataSet { key: columns.iter().map(|&name| name.to_owned()).collect(), ..set }
    }

    #[test]
    fn sets_are_joined_only_by_keys_that_both_have() {
        let left = keyed(set(5, &[2], 20), &["id"]);
        let right = keyed(set(3, &[1], 20), &["person"]);
        let inner = |rows| Join::Inner { rows };
        let join = |left: &DataSet, right: &DataSet, join| {
            let mut both = left.clone();
            both.join(right, join, ["a", "b"]).map(|()| both)
        };
        assert_eq!(join(&left, &right, inner(3)).unwrap(), set(3, &[3], 20));
        let mut labelled = DataSet { rows: 5, ..labels() };
        labelled.tensors.splice(0..0, left.tensors.clone());
        let labelled = keyed(labelled, &["id"]);
        let all = join(&labelled, &right, Join::Left).unwrap();
        assert_eq!((all.rows, &all.tensors[0].dims[..]), (5, &[3][..]));
        assert_eq!(all.tensors[1], labelled.tensors[1]);
        let two = keyed(right.clone(), &["name", "birth"]);
        for (left, right, how, reason) in [
            (&set(5, &[2], 20), &right, inner(3), "`a` has no key"),
            (&left, &set(3, &[1], 20), inner(3), "`b` has no key"),
            (&left, &two, inner(3), "of id and of name, birth"),
            (&left, &right, inner(0), "0 rows"),
            (&left, &right, inner(4), "4 rows are asked for, and `b` has 3"),
            (&right, &left, inner(4), "4 rows are asked for, and `a` has 3"),
            (&left, &keyed(set(3, &[1], 0), &["id"]), inner(3), "differ in more than"),
            (&left, &right, Join::Left, "name the set with the labels first"),
            (&left, &keyed(labels(), &["id"]), Join::Left, "name the set with the labels first"),
        ] {
            let text = join(left, right, how).unwrap_err().to_string();
            assert!(text.contains(reason) && text.contains("join of `a` with `b`"), "{text}");
        }
    }
}
