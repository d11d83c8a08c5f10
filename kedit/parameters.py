"""Settings as constructor arguments: what editors and routers have in common with each other."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


class Parameters:
    """Something whose settings are the keyword-only arguments of its constructor, stored under their own names."""

    def get_params(self) -> dict[str, Any]:
        """The constructor's arguments and their values, derived from its signature."""
        signature = inspect.signature(type(self).__init__)
        names = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"


def plain(value: Any) -> Any:
    """Parameters as JSON can hold them; anything else by its repr."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
