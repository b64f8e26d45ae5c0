//! Photographs, prepared as the networks of ImageNet take them.

use std::path::{Path, PathBuf};

use image::imageops::FilterType;
use image::{DynamicImage, GenericImageView, ImageReader, Limits};
use nn_layers::HostTensor;

use super::Dataset;
use crate::error::read;
use crate::{Error, Result};

const WHAT: &str = "image";

/// The largest height and width of an image.
const MAX_SIDE: u32 = 20_000;

/// How an image becomes a tensor.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Preprocessing {
    /// The shorter side is resized to this.
    pub resize: u32,
    /// The centre of this height and width is kept.
    pub crop: u32,
    /// Subtracted from each colour, which is between 0 and 1.
    pub mean: [f64; 3],
    /// Each colour is divided by this after that.
    pub deviation: [f64; 3],
}

impl Preprocessing {
    /// Resize 256, centre crop 224, and the statistics of ImageNet.
    pub fn imagenet() -> Self {
        let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        Self { resize: 256, crop: 224, mean, deviation }
    }

    /// Square images of another size, colours between 0 and 1.
    pub fn square(size: u32) -> Self {
        Self { resize: size, crop: size, mean: [0.0; 3], deviation: [1.0; 3] }
    }
}

/// Reads a JPEG or PNG file as `[1, 3, crop, crop]`.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, [`Error::Format`] if it is not an image.
pub fn read_image(path: &Path, how: &Preprocessing) -> Result<HostTensor> {
    from_image(&read(path)?, how)
        .map_err(|e| Error::format(WHAT, format!("{}: {e}", path.display())))
}

/// Reads a JPEG or PNG image in memory as `[1, 3, crop, crop]`.
///
/// # Errors
/// [`Error::Format`] if it is not an image, or a side has more than 20,000 pixels.
pub fn from_image(bytes: &[u8], how: &Preprocessing) -> Result<HostTensor> {
    let wrong = |reason: String| Error::format(WHAT, reason);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    let mut reader = ImageReader::new(std::io::Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|e| wrong(e.to_string()))?;
    reader.limits(limits);
    let image = reader.decode().map_err(|e| wrong(e.to_string()))?;
    prepare(&image, how)
}

/// Reads a folder that has a folder of images for each class; classes are numbered by the order of
/// their folders' names. Returns their names too.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, [`Error::Format`] naming the file that is not an image, or
/// if the folder has none.
pub fn read_folder(path: &Path, how: &Preprocessing) -> Result<(Dataset, Vec<String>)> {
    let (mut labels, mut pixels, mut names) = (vec![], vec![], vec![]);
    for class in sorted(path)?.into_iter().filter(|p| p.is_dir()) {
        let name = class.file_name().map(|n| n.to_string_lossy().into_owned());
        for file in sorted(&class)?.into_iter().filter(|p| is_image(p)) {
            pixels.extend_from_slice(&read_image(&file, how)?.floats());
            labels.push(names.len());
        }
        names.push(name.unwrap_or_default());
    }
    if labels.is_empty() {
        let reason = format!("{} has no folders with JPEG or PNG files", path.display());
        return Err(Error::format(WHAT, reason));
    }
    let side = how.crop as usize;
    let images = HostTensor::new([labels.len(), 3, side, side], pixels)?;
    Ok((Dataset::new(images, labels)?, names))
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Io { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    matches!(extension.as_str(), "jpg" | "jpeg" | "png")
}

fn prepare(image: &DynamicImage, how: &Preprocessing) -> Result<HostTensor> {
    let (w, h) = image.dimensions();
    if w == 0 || h == 0 || how.crop == 0 || how.resize < how.crop {
        return Err(Error::format(WHAT, format!("{w}x{h} pixels cannot be cropped to {how:?}")));
    }
    // The longer side is rounded down, as in torchvision.
    let along =
        |side: u32, short: u32| (u64::from(side) * u64::from(how.resize) / u64::from(short)) as u32;
    let short = w.min(h);
    let (w, h) = (along(w, short), along(h, short));
    let resized = image.to_rgb8();
    let resized = image::imageops::resize(&resized, w, h, FilterType::Triangle);
    let (left, top) = (centre(w, how.crop), centre(h, how.crop));
    let side = how.crop as usize;
    let mut values = vec![0.0; 3 * side * side];
    for (y, x) in (0..how.crop).flat_map(|y| (0..how.crop).map(move |x| (y, x))) {
        let pixel = resized.get_pixel(left + x, top + y);
        for c in 0..3 {
            let colour = f64::from(pixel[c]) / 255.0;
            values[(c * side + y as usize) * side + x as usize] =
                (colour - how.mean[c]) / how.deviation[c];
        }
    }
    Ok(HostTensor::new([1, 3, side, side], values)?)
}

/// The first pixel of a crop, rounded to even as in torchvision.
fn centre(side: u32, crop: u32) -> u32 {
    (f64::from(side - crop) / 2.0).round_ties_even() as u32
}
