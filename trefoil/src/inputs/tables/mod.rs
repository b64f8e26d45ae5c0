//! Tables with named columns: rows of files, matched by name to the columns that a model takes or a data set holds.

mod rows;
mod schema;

pub use rows::{Layout, Row, TableOptions};
pub use schema::{Scaling, Schema};
