"""What can go wrong, sorted by who has to do something about it."""


class Error(Exception):
    """Any failure of Trefoil. The text says what, where, and what to do."""


class InputError(Error, ValueError):
    """An argument or file is not usable: shapes that do not fit, a damaged model."""


class RangeError(Error, ArithmeticError, ValueError):
    """A number leaves the range of its fixed-point format."""


class ConfigError(Error, ValueError):
    """A setting, configuration file, certificate or key is not usable."""


class Unreachable(Error, ConnectionError):
    """A server or party does not answer."""


class Refused(Error, PermissionError):
    """The servers will not, or could not, do it."""


class RevealError(Error, TypeError):
    """Something needs the numbers of a secret array, which only ``reveal()`` shows."""
