"""What a run is made of: editors by name, tasks, and the keys of the records that it will have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kedit.benchmark import Benchmark, Task
from kedit.editor import Editor
from kedit.errors import ContractError, StoreError, unknown_name
from kedit.protocols import Ask
from kedit.store import Key
from kedit.types import Case


def by_name(editors: Editor | Sequence[Editor] | Mapping[str, Editor]) -> dict[str, Editor]:
    """One editor, several or a mapping as a mapping; ContractError for what is no editor, StoreError for two of one name."""
    if isinstance(editors, Mapping):
        pairs = list(editors.items())
    else:
        several = [editors] if isinstance(editors, Editor) else list(editors)
        pairs = [(getattr(editor, "name", ""), editor) for editor in several]
    for name, editor in pairs:
        if not isinstance(editor, Editor):
            raise ContractError(f"{editor!r} is no editor; give an instance of a subclass of kedit.Editor, such as MyEditor()")
        if [n for n, _ in pairs].count(name) > 1:
            raise StoreError(f"two editors are called {name!r}; name them by a mapping: {{{name!r}: ..., '{name}-2': ...}}")
    return dict(pairs)


def tasks_of(benchmark: Benchmark, tasks: str | Sequence[str] | None) -> list[str]:
    """The tasks that are named, or all that need not be; UnknownNameError for one that the benchmark does not have."""
    if tasks is None:
        return [name for name, task in benchmark.tasks.items() if not task.on_request]
    wanted = [tasks] if isinstance(tasks, str) else list(tasks)
    for name in wanted:
        if name not in benchmark.tasks:
            raise unknown_name(f"task of {benchmark.name}", name, benchmark.tasks)
    return wanted


def keys_of(name: str, task: Task, cases: Sequence[Case]) -> Iterator[Key]:
    """Keys of all records that a task's cases will have, in order; takes no model."""
    for case in cases:
        asks = [event for event in task.protocol(case) if isinstance(event, Ask)]
        yield from dict.fromkeys((name, case.id, ask.after, probe) for ask in asks for probe in ask.probes)
