"""NumPy's own tests, with each of their calls made on secret arrays too.

    python bench/peers/numpy_tests.py [module ...]        # numpy/_core/tests/test_numeric.py is _core/test_numeric

NumPy installs its tests with itself. This program copies test modules into a folder of its own, with calls, operators
and subscripts rewritten, and runs pytest there. Each call first runs as it stands. If it takes numbers that secret
arrays hold, it is repeated in a local session: with its first array secret, and with all arrays secret. The results
must agree with NumPy's in shape, in whether they are integers, and in value, or the call must be refused: by an error of
Trefoil's, a TypeError, or the class of error that NumPy raises for the same call. The session checks ranges and domains,
so that a number outside of them is refused too.

Some differences are meant, and are not counted. NumPy's calls get the dtypes that secret arrays have, so that narrow
integers do not wrap. Numbers that differ by less than two units may be equal as secret ones. What `overwrite_input=True`
leaves in an array, and the order beside the places of a partition, are nobody's promise.

It prints, for each module, the calls on secret arrays and how many were equal, refused, outside of the range of secret
numbers, different, ended by another error, taken although NumPy refuses them, slow, or left out, as one place of a test
repeats them. Then each kind of difference follows, with examples. Whether NumPy's tests pass does not matter. It needs pytest
and hypothesis. All modules take 15 minutes on two cores. The variable CALLS_OF_A_PLACE sets how many calls of one place
are made.
"""

import ast
import collections
import fractions
import json
import math
import operator
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

#: The modules that call functions of arrays of numbers.
MODULES = [
    "_core/test_einsum", "_core/test_function_base", "_core/test_indexing", "_core/test_item_selection", "_core/test_multiarray",
    "_core/test_nep50_promotions", "_core/test_numeric", "_core/test_regression", "_core/test_scalarmath", "_core/test_shape_base",
    "_core/test_ufunc", "_core/test_umath", "linalg/test_linalg", "linalg/test_regression", "lib/test_arraypad",
    "lib/test_arraysetops", "lib/test_array_utils", "lib/test_function_base", "lib/test_histograms", "lib/test_index_tricks",
    "lib/test_nanfunctions", "lib/test_polynomial", "lib/test_regression", "lib/test_shape_base", "lib/test_stride_tricks",
    "lib/test_twodim_base", "lib/test_type_check", "lib/test_ufunclike", "fft/test_helper", "polynomial/test_polynomial",
]
#: Tests of millions of calls, of all memory, or of bounds that are finer than secret numbers.
LEFT_OUT = "not (inner_loops or round_trip or huge or large or memory or precision)"
#: Magnitudes of the operands that are tried, and the most numbers.
LARGEST, SMALLEST, MOST = 2.0**20, 2.0**-10, 2000
#: The most distinct calls from one place of a test.
CALLS_OF_A_PLACE = int(os.environ.get("CALLS_OF_A_PLACE", "6"))
CALLS_OF_A_SHAPE = max(2, CALLS_OF_A_PLACE // 8)
#: Results must agree to this, relative or absolute.
TOLERANCE = 1e-3

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.MatMult: "matmul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor", ast.LShift: "lshift", ast.RShift: "rshift",
}
_COMPARED = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
_ATTRIBUTES = {"T", "mT", "real", "imag", "shape", "ndim", "size"}
#: What depends on the frame that calls it.
_AS_THEY_ARE = {"super", "locals", "globals", "vars", "eval", "exec", "dir"}

