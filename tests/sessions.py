"""Sessions on the fake backbone, and files of what is to be inserted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fakes import FakeBackbone, Prepend, delta

from kedit.editor import Editor
from kedit.live.session import Session
from kedit.types import Answer, Knowledge, Request


def session(editor: Editor | None = None) -> Session:
    return Session(FakeBackbone(), editor or Prepend())


def rows(path: Path, *items: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
    return path


def numbers(one: Session) -> list[int]:
    return [entry.number for entry in one.entries]


class Behind(Editor):
    """Changes weights by itself, so that nobody else can set the change aside."""

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.backbone_.model[0].weight += delta(knowledge.answer)

    def revert(self) -> None:
        for knowledge in self.edits_.values():
            self.backbone_.model[0].weight -= delta(knowledge.answer)

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return self.backbone_.generate(requests)
