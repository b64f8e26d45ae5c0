#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod statement;

pub use statement::{
    BitRelation, Fault, Finding, Kind, Known, LeftOperand, MapOperand, MapRelation, ProofCost,
    RightOperand, Side, Size, Spoken, Statements, WordRelation, evaluate, residuals,
};
