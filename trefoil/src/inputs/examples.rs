//! Images and other examples as a client has them, made into numbers as a model takes them.

use std::path::Path;

use models::data::{Table, from_idx, from_npy, read_input};

use super::{
    Layout, TableOptions,
    files::{read_file, unpacked},
    pictures::picture,
};
use crate::{
    base::{Error, Result},
    model::{About, Column, Input, Preprocess},
};

/// Largest picture that is read, in bytes.
const PICTURE: u64 = 64 << 20;

/// Largest table that is read, in bytes, packed and unpacked.
const TABLE: u64 = 1 << 30;

/// One example of a model's input, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The file, and the place within it if it holds several.
    pub source: String,
    /// The numbers, in the model's layout.
    pub values: Vec<f64>,
    /// The truth, if the file states it: a class, or the number to be predicted.
    pub truth: Option<f64>,
}

/// The way in which files of examples are read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The preparation of pictures.
    pub preprocess: &'a Preprocess,
    /// The factor of real numbers in other files.
    pub scale: f64,
    /// The way in which tables are read.
    pub table: &'a TableOptions,
    /// The column that holds the truth where a table has it.
    pub label: Option<&'a Column>,
}

/// Reads a file of examples for an input of a model.
///
/// `.png` and `.jpg` are prepared as the model asks. `.npy` holds numbers in the model's layout, one or several
/// examples. `.csv`, `.csv.gz` and `.parquet` hold an example in each row, whose columns are matched by name if the input's have
/// names. Real numbers are multiplied by the factor, unless the input's columns say how they are scaled. `.idx` and
/// `.idx.gz`, and what MNIST calls `..-ubyte`, hold bytes, which are numbers as those of `.npy` are.
///
/// # Errors
/// [`Error::Input`] that names the file and what is wrong with it.
pub fn read(path: &Path, input: &Input, how: &Reading<'_>) -> Result<Vec<Image>> {
    let bad = |reason: String| Error::input(path.display(), reason);
    let source = path.display().to_string();
    if is_table(path) {
        return from_table(path, &read_table(path, how.table)?, input, how);
    }
    check_scale(input, how)?;
    let scale = how.scale;
    let (plain, kind) = kind(path);
    let images = match kind.as_str() {
        "png" | "jpg" | "jpeg" => picture(&read_file(path, PICTURE)?, input, how.preprocess)
            .map(|values| vec![Image { source: source.clone(), values, truth: None }]),
        "npy" => npy(&read_file(path, TABLE)?, input).map(|rows| several(&source, rows, scale)),
        _ if is_idx(&plain) => {
            idx(&unpacked(path, TABLE)?, input).map(|rows| several(&source, rows, scale))
        }
        _ => Err(format!(
            "`{plain}` has no ending that is read; use .png, .jpg, .npy, .csv, .parquet or .idx"
        )),
    };
    let images = images.map_err(bad)?;
    images.iter().try_for_each(|image| check(image, input))?;
    Ok(images)
}

/// Refuses a factor beside columns that are scaled one by one.
fn check_scale(input: &Input, how: &Reading<'_>) -> Result<()> {
    if how.scale == 1.0 || input.columns.is_empty() {
        return Ok(());
    }
    Err(Error::input("--scale", "the columns say how their numbers are scaled; leave it out"))
}

/// The name of a file without `.gz`, and its ending, in small letters.
fn kind(path: &Path) -> (String, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name).to_owned();
    let kind = plain.rsplit_once('.').map_or("", |(_, kind)| kind).to_owned();
    (plain, kind)
}

/// True if a file's name is that of a table.
#[must_use]
pub fn is_table(path: &Path) -> bool {
    matches!(kind(path).1.as_str(), "csv" | "parquet")
}

/// Reads a table: `.csv`, `.csv.gz` or `.parquet`.
///
/// # Errors
/// [`Error::Input`] that names the file and what is wrong with it.
pub fn read_table(path: &Path, options: &TableOptions) -> Result<Table> {
    let table = if kind(path).1 == "parquet" {
        Table::read_parquet(path)
    } else {
        Table::parse(&unpacked(path, TABLE)?, options.format)
    };
    table.map_err(|e| Error::input(path.display(), e))
}

