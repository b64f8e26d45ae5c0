"""Secret arrays: shape, dtype and operators of NumPy's, numbers that only ``reveal()`` shows."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, SupportsIndex, overload

import numpy as np

from ._autograd import Tape, no_grad
from ._errors import InputError, RangeError, RevealError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, DTypeLike

    from . import _trefoil
    from ._session import Mpc

    #: An axis, several, or all.
    _Axis = int | tuple[int, ...] | None

_BOOL, _INT = np.dtype(bool), np.dtype(np.int64)
_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)

#: Largest fraction bits of a public factor.
_MOST_FACTOR = 40


def _widest(dtype):
    """The dtype of secret arrays that holds another's numbers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return _BOOL
    if dtype.kind in "iu":
        return _INT
    if dtype.kind == "f":
        return _SINGLE if dtype.itemsize <= 4 else _DOUBLE
    raise InputError(f"dtype {dtype}: secret arrays hold truth values, integers and real numbers")


def _plain(x):
    """Anything array-like as an array of a dtype that secret arrays have."""
    if isinstance(x, Secret):
        raise RevealError("a public array is needed here, and this one is secret; reveal() shows it")
    try:
        array = np.asarray(x)
    # A class of someone else's may raise anything.
    except Exception as cause:
        of_torch = "; give x.detach(), and bfloat16 as x.float()" if hasattr(x, "detach") else ""
        raise InputError(f"this {type(x).__name__} does not become an array{of_torch}: {cause}") from None
    if array.dtype == object:
        raise InputError("the array holds objects: secret arrays hold truth values, integers and real numbers")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 62:
        raise InputError("an integer is 2^62 or more: it does not fit a secret word")
    return array.astype(_widest(array.dtype), copy=False)


def _floats(x):
    """A public array as real numbers."""
    return np.ascontiguousarray(_plain(x), np.float64).reshape(np.shape(x))


def _whole(name, array):
    """An input that consists of integers."""
    if array.dtype.kind == "f" and not np.all(np.mod(array, 1) == 0):
        place = int(np.flatnonzero(np.mod(array, 1) != 0)[0])
        raise InputError(f"`{name}` consists of integers; element {place} is {array.reshape(-1)[place]}")
    return array.astype(np.int64)


def _promoted(*dtypes):
    """NumPy's dtype for arithmetic; truth values count as the integers 0 and 1."""
    dtype = _widest(np.result_type(*dtypes))
    return _INT if dtype == _BOOL else dtype


def _axis(axis, ndim):
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim


def _axes(axis, ndim):
    """One axis, several or all, as a sorted list."""
    if axis is None:
        return list(range(ndim))
    axes = [_axis(operator.index(a), ndim) for a in (axis if isinstance(axis, tuple) else (axis,))]
    if len(set(axes)) != len(axes):
        raise InputError("an axis is named twice")
    return sorted(axes)


def _keeps(keepdims):
    """True to keep axes. NumPy's methods have a dtype or an array to write into in this place."""
    if keepdims is not None and not isinstance(keepdims, (int, np.integer, np.bool_)):
        raise TypeError(f"keepdims is True or False, not {keepdims!r}; methods of secret arrays take no dtype and no `out`")
    return bool(keepdims)


def _is_small(x):
    """True for a number of Python's that a float holds exactly."""
    return type(x) in (bool, float) or type(x) is int and abs(x) <= 1 << 53


def _some_real(base, exponent):
    """Refuses whole powers of whole numbers, which a logarithm would not give exactly."""
    if base.dtype.kind != "f" and exponent.dtype.kind != "f":
        raise InputError("a secret exponent is for real numbers; make one of the two real with astype(float)")


def _as_integers(public, function):
    """The integers that integers compare with as they do with real numbers, and where they are equal to none."""
    if public.dtype.kind != "f" or not np.all(np.abs(public) < 2.0**53):
        return public, None
    whole = np.floor(public)
    between = whole != public
    if function in ("lt", "ge"):
        return np.ceil(public).astype(np.int64), None
    return whole.astype(np.int64), between if function in ("eq", "ne") and between.any() else None


class _Missing(InputError, AttributeError):
    """An attribute of NumPy's arrays that secret ones do not have."""


