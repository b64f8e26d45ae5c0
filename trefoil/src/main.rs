//! The Trefoil program.
fn main() {}
