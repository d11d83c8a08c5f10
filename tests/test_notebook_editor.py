"""An editor written in one notebook cell: no registration, checked and evaluated like those that ship."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path

from fakes import SINGLE

from kedit.backbone import HFBackbone
from kedit.benchmark import Task
from kedit.editor import ContextEditor
from kedit.evaluate import evaluate
from kedit.methods import Base
from kedit.protocols import final
from kedit.testing import check_editor, toy_cases
from kedit.types import Case, Request


class Note(ContextEditor):
    """Puts what was inserted before a question of the same language, as a note."""

    def __init__(self, *, title: str = "Note:") -> None:
        self.title = title

    def rewrite(self, request: Request) -> Request:
        notes = [fact.answer for fact in self.edits_.values() if fact.request.language == request.language]
        if not notes:
            return request
        return replace(request, context=(" ".join([self.title, *notes]), *request.context))


@dataclass
class Toy:
    """Toy cases as a benchmark with one task."""

    name: str = "toy"
    revision: str = "1"

    @property
    def tasks(self) -> dict[str, Task]:
        return {"single": Task("single", final, SINGLE)}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return toy_cases(4 if limit is None else limit)

    def train(self, limit: int | None = None) -> list[Case]:
        return []


def test_an_editor_fits_in_one_cell_of_25_lines() -> None:
    assert len(inspect.getsource(Note).splitlines()) <= 25


def test_an_editor_from_a_cell_keeps_the_contract(backbone: HFBackbone) -> None:
    report = check_editor(Note(), backbone)
    assert "Note(title='Note:')" in repr(report)


def test_an_editor_from_a_cell_is_evaluated_beside_the_unedited_backbone(backbone: HFBackbone, tmp_path: Path) -> None:
    run = evaluate([Base(), Note()], backbone, Toy(), out=tmp_path / "run", cache_dir=tmp_path, max_new_tokens=8)
    assert run.editors == ["base", "note"]
    assert run.failures == []
    outputs = {name: {record.key: record.output for record in run.records(name)} for name in run.editors}
    assert len(outputs["note"]) == 4 * 4
    assert outputs["base"].keys() == outputs["note"].keys()
    assert outputs["base"] != outputs["note"]
    local = [record for record in run.records("base") if record.from_base]
    assert all(record.output == record.reference for record in local)
