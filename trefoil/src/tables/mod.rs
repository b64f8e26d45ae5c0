//! Tables with named columns: what a model takes and a data set holds, and rows of files that are matched to it by
//! name.

mod column;
mod rows;
mod schema;

pub use column::{Codes, Column, check_alike, check_columns, check_size, columns_text};
pub use rows::{Layout, Row, TableOptions};
pub use schema::{Scaling, Schema};