#: Comparisons, and the unit of secret numbers.
_COMPARISONS = {f"operator.{name}" for name in _COMPARED.values()}
_COMPARISONS |= {f"np.{name}" for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")}
UNIT = 2.0**-20


# -- rewriting -------------------------------------------------------------------------------------


class _Rewrite(ast.NodeTransformer):
    """Sends calls, operators and subscripts through the functions below."""

    def __init__(self, package):
        self.package = package

    def _through(self, name, node, *arguments):
        call = ast.Call(ast.Attribute(ast.Name("_secretly", ast.Load()), name, ast.Load()), list(arguments), [])
        return ast.copy_location(call, node)

    def _decorated(self, node):
        decorators, node.decorator_list = node.decorator_list, []
        self.generic_visit(node)
        node.decorator_list = decorators
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _decorated

    def visit_ImportFrom(self, node):
        if node.level:
            parent = self.package.rsplit(".", node.level - 1)[0]
            node.module, node.level = f"{parent}.{node.module}" if node.module else parent, 0
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _AS_THEY_ARE:
            return node
        call = self._through("call", node, node.func, *node.args)
        call.keywords = node.keywords
        return call

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self._through("operate", node, ast.Constant(_BINARY[type(node.op)]), node.left, node.right)

    def visit_Compare(self, node):
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in _COMPARED:
            return node
        return self._through("operate", node, ast.Constant(_COMPARED[type(node.ops[0])]), node.left, node.comparators[0])

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        if type(node.op) not in _UNARY or isinstance(node.operand, ast.Constant):
            return node
        return self._through("operate", node, ast.Constant(_UNARY[type(node.op)]), node.operand)

    def _key(self, key):
        if isinstance(key, ast.Slice):
            parts = [part or ast.Constant(None) for part in (key.lower, key.upper, key.step)]
            return ast.Call(ast.Name("slice", ast.Load()), parts, [])
        if isinstance(key, ast.Tuple):
            return ast.Tuple([self._key(part) for part in key.elts], ast.Load())
        return key

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return self._through("item", node, node.value, self._key(node.slice))

    def visit_Assign(self, node):
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        return ast.copy_location(ast.Expr(self._through("put", node, target.value, self._key(target.slice), node.value)), node)

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if node.attr not in _ATTRIBUTES or not isinstance(node.ctx, ast.Load):
            return node
        return self._through("attribute", node, node.value, ast.Constant(node.attr))


def rewritten(name):
    """The text of a module of NumPy's tests, rewritten."""
    folder, module = name.split("/")
    path = pathlib.Path(np.__file__).parent / folder / "tests" / f"{module}.py"
    tree = _Rewrite(f"numpy.{folder}.tests").visit(ast.parse(path.read_text()))
    ast.fix_missing_locations(tree)
    return "import numpy_tests as _secretly\n" + ast.unparse(tree)


# -- repeating calls -------------------------------------------------------------------------------

_FUNCTIONS = {}
for _module in (np, np.linalg, np.fft, np.lib.stride_tricks):
    for _name in dir(_module):
        _value = getattr(_module, _name)
        if callable(_value) and not isinstance(_value, type) and not _name.startswith("_"):
            try:
                _FUNCTIONS[_value] = f"{_module.__name__}.{_name}".replace("numpy", "np", 1)
            except TypeError:
                pass
for _unwanted in ("save", "savez", "savez_compressed", "savetxt", "asarray", "array", "asanyarray", "ascontiguousarray", "asfortranarray",
                  "shares_memory", "may_share_memory", "array_repr", "array_str", "array2string", "set_printoptions", "from_dlpack", "require"):
    _FUNCTIONS.pop(getattr(np, _unwanted), None)

_counts = collections.Counter()
_findings = {}
_seen = collections.Counter()
#: Places of tests that have made enough calls.
_full = set()
_busy = False
_state = {}


def _session():
    import trefoil

    if _state.get("mpc") is None or _state["mpc"]._session.closed:
        _state["mpc"] = trefoil.local(threads=1, check=False)
        _state["mpc"]._session.set_check(True)
    return _state["mpc"]


def _is_array(x):
    """True for an array, or a number of NumPy's, that a secret array can hold."""
    if type(x) is not np.ndarray and not isinstance(x, (np.bool_, np.integer, np.floating)):
        return False
    if x.dtype.kind not in "biuf" or x.size > MOST:
        return False
    if x.dtype.kind == "b":
        return True
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        return False
    size = np.abs(x.astype(float))
    return bool(((size < LARGEST) & ((size == 0) | (size > SMALLEST))).all())


def _wide(x):
    """The same numbers in a dtype of secret arrays."""
    x = np.asarray(x)
    kind = bool if x.dtype.kind == "b" else np.int64 if x.dtype.kind in "iu" else np.float32 if x.dtype.itemsize <= 4 else np.float64
    return np.array(x, dtype=kind, order="C")


def _wide_dtype(x):
    """The dtype of secret arrays for a narrower one that is asked for: their integers do not wrap."""
    if isinstance(x, (type, np.dtype)) or isinstance(x, str) and len(x) <= 2:
        try:
            kind = np.dtype(x).kind
        except TypeError:
            return x
        return np.dtype(np.int64) if kind in "iu" else x
    return x


def _numbers(x):
    """True for a list of numbers, or of such lists, that stands for an array."""
    if not isinstance(x, (list, tuple)) or not x:
        return False
    try:
        array = np.asarray(x)
    except Exception:
        return False
    plain = lambda part: all(map(plain, part)) if isinstance(part, (list, tuple)) else isinstance(part, (bool, int, float))
    return plain(x) and _is_array(array)


def _arrays(arguments, listed):
    """The places of the arrays among a call's arguments: (argument, place in its list or None)."""
    places = []
    for key, x in arguments.items():
        if key == "out" or key == "where":
            continue
        if _is_array(x) or listed and key == 0 and _numbers(x):
            places.append((key, None))
        elif isinstance(x, (list, tuple)):
            places += [(key, i) for i, part in enumerate(x) if type(part) is np.ndarray and _is_array(part)]
    return places


def _replaced(arguments, places, made):
    arguments = dict(arguments)
    for key, i in places:
        if i is None:
            arguments[key] = made(arguments[key])
        else:
            parts = list(arguments[key])
            parts[i] = made(parts[i])
            arguments[key] = type(arguments[key])(parts) if type(arguments[key]) in (list, tuple) else parts
    return arguments


def _copied(arguments):
    """Arguments whose arrays no call shares with another."""
    copy = lambda x: x.copy() if type(x) is np.ndarray else x
    return {
        key: type(x)(map(copy, x)) if type(x) in (list, tuple) else copy(x) for key, x in arguments.items()
    }


def _invoke(function, arguments):
    positional = [arguments[key] for key in sorted(k for k in arguments if isinstance(k, int))]
    named = {key: x for key, x in arguments.items() if isinstance(key, str)}
    return function(*positional, **named)


def _flat(x):
    """Results as a list of arrays and other values."""
    if isinstance(x, (list, tuple)):
        return [part for y in x for part in _flat(y)]
    return [x]


def _differ(want, got, name=None, operands=()):
    """How a result on secret arrays differs from NumPy's, or None; "range" where secret arrays cannot hold NumPy's."""
    import trefoil

    want = [float(w) if isinstance(w, fractions.Fraction) else w for w in _flat(want)]
    got = _flat(got)
    if len(want) != len(got):
        return f"{len(got)} results, not {len(want)}"
    for w, g in zip(want, got):
        secret = isinstance(g, trefoil.Secret)
        if not isinstance(w, (np.ndarray, np.generic, bool, int, float)) or type(w) is not np.ndarray and isinstance(w, np.ndarray):
            if secret or type(w) is not type(g):
                return f"a {type(g).__name__}, not a {type(w).__name__}"
            continue
        if not secret and not isinstance(g, (np.ndarray, np.generic, bool, int, float)):
            return f"a {type(g).__name__}, not an array"
        promised, g = (g.dtype, g.reveal()) if secret else (None, np.asarray(g))
        w = np.asarray(w)
        if not secret and w.dtype == g.dtype and w.tobytes() == g.tobytes():
            continue
        if w.shape != g.shape:
            return f"shape {g.shape}, not {w.shape}"
        if promised is not None and promised != g.dtype:
            return f"revealed as {g.dtype}, promised as {promised}"
        if w.dtype.kind not in "biuf":
            return f"numbers of {g.dtype}, not {w.dtype}"
        if w.dtype.kind.replace("u", "i") != g.dtype.kind.replace("u", "i"):
            return f"dtype {g.dtype}, not {w.dtype}"
        if "partition" in (name or ""):
            # The order before and behind the places that are asked for is nobody's promise.
            g, w = np.sort(g, None), np.sort(w, None)
        if w.dtype.kind == "f":
            near = np.abs(g - w) <= TOLERANCE * (1 + np.abs(w))
            if np.abs(w[np.isfinite(w)]).max(initial=0) >= 2.0**42:
                return "range"
        else:
            near = g == w
            if name in _COMPARISONS and not near.all():
                # Numbers that differ by less than two units are equal as secret ones, or are not.
                near |= np.abs(np.subtract(*(np.asarray(x, float) for x in operands))) < 2 * UNIT
        if not near.all():
            place = np.flatnonzero(~near.reshape(-1))[0]
            return f"{g.reshape(-1)[place]!s}, not {w.reshape(-1)[place]!s}, at {place} of {w.shape}"
    return None


def _written(before, after):
    """True if a call has written into an argument."""
    for key, x in before.items():
        for a, b in zip(_flat(x), _flat(after[key])):
            if type(a) is np.ndarray and (a.shape != b.shape or a.dtype != object and a.tobytes() != b.tobytes()):
                return key
    return None


def _place():
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__ or frame.f_globals.get("__name__") == "numpy_tests":
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}:{frame.f_lineno}"


