//! A model, from its file to what servers run: how it is imported and tried, its plan, and its public description.

mod column;
pub mod dry_run;
pub mod import;
mod info;
mod program;
mod range;

pub use column::{Codes, Column, check_alike, check_columns, check_size, columns_text};
pub(crate) use column::{is_missing, plain_number, shown};
pub(crate) use info::LARGEST_TOKENIZER;
pub use info::{About, Input, Longer, OutputTensor, Preprocess, Text, check_ranges};
pub use program::{Given, Program, Steps};
pub(crate) use program::{NO_TAPES, shapes_of, weight_sharing};
pub use range::Range;

/// The most bytes of a name, of a class or of anything else.
const NAME: usize = 256;
