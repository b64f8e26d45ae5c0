//! Runs a training: its steps, their noise, and the weights at its end.

mod finish;
mod noise;
mod standardize;
mod step;
