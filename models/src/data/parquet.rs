//! Tables in files of Parquet, as pandas, Spark and DuckDB write them.

use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::csv::{Table, TableFormat};
use crate::{Error, Result};

const WHAT: &str = "Parquet file";

/// The beginning of the name that pandas gives to the index of a frame.
const INDEX: &str = "__index_level_";

impl Table {
    /// Reads a table from a file of Parquet, whose columns have names and hold texts, numbers, dates, and true or false.
    /// It is compressed by Snappy or gzip, or not at all. A missing value is an empty cell.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened. [`Error::Format`] if it is damaged or compressed in another way, or naming
    /// a column that holds something else, or whose name is there twice.
    pub fn read_parquet(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
        // The reader is not ours: a damaged file must not end more than this.
        panic::catch_unwind(AssertUnwindSafe(|| read(file)))
            .unwrap_or_else(|_| Err(Error::format(WHAT, "it is damaged")))
    }
}

fn read(file: File) -> Result<Table> {
    let bad = |cause: parquet::errors::ParquetError| {
        let text = cause.to_string();
        let advice =
            if text.contains("feature") { "; write it with compression=\"snappy\"" } else { "" };
        Error::format(WHAT, format!("{text}{advice}"))
    };
    let reader = SerializedFileReader::new(file).map_err(bad)?;
    let schema = reader.metadata().file_metadata().schema();
    let name = |name: &str| if name.starts_with(INDEX) { String::new() } else { name.to_owned() };
    let names = schema.get_fields().iter().map(|field| name(field.name())).collect();
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None).map_err(bad)? {
        let row = row.map_err(bad)?;
        let cells = row.get_column_iter().map(|(name, field)| {
            cell(field).ok_or_else(|| {
                let name = name.escape_default();
                let reason = format!("column `{name}` holds neither texts nor numbers nor dates");
                Error::format(WHAT, reason)
            })
        });
        rows.push(cells.collect::<Result<Vec<_>>>()?);
    }
    let format = TableFormat { header: Some(true), ..TableFormat::default() };
    Table::of_cells(WHAT, names, rows, format)
}

/// The text that a cell of a `.csv` would hold.
fn cell(field: &Field) -> Option<String> {
    Some(match field {
        Field::Null => String::new(),
        Field::Str(text) => text.trim().to_owned(),
        Field::Bool(value) => value.to_string(),
        Field::Float16(value) => value.to_string(),
        // The shortest digits that read as the same number; 7.0 becomes 7.
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Byte(_)
        | Field::Short(_)
        | Field::Int(_)
        | Field::Long(_)
        | Field::UByte(_)
        | Field::UShort(_)
        | Field::UInt(_)
        | Field::ULong(_)
        | Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => field.to_string(),
        Field::Bytes(_) | Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    const SCHEMA: &str = "message rows {
        required int64 id; required binary city (utf8); optional double age; required int32 born (date);
    }";

    /// A file of three rows of these columns.
    fn written(name: &str, schema: &str, compression: Compression) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("trefoil-{}-{name}.parquet", std::process::id()));
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let how = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, how).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let cities = ["Bern", " Zürich", "Chur"].map(ByteArray::from);
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[7, -8, 9], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&cities, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels = Some(&[1, 0, 1][..]);
        column.typed::<DoubleType>().write_batch(&[0.1, 40.0], levels, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[0, 365, -1], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        path
    }

    #[test]
    fn rows_of_parquet_are_those_of_a_table() {
        for (name, compression) in [
            ("plain", Compression::UNCOMPRESSED),
            ("snappy", Compression::SNAPPY),
            ("gzip", Compression::GZIP(Default::default())),
        ] {
            let path = written(name, SCHEMA, compression);
            let table = Table::read_parquet(&path).unwrap();
            fs::remove_file(path).unwrap();
            assert_eq!(table.names().unwrap(), ["id", "city", "age", "born"]);
            let rows = [0, 1, 2].map(|row| [0, 1, 2, 3].map(|column| table.cell(row, column)));
            assert_eq!(rows[0], ["7", "Bern", "0.1", "1970-01-01"]);
            assert_eq!(rows[1], ["-8", "Zürich", "", "1971-01-01"]);
            assert_eq!(rows[2], ["9", "Chur", "40", "1969-12-31"]);
            assert_eq!((table.len(), table.place(0)), (3, 1), "no row of the file holds the names");
        }
    }

    #[test]
    fn what_is_no_table_is_an_error_that_says_so() {
        let path = written("damaged", SCHEMA, Compression::SNAPPY);
        let whole = fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(Table::read_parquet(&path).is_err(), "{cut}");
            let mut damaged = whole.clone();
            damaged[cut] ^= 0xff;
            fs::write(&path, damaged).unwrap();
            let _ = Table::read_parquet(&path);
        }
        fs::remove_file(path).unwrap();
        for (name, schema, reason) in [
            ("bytes", SCHEMA.replace("(utf8)", ""), "column `city` holds neither"),
            ("twice", SCHEMA.replace("city", "id"), "two columns have the name `id`"),
        ] {
            let path = written(name, &schema, Compression::SNAPPY);
            let text = Table::read_parquet(&path).unwrap_err().to_string();
            fs::remove_file(path).unwrap();
            assert!(text.contains(reason) && text.starts_with("Parquet file: "), "{text}");
        }
        let path =
            written("index", &SCHEMA.replace("id;", "__index_level_0__;"), Compression::SNAPPY);
        assert_eq!(Table::read_parquet(&path).unwrap().names().unwrap()[0], "");
        fs::remove_file(path).unwrap();
    }
}