class Secret:
    """An array whose numbers no party knows.

    It has NumPy's names: operators, broadcasting, slices and index arrays (public ones), ``sum``, ``mean``,
    ``max``, ``reshape`` and so on. NumPy's functions take it: ``np.exp(x)``, ``np.where(c, x, y)``,
    ``np.concatenate([x, y])``. Operands may be secret, or public: numbers and arrays.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
        ``bool``, ``int64``, ``float32`` or ``float64``: the dtype of ``reveal()``. Real numbers are
        fixed-point words of the session's ``frac_bits`` whichever the dtype; integers and truth values
        are exact. With numbers truth values count as 0 and 1; of two, ``+`` is "or" and ``*`` is "and", as in NumPy.
    frac_bits : int
        Fraction bits of the words.

    Notes
    -----
    Operations return new arrays; a slice is a copy. Moving numbers, sums, and sums and products with public
    integers cost no communication. A result that leaves its format (``|x| < 2^(62 - frac_bits)``) raises a
    :class:`RangeError` in a local session. Elsewhere nobody has the numbers, and it is wrong without an error.
    """

    __slots__ = ("_mpc", "_handle", "_dtype", "_grad", "__weakref__")
    __array_priority__: int = 1000
    # Above that of tables and columns of pandas: `column * x` is this class's.
    __pandas_priority__: int = 5000
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, mpc: Mpc, handle: _trefoil.Handle, dtype: np.dtype) -> None:
        self._mpc = mpc
        self._handle = handle
        self._dtype = dtype
        self._grad = None

    # -- what is public ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self._handle.shape)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the array that :meth:`reveal` returns."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._handle.shape)

    @property
    def size(self) -> int:
        """Number of numbers."""
        return int(np.prod(self._handle.shape, dtype=np.int64))

    @property
    def frac_bits(self) -> int:
        """Fraction bits of the words; 0 for integers and truth values."""
        return self._handle.frac

    @property
    def width(self) -> int:
        """Bits of a word, sign included, as far as is known: comparisons cost in proportion."""
        return self._handle.width

    @property
    def T(self) -> Secret:
        """The axes in the opposite order, as by :meth:`transpose`."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Secret(shape={self.shape}, dtype={self.dtype}, frac_bits={self.frac_bits})"

    # -- gradients ---------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """True if :meth:`backward` gives this array a gradient. It can be set, for real numbers."""
        return isinstance(self._mpc._session, Tape) and self._mpc._session.follows(self._handle)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and self._dtype.kind != "f":
            raise InputError(f"an array of {self._dtype} has no gradient; make it real with astype(float)")
        if not isinstance(self._mpc._session, Tape):
            if not wanted:
                return
            self._mpc._session = Tape(self._mpc._session)
        if wanted and self.requires_grad:
            return
        self._mpc._session.require(self, wanted)

    @property
    def grad(self) -> Secret | None:
        """The sum of the gradients of all calls of :meth:`backward`, secret itself. It can be set to None."""
        return self._grad

    @grad.setter
    def grad(self, value: Secret | None) -> None:
        self._grad = value

    def backward(self, gradient: Secret | ArrayLike | None = None) -> None:
        """Add gradients of this array to ``grad`` of all arrays that require one, as in PyTorch.

        Parameters
        ----------
        gradient : array_like, optional
            The factors of the elements' gradients; ones for a single number.

        Raises
        ------
        InputError
            If the array does not depend on one that requires a gradient, or naming a function without one.

        Notes
        -----
        Nothing is revealed. It costs about twice as much as the expression. Maxima share their gradient among equals.
        """
        if not self.requires_grad:
            raise InputError("the array does not depend on one with requires_grad=True")
        if gradient is None:
            if self.size != 1:
                raise InputError(f"an array of shape {self.shape} needs a gradient of that shape; one number needs none")
            gradient = np.ones(self.shape)
        if not isinstance(gradient, Secret):
            array = np.broadcast_to(np.asarray(gradient, np.float64), self.shape).copy()
            (handle,) = self._mpc._session.call("constant", [self._mpc._public(array, self._mpc.frac_bits)], None)
            gradient = Secret(self._mpc, handle, _DOUBLE)
        if gradient.shape != self.shape:
            raise InputError(f"the gradient has shape {gradient.shape}, the array {self.shape}")
        self._mpc._session.backward(self, gradient)

    def detach(self) -> Secret:
        """The same numbers, without a gradient. Nothing is sent."""
        with no_grad():
            return self._make("add_scalar", {"c": 0})

    # -- numbers come out in one way alone ---------------------------------------------------------

    @overload
    def reveal(self, *, to: None = None) -> np.ndarray: ...
    @overload
    def reveal(self, *, to: int) -> np.ndarray | None: ...
    def reveal(self, *, to: int | None = None) -> np.ndarray | None:
        """Show the numbers to every party.

        Parameters
        ----------
        to : int, optional
            Show them to this party alone.

        Returns
        -------
        numpy.ndarray of this dtype, or None at a party to which they are not shown

        Notes
        -----
        One round; 192 bits for each number in all, 64 to one party.
        """
        opened = self._mpc._session.reveal([self._handle], to)
        return None if opened is None else self._show(opened[0])

    def _show(self, values):
        return values.astype(self.dtype, copy=False).reshape(self.shape)

    def save(self, path: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> list[str]:
        """Write the shares to files, ``path.party0`` to ``path.party2``, each party its own.

        Parameters
        ----------
        path : path
        key : path, optional
            A key file, which ``trefoil store key FILE`` makes: the shares are encrypted under it. Without one they lie
            plain.

        Returns
        -------
        list of str
            The files that this process wrote.

        Notes
        -----
        Two of the three files together show the numbers. :meth:`Mpc.load` reads them.
        """
        import os

        key = None if key is None else os.fspath(key)
        return self._mpc._session.save(self._handle, os.fspath(path), str(self.dtype), key)

    def _refuse(self, what: str) -> RevealError:
        return RevealError(f"{what} needs the numbers of a secret array; reveal() shows them")

    def __bool__(self) -> NoReturn:
        raise RevealError(
            "whether a secret is true is secret, so a program cannot branch on it: take np.where(condition, "
            "x, y), or show the condition with reveal()"
        )

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._refuse(f"the format {spec!r}")
        return str(self)

    # Type checkers do not know these, so that they report a use before it raises an error.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("_") or not hasattr(np.ndarray, name):
                raise AttributeError(f"a secret array has no attribute `{name}`")
            raise _Missing(f"secret arrays have no `{name}`: trefoil.functions lists what there is")

        def __array__(self, *_, **__):
            raise self._refuse("a NumPy array")

        def __float__(self):
            raise self._refuse("float()")

        def __int__(self):
            raise self._refuse("int()")

        def __index__(self):
            raise self._refuse("an index")

        def __complex__(self):
            raise self._refuse("complex()")

        def item(self, *_):
            """Raises :class:`RevealError`: only :meth:`reveal` returns the numbers."""
            raise self._refuse("item()")

        def tolist(self):
            """Raises :class:`RevealError`: only :meth:`reveal` returns the numbers."""
            raise self._refuse("tolist()")

        def _no_remainder(self, *_):
            raise TypeError("secret arrays have no rounding and no division with remainder: `/` divides, and sums and products of "
                            "integers are exact")

        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __round__ = _no_remainder

    def __contains__(self, _: object) -> NoReturn:
        raise self._refuse("`in`")

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise TypeError("secret arrays are not pickled: save(path) writes each party's share to its own file")

    def __copy__(self) -> Secret:
        return Secret(self._mpc, self._handle, self._dtype)

    def __deepcopy__(self, _: Any) -> Secret:
        return self.__copy__()

    def copy(self) -> Secret:
        """Another array of the same numbers. Nothing is sent."""
        return self.__copy__()

    # -- calls -------------------------------------------------------------------------------------

    def _make(self, function, params=None, dtype=None, operands=None):
        (handle,) = self._mpc._session.call(function, operands or [self._handle], params)
        return Secret(self._mpc, handle, dtype or self._dtype)

    def _real(self):
        """The same numbers with the session's fraction bits; integers become real without cost."""
        frac = self._mpc.frac_bits
        if self._handle.frac == frac:
            return self
        dtype = self._dtype if self._dtype.kind == "f" else _DOUBLE
        return self._make("rescale", {"frac": frac}, dtype)

    def _like(self, dtype):
        """The same numbers in the format of a dtype that holds them."""
        if dtype.kind == "f" and self._dtype.kind != "f":
            x = self._real()
        else:
            x = self
        return x if x._dtype == dtype else Secret(x._mpc, x._handle, dtype)

    def astype(self, dtype: DTypeLike) -> Secret:
        """The same numbers as another dtype. To ``bool``: whether they are not 0. Integers have 64 bits and do not wrap.

        Parameters
        ----------
        dtype : dtype

        Returns
        -------
        Secret

        Raises
        ------
        InputError
            For real numbers as integers: rounding to integers is not offered.
        """
        dtype = _widest(dtype)
        if dtype == self._dtype:
            return self
        if dtype == _BOOL:
            return self != 0
        if dtype == _INT and self._dtype.kind == "f":
            raise InputError("real numbers do not become integers: there is no secret rounding")
        return self._like(dtype)

    def with_bound(self, bound: float) -> Secret:
        """The same numbers, of which all parties know that none exceeds ``bound`` in magnitude.

        Parameters
        ----------
        bound : float

        Returns
        -------
        Secret

        Notes
        -----
        Comparisons and functions made of them cost less. Nothing is sent. Their results are wrong if the bound is;
        a local session raises a :class:`RangeError` then.
        """
        bound = float(bound)
        if not 0 <= bound < float("inf"):
            raise InputError(f"bound is {bound}: a magnitude that no number exceeds is at least 0")
        handle = self._mpc._session.bound(self._handle, bound)
        return Secret(self._mpc, handle, self._dtype)

    def _other(self, other):
        """The second operand: secret, a number, or a public array."""
        if isinstance(other, Secret):
            if other._mpc is not self._mpc:
                raise InputError("the two secret arrays belong to different sessions")
            return other
        return _plain(other)

    def _dtype_with(self, raw, other):
        # Python's own numbers adapt to the array's dtype, as in NumPy.
        if type(raw) in (bool, int, float):
            weak = {bool: _BOOL, int: _INT, float: _SINGLE}[type(raw)]
            if weak == _SINGLE and self._dtype.kind != "f":
                weak = _DOUBLE
            if weak == _INT and self._dtype.kind == "f":
                return self._dtype
            return _promoted(self._dtype, weak)
        return _promoted(self._dtype, other.dtype)

    def _both(self, raw):
        """Both operands in the format of their common dtype, ready for a call."""
        other = self._other(raw)
        dtype = self._dtype_with(raw, other)
        x = self._like(dtype)
        if isinstance(other, Secret):
            return x, other._like(dtype)._handle, dtype
        return x, self._mpc._public(other.astype(dtype, copy=False), self._mpc._frac(dtype)), dtype

    # -- arithmetic --------------------------------------------------------------------------------

    def _sum(self, other, sign):
        if self._dtype == _BOOL and (other if isinstance(other, Secret) else _plain(other)).dtype == _BOOL:
            if sign < 0:
                raise TypeError("`-` is not for truth values: `^` tells where they differ, and astype(int) makes them numbers")
            return self | other
        if _is_small(other):
            dtype = self._dtype_with(other, None)
            return self._like(dtype)._make("add_scalar", {"c": sign * other}, dtype)
        x, y, dtype = self._both(other)
        return x._make("add" if sign > 0 else "sub", None, dtype, [x._handle, y])

    def __add__(self, other: Secret | ArrayLike) -> Secret:
        return self._sum(other, 1)

    def __radd__(self, other: ArrayLike) -> Secret:
        return self + other

    def __sub__(self, other: Secret | ArrayLike) -> Secret:
        return self._sum(other, -1)

    def __rsub__(self, other: ArrayLike) -> Secret:
        if self._dtype == _BOOL:
            return self._sum(other, -1) if _plain(other).dtype == _BOOL else (-self._like(_INT))._sum(other, 1)
        return (-self)._sum(other, 1)

    def _number(self, sign):
        if self._dtype == _BOOL:
            raise TypeError(f"`{sign}` is not for truth values: `~` is their opposite, and astype(int) makes them numbers")
        return self

    def __neg__(self) -> Secret:
        return self._number("-")._make("neg")

    def __pos__(self) -> Secret:
        return self._number("+").copy()

    def _product(self, other, function, swapped=False):
        """A product. One with integers has the other factor's format, and is exact."""
        raw, other = other, self._other(other)
        dtype = self._dtype_with(raw, other)
        y = other._handle if isinstance(other, Secret) else self._mpc._public(other, self._mpc._frac(other.dtype))
        operands = [y, self._handle] if swapped else [self._handle, y]
        return self._make(function, None, dtype, operands)

    def __mul__(self, other: Secret | ArrayLike) -> Secret:
        if self._dtype == _BOOL and (other if isinstance(other, Secret) else _plain(other)).dtype == _BOOL:
            return self & other
        if _is_small(other):
            dtype = self._dtype_with(other, None)
            if dtype.kind == "f" and self._dtype.kind != "f":
                params = {"c": float(other), "frac": self._mpc.frac_bits}
                return self._make("mul_scalar_to", params, dtype)
            return self._make("mul_scalar", {"c": other}, dtype)
        return self._product(other, "mul")

    def __rmul__(self, other: ArrayLike) -> Secret:
        return self * other

    def __matmul__(self, other: Secret | ArrayLike) -> Secret:
        from ._numpy import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: ArrayLike) -> Secret:
        from ._numpy import matmul

        return matmul(other, self)

    def __truediv__(self, other: Secret | ArrayLike) -> Secret:
        if isinstance(other, Secret):
            dtype = np.result_type(_promoted(self._dtype, other._dtype), _SINGLE)
            dtype = _widest(dtype)
            x, y = self._real(), self._other(other)._real()
            return x._make("div", None, dtype, [x._handle, y._handle])
        if type(other) in (bool, int, float):
            return self._times_inverse(float(other))
        divisor = _plain(other)
        dtype = _widest(np.result_type(_promoted(self._dtype, divisor.dtype), _SINGLE))
        divisor = divisor.astype(np.float64)
        if not divisor.all():
            raise RangeError("a divisor is 0: its quotient is no number")
        if divisor.ndim == 0:
            return self._times_inverse(float(divisor))._like(dtype)
        inverse = 1.0 / divisor
        largest = float(np.abs(inverse).max()) if inverse.size else 1.0
        frac = max(1, min(_MOST_FACTOR, 23 - int(np.floor(np.log2(largest)))))
        x = self._real()
        public = self._mpc._public(inverse, frac)
        params = {"op": 0, "keep": self._mpc.frac_bits}
        left = np.broadcast_shapes(x.shape, inverse.shape)
        x = x if x.shape == left else x._make("broadcast", {"shape": list(left)})
        if inverse.shape != left:
            public = self._mpc._public(np.ascontiguousarray(np.broadcast_to(inverse, left)), frac)
        return x._make("multiply", params, dtype, [x._handle, public])

    def _times_inverse(self, divisor):
        if divisor == 0.0:
            raise RangeError("the divisor is 0: the quotients are no numbers")
        dtype = self._dtype if self._dtype.kind == "f" else _DOUBLE
        params = {"c": 1.0 / divisor, "frac": self._mpc.frac_bits}
        return self._make("mul_scalar_to", params, dtype)

    def __rtruediv__(self, other: ArrayLike) -> Secret:
        x = self._real()
        numerator = _plain(other)
        dtype = _widest(np.result_type(_promoted(self._dtype, numerator.dtype), _SINGLE))
        if type(other) in (bool, int, float):
            dtype = x._dtype
        if numerator.ndim == 0 and float(numerator) == 1.0:
            return x._make("reciprocal", None, dtype)
        public = self._mpc._public(numerator.astype(np.float64), self._mpc.frac_bits)
        return x._make("div", None, dtype, [public, x._handle])

    def __pow__(self, exponent: Secret | ArrayLike) -> Secret:
        if isinstance(exponent, Secret):
            # x^y = e^(y ln x)
            _some_real(self, exponent)
            return np.exp(exponent * np.log(self))
        power = _plain(exponent)
        if power.ndim:
            from ._numpy import powers

            return powers(self, power)
        if power.dtype.kind in "bi":
            n = int(power)
            if n < 0:
                if self._dtype.kind != "f":
                    raise InputError(f"integers have no power of {n}; make them real with astype(float)")
                return self._make("pow", {"n": n})
            return self._like(_promoted(self._dtype))._make("pow", {"n": n})
        p, x = float(power), self._real()
        if p.is_integer() and abs(p) < 2**31:
            return x._make("pow", {"n": int(p)})
        if p == 0.5:
            return x._make("sqrt")
        if p == -0.5:
            return x._make("inv_sqrt")
        return x._make("powf", {"p": p})

    def __rpow__(self, base: ArrayLike) -> Secret:
        _some_real(self, _plain(base))
        base = float(_plain(base))
        if base <= 0.0:
            raise InputError(f"{base} to a secret power: the base must be above 0")
        return np.exp(self._real() * float(np.log(base)))

    def __abs__(self) -> Secret:
        if self._dtype == _BOOL:
            return self.copy()
        return self._like(_promoted(self._dtype))._make("abs")

    # -- comparisons and truth values --------------------------------------------------------------

    def _compare(self, other, function):
        if other is None:
            return NotImplemented
        if self._dtype.kind != "f" and not isinstance(other, Secret):
            other, never = _as_integers(_plain(other), function)
            if never is not None:
                return ~self._compare(other, "eq") | never if function == "ne" else self._compare(other, "eq") & ~never
        x, y, _ = self._both(other)
        return x._make(function, None, _BOOL, [x._handle, y])

    def __lt__(self, other: Secret | ArrayLike) -> Secret:
        return self._compare(other, "lt")

    def __le__(self, other: Secret | ArrayLike) -> Secret:
        return self._compare(other, "le")

    def __gt__(self, other: Secret | ArrayLike) -> Secret:
        return self._compare(other, "gt")

    def __ge__(self, other: Secret | ArrayLike) -> Secret:
        return self._compare(other, "ge")

    def __eq__(self, other: Secret | ArrayLike | None) -> Secret:  # type: ignore[override]
        if other is None:
            return self._filled(False)
        return self._compare(other, "eq")

    def __ne__(self, other: Secret | ArrayLike | None) -> Secret:  # type: ignore[override]
        if other is None:
            return self._filled(True)
        return self._compare(other, "ne")

    def _filled(self, truth):
        """Truth values of this shape that are all the same."""
        from ._numpy import _secret

        return _secret(self._mpc, np.full(self.shape, truth))

    def _bits(self, other, op):
        """`&`, `|` or `^` of integers; None for truth values."""
        other = self._other(other)
        if self._dtype == _BOOL and other.dtype == _BOOL:
            return other, None
        if self._dtype.kind not in "bi" or other.dtype.kind not in "biu":
            raise TypeError(f"`{op}` is for integers and truth values, not for {self._dtype} and {other.dtype}")
        dtype = np.result_type(self._dtype, other.dtype)
        y = other._handle if isinstance(other, Secret) else self._mpc._public(other.astype(np.int64), 0)
        return other, self._make("bitwise", {"op": "&|^".index(op)}, dtype, [self._handle, y])

    def __and__(self, other: Secret | ArrayLike) -> Secret:
        """``self & other`` of truth values, or of integers bit by bit.

        Truth values cost a product. Integers cost their bits and the way back: 11 rounds and 4,466 bits an element at 44
        bits, less with :meth:`with_bound`. A public mask from 0 on needs only as many bits as it has.
        """
        other, bits = self._bits(other, "&")
        if bits is not None:
            return bits
        return Secret(self._mpc, self._product(other, "mul")._handle, _BOOL)

    def __or__(self, other: Secret | ArrayLike) -> Secret:
        other, bits = self._bits(other, "|")
        if bits is not None:
            return bits
        return ~(~self & ~other)

    def __xor__(self, other: Secret | ArrayLike) -> Secret:
        other, bits = self._bits(other, "^")
        if bits is not None:
            return bits
        if isinstance(other, Secret):
            return self != other
        x = self._product(1 - 2 * other.astype(np.int64), "mul") + other.astype(np.int64)
        return Secret(self._mpc, x._handle, _BOOL)

    def __rand__(self, other: ArrayLike) -> Secret:
        return self & other

    def __ror__(self, other: ArrayLike) -> Secret:
        return self | other

    def __rxor__(self, other: ArrayLike) -> Secret:
        return self ^ other

    def __invert__(self) -> Secret:
        if self._dtype == _BOOL:
            return self._make("not")
        if self._dtype.kind != "i":
            raise TypeError(f"`~` is for integers and truth values, not for {self._dtype}")
        return -self - 1

    def __lshift__(self, bits: int) -> Secret:
        """``self * 2**bits`` for a public number of bits. Nothing is sent."""
        return self._shifted("shift_left", bits)

    def __rshift__(self, bits: int) -> Secret:
        """``self // 2**bits`` for a public number of bits, as NumPy shifts signed integers. 5 rounds."""
        return self._shifted("shift_right", bits)

    def _shifted(self, function, bits):
        if self._dtype.kind != "i":
            raise TypeError(f"bits of {self._dtype} are not shifted; integers are")
        bits = operator.index(bits)
        if bits < 0:
            raise ValueError(f"a shift by {bits} bits; shift the other way")
        return self._make(function, {"bits": bits}) if bits else self.copy()

    # -- moving numbers ----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Secret:
        from ._numpy import take_key

        return take_key(self, key)

    def __setitem__(self, key: Any, value: Secret | ArrayLike) -> None:
        from ._numpy import put_key

        put_key(self, key, value)

    def __iter__(self) -> Iterator[Secret]:
        if not self.ndim:
            raise TypeError("an array without dimensions cannot be iterated over")
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: int | Sequence[int], order: str = "C") -> Secret:
        """The same numbers under another shape. Nothing is sent.

        Parameters
        ----------
        *shape : int or tuple of int
            One of them may be -1: it follows from the others.
        order : {"C"}

        Returns
        -------
        Secret
        """
        if order != "C":
            raise InputError("secret arrays are in C order")
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        if any(isinstance(n, (bool, np.bool_)) for n in shape):
            raise TypeError("a length is an integer, not a truth value")
        shape = [operator.index(n) for n in shape]
        if shape.count(-1) == 1:
            known = -int(np.prod(shape, dtype=np.int64))
            if known == 0 or self.size % known:
                raise InputError(f"{self.size} numbers do not fill shape {tuple(shape)}")
            shape[shape.index(-1)] = self.size // known
        if min(shape, default=0) < 0 or np.prod(shape, dtype=np.int64) != self.size:
            raise InputError(f"{self.size} numbers do not fill shape {tuple(shape)}")
        return self if tuple(shape) == self.shape else self._make("reshape", {"shape": shape})

    def ravel(self) -> Secret:
        """The same numbers as one axis. Nothing is sent."""
        return self.reshape(-1) if self.size else self.reshape(0)

    def flatten(self) -> Secret:
        """As :meth:`ravel`."""
        return self.ravel()

    def transpose(self, *axes: int | Sequence[int] | None) -> Secret:
        """The axes in another order, the opposite one unless given. Nothing is sent.

        Parameters
        ----------
        *axes : int or tuple of int

        Returns
        -------
        Secret
        """
        if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], (int, np.integer))):
            axes = () if axes[0] is None else axes[0]
        axes = [_axis(a, self.ndim) for a in axes] or list(range(self.ndim))[::-1]
        if sorted(axes) != list(range(self.ndim)):
            raise InputError(f"axes {tuple(axes)} are not those of shape {self.shape}")
        return self if axes == sorted(axes) else self._make("permute", {"axes": axes})

    def swapaxes(self, one: int, other: int) -> Secret:
        """Two axes exchanged. Nothing is sent.

        Parameters
        ----------
        one, other : int

        Returns
        -------
        Secret
        """
        axes = list(range(self.ndim))
        one, other = _axis(one, self.ndim), _axis(other, self.ndim)
        axes[one], axes[other] = axes[other], axes[one]
        return self.transpose(axes)

    def squeeze(self, axis: _Axis = None) -> Secret:
        """Without axes of length 1. Nothing is sent.

        Parameters
        ----------
        axis : int or tuple of int, optional

        Returns
        -------
        Secret
        """
        return np.squeeze(self, axis)

    def repeat(self, repeats: ArrayLike, axis: int | None = None) -> Secret:
        """Numbers repeated, as by ``numpy.repeat``. Nothing is sent.

        Parameters
        ----------
        repeats : int or array_like of int
        axis : int, optional

        Returns
        -------
        Secret
        """
        return np.repeat(self, repeats, axis)

    def take(self, indices: ArrayLike | Secret, axis: int | None = None) -> Secret:
        """The numbers at places, as by ``numpy.take``. Nothing is sent for public ones.

        Parameters
        ----------
        indices : array_like of int, or Secret
            Secret places cost a test for each number of the axis (:func:`trefoil.functions.gather_at`).
        axis : int, optional

        Returns
        -------
        Secret
        """
        return np.take(self, indices, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Secret:
        """Diagonals, as by ``numpy.diagonal``. Nothing is sent.

        Parameters
        ----------
        offset, axis1, axis2 : int

        Returns
        -------
        Secret
        """
        return np.diagonal(self, offset, axis1, axis2)

    # -- along axes --------------------------------------------------------------------------------

    def _reduce(self, function, axis, keepdims, dtype=None):
        axes, keepdims = _axes(axis, self.ndim), _keeps(keepdims)
        shape = self.shape
        kept = [1 if i in axes else n for i, n in enumerate(shape)]
        x = self if self.ndim else self.reshape(1)
        y = x._make(function, {"axes": axes or [0]} if not self.ndim else {"axes": axes}, dtype)
        short = kept if keepdims else [n for i, n in enumerate(shape) if i not in axes]
        return y.reshape(short)

    def sum(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Sums along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        Exact, within ``|sum| < 2^(62 - frac_bits)``. Nothing is sent.
        """
        return self._reduce("sum", axis, keepdims, _promoted(self._dtype))

    def mean(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Means along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        Relative error ``2^-19`` and two units in the last place. At most 2 rounds.
        """
        self._some("mean", axis)
        x = self._real()
        return x._reduce("mean", axis, keepdims)

    def var(self, axis: _Axis = None, ddof: int = 0, keepdims: bool = False) -> Secret:
        """Variances along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        ddof : int
            The number subtracted from the count, as in NumPy.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        Two means and a sum of squares. Right for variances below ``2 ** (61 - frac_bits)``: with 20 fraction bits deviations of
        1,400,000. The sum of the numbers must be below ``2 ** (62 - frac_bits)``.
        """
        self._some("var", axis)
        x = self._real()
        y = x._reduce("var", axis, keepdims)
        count = int(np.prod([self.shape[a] for a in _axes(axis, self.ndim)], dtype=np.int64))
        if ddof == 0:
            return y
        if count <= ddof:
            raise InputError(f"the variance of {count} numbers with ddof={ddof} does not exist")
        return y * (count / (count - ddof))

    def std(self, axis: _Axis = None, ddof: int = 0, keepdims: bool = False) -> Secret:
        """Standard deviations along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        ddof : int
            The number subtracted from the count, as in NumPy.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        As :meth:`var`, and a square root of each result: 24 rounds.
        """
        return self.var(axis, ddof, keepdims)._make("sqrt")

    def _some(self, name, axis):
        if 0 in [self.shape[a] for a in _axes(axis, self.ndim)]:
            raise InputError(f"{name} of no numbers")

    def _rows(self, axis):
        """The axes of a reduction as one, the last, and the shape of the others."""
        axes = _axes(axis, self.ndim)
        others = [a for a in range(self.ndim) if a not in axes]
        x = self.transpose(others + axes) if self.ndim else self
        outer = [self.shape[a] for a in others]
        count = int(np.prod([self.shape[a] for a in axes], dtype=np.int64))
        kept = [1 if a in axes else n for a, n in enumerate(self.shape)]
        return x.reshape(outer + [count]), outer, kept

    def _extremum(self, function, axis, keepdims, dtype=None):
        self._some(function, axis)
        x, outer, kept = self._rows(axis)
        y = x._make(function, {"axis": len(outer)}, dtype)
        return y.reshape(kept if _keeps(keepdims) else outer)

    def max(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Largest numbers along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        Exact. A tournament: ``1 + 5 ceil(log2 k)`` rounds for ``k`` numbers.
        """
        return self._extremum("max", axis, keepdims)

    def min(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Smallest numbers along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        As :meth:`max`.
        """
        return self._extremum("min", axis, keepdims)

    def argmax(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Places of the largest numbers, the first among equals.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        As :meth:`max`; all axes together count in C order.
        """
        return self._extremum("argmax", axis, keepdims, _INT)

    def argmin(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Places of the smallest numbers, the first among equals.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        As :meth:`max`; all axes together count in C order.
        """
        return self._extremum("argmin", axis, keepdims, _INT)

    def prod(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """Products along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret

        Notes
        -----
        Every product of a part must stay below ``2^(62 - 2 frac_bits)``. ``ceil(log2 k)`` levels of two rounds.
        """
        return np.prod(self, axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Secret:
        """Running sums.

        Parameters
        ----------
        axis : int, optional
            Of the flat array unless given.

        Returns
        -------
        Secret

        Notes
        -----
        Exact. Nothing is sent; work grows with the square of the axis.
        """
        return np.cumsum(self, axis)

    def all(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """True where all are true.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret
        """
        return np.all(self, axis, keepdims=keepdims)

    def any(self, axis: _Axis = None, keepdims: bool = False) -> Secret:
        """True where any is true.

        Parameters
        ----------
        axis : int or tuple of int, optional
            All axes unless given.
        keepdims : bool
            Keep the axes, with length 1.

        Returns
        -------
        Secret
        """
        return np.any(self, axis, keepdims=keepdims)

    def trace(self, offset: int = 0) -> Secret:
        """The sum of a diagonal. Nothing is sent.

        Parameters
        ----------
        offset : int

        Returns
        -------
        Secret
        """
        return np.trace(self, offset)

    def dot(self, other: Secret | ArrayLike) -> Secret:
        """``numpy.dot`` with another array: 2 rounds, 252 bits for each result.

        Parameters
        ----------
        other : Secret or array_like

        Returns
        -------
        Secret
        """
        return np.dot(self, other)

    def clip(self, min: Secret | ArrayLike | None = None, max: Secret | ArrayLike | None = None) -> Secret:
        """Numbers limited to a range, exactly: 6 rounds.

        Parameters
        ----------
        min, max : float or array_like, optional
            Public, or secret.

        Returns
        -------
        Secret
        """
        return np.clip(self, min, max)

    # -- functions that NumPy does not have --------------------------------------------------------

    def relu(self) -> Secret:
        """``max(0, x)``. Domain, error and cost: :func:`trefoil.functions.relu`."""
        return self._like(_promoted(self._dtype))._make("relu")

    def sigmoid(self) -> Secret:
        """``1 / (1 + e^-x)``. Domain, error and cost: :func:`trefoil.functions.sigmoid`."""
        return self._real()._make("sigmoid")

    def tanh(self) -> Secret:
        """Hyperbolic tangent. Domain, error and cost: :func:`trefoil.functions.tanh`."""
        return self._real()._make("tanh")

    def exp(self) -> Secret:
        """``e^x``. Domain, error and cost: :func:`trefoil.functions.exp`."""
        return self._real()._make("exp")

    def log(self) -> Secret:
        """``ln x``. Domain, error and cost: :func:`trefoil.functions.log`."""
        return self._real()._make("log")

    def sqrt(self) -> Secret:
        """Square roots. Domain, error and cost: :func:`trefoil.functions.sqrt`."""
        return self._real()._make("sqrt")

    def abs(self) -> Secret:
        """``|x|``. Domain, error and cost: :func:`trefoil.functions.abs`."""
        return self.__abs__()

    def gelu(self) -> Secret:
        """``x (1 + erf(x / sqrt 2)) / 2``. Domain, error and cost: :func:`trefoil.functions.gelu`."""
        return self._real()._make("gelu")

    def silu(self) -> Secret:
        """``x sigmoid(x)``. Domain, error and cost: :func:`trefoil.functions.silu`."""
        return self._real()._make("silu")

    def erf(self) -> Secret:
        """Error function. Domain, error and cost: :func:`trefoil.functions.erf`."""
        return self._real()._make("erf")

    def softmax(self, axis: int = -1) -> Secret:
        """``e^x / sum(e^x)`` along an axis. Domain, error and cost: :func:`trefoil.functions.softmax`.

        Parameters
        ----------
        axis : int

        Returns
        -------
        Secret
        """
        return self._real()._make("softmax", {"axis": _axis(axis, self.ndim)})

    def log_softmax(self, axis: int = -1) -> Secret:
        """The logarithm of :meth:`softmax`. Domain, error and cost: :func:`trefoil.functions.log_softmax`.

        Parameters
        ----------
        axis : int

        Returns
        -------
        Secret
        """
        return self._real()._make("log_softmax", {"axis": _axis(axis, self.ndim)})

    # -- NumPy's dispatch, and PyTorch's -----------------------------------------------------------

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        # Of an operator PyTorch makes NotImplemented of it: `tensor * x` is this class's then.
        name = getattr(function, "__name__", "this function")
        raise TypeError(f"PyTorch's `{name}` takes no secret arrays: NumPy's functions do, and trefoil.Model runs networks")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from ._numpy import ufunc as dispatch

        return dispatch(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from ._numpy import function as dispatch

        return dispatch(function, args, kwargs)
