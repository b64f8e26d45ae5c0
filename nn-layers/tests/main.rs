//! The integration tests of graphs, plans, layers and trainings. They are one program, so that shared code is
//! compiled once.

mod accumulated;
mod common;
mod crew;
mod domains;
mod draws;
mod gradients;
mod guard;
mod layers;
mod losses;
mod planner;
mod privacy;
mod pytorch;
mod ranges;
mod standardized;
mod steps;
mod train_request;
mod training;
mod weights;
