"""What papers print: their tables and figures as data, and what is needed to make the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kedit.errors import unknown_name

FOLDER = Path(__file__).parent / "published"
MAIN = "main"
"""The benchmark of a paper that all but its side columns are about."""
TABLE, GROUPS, RETENTION, BARS, EFFICIENCY = "table", "groups", "retention", "bars", "efficiency"
"""Kinds of tables and figures, by how they are made and drawn."""


@dataclass(frozen=True)
class Model:
    """A model of a paper: hub ids by which a backbone is known to be it, words in the id of one of its family, and parameters.

    ``params`` are the paper's, by editor's short name.
    """

    name: str
    ids: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def named_by(self, backbone: str) -> bool:
        """Whether a backbone's id, or the last part of its path, is one of this model's."""
        own = {id.casefold() for id in self.ids}
        lasts = {id.rpartition("/")[2] for id in own}
        wanted = backbone.rstrip("/").casefold()
        return wanted in own or wanted.rpartition("/")[2] in lasts


@dataclass(frozen=True)
class Source:
    """A benchmark that a paper uses: its short name, the one taken where none is named, and stand-ins with what they are."""

    published: str
    default: str | None
    stand_ins: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """All short names."""
        return (self.published, *self.stand_ins)


@dataclass(frozen=True)
class RunSpec:
    """A run that tables and figures are read from.

    ``options`` are those of the benchmark; ``where`` keeps the cases with a tag's value; ``prompts`` names wordings to ask every
    question in; ``library`` is the editor that searches the benchmark's documents. ``cases`` and ``train_cases`` are the
    paper's numbers. Without its benchmark a run with a ``hint`` is left out.
    """

    name: str
    benchmark: str
    task: str
    editors: tuple[str, ...]
    cases: int
    train_cases: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    where: tuple[str, str] | None = None
    prompts: str | None = None
    library: str | None = None
    hint: str = ""


@dataclass(frozen=True)
class Place:
    """A row or a column: its label and how its figures are read from a run; what a row says goes before what a column says.

    ``only`` are the labels of the columns that a row has, where not all.
    """

    label: str
    editor: str | None = None
    value: str | None = None
    group: tuple[str, str] | None = None
    run: str | None = None
    judge: bool = False
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A statement of a paper's text: each quantity of ``greater`` is above each of ``less``; numbers stand for themselves.

    ``model`` is the model that it is about; None for all. ``orequal`` also takes equality.
    """

    text: str
    greater: tuple[str | float, ...]
    less: tuple[str | float, ...]
    model: str | None = None
    orequal: bool = False


@dataclass(frozen=True)
class Erratum:
    """A mistake in print: what it is, and corrected figures as (model, row, column, value)."""

    text: str
    corrections: tuple[tuple[str, str, str, float], ...] = ()


@dataclass(frozen=True)
class Artefact:
    """A table or a figure: how it is made, and what the paper prints in it by model, row and column.

    ``model`` is the only model that a figure shows. ``unreadable`` says why there are no printed values. ``order`` is that of
    the chains, ``tags`` what a figure groups by.
    """

    key: str
    number: str
    title: str
    kind: str
    run: str
    rows: tuple[Place, ...]
    columns: tuple[Place, ...]
    published: Mapping[str, Mapping[str, Sequence[float | None]]]
    claims: tuple[Claim, ...] = ()
    errata: tuple[Erratum, ...] = ()
    order: str | None = None
    model: str | None = None
    default_model: str | None = None
    tags: tuple[str, ...] = ()
    unreadable: str = ""
    said: str = ""
    raw_cases: int | None = None
    hardware: str = ""

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that it is read from, the main one first."""
        return tuple(dict.fromkeys([self.run, *(row.run for row in self.rows if row.run)]))

    def printed(self, model: str, row: str, column: str) -> float | None:
        """A figure as it is printed; None where the paper has none."""
        values = self.published.get(model, {}).get(row)
        return None if values is None else values[[place.label for place in self.columns].index(column)]

    def corrected(self, model: str, row: str, column: str) -> float | None:
        """A figure as it must be meant: as printed, but for what is known to be a mistake in print."""
        for erratum in self.errata:
            for *where, value in erratum.corrections:
                if where == [model, row, column]:
                    return float(value)
        return self.printed(model, row, column)


@dataclass(frozen=True)
class Paper:
    """A paper: its models, benchmarks, runs, tables and figures.

    ``states`` is what it says of all its runs, ``unstated`` what it does not say, by editor ("*" for all).
    """

    key: str
    name: str
    title: str
    source: str
    benchmarks: Mapping[str, Source]
    models: Mapping[str, Model]
    default_model: str
    states: Mapping[str, Any]
    unstated: Mapping[str, Sequence[str]]
    runs: Mapping[str, RunSpec]
    artefacts: Mapping[str, Artefact]

    def artefact(self, key: str) -> Artefact:
        """A table or figure such as "table2"; raises UnknownNameError."""
        if key not in self.artefacts:
            raise unknown_name(f"table or figure of {self.name}", key, self.artefacts)
        return self.artefacts[key]

    def model_of(self, backbone: str) -> Model | None:
        """The model that a backbone is; None where it is none of the paper's."""
        return next((model for model in self.models.values() if model.named_by(backbone)), None)

    def nearest(self, backbone: str, artefact: Artefact) -> Model:
        """The model whose figures stand beside a backbone's: itself, the one of a figure, one of its family, or a default."""
        shown = [self.models[name] for name in artefact.published if name in self.models]
        if artefact.model is not None:
            return self.models[artefact.model]
        found = self.model_of(backbone)
        if found is not None and (found in shown or not shown):
            return found
        wanted = backbone.casefold()
        family = [model for model in shown or self.models.values() if any(word in wanted for word in model.like)]
        return family[0] if family else self.models[artefact.default_model or self.default_model]


def papers() -> tuple[str, ...]:
    """Short names of the papers."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


@cache
def paper(key: str) -> Paper:
    """A paper by its short name; raises UnknownNameError, which lists what there is."""
    if key not in papers():
        raise unknown_name("paper", key, papers())
    raw = json.loads((FOLDER / f"{key}.json").read_text(encoding="utf-8"))
    models = {name: Model(name, **_tuples(fields, "ids", "like")) for name, fields in raw.pop("models").items()}
    return Paper(
        key=key,
        models=models,
        default_model=raw.pop("default_model", next(iter(models))),
        benchmarks={name: Source(**fields) for name, fields in raw.pop("benchmarks").items()},
        runs={name: RunSpec(name, **_tuples(fields, "editors", "where")) for name, fields in raw.pop("runs").items()},
        artefacts={name: _artefact(name, fields) for name, fields in raw.pop("artefacts").items()},
        **raw,
    )


def _artefact(key: str, fields: Mapping[str, Any]) -> Artefact:
    raw = _tuples(fields, "tags")
    for name in ("rows", "columns"):
        raw[name] = tuple(Place(**_tuples(place, "group", "only")) for place in raw[name])
    raw["claims"] = tuple(Claim(**_tuples(claim, "greater", "less")) for claim in raw.get("claims", ()))
    errata = [(erratum["text"], erratum.get("corrections", ())) for erratum in raw.get("errata", ())]
    raw["errata"] = tuple(Erratum(text, tuple(tuple(one) for one in corrections)) for text, corrections in errata)
    return Artefact(key, **raw)


def _tuples(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: tuple(value) if name in names and value is not None else value for name, value in fields.items()}
