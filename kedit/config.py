"""What ``run.json`` says: what decides a run's results, and where they were made."""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from kedit.benchmark import Benchmark, Task
from kedit.scoring.legacy import ID as LEGACY
from kedit.types import Case

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.editor import Editor

FORMAT = 1
_DECISIVE = ("torch", "transformers")
_NOTED = ("kedit", "tokenizers", "peft", "sentence-transformers", "faiss-cpu", "numpy", "rouge-score", "safetensors")
_SECRET = re.compile(r"(api_?key|secret|password|(^|_)token)$", re.IGNORECASE)


def run_config(
    editors: Mapping[str, Editor],
    backbone: Backbone,
    benchmark: Benchmark,
    work: Mapping[str, tuple[Task, Sequence[Case]]],
    *,
    limit: int | None,
    seed: int,
    max_new_tokens: int,
    plain: bool,
    legacy: bool = False,
) -> dict[str, Any]:
    """The content of ``run.json``: ``identity`` decides the results and must be equal to resume; ``environment`` informs.

    ``legacy`` says that records carry teacher-forced metrics, whose version then belongs to the identity.
    """
    identity = {
        "format": FORMAT,
        "editors": {name: _editor(editor) for name, editor in editors.items()},
        "backbone": {
            "id": backbone.id,
            "revision": backbone.revision,
            "fingerprint": backbone.fingerprint(),
            "dtype": str(backbone.dtype).removeprefix("torch."),
            "device": str(backbone.device).split(":")[0],
            "settings": settings_id(backbone),
        },
        "benchmark": {"name": benchmark.name, "revision": benchmark.revision, "limit": limit},
        "tasks": {name: _task(task, cases) for name, (task, cases) in work.items()},
        "decoding": {"strategy": getattr(backbone, "strategy", "greedy"), "max_new_tokens": max_new_tokens, "plain": plain},
        "seed": seed,
        "packages": _versions(_DECISIVE),
        **({"legacy_metrics": LEGACY} if legacy else {}),
    }
    environment = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), **_where(backbone)},
        "packages": _versions(_NOTED),
        "git": git_state(),
    }
    config: dict[str, Any] = json.loads(json.dumps({"identity": identity, "environment": environment}, default=_describe))
    return config


def difference(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Every leaf in which two configurations differ, as ``path: old -> new``."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        lines = []
        for key in dict.fromkeys([*old, *new]):
            lines += difference(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{prefix}.{key}" if prefix else str(key))
        return lines
    before, after = _shown(old), _shown(new)
    if before == after:
        return []
    if _ABSENT in (old, new):  # all of an editor, say: its beginning tells which
        before, after = (side if len(side) <= 120 else f"{side[:120]} ..." for side in (before, after))
    return [f"{prefix}: {before} -> {after}"]


def git_state() -> dict[str, Any] | None:
    """Commit, whether files are changed, and the remote without credentials, of the working folder; None outside git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    remote = _git("remote", "get-url", "origin")
    return {"commit": commit, "changed": bool(_git("status", "--porcelain")), "remote": remote and redact(remote)}


def redact(url: str) -> str:
    """An address without user name, password and query, any of which can hold a credential."""
    return re.sub(r"\?.*$", "", re.sub(r"//[^/]*@", "//", url))


_ABSENT = object()


def _shown(value: Any) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _editor(editor: Editor) -> dict[str, Any]:
    cls = type(editor)
    params = {k: "(not stored)" if _SECRET.search(k) and v else v for k, v in editor.get_params().items()}
    row = {"class": f"{cls.__module__}.{cls.__qualname__}", "params": params, "does_nothing": editor.does_nothing}
    learned = {"learned": editor.learned} if editor.needs_fit else {}
    return {**row, **learned, **({"content": content} if (content := editor.content) else {}), **_source(cls)}


def _source(cls: type) -> dict[str, str]:
    """A hash of the class's code where it is a user's own (a notebook's, or from a file), which has no version."""
    if cls.__module__ != "__main__" and not cls.__module__.startswith("kedit_file_"):
        return {}
    try:
        return {"source": hashlib.sha256(inspect.getsource(cls).encode("utf-8", "surrogatepass")).hexdigest()[:16]}
    except (OSError, TypeError):  # typed at a prompt: the code is kept nowhere
        return {}


def _task(task: Task, cases: Sequence[Case]) -> dict[str, Any]:
    protocol = task.protocol
    name = f"{getattr(protocol, '__module__', '')}.{getattr(protocol, '__qualname__', type(protocol).__name__)}"
    dimensions = [asdict(dimension) for dimension in task.dimensions]
    order = next((case.tags["order"] for case in cases if "order" in case.tags), None)
    shown = {"headline": task.headline, "groups": dict(task.groups)}
    return {"protocol": name, "dimensions": dimensions, "cases": len(cases), "order": order, **shown}


def _describe(value: Any) -> Any:
    """For what JSON cannot hold: a set sorted, anything else by its repr without memory addresses."""
    if isinstance(value, set | frozenset):
        return sorted(str(v) for v in value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _where(backbone: Backbone) -> dict[str, str]:
    """The device, and for a model on a server its address, which holds no credentials."""
    address = getattr(backbone, "address", None)
    return {"device": str(backbone.device), **({"endpoint": str(address)} if address else {})}


def _versions(packages: Sequence[str]) -> dict[str, str | None]:
    return {package: package_version(package) for package in packages}


def settings_id(backbone: Backbone) -> str:
    """Eight hex digits over what turns a request into numbers and numbers into an answer, apart from the weights.

    That is the processor with its image sizes, the chat template and the generation defaults, as far as a backbone has them.
    """
    processor = getattr(backbone, "processor", None)
    parts = [processor, getattr(backbone.model, "generation_config", None)]
    texts = [str(part.to_json_string()) for part in parts if part is not None and hasattr(part, "to_json_string")]
    if hasattr(backbone, "settings"):  # one that has no such parts here, for it runs elsewhere
        texts.append(json.dumps(backbone.settings, sort_keys=True, default=_describe))
    templates = [str(getattr(part, "chat_template", None)) for part in (processor, getattr(processor, "tokenizer", None))]
    return hashlib.sha256("\x1f".join([*texts, *templates]).encode()).hexdigest()[:8]


def package_version(package: str) -> str | None:
    """Version of an installed package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
