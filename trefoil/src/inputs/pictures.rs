//! Pictures, made into numbers as a model's preparation asks.

use std::io::Cursor;

use image::{DynamicImage, ImageReader, Limits, imageops::FilterType};
use models::data::{Preprocessing, from_image};

use crate::model::{Input, Preprocess};

/// Longest side of an image file, in pixels.
const SIDE: u32 = 16_384;

/// The numbers of a picture as the input takes them.
pub(super) fn picture(
    bytes: &[u8],
    input: &Input,
    preprocess: &Preprocess,
) -> Result<Vec<f64>, String> {
    let (&[channels @ (1 | 3), height, width], false) = (input.dims.as_slice(), input.integer)
    else {
        return Err(format!("the model takes {input}, not pictures; use .npy or .csv"));
    };
    let [height, width] = [height, width].map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    if height.max(width) > SIDE {
        return Err(format!("the model takes pictures of {width} x {height}, which is too much"));
    }
    match *preprocess {
        Preprocess::Scale { white } => {
            let sized = decode(bytes)?.resize_exact(width, height, FilterType::Triangle);
            Ok(planes(&sized, channels, white))
        }
        Preprocess::Imagenet => {
            let how = as_imagenet(input)?;
            let values = from_image(bytes, &how);
            Ok(values.map_err(|cause| not_whole(&cause))?.floats().into_owned())
        }
    }
}

/// The preparation of pictures for an input as for ImageNet: the margin that is cut off is to the rest as with 256
/// and 224.
///
/// # Errors
/// Why the input does not take such pictures.
pub fn as_imagenet(input: &Input) -> Result<Preprocessing, String> {
    let side = match (input.dims.as_slice(), input.integer) {
        (&[3, height, width], false) if height == width && height <= SIDE as usize => height as u32,
        _ => {
            return Err(format!(
                "ImageNet's preparation makes colour pictures as high as wide, [3, 224, 224] for instance, and the \
                 model takes {input}; put it with another --preprocess"
            ));
        }
    };
    let mut how = Preprocessing::imagenet();
    how.resize = (f64::from(side) * 256.0 / 224.0).round() as u32;
    how.crop = side;
    Ok(how)
}

fn not_whole(cause: &dyn std::fmt::Display) -> String {
    format!("is not a whole picture: {}", cause.to_string().trim())
}

fn decode(bytes: &[u8]) -> Result<DynamicImage, String> {
    let reader = ImageReader::new(Cursor::new(bytes));
    let mut reader = reader.with_guessed_format().map_err(|cause| cause.to_string())?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE);
    limits.max_image_height = Some(SIDE);
    reader.limits(limits);
    reader.decode().map_err(|cause| not_whole(&cause))
}

/// Channel after channel, black 0 and white `white`.
fn planes(picture: &DynamicImage, channels: usize, white: f64) -> Vec<f64> {
    let bytes = match channels {
        1 => picture.to_luma8().into_raw(),
        _ => picture.to_rgb8().into_raw(),
    };
    let plane = |channel: usize| bytes.iter().skip(channel).step_by(channels);
    let value = |&byte: &u8| f64::from(byte) / 255.0 * white;
    (0..channels).flat_map(plane).map(value).collect()
}
