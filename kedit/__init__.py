"""kedit inserts, edits and measures knowledge in vision-language models.

Five lines: a backbone, a benchmark, an editor, a run, its table::

    import kedit
    backbone = kedit.load_backbone("tiny-internvl")
    benchmark = kedit.benchmark("kibench-open")
    run = kedit.evaluate([kedit.Base(), kedit.IKE(demos=1, pool=290)], backbone, benchmark, limit=5)
    print(run)

Names are imported when they are first used, so that ``import kedit`` is quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Answer": "kedit.types",
    "Case": "kedit.types",
    "ImageRef": "kedit.types",
    "Knowledge": "kedit.types",
    "Probe": "kedit.types",
    "Record": "kedit.types",
    "Request": "kedit.types",
    "ContextEditor": "kedit.editor",
    "Editor": "kedit.editor",
    "ReplacementEditor": "kedit.editor",
    "WeightEditor": "kedit.editor",
    "KeditError": "kedit.errors",
    "load_backbone": "kedit.backbone",
    "benchmark": "kedit.benchmarks",
    "editor": "kedit.methods",
    "evaluate": "kedit.evaluate",
    "compare": "kedit.comparison",
    "diagnose": "kedit.diagnosis",
    "matrix": "kedit.matrix",
    "fitted": "kedit.methods",
    "Run": "kedit.run",
    "Session": "kedit.live.session",
    "progress": "kedit.showing",
    "report": "kedit.report",
    "retention": "kedit.retention",
    "check_editor": "kedit.testing",
}
_METHODS = "kedit.methods"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if not name.startswith("_"):
        methods = importlib.import_module(_METHODS)
        if name in methods.__all__:
            return getattr(methods, name)
    raise AttributeError(f"module 'kedit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *importlib.import_module(_METHODS).__all__])


def _function(name: str) -> property:
    """The function of that name, although a submodule has the same name and importing it would take its place."""
    return property(lambda package: getattr(importlib.import_module(_HOME[name]), name), lambda package, module: None)


class _Package(ModuleType):
    benchmark = _function("benchmark")
    editor = _function("editor")
    evaluate = _function("evaluate")
    matrix = _function("matrix")
    report = _function("report")
    retention = _function("retention")


sys.modules[__name__].__class__ = _Package
