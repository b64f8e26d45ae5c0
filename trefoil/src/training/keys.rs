//! Keys of rows, by which data sets of several owners are joined: a hash of cells, under a secret of the owners.

use std::{collections::HashMap, fmt, fs, path::Path};

use models::data::Table;
use mpc_core::functions::join_keys;
use ring_arith::{Shape, Tensor};
use zeroize::Zeroizing;

use crate::{
    base::{Error, Result, encryption::parse_key, files::check_private},
    inputs::Layout,
    model::{is_missing, shown},
};

/// Rows that an error names.
const NAMED: usize = 5;

/// The secret under which the owners of data sets hash their keys. `Debug` shows nothing of it.
pub struct KeySecret(Zeroizing<[u8; 32]>);

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

impl KeySecret {
    /// Reads a file of 64 hexadecimal letters, which its owner alone may read.
    ///
    /// # Errors
    /// [`Error::Config`] if others may read it, [`Error::Input`] if it cannot be read or is not a secret.
    pub fn read(path: &Path) -> Result<Self> {
        check_private(path)?;
        let bad = |reason: String| Error::input(path.display(), reason);
        let text =
            fs::read_to_string(path).map_err(|cause| bad(format!("cannot be read: {cause}")))?;
        let secret = parse_key(&Zeroizing::new(text));
        secret.map(Self).ok_or_else(|| {
            bad("holds no secret of 64 hexadecimal letters; `trefoil store key FILE` makes one"
                .to_owned())
        })
    }
}

/// `[rows]`: the key of each row of a table, an integer of 60 bits: a hash of its cells in these columns under the
/// secret. Cells are compared as they are written, without white space around them.
///
/// # Errors
/// [`Error::Input`] that names the column that is missing, the rows without a key, or those that have the same.
pub fn keys_of_table(
    path: &Path,
    table: &Table,
    columns: &[String],
    secret: &KeySecret,
) -> Result<Tensor> {
    let bad = |reason: String| Error::input(path.display(), reason);
    let places: Vec<usize> = columns
        .iter()
        .map(|name| Layout::place(table, name))
        .collect::<Result<_, _>>()
        .map_err(bad)?;
    let mut names = Vec::with_capacity(table.len());
    let mut empty = Vec::new();
    for row in 0..table.len() {
        let cells: Vec<&str> = places.iter().map(|&at| table.cell(row, at).trim()).collect();
        if cells.iter().any(|cell| is_missing(cell)) {
            empty.push(table.place(row));
        }
        names.push(one_name(&cells));
    }
    let key = columns.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    if !empty.is_empty() {
        let reason = format!("the key ({key}) of {} is empty; each row needs one", list(&empty));
        return Err(bad(reason));
    }
    let keys = join_keys(&secret.0, &names);
    let mut known = HashMap::with_capacity(keys.len());
    let mut again = Vec::new();
    for (row, key) in keys.iter().enumerate() {
        let first = *known.entry(*key).or_insert(row);
        if first != row {
            again.extend([first, row].map(|row| table.place(row)));
        }
    }
    again.sort_unstable();
    again.dedup();
    if !again.is_empty() {
        let reason = format!(
            "the key ({key}) of {} is also that of another row; no two rows may have the same",
            list(&again)
        );
        return Err(bad(reason));
    }
    Ok(Tensor::new(Shape::new([keys.len()])?, keys)?)
}

/// The cells of a key in one text, from which they can be read again: other cells make another text.
fn one_name(cells: &[&str]) -> Vec<u8> {
    let mut name = Vec::new();
    for cell in cells {
        name.extend((cell.len() as u64).to_le_bytes());
        name.extend(cell.as_bytes());
    }
    name
}

/// `row 3`, or `rows 3, 7 and 5 more`.
fn list(rows: &[usize]) -> String {
    let named = rows.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match rows.len() {
        1 => format!("row {named}"),
        count if count <= NAMED => format!("rows {named}"),
        count => format!("rows {named} and {} more", count - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::data::TableFormat;

    fn keys(text: &str, columns: &[&str]) -> Result<Vec<u64>> {
        let table = Table::parse(text.as_bytes(), TableFormat::default()).unwrap();
        let columns: Vec<_> = columns.iter().map(|&name| name.to_owned()).collect();
        let secret = KeySecret(Zeroizing::new([7; 32]));
        let keys = keys_of_table(Path::new("t.csv"), &table, &columns, &secret)?;
        Ok(keys.words().to_vec())
    }

    #[test]
    fn one_key_is_made_of_the_same_cells_whatever_stands_beside_them() {
        let one = keys("id,age\nanna,3\nbert,4\n", &["id"]).unwrap();
        let other = keys("city,person\nBern, bert\nBasel,carl\n", &["person"]).unwrap();
        assert_eq!(one[1], other[0]);
        assert!(one[0] != one[1] && one.iter().chain(&other).all(|key| key >> 60 == 0));
    }

    #[test]
    fn cells_of_several_columns_are_not_confused() {
        let keys = keys("a,b\nxy,z\nx,yz\nz,xy\n", &["a", "b"]).unwrap();
        let mut different = keys.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn rows_without_a_key_and_rows_with_one_key_are_named_and_no_key_is() {
        let same = "id,x\nanna,1\nbert,2\nanna,3\n";
        for (text, columns, reason) in [
            (same, &["id"][..], "the key (id) of rows 2, 4 is also that of another row"),
            ("id,x\nanna,1\n,2\nNA,3\n", &["id"], "the key (id) of rows 3, 4 is empty"),
            ("id,x\nanna,1\n", &["ID"], "has no column `ID`, but `id`"),
            ("a,b\nanna,1\nanna,\n", &["a", "b"], "the key (a, b) of row 3 is empty"),
        ] {
            let said = keys(text, columns).unwrap_err().to_string();
            assert!(said.contains(reason) && said.starts_with("t.csv: "), "{said}");
            assert!(!said.contains("anna") && !said.contains("bert"), "{said}");
        }
        keys("a,b\nanna,1\nanna,2\n", &["a", "b"]).unwrap();
    }

    #[test]
    fn a_secret_is_64_letters_of_a_private_file_and_is_never_shown() {
        let folder = crate::testing::folder("key-secrets");
        let path = folder.join("join.key");
        for (text, sound) in
            [("ab".repeat(32), true), ("ab".repeat(31), false), ("zz".repeat(32), false)]
        {
            fs::write(&path, text + "\n").unwrap();
            crate::base::files::make_private(&path).unwrap();
            match KeySecret::read(&path) {
                Ok(secret) if sound => assert_eq!(format!("{secret:?}"), "KeySecret"),
                Err(error) if !sound => {
                    assert!(error.to_string().contains("64 hexadecimal"), "{error}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
