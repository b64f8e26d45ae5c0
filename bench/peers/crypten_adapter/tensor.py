"""Secret arrays of Trefoil as the tensors of CrypTen."""

import abc
import contextlib
import enum

import numpy as np
import torch

import trefoil
from trefoil import functions

_mpc = None
#: Whether calls are recorded for gradients.
STATE = {"tracking": True}
WORD = 1 << 20


def session():
    global _mpc
    _mpc = _mpc or trefoil.local()
    return _mpc


@contextlib.contextmanager
def tracking(on):
    before, STATE["tracking"] = STATE["tracking"], on
    try:
        yield
    finally:
        STATE["tracking"] = before


def plain(x):
    """An operand of ours: a secret array, or a public one of NumPy's."""
    if isinstance(x, CrypTensor):
        return x._tensor.secret
    if isinstance(x, torch.Tensor):
        return x.detach().numpy()
    return x


def as_torch(x):
    return torch.from_numpy(np.array(x))


class Box:
    """The place of a tensor's numbers: in-place calls put others there."""

    def __init__(self, secret):
        self.secret, self._share = secret, None

    def get_plain_text(self, dst=None):
        return as_torch(self.secret.reveal()).float()

    @property
    def share(self):
        words = self.words_of(self.get_plain_text())
        if self._share is None or self._share.shape != words.shape:
            self._share = words
        return self._share.copy_(words)

    @share.setter
    def share(self, words):
        self._share = words.clone()
        self.secret = self.secret_of(words)

    @staticmethod
    def words_of(numbers):
        return torch.round(numbers.double() * WORD).long()

    @staticmethod
    def secret_of(words):
        return session().secret(words.numpy() / WORD, dtype=np.float32)


class Binary(Box):
    """The bits of words, as secret truth values on a last axis, the sign first."""

    BITS = 40

    def __init__(self, words):
        negative = words < 0
        left, bits = words + negative * (1 << self.BITS), [negative]
        for place in reversed(range(self.BITS)):
            bits.append(left >= 1 << place)
            left = left - bits[-1] * (1 << place)
        super().__init__(np.stack(bits, -1))

    def words(self):
        places = np.array([-(1 << self.BITS)] + [1 << place for place in reversed(range(self.BITS))])
        return (self.secret * places).sum(-1)

    def get_plain_text(self, dst=None):
        return as_torch(self.words().reveal() / WORD).float()


class Integers(Box):
    """The place of a tensor's integers."""

    def get_plain_text(self, dst=None):
        return as_torch(self.secret.reveal()).long()

    words_of = staticmethod(lambda numbers: numbers)
    secret_of = staticmethod(lambda words: session().secret(words.numpy()))


class Sharing(enum.Enum):
    """CrypTen's kinds of shares."""

    arithmetic = 0
    binary = 1

    def to_tensor(self):
        return Binary if self is Sharing.binary else ArithmeticSharedTensor