/// The examples in the rows of a table from a file.
///
/// # Errors
/// [`Error::Input`] that names the file, and the row and column that is wrong.
pub fn from_table(
    path: &Path,
    table: &Table,
    input: &Input,
    how: &Reading<'_>,
) -> Result<Vec<Image>> {
    check_scale(input, how)?;
    let rows = table_rows(table, input, how);
    let rows = rows.map_err(|reason| Error::input(path.display(), reason))?;
    let images = several(&path.display().to_string(), rows, how.scale);
    images.iter().try_for_each(|image| check(image, input))?;
    Ok(images)
}

/// The classes of examples in a separate file: one number for each, in their order.
///
/// # Errors
/// [`Error::Input`] that names the file and what is wrong with it.
pub fn read_labels(path: &Path) -> Result<Vec<usize>> {
    let bad = |reason: String| Error::input(path.display(), reason);
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let found = if is_idx(name.strip_suffix(".gz").unwrap_or(&name)) {
        from_idx(&unpacked(path, TABLE)?)
    } else {
        read_input(path)
    };
    let found = found.map_err(|cause| bad(cause.to_string()))?;
    let label = |(at, value): (usize, &f64)| {
        class(*value).ok_or_else(|| bad(format!("label {} is {value}", at + 1)))
    };
    found.floats().iter().enumerate().map(label).collect()
}

/// The class that a number stands for, if it does.
#[must_use]
pub fn class(value: f64) -> Option<usize> {
    (value.fract() == 0.0 && (0.0..1e9).contains(&value)).then_some(value as usize)
}

/// True if a file's name, without `.gz`, is that of bytes in the form of MNIST.
fn is_idx(name: &str) -> bool {
    name.ends_with(".idx") || name.ends_with("-ubyte")
}

/// The examples of each input of a model in the rows of a table from a file, whose columns are those of all inputs.
///
/// # Errors
/// [`Error::Input`] that names the file, and the row and column that is wrong.
pub fn of_all_inputs(
    path: &Path,
    table: &Table,
    about: &About,
    how: &Reading<'_>,
) -> Result<Vec<Vec<Image>>> {
    if let [input] = about.inputs.as_slice() {
        return Ok(vec![from_table(path, table, input, how)?]);
    }
    if about.inputs.iter().any(|input| input.columns.is_empty()) {
        let reason = "the columns of the model's inputs have no names, so each input takes a file of its own";
        return Err(Error::input(path.display(), reason));
    }
    let columns: Vec<_> = about.inputs.iter().flat_map(|input| input.columns.clone()).collect();
    let dims = vec![about.inputs.iter().map(Input::len).sum()];
    let whole = Input { dims, columns, ..Input::default() };
    let mut rows = from_table(path, table, &whole, how)?;
    let mut inputs = Vec::with_capacity(about.inputs.len());
    for input in &about.inputs {
        let part = |row: &mut Image| {
            let rest = row.values.split_off(input.len());
            let values = std::mem::replace(&mut row.values, rest);
            Image { source: row.source.clone(), values, truth: row.truth }
        };
        let examples: Vec<_> = rows.iter_mut().map(part).collect();
        examples.iter().try_for_each(|image| check(image, input))?;
        inputs.push(examples);
    }
    Ok(inputs)
}

/// Refuses values that cannot be encoded.
fn check(image: &Image, input: &Input) -> Result<()> {
    // Integers of 53 bits are read without loss.
    let whole = |v: f64| v.fract() == 0.0 && v.abs() < (1u64 << 53) as f64;
    let good = |v: &f64| v.is_finite() && (!input.integer || whole(*v));
    let Some(at) = image.values.iter().position(|v| !good(v)) else { return Ok(()) };
    let wanted = if input.integer { "an integer" } else { "a number" };
    let (value, name) = (image.values[at], &input.name);
    let reason = format!("number {} is {value}; the model's input `{name}` takes {wanted}", at + 1);
    Err(Error::input(&image.source, reason))
}

type Row = (Vec<f64>, Option<f64>);

fn several(source: &str, rows: Vec<Row>, scale: f64) -> Vec<Image> {
    let count = rows.len();
    let image = |(index, (values, truth)): (usize, Row)| Image {
        source: if count == 1 { source.to_owned() } else { format!("{source}#{}", index + 1) },
        values: values.into_iter().map(|value| value * scale).collect(),
        truth,
    };
    rows.into_iter().enumerate().map(image).collect()
}

