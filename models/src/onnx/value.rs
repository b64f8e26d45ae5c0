//! The values behind the names of a model while it is imported.

use nn_layers::ValueId;

/// A tensor with its element type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Typed {
    pub id: ValueId,
    /// One of those in [`super::dtype`].
    pub kind: i32,
}

/// A value of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A tensor.
    Tensor(Typed),
    /// A list of tensors, whose length is known.
    Sequence(Vec<Typed>),
    /// An optional value that is not there.
    Nothing,
}

impl From<Typed> for Value {
    fn from(value: Typed) -> Self {
        Self::Tensor(value)
    }
}
