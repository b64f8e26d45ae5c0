#![doc = include_str!("../README.md")]
// Not `forbid`: pyo3's macros expand to unsafe code. The crate itself contains none.
#![deny(unsafe_code)]

mod arrays;
mod chat;
mod check;
mod cluster;
mod domain;
mod errors;
mod learn;
mod ledger;
mod model;
mod party;
mod record;
mod remote;
mod session;
mod state;
mod tape;
mod train;

use pyo3::prelude::*;

/// The compiled half of the package `trefoil`; users import its other half, in Python.
#[pymodule]
fn _trefoil(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<arrays::Public>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Handle>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<train::Training>()?;
    module.add_class::<cluster::Connection>()?;
    module.add_class::<chat::Chat>()?;
    module.add_function(wrap_pyfunction!(remote::cluster_files, module)?)?;
    module.add_function(wrap_pyfunction!(model::onnx_with_weights, module)?)?;
    module.add_function(wrap_pyfunction!(tape::make_tapes, module)?)?;
    module.add_function(wrap_pyfunction!(tape::add_tape, module)?)?;
    module.add_function(wrap_pyfunction!(tape::read_tape, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::join_keys, module)?)?;
    module.add("FUNCTIONS", trefoil::analysis::FUNCTIONS.to_vec())?;
    let costs = rss_protocols::costs::functions().iter();
    let costs: Vec<_> = costs.map(|cost| (cost.function, cost.rounds, cost.bits)).collect();
    module.add("COSTS", costs)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
