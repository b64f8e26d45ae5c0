"""Tails of distributions, in the clear: p-values of revealed statistics."""

import math


def normal_tail(z: float) -> float:
    """``P(Z > z)`` of a standard normal number."""
    return math.erfc(z / math.sqrt(2)) / 2


def student_tail(t: float, df: float) -> float:
    """``P(T > t)`` of Student's distribution, for ``t`` from 0 on: half of a regularised incomplete beta function."""
    if not df > 0:
        return math.nan
    return _beta_share(df / 2, 0.5, df / (df + t * t)) / 2


def chi_square_tail(x: float, df: float) -> float:
    """``P(X > x)`` of a chi-square number: the upper regularised incomplete gamma function."""
    if x <= 0:
        return 1.0
    return _gamma_tail(df / 2, x / 2)


def _fraction(term):
    """A continued fraction ``1 / (b0 + a1 / (b1 + ..))`` of pairs ``(a, b)``, by Lentz's method."""
    tiny = 1e-300
    value, up, down = tiny, tiny, 0.0
    for i in range(10_000):
        a, b = term(i)
        down = 1 / (b + a * down or tiny)
        up = b + a / up or tiny
        value *= up * down
        if abs(up * down - 1) < 1e-15:
            break
    return value


def _gamma_tail(a, x):
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-17:
            n += 1
            term *= x / n
            total += term
        return 1 - front * total
    # Abramowitz and Stegun 6.5.31, in the form with even terms.
    return front * _fraction(lambda i: (1.0, x + 1 - a) if i == 0 else (-i * (i - a), x + 2 * i + 1 - a))


def _beta_share(a, b, x):
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, 1 - x)
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def term(i):
        # Abramowitz and Stegun 26.5.8.
        m = i // 2
        if i == 0:
            return 1.0, 1.0
        if i % 2:
            return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), 1.0
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), 1.0

    return math.exp(log_front) / a * _fraction(term)
