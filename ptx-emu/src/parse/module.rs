//! A module as it was read.

use std::{collections::HashMap, sync::Arc};

use super::Parser;
use crate::{Result, instr::Instr};

/// A loaded module: its kernels by name and the image of its constant memory.
#[derive(Debug, Clone)]
pub struct Module {
    pub(super) kernels: HashMap<String, Arc<Kernel>>,
}

/// One kernel, decoded.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) code: Vec<Instr>,
    pub(crate) registers: usize,
    pub(crate) static_shared: usize,
    /// Largest number of threads of a block, if the module bounds it.
    pub(crate) max_threads: Option<u32>,
    pub(crate) constants: Arc<Vec<u8>>,
}

/// A kernel's parameter: its place in the parameter block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// First byte.
    pub offset: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl Module {
    /// Reads a module. Every instruction is decoded here, so that an unknown one is reported before
    /// anything runs.
    ///
    /// # Errors
    /// [`crate::Error::Parse`] with the line.
    pub fn parse(text: &str) -> Result<Self> {
        Parser::new(text)?.module()
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    /// The kernels' names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }
}

impl Kernel {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }
}