def _short(arguments):
    return ", ".join((f"{k}=" if isinstance(k, str) else "") + " ".join(repr(x).split())[:300] for k, x in arguments.items())


def _find(kind, name, mode, where, arguments, what):
    _counts[kind] += 1
    _findings.setdefault((kind, name, what if kind == "error" else ""), []).append(
        f"{name}({_short(arguments)}) with {mode} secret at {where}: {what}")


def _wanted(name):
    """True unless this place has made enough calls of the name."""
    if _busy:
        return False
    frame = sys._getframe(2)
    key = frame.f_code, frame.f_lineno, name
    if key in _full:
        _counts["left out"] += 1
        return False
    if _seen[_place(), name] >= CALLS_OF_A_PLACE:
        _full.add(key)
    return True


def _fine(arguments):
    """True for arguments that are finer than secret arrays, or of classes of their own: they are not tried."""
    for x in arguments.values():
        for part in x if isinstance(x, (list, tuple)) and len(x) < 9 else [x]:
            if hasattr(part, "__array_wrap__") and type(part) is not np.ndarray and not isinstance(part, np.generic):
                return True
            if type(part) is float and math.isfinite(part) and part and not SMALLEST < abs(part) < LARGEST:
                return True
    return False


def _repeat(name, function, arguments, listed=True):
    """Makes a call on secret arrays, and compares."""
    global _busy
    if _busy or _fine(arguments) or not (places := _arrays(arguments, listed)):
        return
    where = _place()
    shapes = str([(key, i, np.shape(x if i is None else x[i])) for key, i in places for x in [arguments[key]]])
    if _seen[where, name, shapes] >= CALLS_OF_A_SHAPE:
        _counts["left out"] += 1
        return
    _seen[where, name] += 1
    _seen[where, name, shapes] += 1
    _busy = True
    try:
        import warnings

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _repeated(name, function, arguments, places, where)
    except RecursionError:
        pass
    finally:
        _busy = False


