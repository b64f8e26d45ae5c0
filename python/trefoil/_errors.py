"""The errors of the package, one class for each kind of remedy."""


class Error(Exception):
    """Any failure of Trefoil. The text states the fault, its place and a remedy."""


class InputError(Error, ValueError):
    """An argument or file is not usable: shapes that do not fit, a damaged model."""


class RangeError(Error, ArithmeticError, ValueError):
    """A number leaves the range of its fixed-point format."""


class ConfigError(Error, ValueError):
    """A setting, configuration file, certificate or key is not usable."""


class Unreachable(Error, ConnectionError):
    """A server or party does not answer."""


class Refused(Error, PermissionError):
    """The servers refused the request or could not serve it."""


class Cheated(Error):
    """One of two parties did not follow the protocol. Nothing was revealed."""


class PrecisionWarning(UserWarning):
    """A number is too small for its fixed-point format."""


class RevealError(Error, TypeError):
    """Something needs the numbers of a secret array, which only ``reveal()`` shows."""
