"""A router's diagnosis as text, JSON and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kedit.artefacts import write_bytes, write_json
from kedit.errors import unknown_name
from kedit.plots import save_plot
from kedit.routers.diagnostics import Diagnosis, Outcome
from kedit.routers.pairs import POSITIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, dark for what should be activated
_IN, _OUT = "#0072B2", ("#D55E00", "#E69F00", "#CC79A7")
_PARTS = (("right", "#0072B2"), ("related", "#56B4E9"), ("wrong", "#D55E00"), ("abstained", "#d9dde1"))


def to_json(found: Diagnosis) -> dict[str, Any]:
    """Everything in a diagnosis but single scores, as JSON can hold it; shares are 0 to 1."""
    rows = [
        {
            "memory": one.memory, "relation": one.relation, "language": one.language, "n": one.n, "unsure": one.unsure,
            "right": one.right, "related": one.related, "wrong": one.wrong, "abstained": one.abstained, "found": one.found,
            "akin": one.akin, "gate_accuracy": one.gate, "retrieval_accuracy": one.retrieval,
        }
        for one in found.outcomes
    ]  # fmt: skip
    points = zip(found.curve.thresholds, found.curve.accuracy, found.curve.tpr, found.curve.fpr, strict=True)
    return {
        "router": found.router,
        "threshold": found.threshold,
        "strict": found.strict,
        "entries": found.entries,
        "auc": found.auc,
        "outcomes": rows,
        "curve": [dict(zip(("threshold", "accuracy", "tpr", "fpr"), map(float, point), strict=True)) for point in points],
    }


def to_text(found: Diagnosis) -> str:
    """Markdown: one table by memory and relation, one by memory, relation and language."""
    sign = ">" if found.strict else ">="
    return "\n".join(
        [
            f"# {found.router}: {found.entries} entries, in scope where the score {sign} {found.threshold:.4g}",
            "",
            f"Area under the ROC curve of requests against their own entry: {found.auc:.4f} "
            f"({len(found.positives)} in scope, {sum(map(len, found.negatives.values()))} not).",
            "",
            "Gate: share activated where that is wanted, left alone where not. Retrieval: share whose nearest entry concerns",
            "them, of those whose nearest is not a related one. Right, related, wrong: activated with an entry that concerns the",
            "request, with another of its topic and language that may answer it too, with any other. Percent of n. The memory of",
            "a request to be left alone holds no entry of its topic and language. Unsure: not in n, since nobody says what they",
            "are about, and the memory holds an entry that may be meant for them.",
            "",
            *_table(found.by("memory", "relation"), language=False),
            "",
            "By language:",
            "",
            *_table(found.by("memory", "relation", "language"), language=True),
            "",
        ]
    )


def _table(rows: Sequence[Outcome], language: bool) -> list[str]:
    parts = [name for name, _ in _PARTS]
    head = ["memory", "relation", *(["language"] if language else []), "n", "unsure", "gate", "retrieval", *parts]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for one in rows:
        cells = [str(one.memory), one.relation, *([one.language] if language else []), str(one.n), str(one.unsure)]
        shares = [one.gate, one.retrieval, *(getattr(one, part) / one.n if one.n else None for part in parts)]
        lines.append("| " + " | ".join([*cells, *("-" if share is None else f"{100 * share:.1f}" for share in shares)]) + " |")
    return lines


def write(found: Diagnosis, folder: Path) -> list[Path]:
    """Write ``router.md``, ``router.json`` and the figures (PNG and SVG) to a folder; gives their paths."""
    write_bytes(folder / "router.md", to_text(found).encode())
    write_json(folder / "router.json", to_json(found))
    files = [path for name in PLOTS for path in save_plot(plot(found, name), folder / f"router_{name}")]
    return [folder / "router.md", folder / "router.json", *files]


def scores_plot(found: Diagnosis) -> Figure:
    """Scores of requests with their own entry, by relation, as cumulative shares, and the threshold."""
    figure, ax = _axes(f"{found.router}: scores with the request's own entry", "score", "share of requests at or below")
    series = [("in scope", found.positives, _IN, "-")]
    series += [(name, values, _OUT[k % 3], ("--", ":", "-.")[k % 3]) for k, (name, values) in enumerate(found.negatives.items())]
    for name, values, colour, line in series:
        ordered = np.sort(values)
        ax.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", color=colour, linestyle=line,
                label=f"{name} (n = {len(ordered)})")  # fmt: skip
    _mark(ax, found)
    ax.legend(frameon=False, fontsize=8)
    return figure


def threshold_plot(found: Diagnosis) -> Figure:
    """Accuracy, true and false positive rate over the threshold."""
    figure, ax = _axes(f"{found.router}: what the threshold does", "threshold", "share")
    for label, values, colour, line in (
        ("accuracy", found.curve.accuracy, "#000000", "-"),
        ("in scope activated", found.curve.tpr, _IN, "--"),
        ("out of scope activated", found.curve.fpr, _OUT[0], ":"),
    ):
        ax.plot(found.curve.thresholds, values, color=colour, linestyle=line, label=label)
    _mark(ax, found)
    ax.legend(frameon=False, fontsize=8)
    return figure


def roc_plot(found: Diagnosis) -> Figure:
    """Receiver operating characteristic, with the operating point in use."""
    figure, ax = _axes(f"{found.router}: ROC, area {found.auc:.3f}", "out of scope activated", "in scope activated")
    ax.plot(found.curve.fpr, found.curve.tpr, color=_IN)
    everything = np.concatenate(list(found.negatives.values()))
    at = [float(np.mean([_active(found, score) for score in scores])) for scores in (everything, found.positives)]
    ax.plot(*at, "o", color=_OUT[0], label=f"at {found.threshold:.3g}")
    ax.plot([0, 1], [0, 1], color="#d9dde1", zorder=0)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _active(found: Diagnosis, score: float) -> bool:
    return score > found.threshold if found.strict else score >= found.threshold


def outcome_plot(found: Diagnosis) -> Figure:
    """What became of the requests, by relation and size of the memory."""
    rows = [one for one in found.by("memory", "relation") if one.n]
    figure, ax = _axes(
        f"{found.router}: activated right, wrong, or left alone",
        "share of requests (relation, entries in memory)\n* should be left alone",
        "",
    )
    figure.set_size_inches(6.4, 0.32 * len(rows) + 1.6)
    left = np.zeros(len(rows))
    for name, colour in _PARTS:
        shares = np.array([getattr(one, name) / one.n for one in rows])
        ax.barh(range(len(rows)), shares, left=left, color=colour, label=name, height=0.75)
        left = left + shares
    ax.set_yticks(range(len(rows)), [f"{one.relation}{'' if one.relation in POSITIVE else ' *'}, {one.memory}" for one in rows])
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize=8, ncols=len(_PARTS), loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return figure


PLOTS: Mapping[str, Callable[[Diagnosis], Figure]] = {
    "scores": scores_plot,
    "thresholds": threshold_plot,
    "roc": roc_plot,
    "outcomes": outcome_plot,
}


def plot(found: Diagnosis, what: str) -> Figure:
    """The figure of that name, one of ``PLOTS``; raises UnknownNameError for another."""
    if what not in PLOTS:
        raise unknown_name("figure of a router", what, PLOTS)
    return PLOTS[what](found)


def _axes(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    from kedit.plots.shown import Shown

    figure = Shown(figsize=(5.6, 3.8), layout="constrained", facecolor="white")
    ax = figure.subplots()
    ax.set(xlabel=across, ylabel=up)
    ax.set_title(title, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#eceff1")
    ax.set_axisbelow(True)
    return figure, ax


def _mark(ax: Axes, found: Diagnosis) -> None:
    ax.axvline(found.threshold, color="#3b4652", linewidth=1)
    ax.annotate(f" {found.threshold:.3g}", (found.threshold, 0.02), fontsize=8, color="#3b4652")
