//! The integration tests of the protocols: results, costs, tapes. One program: code that they have in common is compiled once.

mod clients;
mod conformance;
mod costs;
mod cuda;
mod dealt;
mod function_costs;
mod functions;
mod noise;
mod openings;
mod pages;
mod sorting;
mod tape;
mod truncation;
