//! Functions by looking them up.

mod piecewise;
