"""Sessions on the fake backbone, and files of what is to be inserted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fakes import FakeBackbone, Prepend

from kedit.editor import Editor
from kedit.live.session import Session


def session(editor: Editor | None = None) -> Session:
    return Session(FakeBackbone(), editor or Prepend())


def rows(path: Path, *items: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
    return path


def numbers(one: Session) -> list[int]:
    return [entry.number for entry in one.entries]
