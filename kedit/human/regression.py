"""The mixed-effects logistic model of a study with people, and its contrasts.

statsmodels has two fits of such a model (``BinomialBayesMixedGLM``), and neither holds its error rate where every participant
sees one condition: the variational one takes conditions and participants for independent and gives too small standard errors,
the other one's joint mode has no spread among participants. So the fit is the one of ``laplace``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kedit.bootstrap import Array
from kedit.errors import DataError, unknown_name
from kedit.human.laplace import fit
from kedit.human.table import ANSWER, CONDITION, ITEM, PARTICIPANT, RESPONSE, checked, library
from kedit.scoring.verdict import YES

_INTERCEPT = "intercept"
_Z95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class MixedEffects:
    """A fitted model.

    ``contrasts`` is a table by term, in log odds: ``estimate``, ``se``, ``low`` and ``high`` (95 %), ``z``, ``p`` (two-sided
    Wald test) and ``p_adjusted``. Only differences between conditions are contrasts; for the intercept and covariates it is
    NaN. ``sds`` are standard deviations of the random intercepts, ``levels`` says how many of each there were.
    """

    contrasts: Any
    baseline: str
    outcome: str
    sds: Mapping[str, float]
    levels: Mapping[str, int]
    responses: int
    log_likelihood: float
    converged: bool


def mixed_effects(
    table: Any,
    *,
    baseline: Any,
    outcome: Literal["right", "yes"] = "right",
    random: Sequence[str] = (PARTICIPANT, ITEM),
    covariates: Sequence[str] = (),
    pairwise: bool = False,
    drop_not_sure: bool = False,
) -> MixedEffects:
    """Log odds of a right answer (or of yes) by condition, with random intercepts (CROPE, section 6 and Table 2).

    ``table`` has ``participant``, ``item``, ``condition``, ``response`` and ``answer``, and the columns of ``random`` and
    ``covariates``. Contrasts are the differences of conditions from ``baseline``, and with ``pairwise`` of the others from
    one another. The paper's baseline is the multimodal condition, its ``random`` is ("participant",). Not sure is not right
    and not yes, unless ``drop_not_sure``. Numeric covariates are taken from their mean, others from their first value in
    order. Raises DataError, UnknownNameError for a baseline that is not there; warns where the fit has not converged.
    """
    if outcome not in ("right", "yes"):
        raise ValueError(f"outcome={outcome!r}, expected 'right' or 'yes'")
    if isinstance(random, str) or not random:
        raise ValueError(f"random={random!r}, expected one column or more, such as ('participant', 'item')")
    columns = dict.fromkeys([PARTICIPANT, ITEM, CONDITION, RESPONSE, ANSWER, *random, *covariates])
    given = checked(table, list(columns), (PARTICIPANT, ITEM, CONDITION), drop_not_sure=drop_not_sure)
    y = (given[RESPONSE] == (given[ANSWER] if outcome == "right" else YES)).to_numpy(dtype=np.float64)
    conditions = _conditions(given, baseline)
    terms, x = _design(given, conditions, covariates, y)
    groups = np.stack([_levels(given, name) for name in random])
    found = fit(y, x, groups)
    if not found.converged:
        warnings.warn(
            "the mixed model has not converged; look for a condition or covariate that decides the answer", stacklevel=2
        )
    names, weights = _reported(terms, len(conditions), pairwise)
    variances = np.einsum("kp,pq,kq->k", weights, found.covariance, weights)
    is_contrast = [0 < k < len(conditions) or k >= len(terms) for k in range(len(names))]
    return MixedEffects(
        contrasts=tested(names, weights @ found.effects, np.sqrt(variances), is_contrast),
        baseline=str(baseline),
        outcome=outcome,
        sds=dict(zip(random, map(float, found.sds), strict=True)),
        levels={name: int(numbers.max()) + 1 for name, numbers in zip(random, groups, strict=True)},
        responses=len(y),
        log_likelihood=found.log_likelihood,
        converged=found.converged,
    )


def tested(
    names: Sequence[str], estimates: Sequence[float] | Array, ses: Sequence[float] | Array, is_contrast: Sequence[bool]
) -> Any:
    """A table by term of estimates (k,) with standard errors (k,): Wald tests, and p adjusted over those that are contrasts.

    Adjusted after Benjamini and Hochberg (1995), which bounds the expected share of false ones among those called significant.
    """
    stats, multitest = library("scipy.stats"), library("statsmodels.stats.multitest")
    estimate, se, chosen = np.asarray(estimates, float), np.asarray(ses, float), np.asarray(is_contrast, bool)
    z = estimate / se
    p = 2 * stats.norm.sf(np.abs(z))
    adjusted = np.full_like(p, np.nan)
    if chosen.any():
        adjusted[chosen] = multitest.multipletests(p[chosen], method="fdr_bh")[1]
    columns = {"estimate": estimate, "se": se, "low": estimate - _Z95 * se, "high": estimate + _Z95 * se, "z": z, "p": p}
    pandas = library("pandas")
    return pandas.DataFrame({**columns, "p_adjusted": adjusted}, index=pandas.Index(names, name="term", dtype=object))


def _conditions(given: Any, baseline: Any) -> list[Any]:
    """The baseline, then the others in the order of their first rows."""
    found = list(dict.fromkeys(given[CONDITION]))
    if baseline not in found:
        raise unknown_name("condition", str(baseline), map(str, found), "Choose the baseline among them.")
    if len(found) < 2:
        raise DataError(f"column {CONDITION!r} holds only {baseline!r}, expected two conditions or more to compare")
    return [baseline, *(condition for condition in found if condition != baseline)]


def _design(given: Any, conditions: Sequence[Any], covariates: Sequence[str], y: Array) -> tuple[list[str], Array]:
    """Terms (p,) and their columns (n, p): the intercept, the conditions but the first, the covariates."""
    columns = [(_INTERCEPT, np.ones(len(y)))]
    columns += [(str(value), column) for value, column in _dummies(given, CONDITION, conditions, y)]
    for name in covariates:
        columns += _covariate(given, name, y)
    terms = [term for term, _ in columns]
    if doubled := next((term for k, term in enumerate(terms) if term in terms[:k]), None):
        raise DataError(f"two terms of the model are called {doubled!r}; rename a condition or covariate: {', '.join(terms)}")
    x = np.column_stack([column for _, column in columns])
    for k in range(1, len(terms)):
        if np.linalg.matrix_rank(x[:, : k + 1]) <= k:
            raise DataError(f"the term {terms[k]!r} follows from {', '.join(terms[:k])} in these rows; leave out one of them")
    return terms, x


def _dummies(given: Any, column: str, values: Sequence[Any], y: Array) -> list[tuple[Any, Array]]:
    """A column of 0 and 1 per value but the first; each value must have both outcomes, else its effect has no end."""
    members = [(value, (given[column] == value).to_numpy(dtype=np.float64)) for value in values]
    for value, member in members:
        if len(set(y[member == 1])) == 1:
            raise DataError(
                f"column {column!r}: all {int(member.sum())} responses of {value!r} have the same outcome, so that its effect is "
                "infinite; leave it out, or collect more"
            )
    return members[1:]


def _covariate(given: Any, name: str, y: Array) -> list[tuple[str, Array]]:
    values = list(given[name])
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values):
        numbers = np.asarray(values, dtype=np.float64)
        if not np.isfinite(numbers).all():
            row = given.index[int(np.argmin(np.isfinite(numbers)))]
            raise DataError(f"column {name!r}, row {row}: is {given[name][row]}, expected a finite number")
        return [(name, numbers - numbers.mean())]
    return [(f"{name}[{value}]", column) for value, column in _dummies(given, name, sorted(set(values), key=str), y)]


def _levels(given: Any, name: str) -> Array:
    numbers = library("pandas").factorize(given[name])[0]
    if not 1 < (levels := int(numbers.max()) + 1) < len(numbers):
        raise DataError(
            f"column {name!r} has {levels} values in {len(numbers)} rows; a random intercept needs two values or more, some of "
            "them in several rows; leave it out of random"
        )
    return np.asarray(numbers, dtype=np.int64)


def _reported(terms: Sequence[str], conditions: int, pairwise: bool) -> tuple[list[str], Array]:
    """Names (k,) and weights (k, p) of what is reported: each term, then differences among conditions but the baseline."""
    names, unit = list(terms), np.eye(len(terms))
    weights = list(unit)
    for a, b in itertools.combinations(range(1, conditions), 2) if pairwise else ():
        names.append(f"{terms[a]} - {terms[b]}")
        weights.append(unit[a] - unit[b])
    return names, np.stack(weights)
