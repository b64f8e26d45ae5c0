//! Inputs as a client has them, made into the numbers that a model takes: pictures, arrays, tables and texts.

mod examples;
mod files;
mod pictures;
mod tables;
mod tokenizer;

pub use examples::{
    Image, Reading, by_columns, class, from_table, is_table, of_all_inputs, read, read_labels,
    read_table,
};
pub use files::read_file;
pub use pictures::as_imagenet;
pub use tables::{Layout, Row, Scaling, Schema, TableOptions};
pub use tokenizer::{Tokenizer, Unfolding, text_of};
