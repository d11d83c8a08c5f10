"""What is to be made, put together once from names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kedit.backbone import Backbone
from kedit.bootstrap import Estimate
from kedit.editor import Editor
from kedit.errors import unknown_name
from kedit.reproduce.planning import Data, Given, data, editors_for
from kedit.reproduce.published import Artefact, Model, Paper, Place, paper
from kedit.reproduce.result import Cell

Read = Callable[[Place, Place], Estimate | None]
"""Our figure of a row and a column."""


@dataclass(frozen=True)
class Job:
    """A table or figure of a paper, the paper's model to stand beside, and what it is made with."""

    paper: Paper
    artefact: Artefact
    model: Model
    backbone: Backbone
    data: Data
    editors: Mapping[str, Editor]

    @classmethod
    def of(
        cls,
        paper_name: str,
        what: str,
        backbone: Backbone,
        benchmarks: Given | Sequence[Given],
        editors: Sequence[str] | Mapping[str, Editor] | None,
        published: str | None,
    ) -> Job:
        """From names; raises UnknownNameError for one that is not known."""
        found = paper(paper_name)
        artefact = found.artefact(what)
        given = [benchmarks] if isinstance(benchmarks, str) or not isinstance(benchmarks, Sequence) else benchmarks
        sources = data(found, artefact, given)
        named = editors if isinstance(editors, Mapping) else editors_for(found, artefact, backbone.id, sources, editors)
        return cls(found, artefact, _model(found, artefact, backbone.id, published), backbone, sources, named)

    def asked(self, run: str) -> dict[str, Editor]:
        """The editors of a run."""
        return {name: editor for name, editor in self.editors.items() if name in self.paper.runs[run].editors}

    def cells(self, read: Read, *, judged: bool = False) -> Iterator[Cell]:
        """The figures of the editors that were asked; the judge's only where there are judgements."""
        for row in self.artefact.rows:
            run = row.run or self.artefact.run
            if run not in self.data.by_run or row.editor not in self.asked(run):
                continue
            for column in self.artefact.columns:
                if (column.judge and not judged) or (row.only and column.label not in row.only):
                    continue
                where = (self.model.name, row.label, column.label)
                corrected, printed = self.artefact.corrected(*where), self.artefact.printed(*where)
                yield Cell(row.label, column.label, read(row, column), corrected, printed)


def _model(found: Paper, artefact: Artefact, backbone: str, published: str | None) -> Model:
    if published is None:
        return found.nearest(backbone, artefact)
    printed = artefact.published or ([artefact.model] if artefact.model else found.models)
    shown = [name for name in found.models if name in printed]
    if published not in shown:
        raise unknown_name(f"model of {artefact.number}", published, shown)
    return found.models[published]
