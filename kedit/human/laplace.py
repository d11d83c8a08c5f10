"""Logistic regression with crossed random intercepts, by maximum likelihood under the Laplace approximation.

The integral over the random effects is replaced by its Laplace approximation at their mode, and the whole is maximised over
fixed effects and standard deviations together, as ``glmer`` of lme4 does. The gradient is exact. Standard errors come from the
observed information, in which the standard deviations are parameters too. A random effect is its standard deviation times a
standard normal one, so that the likelihood is smooth in a standard deviation of 0, and the same for -sd as for sd.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kedit.bootstrap import Array

_NEWTON_STEPS = 100
_SMALL = 1e-16
"""Expected gain in the log density at which the mode is found; standard errors are differences of what follows from it."""
_ROUNDING = 1e-8
"""What a log density may lose to rounding."""
_FLAT = 1e-3
"""Largest slope of the log-likelihood that counts as its top."""
_START = 0.5
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Fit:
    """What maximises the likelihood: fixed effects (p,), their covariance (p, p), standard deviations (r,), and its logarithm."""

    effects: Array
    covariance: Array
    sds: Array
    log_likelihood: float
    converged: bool


@dataclass(frozen=True)
class _Mode:
    """The likeliest random effects (q,), probabilities (n,), Cholesky factor of minus the Hessian (q, q), and log density."""

    b: Array
    probability: Array
    factor: tuple[Array, bool]
    log_density: float


class Likelihood:
    """The approximate log-likelihood of outcomes ``y`` (n,), 0 or 1, given ``x`` (n, p) and the levels ``groups`` (r, n).

    A row of ``groups`` numbers the levels of one random intercept from 0, all of which occur. ``x`` must be of full rank.
    """

    def __init__(self, y: Array, x: Array, groups: NDArray[np.int64]) -> None:
        sizes = groups.max(axis=1) + 1
        self.y, self.x = y, x
        self._columns = groups + (np.cumsum(sizes) - sizes)[:, None]  # (r, n): which of the q random effects
        self._part: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)  # (q,): of which random intercept
        self._pairs = (self._columns[:, None] * len(self._part) + self._columns).ravel()  # (r * r * n,)
        self._b = np.zeros(len(self._part))

    def __call__(self, effects: Array, sds: Array) -> tuple[float, Array]:
        """The log-likelihood and its gradient (p + r,), by fixed effects and then by standard deviations."""
        from scipy import linalg

        mode = self._mode(effects, sds)
        inverse = linalg.cho_solve(mode.factor, np.eye(len(mode.b)))
        residual, weight = self.y - mode.probability, mode.probability * (1 - mode.probability)
        solved = np.tensordot(sds, inverse[self._columns], axes=1)  # (n, q)
        own = np.stack([solved[np.arange(len(self.y)), column] for column in self._columns])  # (r, n)
        bend = (sds @ own) * weight * (1 - 2 * mode.probability)  # slope of the log determinant along each linear predictor
        follow = weight * (solved @ self._back(bend, sds))  # the mode moves too
        by_effect = self.x.T @ (residual - 0.5 * (bend - follow))
        by_sd = []
        for column, own_solved in zip(self._columns, own, strict=True):
            direct = mode.b[column]
            pull = np.bincount(column, residual, len(mode.b)) - self._back(weight * direct, sds)
            by_sd.append(residual @ direct - 0.5 * bend @ (direct + solved @ pull) - weight @ own_solved)
        value = mode.log_density - float(np.log(np.diag(mode.factor[0])).sum())
        return value, np.concatenate([by_effect, by_sd])

    def _mode(self, effects: Array, sds: Array) -> _Mode:
        """Newton's method with halved steps; starts where the last one ended."""
        from scipy import linalg, special

        fixed, scale = self.x @ effects, sds[self._part]
        q = len(scale)

        def density(b: Array) -> float:
            eta = fixed + sds @ b[self._columns]
            return float(self.y @ eta - np.logaddexp(0, eta).sum() - 0.5 * b @ b)

        b, top = self._b, density(self._b)
        for _ in range(_NEWTON_STEPS):
            probability = special.expit(fixed + sds @ b[self._columns])
            weights = np.tile(probability * (1 - probability), len(sds) ** 2)
            curvature = np.eye(q) + np.bincount(self._pairs, weights, q * q).reshape(q, q) * np.outer(scale, scale)
            slope = self._back(self.y - probability, sds) - b
            factor = linalg.cho_factor(curvature)
            step = linalg.cho_solve(factor, slope)
            if slope @ step < _SMALL:
                break
            while (after := density(b + step)) < top - _ROUNDING:
                step = step / 2
            b, top = b + step, after
        self._b = b
        return _Mode(b, probability, factor, top)

    def _back(self, rows: Array, sds: Array) -> Array:
        """The sums (q,) of a value of each row (n,) over the rows of each random effect, times its standard deviation."""
        return np.bincount(self._columns.ravel(), np.outer(sds, rows).ravel(), len(self._part))


def fit(y: Array, x: Array, groups: NDArray[np.int64]) -> Fit:
    """The maximum likelihood estimate for outcomes (n,), fixed effects (n, p) and the levels (r, n) of random intercepts.

    ``converged`` is false where the slope at the end is not flat; nothing is raised.
    """
    from scipy import optimize

    likelihood = Likelihood(y, x, groups)
    p = x.shape[1]

    def loss(parameters: Array) -> tuple[float, Array]:
        value, slope = likelihood(parameters[:p], parameters[p:])
        return -value, -slope

    start = np.concatenate([np.zeros(p), np.full(len(groups), _START)])
    found = optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": _FLAT / 10})
    top = found.x
    steps = _DIFFERENCE * np.eye(len(top))
    information = np.stack([(loss(top + step)[1] - loss(top - step)[1]) / (2 * _DIFFERENCE) for step in steps])
    covariance = np.linalg.pinv((information + information.T) / 2, hermitian=True)
    flat = bool(np.abs(found.jac).max() < _FLAT)
    return Fit(top[:p], covariance[:p, :p], np.abs(top[p:]), -float(found.fun), flat)
