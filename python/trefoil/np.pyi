"""The types of NumPy's functions on secret arrays."""

from typing import Any, Sequence, overload

import numpy as _np
from numpy import (
    allclose as allclose, arange as arange, arctan2 as arctan2, around as around, array as array,
    array2string as array2string, array_equal as array_equal, asarray as asarray, ascontiguousarray as ascontiguousarray,
    bool_ as bool_, broadcast_shapes as broadcast_shapes, can_cast as can_cast, ceil as ceil,
    complex128 as complex128, complex64 as complex64, digitize as digitize, dtype as dtype, e as e, empty as empty,
    errstate as errstate, eye as eye, finfo as finfo, flatnonzero as flatnonzero, float16 as float16, float32 as float32,
    float64 as float64, floating as floating, floor as floor, fromfile as fromfile, full as full,
    genfromtxt as genfromtxt, identity as identity, iinfo as iinfo, inf as inf, int16 as int16,
    int32 as int32, int64 as int64, int8 as int8, integer as integer, interp as interp, intp as intp, isclose as isclose,
    isfinite as isfinite, isin as isin, isinf as isinf, isnan as isnan, isscalar as isscalar, ix_ as ix_,
    linspace as linspace, load as load, loadtxt as loadtxt, logspace as logspace, meshgrid as meshgrid,
    mod as mod, nan as nan, nan_to_num as nan_to_num, ndarray as ndarray, ndindex as ndindex, newaxis as newaxis,
    nonzero as nonzero, number as number, ones as ones, pi as pi, printoptions as printoptions,
    promote_types as promote_types, random as random, round as round, save as save,
    savetxt as savetxt, savez as savez, searchsorted as searchsorted, set_printoptions as set_printoptions,
    testing as testing, typing as typing, uint16 as uint16, uint32 as uint32, uint64 as uint64, uint8 as uint8,
    vectorize as vectorize, zeros as zeros,
)
from numpy.typing import ArrayLike, NDArray

from ._secret import Secret

_Public = NDArray[Any]

class _OfOne:
    @overload
    def __call__(self, x: Secret, /) -> Secret: ...
    @overload
    def __call__(self, x: complex, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: Any, **kwargs: Any) -> _Public: ...