def _repeated(name, function, arguments, places, where):
    import trefoil

    for mode, chosen in (("the first", places[:1]), ("all", places)):
        if mode == "all" and len(places) == 1:
            continue
        plain = {key: _wide_dtype(x) for key, x in _replaced(_copied(arguments), chosen, _wide).items()}
        before = _copied(plain)
        try:
            want, refused = _invoke(function, plain), None
        except Exception as error:
            want, refused = None, error
        if isinstance(want, np.ndarray):
            want = want.copy()
        changes = _written(before, plain)
        mpc = _session()
        given = _replaced(_copied(before), chosen, lambda x: mpc.secret(_wide(x)))
        public = {key: x for key, x in given.items() if not isinstance(x, trefoil.Secret)}
        kept = _copied(public)
        _counts["calls"] += 1
        started = time.time()
        if "NUMPY_TESTS_LAST" in os.environ:
            pathlib.Path(os.environ["NUMPY_TESTS_LAST"]).write_text(f"{name}({_short(before)}) at {where}")
        try:
            got, error = _invoke(function, given), None
            found = None if refused is not None else _differ(want, got, name, [before[0], before.get(1)])
        except (trefoil.Error, TypeError) as raised:
            error = raised
        except Exception as raised:
            error = raised
            own = isinstance(refused, type(raised)) if refused is not None else False
            if not own and not isinstance(raised, np.exceptions.AxisError):
                _find("error", name, mode, where, before, f"{type(raised).__name__}: {raised}")
        if time.time() - started > 10:
            _find("slow", name, mode, where, before, f"{time.time() - started:.0f} s")
        wrote = _written(kept, {key: given[key] for key in kept})
        if wrote is not None and (error is not None or changes != wrote):
            _find("different", name, mode, where, before, f"wrote into argument {wrote}")
        if error is not None:
            _counts["refused"] += 1
        elif refused is not None:
            _find("taken", name, mode, where, before, f"NumPy raises {type(refused).__name__}: {str(refused)[:100]}")
        elif found == "range":
            _counts["out of range"] += 1
        elif found is not None:
            _find("different", name, mode, where, before, found)
        elif changes is not None and wrote != changes and "overwrite_input" not in arguments and not (
            isinstance(given.get(changes), trefoil.Secret) and _differ(plain[changes], given[changes]) is None
        ):
            _find("different", name, mode, where, before, f"argument {changes} is not changed as NumPy's")
        else:
            _counts["equal"] += 1


def _saved(arguments):
    """Arguments as they are before the call, where they are small."""
    big = any(x.size > MOST if type(x) is np.ndarray else isinstance(x, (list, tuple)) and len(x) > MOST for x in arguments.values())
    return None if big or _busy else _copied(arguments)


