//! Errors of the crates below as Python exceptions, with the sentences they have.

use std::fmt::Display;

use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::PyOnceLock, types::PyType};

/// The classes of `trefoil._errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any failure without a more specific class.
    Failed,
    /// A file or argument is not usable.
    Input,
    /// A configuration, certificate or key is not usable.
    Config,
    /// A server or party does not answer.
    Unreachable,
    /// The servers refused the request or could not serve it.
    Refused,
    /// A number leaves the range of its format.
    Range,
    /// A party did not follow the protocol.
    Cheated,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Failed => "Error",
            Self::Input => "InputError",
            Self::Config => "ConfigError",
            Self::Unreachable => "Unreachable",
            Self::Refused => "Refused",
            Self::Range => "RangeError",
            Self::Cheated => "Cheated",
        }
    }
}

/// A failure on its way to Python: threads without an interpreter make it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// True if it is only the consequence of another party's failure.
    pub(crate) echo: bool,
}

/// The result of work outside of the interpreter.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Display) -> Self {
        Self { kind, text: text.to_string(), echo: false }
    }

    /// An argument that is not acceptable.
    pub(crate) fn input(text: impl Display) -> Self {
        Self::new(Kind::Input, text)
    }
}

impl From<mpc_core::Error> for Failure {
    fn from(error: mpc_core::Error) -> Self {
        use mpc_core::Error;
        match error {
            Error::Ring(error) => error.into(),
            Error::Net(error) => error.into(),
            error @ Error::Overflow { .. } => Self::new(Kind::Range, error),
            error @ Error::Cheated { .. } => {
                let rest = "nothing was revealed, and the session has ended";
                Self::new(Kind::Cheated, format_args!("{error}; {rest}"))
            }
            error => Self::input(error),
        }
    }
}

impl From<ring_arith::Error> for Failure {
    fn from(error: ring_arith::Error) -> Self {
        use ring_arith::Error;
        let kind = match error {
            Error::OutOfRange { .. } => Kind::Range,
            Error::Device { .. } => Kind::Failed,
            _ => Kind::Input,
        };
        Self::new(kind, error)
    }
}

impl From<net::Error> for Failure {
    fn from(error: net::Error) -> Self {
        use net::Error;
        let kind = match error {
            Error::Config { .. } => Kind::Config,
            Error::Link { .. } | Error::Stalled { .. } | Error::Channel { .. } => Kind::Unreachable,
            _ => Kind::Failed,
        };
        Self { echo: true, ..Self::new(kind, error) }
    }
}

impl From<nn_layers::Error> for Failure {
    fn from(error: nn_layers::Error) -> Self {
        match error {
            nn_layers::Error::Mpc(error) => error.into(),
            error => Self::input(error),
        }
    }
}

impl From<models::Error> for Failure {
    fn from(error: models::Error) -> Self {
        Self::input(error)
    }
}

impl From<trefoil::Error> for Failure {
    fn from(error: trefoil::Error) -> Self {
        use trefoil::Error;
        match error {
            Error::Net(error) => error.into(),
            Error::Mpc(error) => error.into(),
            Error::Nn(error) => error.into(),
            Error::Ring(error) => error.into(),
            error => {
                let kind = match error.kind() {
                    "input" => Kind::Input,
                    "config" => Kind::Config,
                    "unreachable" => Kind::Unreachable,
                    "refused" => Kind::Refused,
                    "out-of-range" => Kind::Range,
                    "cheated" => Kind::Cheated,
                    _ => Kind::Failed,
                };
                Self::new(kind, error)
            }
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match class(py, failure.kind) {
            Ok(class) => PyErr::from_type(class, failure.text),
            // The package is broken; the sentence is worth more than its class.
            Err(_) => PyRuntimeError::new_err(failure.text),
        })
    }
}

fn class(py: Python<'_>, kind: Kind) -> PyResult<Bound<'_, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import("trefoil._errors").map(Bound::unbind))?.bind(py);
    Ok(module.getattr(kind.class())?.cast_into::<PyType>()?)
}