class CrypTensor(metaclass=abc.ABCMeta):
    """A tensor of CrypTen's, whose numbers are a secret array of ours."""

    def __init__(self, tensor=None, ptype=Sharing.arithmetic, src=0, broadcast_size=False, requires_grad=False, device=None):
        if tensor is None:
            raise ValueError("a tensor is needed")
        assert src == 0, "src is no rank"
        assert getattr(tensor, "src", src) == src, "src is another tensor's"
        x = tensor._tensor.secret if isinstance(tensor, CrypTensor) else None
        x = session().secret(np.asarray(plain(tensor), np.float32)) if x is None else x
        self._tensor, self._base = Box(x), None
        if ptype is Sharing.binary:
            self._tensor = self.to(ptype)._tensor
        if requires_grad:
            self.requires_grad = True

    @classmethod
    def _of(cls, secret, base=None):
        tensor = cls.__new__(cls)
        if secret.dtype.kind != "f":
            secret = secret.astype(np.float32)
        tensor._tensor, tensor._base = Box(secret), base
        return tensor

    @classmethod
    def from_shares(cls, share, ptype=Sharing.arithmetic):
        tensor = cls._of(session().secret(share.numpy() / WORD, dtype=np.float32))
        if ptype is Sharing.binary:
            tensor._tensor = Binary(session().secret(share.numpy()))
        return tensor

    set_grad_enabled = staticmethod(lambda on: STATE.update(tracking=on))

    # -- what a tensor is --------------------------------------------------------------------------

    ptype = property(lambda self: Sharing.binary if isinstance(self._tensor, Binary) else Sharing.arithmetic)
    device = property(lambda self: torch.device("cpu"))
    shape = property(lambda self: torch.Size(self._tensor.secret.shape))
    share = property(lambda self: self._tensor.share, lambda self, words: setattr(self._tensor, "share", words))
    requires_grad = property(
        lambda self: self._tensor.secret.requires_grad, lambda self, on: setattr(self._tensor.secret, "requires_grad", on)
    )

    @property
    def grad(self):
        grad = self._tensor.secret.grad
        return None if grad is None else type(self)._of(grad)

    @grad.setter
    def grad(self, value):
        self._tensor.secret.grad = value

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    dim = lambda self: len(self.shape)
    numel = nelement = lambda self: self.shape.numel()
    new = lambda self, x, **_: type(self)(x)
    shallow_copy = lambda self: self._view(self._tensor)
    __len__ = lambda self: self.shape[0]
    __repr__ = lambda self: f"CrypTensor({self._tensor.secret!r}, {self.ptype.name})"
    __hash__ = object.__hash__

    def _view(self, box):
        tensor = type(self).__new__(type(self))
        tensor._tensor, tensor._base = box, None
        return tensor

    def __bool__(self):
        raise RuntimeError("a secret tensor is no condition")

    def get_plain_text(self, dst=None):
        return self._tensor.get_plain_text(dst)

    def reveal(self, dst=None):
        return torch.round(self.get_plain_text() * WORD).long()

    def to(self, *args, **kwargs):
        wanted = next((x for x in (*args, *kwargs.values()) if isinstance(x, Sharing)), self.ptype)
        if wanted is self.ptype:
            return self
        if wanted is Sharing.binary:
            words = functions.rescale(self._tensor.secret * WORD, 0)
            return self._view(Binary(words))
        return type(self)._of((self._tensor.words().astype(np.float64) / WORD).astype(np.float32))

    def set(self, other):
        self._put(plain(other if isinstance(other, CrypTensor) else type(self)(other)))
        return self

    copy_ = set

    def _put(self, secret):
        """Other numbers in the same place, and in that of the tensor of which this is a view."""
        self._tensor.secret = secret
        if self._base is not None:
            self._base._put(secret.reshape(self._base.shape))

    def __setitem__(self, key, value):
        x = self._tensor.secret.copy()
        x[public_key(key)] = plain(value)
        self._put(x)

    def backward(self, grad=None):
        self._tensor.secret.backward(None if grad is None else plain(grad))

    def detach_(self):
        self._put(self._tensor.secret.detach())
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return JOINED[function.__name__](*args, **(kwargs or {}))


def public_key(key):
    return tuple(map(public_key, key)) if isinstance(key, tuple) else key.numpy() if isinstance(key, torch.Tensor) else key


def cat(tensors, dim=0):
    return type(tensors[0])._of(np.concatenate([plain(x) for x in tensors], dim))


def stack(tensors, dim=0):
    return type(tensors[0])._of(np.stack([plain(x) for x in tensors], dim))


JOINED = {"cat": cat, "stack": stack}


class MPCTensor(CrypTensor):
    """CrypTen's tensor of a protocol."""


class ArithmeticSharedTensor(CrypTensor):
    """CrypTen's tensor of shares that add up: here another name, and that of the place of numbers."""


ArithmeticSharedTensor.register(Box)


class BinarySharedTensor(CrypTensor):
    """CrypTen's tensor of shares of bits: secret integers, of which ours shares bits where it needs them."""

    def __init__(self, tensor, src=0, broadcast_size=False, device=None):
        assert src == 0 and getattr(tensor, "src", src) == src, "src is no rank, or another tensor's"
        words = torch.round(tensor.double() * 65536).long() if tensor.is_floating_point() else tensor
        self._tensor, self._base = Integers(session().secret(words.numpy())), None

    @classmethod
    def _of(cls, secret, base=None):
        tensor = cls.__new__(cls)
        tensor._tensor, tensor._base = Integers(secret if secret.dtype.kind == "i" else secret.astype(np.int64)), base
        return tensor


BinarySharedTensor.register(Binary)
