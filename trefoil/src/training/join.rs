//! Joins of data sets by secret keys, as runs ask for them.

use serde::{Deserialize, Serialize};

use super::DataSet;

/// The rows that a join of two data sets keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Join {
    /// This many pairs of rows with one key: those of the lowest keys. If there are fewer, the run is refused. The
    /// servers and the run's owner learn whether there are as many and whether a set has a key twice, and nothing else
    /// of the keys.
    Inner {
        /// The number of pairs, which is public.
        rows: usize,
    },
    /// All rows of the first set. Those without a partner get zeros in the columns of the second. The servers and the
    /// run's owner learn whether a set has a key twice, and nothing else of the keys.
    Left,
}

/// Data sets that a run file puts together, by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// One data set, or several that hold columns of the same rows in the same order.
    Beside(Vec<String>),
    /// Two data sets whose rows are joined by their keys.
    Joined([String; 2], Join),
}

impl Group {
    /// The data sets' names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Beside(names) => names,
            Self::Joined(names, _) => names,
        }
    }
}

impl Join {
    /// A join of this kind, `inner` or `left`, that keeps so many rows.
    ///
    /// # Errors
    /// A sentence that states why kind and rows do not go together.
    pub fn asked(kind: &str, rows: Option<usize>) -> Result<Self, String> {
        match (kind, rows) {
            ("inner", Some(rows)) => Ok(Self::Inner { rows }),
            ("inner", None) => Err(
                "an inner join needs `rows`: how many joined rows the run trains on. The run is refused if fewer rows \
                 have a partner"
                    .to_owned(),
            ),
            ("left", None) => Ok(Self::Left),
            ("left", Some(_)) => {
                Err("a left join keeps all rows of the first data set: leave `rows` out".to_owned())
            }
            (other, _) => Err(format!("a join is of kind \"inner\" or \"left\", not {other:?}")),
        }
    }

    /// Checks that two sets have keys of one kind, and as many rows as are asked for.
    pub(super) fn check(self, sets: [&DataSet; 2], names: [&str; 2]) -> Result<(), String> {
        for (set, name) in sets.iter().zip(names) {
            if set.key.is_empty() {
                return Err(format!(
                    "`{name}` has no key; its owner puts it again with a key column (--key, --key-secret)"
                ));
            }
        }
        let [left, right] = sets.map(|set| &set.key);
        if left.len() != right.len() {
            return Err(format!(
                "their keys were made of different numbers of columns, of {} and of {}",
                left.join(", "),
                right.join(", ")
            ));
        }
        let Self::Inner { rows } = self else { return Ok(()) };
        if rows == 0 {
            return Err("0 rows are asked for; a run needs a batch of rows or more".to_owned());
        }
        match sets.iter().zip(names).find(|(set, _)| set.rows < rows) {
            Some((set, name)) => {
                Err(format!("{rows} rows are asked for, and `{name}` has {}", set.rows))
            }
            None => Ok(()),
        }
    }
}