def call(function, *args, **kwargs):
    name = method = None
    try:
        name = _FUNCTIONS.get(function)
    except TypeError:
        pass
    owner = getattr(function, "__self__", None)
    if name is None and isinstance(owner, np.ufunc):
        name, repeat = f"np.{owner.__name__}.{function.__name__}", function
    elif name is None and _is_own(owner) and hasattr(function, "__name__") and not function.__name__.startswith("__"):
        method = function.__name__
        name, repeat = f"ndarray.{method}", lambda x, *a, **k: getattr(x, method)(*a, **k)
        args = (owner, *args)
    elif name is not None:
        repeat = function
    if name is None:
        return function(*args, **kwargs)
    saved = _saved({**dict(enumerate(args)), **kwargs}) if _wanted(name) else None
    result = error = None
    try:
        result = function(*args[1:], **kwargs) if method else function(*args, **kwargs)
    except BaseException as raised:
        error = raised
    if saved is not None:
        _repeat(name, repeat, saved, listed=method is None)
    if error is not None:
        raise error
    return result


def _is_own(x):
    return type(x) is np.ndarray or isinstance(x, (np.bool_, np.integer, np.floating))


def operate(name, *operands):
    function = getattr(operator, name)
    if any(map(_is_own, operands)):
        saved = _saved(dict(enumerate(operands))) if _wanted(f"operator.{name}") else None
        if saved is not None:
            _repeat(f"operator.{name}", function, saved, listed=False)
    return function(*operands)


def item(x, key):
    if type(x) is np.ndarray and x.size <= MOST and _wanted("x[key]"):
        _repeat("x[key]", lambda x, key: x[key[0]], {0: x, 1: _Key(key)}, listed=False)
    return x[key]


class _Key:
    """A key, which is no argument that becomes secret."""

    def __init__(self, key):
        self.key = key

    def __getitem__(self, _):
        return self.key

    def __repr__(self):
        return repr(self.key)


def put(x, key, value):
    if type(x) is np.ndarray and x.size <= MOST and _wanted("x[key] = y"):
        _repeat("x[key] = y", lambda x, value, key: operator.setitem(x, key[0], value), {0: x, 1: value, 2: _Key(key)}, listed=False)
    x[key] = value


def attribute(x, name):
    if type(x) is np.ndarray and _wanted(f"ndarray.{name}"):
        _repeat(f"ndarray.{name}", lambda x: getattr(x, name), {0: x}, listed=False)
    return getattr(x, name)


# -- running ---------------------------------------------------------------------------------------


KINDS = ("calls", "equal", "refused", "out of range", "different", "error", "taken", "slow", "left out")


def pytest_sessionfinish():
    """Tells the process that started this one what it has counted."""
    path = os.environ.get("NUMPY_TESTS_REPORT")
    if path:
        counts = {kind: _counts[kind] for kind in KINDS}
        pathlib.Path(path).write_text(json.dumps([counts, [[list(key), texts] for key, texts in _findings.items()]]))


def _listed(counts):
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)


def main(names):
    counts, findings = collections.Counter(), collections.defaultdict(list)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="numpy-tests-"))
    told, last = folder / "report.json", folder / "last.txt"
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"NUMPY_TESTS_REPORT": str(told), "NUMPY_TESTS_LAST": str(last), "PYTHONPATH": path}
    for name in names:
        file = folder / f"{name.replace('/', '_').replace('test_', '')}_test.py"
        file.write_text(rewritten(name))
        told.unlink(missing_ok=True)
        options = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "numpy_tests", "-k", LEFT_OUT]
        try:
            subprocess.run([sys.executable, "-m", "pytest", *options, str(file)], env=environment, cwd=folder, capture_output=True, timeout=1200)
        except subprocess.TimeoutExpired:
            pass
        if not told.exists():
            findings["error", name].append(f"{name} did not end; the last call is {last.read_text() if last.exists() else 'none'}")
            counts["error"] += 1
            continue
        own, found = json.loads(told.read_text())
        counts.update(own)
        for (kind, call, _), texts in found:
            findings[kind, call].extend(texts)
        print(f"{name}: {_listed(own)}", flush=True)
    for (kind, call), texts in sorted(findings.items()):
        print(f"\n{kind}: {call}, {len(texts)} times")
        for text in texts[:10]:
            print("   ", text[:600])
    print(f"\nin all: {_listed(counts)}")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or MODULES))