class _OfTwo:
    def reduce(self, x: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def accumulate(self, x: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def outer(self, x: Any, y: Any, /, **kwargs: Any) -> Any: ...
    def at(self, x: Any, indices: Any, y: Any = ..., /) -> None: ...
    @overload
    def __call__(self, x: Secret, y: Secret | ArrayLike, /) -> Secret: ...
    @overload
    def __call__(self, x: ArrayLike, y: Secret, /) -> Secret: ...
    @overload
    def __call__(self, x: complex, y: complex, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __call__(self, x: ArrayLike, y: ArrayLike, /, *args: Any, **kwargs: Any) -> _Public: ...

class _First:
    """A function of an array and of public options."""

    @overload
    def __call__(self, a: Secret, /, *args: Any, **kwargs: Any) -> Secret: ...
    @overload
    def __call__(self, a: ArrayLike, /, *args: Any, **kwargs: Any) -> Any: ...

class _Both:
    """A function of two arrays and of public options."""

    @overload
    def __call__(self, a: Secret, b: Secret | ArrayLike, /, *args: Any, **kwargs: Any) -> Secret: ...
    @overload
    def __call__(self, a: ArrayLike, b: Secret, /, *args: Any, **kwargs: Any) -> Secret: ...
    @overload
    def __call__(self, a: ArrayLike, b: ArrayLike, /, *args: Any, **kwargs: Any) -> Any: ...

class _Parts:
    """A function that takes an array apart."""

    @overload
    def __call__(self, a: Secret, /, *args: Any, **kwargs: Any) -> list[Secret]: ...
    @overload
    def __call__(self, a: ArrayLike, /, *args: Any, **kwargs: Any) -> list[_Public]: ...

class _Many:
    """A function of a sequence of arrays, of which one is secret or none."""

    @overload
    def __call__(self, arrays: Sequence[Secret], /, *args: Any, **kwargs: Any) -> Secret: ...
    @overload
    def __call__(self, arrays: Sequence[ArrayLike], /, *args: Any, **kwargs: Any) -> _Public: ...
    @overload
    def __call__(self, arrays: Sequence[Any], /, *args: Any, **kwargs: Any) -> Secret: ...

class _Linalg:
    norm: _First
    def __getattr__(self, name: str) -> Any: ...

linalg: _Linalg

absolute: _OfOne
abs: _OfOne
cos: _OfOne
deg2rad: _OfOne
degrees: _OfOne
exp: _OfOne
exp2: _OfOne
expm1: _OfOne
fabs: _OfOne
invert: _OfOne
log: _OfOne
log10: _OfOne
log1p: _OfOne
log2: _OfOne
logical_not: _OfOne
negative: _OfOne
positive: _OfOne
rad2deg: _OfOne
radians: _OfOne
reciprocal: _OfOne
sign: _OfOne
sin: _OfOne
sqrt: _OfOne
square: _OfOne
tan: _OfOne
tanh: _OfOne

add: _OfTwo
bitwise_and: _OfTwo
bitwise_or: _OfTwo
bitwise_xor: _OfTwo
divide: _OfTwo
equal: _OfTwo
float_power: _OfTwo
fmax: _OfTwo
fmin: _OfTwo
greater: _OfTwo
greater_equal: _OfTwo
hypot: _OfTwo
less: _OfTwo
less_equal: _OfTwo
logical_and: _OfTwo
logical_or: _OfTwo
logical_xor: _OfTwo
matmul: _OfTwo
maximum: _OfTwo
minimum: _OfTwo
multiply: _OfTwo
not_equal: _OfTwo
power: _OfTwo
subtract: _OfTwo
true_divide: _OfTwo

all: _First
amax: _First
amin: _First
any: _First
argmax: _First
argmin: _First
argpartition: _First
argsort: _First
atleast_1d: _First
atleast_2d: _First
atleast_3d: _First
average: _First
broadcast_to: _First
clip: _First
copy: _First
corrcoef: _First
count_nonzero: _First
cov: _First
cumsum: _First
delete: _First
diag: _First
diagflat: _First
diagonal: _First
diff: _First
expand_dims: _First
flip: _First
fliplr: _First
flipud: _First
matrix_transpose: _First
max: _First
mean: _First
median: _First
min: _First
moveaxis: _First
pad: _First
partition: _First
percentile: _First
permute_dims: _First
prod: _First
ptp: _First
quantile: _First
ravel: _First
repeat: _First
reshape: _First
resize: _First
roll: _First
rollaxis: _First
rot90: _First
sort: _First
squeeze: _First
std: _First
sum: _First
swapaxes: _First
take: _First
take_along_axis: _First
tile: _First
trace: _First
transpose: _First
tril: _First
triu: _First
var: _First

append: _Both
dot: _Both
inner: _Both
outer: _Both
tensordot: _Both
vdot: _Both

array_split: _Parts
dsplit: _Parts
hsplit: _Parts
split: _Parts
vsplit: _Parts

block: _Many
column_stack: _Many
concatenate: _Many
dstack: _Many
hstack: _Many
stack: _Many
vstack: _Many

@overload
def bincount(x: Secret, /, weights: Secret | ArrayLike | None = None, minlength: int = 0) -> Secret: ...
@overload
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> _Public: ...
@overload
def where(condition: Secret, x: Secret | ArrayLike, y: Secret | ArrayLike, /) -> Secret: ...
@overload
def where(condition: ArrayLike, x: Secret, y: Secret | ArrayLike, /) -> Secret: ...
@overload
def where(condition: ArrayLike, x: ArrayLike, y: Secret, /) -> Secret: ...
@overload
def where(condition: ArrayLike, /) -> tuple[NDArray[_np.intp], ...]: ...
@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> _Public: ...
@overload
def compress(condition: ArrayLike, a: Secret, axis: int | None = None) -> Secret: ...
@overload
def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None) -> _Public: ...
@overload
def insert(arr: Secret, obj: Any, values: Secret | ArrayLike, axis: int | None = None) -> Secret: ...
@overload
def insert(arr: ArrayLike, obj: Any, values: Secret, axis: int | None = None) -> Secret: ...
@overload
def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> _Public: ...
@overload
def einsum(subscripts: str, x: Secret, /, *operands: Secret | ArrayLike) -> Secret: ...
@overload
def einsum(subscripts: str, x: ArrayLike, y: Secret, /, *operands: Secret | ArrayLike) -> Secret: ...
@overload
def einsum(subscripts: str, /, *operands: ArrayLike, **kwargs: Any) -> Any: ...
@overload
def histogram(
    a: Secret, bins: ArrayLike = 10, range: tuple[float, float] | None = None, density: bool | None = None, weights: Any = None,
) -> tuple[Secret, _Public]: ...
@overload
def histogram(
    a: ArrayLike, bins: Any = 10, range: tuple[float, float] | None = None, density: bool | None = None, weights: Any = None,
) -> tuple[_Public, _Public]: ...
def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]: ...
def shape(a: Secret | ArrayLike) -> tuple[int, ...]: ...
def ndim(a: Secret | ArrayLike) -> int: ...
def size(a: Secret | ArrayLike, axis: int | None = None) -> int: ...
def zeros_like(a: Secret | ArrayLike, dtype: Any = None) -> _Public: ...
def ones_like(a: Secret | ArrayLike, dtype: Any = None) -> _Public: ...
def full_like(a: Secret | ArrayLike, fill_value: Any, dtype: Any = None) -> _Public: ...

# NumPy's other names.
def __getattr__(name: str) -> Any: ...
