from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from kedit.errors import DataError, UnknownNameError
from kedit.human import mixed_effects, simulated
from kedit.human import tested as wald_table
from kedit.human.laplace import Likelihood, fit

pytest.importorskip("statsmodels", reason="statsmodels is of the extra 'human'")
pytest.importorskip("pandas", reason="pandas is of the extra 'human'")
CROPE = {"multimodal": 1.6, "textual": 0.6, "visual": 1.0}
NULL = {"multimodal": 1.0, "textual": 1.0, "visual": 1.0}
model = partial(mixed_effects, baseline="multimodal")


def small(log_odds: dict[str, float], seed: int) -> Any:
    return simulated(log_odds, participants=20, items=24, per_participant=8, participant_sd=0.8, item_sd=0.6, seed=seed)


@cache
def fitted(seed: int) -> Any:
    return model(simulated(CROPE, participant_sd=0.6, item_sd=0.6, seed=seed))


def arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    groups = np.stack([np.arange(60) // 6, np.arange(60) % 12])
    x = np.column_stack([np.ones(60), generator.standard_normal(60)])
    return (generator.random(60) < 0.6).astype(float), x, groups


def test_the_gradient_is_that_of_the_likelihood() -> None:
    y, x, groups = arrays()
    likelihood = Likelihood(y, x, groups)
    at = np.array([0.4, -0.3, 0.7, 0.5])

    def value(point: np.ndarray) -> float:
        return likelihood(point[:2], point[2:])[0]

    slopes = [(value(at + step) - value(at - step)) / 2e-5 for step in 1e-5 * np.eye(4)]
    assert likelihood(at[:2], at[2:])[1] == pytest.approx(slopes, abs=1e-6)


def test_without_spread_it_is_plain_logistic_regression() -> None:
    import statsmodels.api as sm

    y, x, groups = arrays()
    plain = sm.Logit(y, x).fit(disp=False)
    value, slopes = Likelihood(y, x, groups)(plain.params, np.zeros(2))
    assert value == pytest.approx(plain.llf)
    assert slopes == pytest.approx(0, abs=1e-6)
    alike = fit(y, x, np.stack([np.arange(60) % 2]))  # two levels that do not differ
    assert alike.sds == pytest.approx([0], abs=1e-3)
    assert alike.effects == pytest.approx(plain.params, abs=1e-3)
    assert np.sqrt(np.diag(alike.covariance)) == pytest.approx(plain.bse, rel=1e-3)


def test_the_likelihood_is_near_that_by_quadrature() -> None:
    y, x, groups = arrays()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    effects, sd = np.array([0.4, -0.3]), 0.6
    eta = (x @ effects)[:, None] + sd * nodes
    each = np.where(y[:, None] == 1, eta, 0) - np.logaddexp(0, eta)  # (n, nodes)
    summed = np.stack([each[groups[0] == level].sum(axis=0) for level in range(10)])
    exact = np.log(np.exp(summed) @ weights / np.sqrt(2 * np.pi)).sum()
    value = Likelihood(y, x, groups[:1])(effects, np.array([sd]))[0]
    assert value == pytest.approx(exact, abs=0.05)
    assert Likelihood(y, x, groups[:1])(effects, np.array([0.0]))[0] != pytest.approx(exact, abs=0.2)


def test_known_effects_are_recovered_with_their_signs_and_sizes() -> None:
    fits = [fitted(seed) for seed in range(4)]
    estimates = np.stack([found.contrasts["estimate"] for found in fits])
    assert list(fits[0].contrasts.index) == ["intercept", "textual", "visual"]
    assert estimates.mean(axis=0) == pytest.approx([1.6, -1.0, -0.6], abs=0.2)
    assert (estimates[:, 1:] < 0).all()
    assert np.mean([list(found.sds.values()) for found in fits], axis=0) == pytest.approx([0.6, 0.6], abs=0.25)
    assert all(found.converged for found in fits)
    assert all(found.contrasts.loc["textual", "p_adjusted"] < 0.05 for found in fits)
    assert fits[0].responses == 3 * 36 * 10
    assert fits[0].levels == {"participant": 108, "item": 100}


def test_where_nothing_differs_about_one_contrast_in_twenty_is_significant() -> None:
    p = np.stack([model(small(NULL, seed)).contrasts["p"][1:] for seed in range(30)])
    assert (p < 0.05).mean() < 0.12
    assert (p < 0.2).mean() == pytest.approx(0.2, abs=0.12)
    assert (p < 0.5).mean() == pytest.approx(0.5, abs=0.16)


def test_participants_who_differ_widen_the_errors_of_conditions_between_them() -> None:
    table = small(NULL, 0)
    both, items_only = model(table), model(table, random=("item",))
    assert (both.contrasts["se"][1:] > 1.1 * items_only.contrasts["se"][1:]).all()
    assert both.log_likelihood > items_only.log_likelihood


def test_adjustment_bounds_the_share_of_false_discoveries() -> None:
    generator = np.random.default_rng(0)
    real = np.array([0.0] * 8 + [4.0] * 4)
    names, shares = [f"{k}" for k in range(12)], {"p": [], "p_adjusted": []}
    for _ in range(300):
        found = wald_table(names, real + generator.standard_normal(12), np.ones(12), [True] * 12)
        for column, kept in shares.items():
            significant = (found[column] < 0.2).to_numpy()
            kept.append(significant[real == 0].sum() / max(1, significant.sum()))
    assert np.mean(shares["p_adjusted"]) == pytest.approx(0.2 * 8 / 12, abs=0.02)  # what it promises for independent ones
    assert np.mean(shares["p"]) > 0.2


def test_of_many_conditions_the_adjustment_keeps_those_that_differ() -> None:
    odds = {"base": 1.0} | {f"same {n}": 1.0 for n in range(10)} | {f"low {n}": -1.5 for n in range(2)}
    found = np.zeros((6, 2, 12), dtype=bool)
    for seed in range(len(found)):
        table = simulated(odds, participants=10, items=12, per_participant=6, participant_sd=0.5, item_sd=0.3, seed=seed)
        contrasts = mixed_effects(table, baseline="base", random=("participant",)).contrasts[1:]
        found[seed] = (contrasts[["p", "p_adjusted"]] < 0.2).to_numpy().T
    assert found[:, :, 10:].all()
    assert found[:, 1, :10].sum() < found[:, 0, :10].sum()


def test_the_adjustment_is_that_of_the_published_table() -> None:
    # CROPE, Table 2, from its z: over the two contrasts, since over three with the intercept it would print 0.036, not 0.042.
    found = wald_table(["intercept", "textual", "visual"], [9.94, -2.26, -2.03], [1, 1, 1], [False, True, True])
    assert list(found["p"].round(3)) == [0, 0.024, 0.042]
    assert list(found["p_adjusted"][1:].round(3)) == [0.042, 0.042]
    assert np.isnan(found.loc["intercept", "p_adjusted"])


def test_the_order_and_names_of_rows_change_nothing() -> None:
    table = small(CROPE, 1)
    shuffled = table.sample(frac=1, random_state=0).assign(response=lambda rows: rows["response"].str.upper())
    a, b = model(table).contrasts, model(shuffled).contrasts.loc[["intercept", "textual", "visual"]]
    assert b.to_numpy() == pytest.approx(a.to_numpy(), abs=1e-4, nan_ok=True)


def test_pairwise_adds_the_contrast_that_another_baseline_gives() -> None:
    table = small(CROPE, 1)
    contrasts = model(table, pairwise=True).contrasts
    other = mixed_effects(table, baseline="visual").contrasts
    columns = ["estimate", "se", "z", "p"]
    assert contrasts.loc["textual - visual", columns].to_numpy(float) == pytest.approx(
        other.loc["textual", columns].to_numpy(float), abs=1e-3
    )
    assert contrasts["p_adjusted"].notna().sum() == 3


def test_covariates_are_terms_but_no_contrasts() -> None:
    table = small(NULL, 2)
    generator = np.random.default_rng(0)
    table["familiar"] = generator.integers(1, 6, len(table))
    table["language"] = np.where(table["item"] % 3 == 0, "ta", "sw")
    table.loc[(table["familiar"] >= 4) & (generator.random(len(table)) < 0.7), "response"] = table["answer"]
    contrasts = model(table, covariates=("familiar", "language")).contrasts
    assert list(contrasts.index) == ["intercept", "textual", "visual", "familiar", "language[ta]"]
    assert contrasts.loc["familiar", "z"] > 3
    assert list(contrasts["p_adjusted"].notna()) == [False, True, True, False, False]


def test_not_sure_is_not_right_unless_dropped_and_yes_can_be_the_outcome() -> None:
    table = small(NULL, 3)
    table.loc[(table["condition"] == "textual") & (table["item"] % 3 == 0), "response"] = "not sure"
    as_wrong, dropped = model(table), model(table, drop_not_sure=True)
    assert as_wrong.responses == len(table) > dropped.responses
    assert as_wrong.contrasts.loc["textual", "z"] < -3 < -2 < dropped.contrasts.loc["textual", "z"]
    table["response"] = np.where(table["item"] % 5 == 0, "no", "yes")
    assert model(table, outcome="yes", random=("participant",)).contrasts.loc["intercept", "estimate"] > 0.8


def test_what_no_model_can_be_fitted_to_is_told() -> None:
    table = small(CROPE, 0)
    with pytest.raises(UnknownNameError, match="unknown condition 'multi'.*Did you mean 'multimodal'"):
        mixed_effects(table, baseline="multi")
    with pytest.raises(DataError, match="'condition' holds only 'visual'"):
        mixed_effects(table[table["condition"] == "visual"], baseline="visual")
    right = table["response"].where(table["condition"] != "visual", table["answer"])
    with pytest.raises(DataError, match="'condition': all 160 responses of 'visual' have the same outcome"):
        model(table.assign(response=right))
    with pytest.raises(DataError, match=r"'group\[textual\]' follows from intercept, textual, visual"):
        model(table.assign(group=table["condition"]), covariates=("group",))
    with pytest.raises(DataError, match="'row' has 480 values in 480 rows"):
        model(table.assign(row=range(480)), random=("participant", "row"))
    with pytest.raises(DataError, match="column 'age', row 7: is inf"):
        model(table.assign(age=[float("inf") if n == 7 else n for n in range(480)]), covariates=("age",))
    with pytest.raises(DataError, match="two terms of the model are called 'textual'"):
        model(table.assign(textual=range(480)), covariates=("textual",))
    with pytest.raises(ValueError, match="random='item', expected one column or more"):
        model(table, random="item")
    with pytest.raises(ValueError, match="outcome='no', expected 'right' or 'yes'"):
        model(table, outcome="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_participant=9, expected 1 to 8"):
        simulated(CROPE, items=8, per_participant=9)
