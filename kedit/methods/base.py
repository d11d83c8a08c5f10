"""The unedited backbone as an editor: the row that shows what an edit gained, and what was lost."""

from __future__ import annotations

from typing import ClassVar

from kedit.editor import ContextEditor
from kedit.types import Request


class Base(ContextEditor):
    """Takes note of what is inserted and answers as if nothing were."""

    does_nothing: ClassVar[bool] = True

    def rewrite(self, request: Request) -> Request:
        return request
