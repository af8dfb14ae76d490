"""How long a job runs in all, given that it still runs: a log-normal run time that is known to be longer than so far.

Run times are in units of their forecast. ``ln L`` is normal around 0 with a spread (standard deviation) sigma, so that
``P(L > x) = Q(ln x / sigma)``, Q the upper tail of the normal distribution. Of a job that has run for x and not ended,
``P(L > t | L > x) = Q(ln t / sigma) / Q(ln x / sigma)`` (left truncation: N. L. Johnson, S. Kotz, N. Balakrishnan,
"Continuous Univariate Distributions", volume 1, 2nd edition, 1994, chapters 13 and 14), and its median is where
``Q(ln t / sigma) = Q(ln x / sigma) / 2``: the forecast for a job that has just begun, and for sigma = 0 up to its end.
The mean, ``exp(sigma^2 / 2) Q(z - sigma) / Q(z)`` with ``z = ln x / sigma``, is longer than the forecast from the start on.

sigma is that of the profile's stated error e, corrected by the n completions so far, which ran for r times their forecast:
``sigma^2 = (n0 e^2 + sum ln(r)^2) / (n0 + n)``, the posterior of a normal variance of known mean under a scaled inverse
chi-squared prior of n0 degrees of freedom (A. Gelman et al., "Bayesian Data Analysis", 3rd edition, 2013, section 2.6). A
job that is itself further beyond its forecast than that counts as one more completion: with no spread it could not be there.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

from flowsched_models.cell import Floats
from flowsched_models.compiled import compiler

compiled = compiler([Path(__file__)])

PRIOR_ENDS = 4.0
"""Completions that the error which a profile states counts for, n0."""
_FAR = 5.0
"""From here on the tail is a continued fraction: erfc would lose it at 38."""
_FRACTIONS = 60
_SURE = -9.0
"""A job that is so many sigmas before its forecast tells nothing by still running."""
_STEPS = 20
"""Of Newton's method at most; it takes three to six."""
_TINY = 1e-12


@compiled
def spread_of(done: float, error: float, ends: float, log_squares: float) -> float:
    """Sigma of a job that has run for ``done`` times its forecast; see above."""
    squares, count = PRIOR_ENDS * error * error + log_squares, PRIOR_ENDS + ends
    own = math.log(max(done, 1.0))
    return math.sqrt(max(squares / count, (squares + own * own) / (count + 1.0)))


@compiled
def mills_ratio(z: float) -> float:
    """``Q(z)`` over the density at z, for z >= 0 (Laplace's continued fraction far out)."""
    if z < _FAR:
        return math.sqrt(0.5 * math.pi) * math.exp(0.5 * z * z) * math.erfc(z / math.sqrt(2.0))
    below = z
    for k in range(_FRACTIONS, 0, -1):
        below = z + k / below
    return 1.0 / below


@compiled
def median_length(done: float, sigma: float) -> float:
    """The median of L given that L > ``done``; the forecast, 1, for a job that has not begun."""
    if done <= 0.0:
        return 1.0
    over = math.log(done)
    if sigma <= _TINY * abs(over):
        return max(1.0, done)
    z = over / sigma
    if z < _SURE:
        return 1.0
    # ln Q(m) = ln Q(z) - ln 2, both without the density's constant factor.
    if z < 0.0:
        wanted = math.log(0.25 * math.erfc(z / math.sqrt(2.0)) * math.sqrt(2.0 * math.pi))
    else:
        wanted = math.log(0.5 * mills_ratio(z)) - 0.5 * z * z
    # ln Q is concave: from the second step on, Newton's method comes down to the root from above.
    m = max(z, 0.0)
    for _ in range(_STEPS):
        ratio = mills_ratio(m)
        step = (math.log(ratio) - 0.5 * m * m - wanted) * ratio
        m += step
        if abs(step) < _TINY:
            break
    return max(done, math.exp(sigma * m))


def late_length(done: float, sigma: float, share: float) -> float:
    """The quantile of L given that L > ``done``."""
    if sigma <= _TINY:
        return max(1.0, done)
    z = math.log(done) / sigma if done > 0.0 else -math.inf
    tail = (1.0 - share) * 0.5 * math.erfc(z / math.sqrt(2.0))
    # Far out, where the tail is 0 as a number, it falls as exp(-z m).
    m = z - math.log(1.0 - share) / z if tail == 0.0 else -NormalDist().inv_cdf(tail)
    return max(done, math.exp(sigma * m))


@compiled
def run_length(done: float, error: float, ends: float, log_squares: float) -> float:
    """How many times its forecast a job runs in all, by the median, that has run for ``done`` times it.

    ``error`` is stated by its profile, ``log_squares`` the sum over the completions so far, ``ends``.
    """
    return median_length(done, spread_of(done, error, ends, log_squares))


@compiled
def class_run_lengths(done: Floats, spreads: Floats, ends: Floats, squares: Floats, lengths: Floats) -> None:
    """Into ``lengths`` [jobs] the same of jobs whose classes have a spread of their own, learnt from so many completions
    with this sum of squared logarithms.
    """
    for i in range(len(done)):
        lengths[i] = run_length(done[i], spreads[i], ends[i], squares[i])


@compiled
def run_lengths(done: Floats, errors: Floats, ends: float, log_squares: float, lengths: Floats) -> None:
    """Into ``lengths`` [jobs] the same of each."""
    for i in range(len(done)):
        lengths[i] = run_length(done[i], errors[i], ends, log_squares)