/// Rows of a table, each an example, with the truth if the table states it.
fn table_rows(table: &Table, input: &Input, how: &Reading<'_>) -> Result<Vec<Row>, String> {
    if table.is_empty() {
        return Err("holds no rows of numbers".to_owned());
    }
    let options = how.table;
    let plain = input.columns.is_empty() && options.label.is_none() && options.drop.is_empty();
    // A table in the shape of the input is one example.
    if plain && table.len() > 1 && [table.len(), table.columns()] == input.dims[..] {
        let values = table.numbers().map_err(|cause| cause.to_string())?;
        return Ok(vec![(values.floats().into_owned(), None)]);
    }
    let layout = Layout::of(table, &input.columns, how.label, options)?;
    let (found, wanted) = (layout.width(), input.len());
    if found != wanted || wanted == 0 {
        // One cell that is no number: another sign may separate the numbers of the row.
        if table.columns() == 1 {
            table.number(0, 0)?;
        }
        return Err(format!(
            "has {found} columns of values, and the model takes {wanted} numbers; say which column holds the truth \
             (label), and which are left out (drop)"
        ));
    }
    let row = |row| layout.row(table, row).map(|row| (row.values, row.truth));
    (0..table.len()).map(row).collect()
}

/// One image, or several behind one another.
fn npy(bytes: &[u8], input: &Input) -> Result<Vec<Row>, String> {
    let tensor = from_npy(bytes).map_err(|cause| cause.to_string())?;
    let (dims, wanted) = (tensor.dims(), input.len());
    let several = !dims.is_empty() && dims[1..] == input.dims[..];
    if !(dims == input.dims || several) || wanted == 0 || tensor.floats().is_empty() {
        return Err(format!(
            "has shape {dims:?}; the model takes {:?}, or that behind a number of examples",
            input.dims
        ));
    }
    array_rows(&tensor.floats(), input)
}

/// The examples in an array, as the columns of the input prepare them.
fn array_rows(values: &[f64], input: &Input) -> Result<Vec<Row>, String> {
    let rows = values.chunks_exact(input.len());
    rows.map(|row| Ok((by_columns(row, &input.columns)?, None))).collect()
}

/// The numbers of an example that has one for each column, in their order.
///
/// # Errors
/// A sentence that names the column that does not take its number.
pub fn by_columns(row: &[f64], columns: &[Column]) -> Result<Vec<f64>, String> {
    if columns.is_empty() {
        return Ok(row.to_vec());
    }
    if let Some(column) = columns.iter().find(|column| !column.categories.is_empty()) {
        let name = &column.name;
        return Err(format!("holds numbers, and column `{name}` categories; give a .csv"));
    }
    let scaled = |(column, &value): (&Column, &f64)| {
        column
            .check_range(value)
            .map_err(|reason| format!("column `{}`: {reason}", column.name))?;
        Ok(column.scaled(value))
    };
    columns.iter().zip(row).map(scaled).collect()
}

