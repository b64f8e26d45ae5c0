//! The integration tests of the program: clusters of processes, clients, attackers. One program: code that they have in common is compiled once.

mod attackers;
mod cells;
mod chat;
mod cluster;
mod common;
mod dealt;
mod demo;
mod joins;
mod load;
mod onnx;
mod protocols;
mod tables;
mod training;
mod up;