/// Bytes, an example for each index of the first dimension.
fn idx(bytes: &[u8], input: &Input) -> Result<Vec<Row>, String> {
    let tensor = from_idx(bytes).map_err(|cause| cause.to_string())?;
    let wanted = input.len();
    let count = tensor.dims().first().copied().unwrap_or(0);
    if count == 0 || wanted == 0 || tensor.len() != count * wanted {
        let (dims, wanted) = (tensor.dims(), &input.dims);
        return Err(format!("has shape {dims:?}; the model takes {wanted:?} of each example"));
    }
    array_rows(&tensor.floats(), input)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{self, Cursor},
    };

    use models::data::Preprocessing;

    use super::*;
    use crate::inputs::as_imagenet;

    fn input(dims: &[usize]) -> Input {
        Input { name: "x".to_owned(), dims: dims.to_vec(), ..Input::default() }
    }

    fn read_bytes(name: &str, bytes: &[u8], input: &Input) -> Result<Vec<Image>> {
        read_picture(name, bytes, input, &Preprocess::default())
    }

    fn read_labelled(
        path: &Path,
        to: &Input,
        preprocess: &Preprocess,
        label: Option<&str>,
    ) -> Result<Vec<Image>> {
        let label = label.map(str::to_owned);
        let table = TableOptions { label, ..TableOptions::default() };
        read(path, to, &Reading { preprocess, scale: 1.0, table: &table, label: None })
    }

    fn read_table_bytes(name: &str, bytes: &[u8], to: &Input, label: &str) -> Result<Vec<Image>> {
        let path = crate::testing::folder("tables").join(name);
        fs::write(&path, bytes).unwrap();
        read_labelled(&path, to, &Preprocess::default(), Some(label))
    }

    fn read_picture(name: &str, bytes: &[u8], to: &Input, how: &Preprocess) -> Result<Vec<Image>> {
        let path = crate::testing::folder("images").join(name);
        fs::write(&path, bytes).unwrap();
        read_labelled(&path, to, how, None)
    }

    fn png(width: u32, height: u32, pixel: [u8; 3]) -> Vec<u8> {
        let picture = image::RgbImage::from_pixel(width, height, image::Rgb(pixel));
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    fn npy_file(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn bytes_in_the_form_of_mnist_are_examples_and_labels() {
        let bytes =
            [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 255]].concat();
        for name in ["a.idx", "train-images-idx3-ubyte"] {
            let rows = read_bytes(name, &bytes, &input(&[1, 1, 2])).unwrap();
            assert_eq!([&rows[0].values[..], &rows[1].values[..]], [[1.0, 2.0], [3.0, 255.0]]);
        }
        let error = read_bytes("a.idx", &bytes, &input(&[3])).unwrap_err().to_string();
        assert!(error.contains("[2, 1, 2]"), "{error}");
        let folder = crate::testing::folder("labels");
        let [idx, csv] = ["a.idx", "a.csv"].map(|name| folder.join(name));
        fs::write(&idx, [0, 0, 8, 1, 0, 0, 0, 2, 7, 9]).unwrap();
        fs::write(&csv, "7\n9\n").unwrap();
        assert_eq!(read_labels(&idx).unwrap(), [7, 9]);
        assert_eq!(read_labels(&csv).unwrap(), [7, 9]);
        fs::write(&csv, "7\n-1\n").unwrap();
        assert!(read_labels(&csv).unwrap_err().to_string().contains("label 2 is -1"));
    }

    #[test]
    fn pictures_become_planes_of_the_models_size() {
        let images = read_bytes("a.png", &png(9, 5, [255, 0, 51]), &input(&[3, 2, 2])).unwrap();
        let expected = [vec![1.0; 4], vec![0.0; 4], vec![0.2; 4]].concat();
        assert_eq!(images[0].values, expected);
        let white = Preprocess::Scale { white: 16.0 };
        let picture = png(20, 20, [255; 3]);
        let images = read_picture("a.png", &picture, &input(&[1, 8, 8]), &white).unwrap();
        assert_eq!(images[0].values, vec![16.0; 64]);
    }

    #[test]
    fn imagenet_pictures_are_cut_and_normalised() {
        let picture = png(300, 500, [255, 0, 0]);
        for side in [224, 299, 64] {
            let to = input(&[3, side, side]);
            let images = read_picture("a.png", &picture, &to, &Preprocess::Imagenet).unwrap();
            let plane = side * side;
            assert_eq!(images[0].values.len(), 3 * plane);
            for (channel, value) in [1.0, 0.0, 0.0].into_iter().enumerate() {
                let how = Preprocessing::imagenet();
                let wanted = (value - how.mean[channel]) / how.deviation[channel];
                assert!((images[0].values[channel * plane + 777] - wanted).abs() < 1e-12);
            }
        }
        assert_eq!(as_imagenet(&input(&[3, 224, 224])).unwrap(), Preprocessing::imagenet());
        let refused = as_imagenet(&input(&[3, 224, 300])).unwrap_err();
        assert!(refused.contains("--preprocess"), "{refused}");
    }

    #[test]
    fn lines_of_tables_are_examples_with_or_without_their_truth() {
        let packed = models::data::DIGITS;
        let digits = input(&[1, 8, 8]);
        let images = read_table_bytes("a.csv.gz", packed, &digits, "65").unwrap();
        assert_eq!((images.len(), images[0].truth), (1797, Some(0.0)));
        // Without a word about it, one column more is not the truth.
        let text = read_bytes("a.csv.gz", packed, &digits).unwrap_err().to_string();
        assert!(text.contains("65 columns of values, and the model takes 64"), "{text}");
        let square = input(&[1, 2, 2]);
        let images = read_table_bytes("a.csv", b"1,2,3,4,9\n5,6,7,8,3\n\n", &square, "5").unwrap();
        assert_eq!(images[0].values, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!((images[0].truth, images[1].truth), (Some(9.0), Some(3.0)));
        assert!(images[1].source.ends_with("a.csv#2"));
    }

    #[test]
    fn a_table_of_pandas_is_read_from_parquet() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/data/tables/irises.parquet");
        let names = ["sepal length", "sepal width", "petal length", "petal width"];
        let to = Input { columns: names.map(Column::named).to_vec(), ..input(&[4]) };
        let how = Preprocess::default();
        let images = read_labelled(Path::new(place), &to, &how, Some("kind")).unwrap();
        assert_eq!((images.len(), images[0].truth), (3, Some(1.0)));
        assert_eq!(images[0].values, [6.9, 3.1, 4.9, 1.5]);
        assert!(images[2].source.ends_with("irises.parquet#3"));
    }

    #[test]
    fn columns_with_names_are_matched_and_scaled_in_tables_and_arrays() {
        let scaled = Column { center: 1.0, spread: 2.0, ..Column::named("b") };
        let to = Input { columns: vec![Column::named("a"), scaled.clone()], ..input(&[2]) };
        let images = read_bytes("a.csv", b"b,a\n5,7\n", &to).unwrap();
        assert_eq!(images[0].values, [7.0, 2.0]);
        let data: Vec<u8> = [7.0f64, 5.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let npy = npy_file("<f8", "(1, 2)", &data);
        assert_eq!(read_bytes("a.npy", &npy, &to).unwrap()[0].values, [7.0, 2.0]);
        let idx = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 5];
        assert_eq!(read_bytes("a.idx", &idx, &to).unwrap()[0].values, [7.0, 2.0]);
        let ranged = Column { range: Some((0.0, 4.0)), ..scaled.clone() };
        let ranged = Input { columns: vec![Column::named("a"), ranged], ..input(&[2]) };
        for (name, bytes) in [("a.csv", &b"b,a\n5,7\n"[..]), ("a.npy", &npy[..])] {
            let text = read_bytes(name, bytes, &ranged).unwrap_err().to_string();
            assert!(text.contains("column `b`: 5 is outside of its range"), "{text}");
        }
        let city = Column { categories: vec!["Bern".to_owned()], ..Column::named("city") };
        let city = Input { columns: vec![city, scaled], ..input(&[2]) };
        let text = read_bytes("a.npy", &npy, &city).unwrap_err().to_string();
        assert!(text.contains("column `city` categories; give a .csv"), "{text}");
        // Inputs of their own have the columns of one table.
        let single = |name: &str, integer| Input {
            columns: vec![Column::named(name)],
            integer,
            ..input(&[1])
        };
        let about =
            About { inputs: vec![single("a", true), single("b", false)], ..About::default() };
        let (table, preprocess) = (TableOptions::default(), Preprocess::default());
        let how = Reading { preprocess: &preprocess, scale: 1.0, table: &table, label: None };
        let all = |bytes: &[u8]| {
            let table = Table::parse(bytes, table.format).unwrap();
            of_all_inputs(Path::new("t.csv"), &table, &about, &how)
        };
        let found = all(b"b,a\n0.5,7\n1.5,8\n").unwrap();
        assert_eq!([&found[0][1].values, &found[1][1].values], [&[8.0], &[1.5]]);
        assert!(all(b"b,a\n0.5,0.5\n").unwrap_err().to_string().contains("takes an integer"));
        let how = Reading { scale: 2.0, ..how };
        let text = read(Path::new("a.npy"), &to, &how).unwrap_err().to_string();
        assert!(text.contains("--scale"), "{text}");
    }

    #[test]
    fn numpy_files_are_read_in_several_types() {
        let data: Vec<u8> =
            [1.5f32, -2.0, 0.25, 8.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let images = read_bytes("a.npy", &npy_file("<f4", "(1, 2, 2)", &data), &input(&[1, 2, 2]));
        assert_eq!(images.unwrap()[0].values, [1.5, -2.0, 0.25, 8.0]);
        let images = read_bytes("a.npy", &npy_file("|u1", "(2, 2)", &[1, 2, 3, 4]), &input(&[2]));
        assert_eq!(images.unwrap()[1].values, [3.0, 4.0]);
    }

    #[cfg(unix)]
    #[test]
    fn files_without_end_and_those_that_unpack_to_too_much_are_refused() {
        let text = read_file(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert!(text.contains("more than 1 MiB"), "{text}");
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let zeros = vec![b'0'; 1 << 20];
        for _ in 0..=TABLE >> 20 {
            io::Write::write_all(&mut bomb, &zeros).unwrap();
        }
        let bomb = bomb.finish().unwrap();
        assert!(bomb.len() < 2 << 20);
        let text = read_bytes("a.csv.gz", &bomb, &input(&[2])).unwrap_err().to_string();
        assert!(text.contains("more than 1024 MiB"), "{text}");
    }

    #[test]
    fn a_small_picture_that_claims_to_be_huge_is_refused() {
        let claims = |width: u32, height: u32| {
            let mut bytes = png(1, 1, [0; 3]);
            // The header's chunk begins at 12: its name, width, height, five bytes more, its checksum.
            bytes[16..20].copy_from_slice(&width.to_be_bytes());
            bytes[20..24].copy_from_slice(&height.to_be_bytes());
            let mut sum = flate2::Crc::new();
            sum.update(&bytes[12..29]);
            bytes[29..33].copy_from_slice(&sum.sum().to_be_bytes());
            bytes
        };
        let imagenet = (input(&[3, 224, 224]), Preprocess::Imagenet);
        for (to, how) in [(input(&[1, 8, 8]), Preprocess::default()), imagenet] {
            for (width, height) in [(1 << 30, 1 << 30), (20_000, 8), (16_000, 16_000)] {
                let picture = claims(width, height);
                let text = read_picture("a.png", &picture, &to, &how).unwrap_err().to_string();
                assert!(text.contains("not a whole picture"), "{width} x {height}: {text}");
            }
        }
    }

    #[test]
    fn unusable_files_get_one_clear_sentence() {
        let good = png(30, 30, [1, 2, 3]);
        let nan: Vec<u8> = [1.0, f64::NAN].iter().flat_map(|v| v.to_le_bytes()).collect();
        let pictures = input(&[1, 8, 8]);
        let ids = Input { integer: true, ..input(&[2]) };
        for (name, bytes, to, said) in [
            ("a.png", &good[..good.len() / 2], &pictures, "not a whole picture"),
            ("a.png", &b"hello"[..], &pictures, "a.png"),
            ("a.gif", &b"GIF89a"[..], &pictures, "use .png"),
            ("a.png", &good[..], &input(&[7]), "not pictures"),
            ("a.csv", &b"1,2\n1,x\n"[..], &input(&[2]), "row 2, column 2"),
            (
                "a.csv",
                &b"1,2,3,4\n"[..],
                &input(&[2]),
                "4 columns of values, and the model takes 2",
            ),
            ("a.csv", &b""[..], &input(&[2]), "no rows of numbers"),
            ("a.csv", &b"1,2,-3\n"[..], &input(&[2]), "which column holds the truth"),
            ("a.csv", &b"2,3\n1,inf\n"[..], &input(&[2]), "row 2, column 2"),
            ("a.csv", &b"1,inf\n"[..], &input(&[2]), "row 1 holds numbers and other cells"),
            ("a.csv", &[0xff, 0xfe, b'\n'][..], &input(&[2]), "a.csv"),
            ("a.npy", &npy_file("<f8", "(2,)", &nan)[..], &input(&[2]), "number 2 is NaN"),
            ("a.npy", &npy_file("<f8", "(3,)", &nan)[..], &input(&[2]), "do not fill shape"),
            ("a.npy", &npy_file("<f8", "(2,)", &nan[1..])[..], &input(&[2]), "do not fill shape"),
            ("a.npy", &npy_file("<c16", "(1,)", &nan)[..], &input(&[2]), "a.npy"),
            ("a.npy", &npy_file("<f8", "(2,)", &nan)[..20], &input(&[2]), "cut off"),
            (
                "a.npy",
                &npy_file("|u1", "(99999999999, 99999999999)", &[])[..],
                &input(&[2]),
                "a.npy",
            ),
            ("a.npy", &npy_file("<f8", "(2,)", &nan)[..], &input(&[5]), "the model takes [5]"),
            ("a.csv", &b"1,2.5\n"[..], &ids, "number 2 is 2.5; the model's input `x` takes an int"),
            ("a.png", &good[..], &ids, "not pictures"),
        ] {
            let error = read_bytes(name, bytes, to).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(said), "{name}: {text}");
            assert_eq!((error.exit_code(), text.lines().count()), (3, 1));
        }
        let missing = Path::new("nowhere.png");
        let missing = read_labelled(missing, &pictures, &Preprocess::default(), None);
        let missing = missing.unwrap_err().to_string();
        assert!(missing.contains("nowhere.png: cannot be read"));
    }
}
