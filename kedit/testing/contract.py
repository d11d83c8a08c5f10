"""Every promise of the Editor contract as one check; ``kedit.testing.check_editor`` runs them in order."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kedit.editor import ContextEditor, Editor, WeightEditor
from kedit.errors import NotAttachedError, NotFittedError, NotRemovableError
from kedit.testing.bench import Bench, failing, hold, no_pickles, raises, returns_self, same_answers
from kedit.types import Request

Check = Callable[[Bench], bool | None]
CHECKS: list[tuple[str, Check]] = []
"""Promises and their checks, in the order in which they must run; a check that returns False does not concern the editor."""


def promise(text: str) -> Callable[[Check], Check]:
    """Add a check of the promise ``text``; it raises ``Broken`` or returns False where it does not concern the editor."""

    def add(check: Check) -> Check:
        CHECKS.append((text, check))
        return check

    return add


# -- making one --------------------------------------------------------------------------------------------------------


@promise("constructor arguments are keyword-only")
def _keyword_only(bench: Bench) -> None:
    wrong = [p.name for p in inspect.signature(type(bench.given)).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    names = ", ".join(wrong)
    hold(not wrong, f"{names} can be given by position or under any name; write def __init__(self, *, {names})")


@promise("the constructor stores its arguments under their names and does nothing else")
def _only_stores(bench: Bench) -> None:
    parameters = inspect.signature(type(bench.given)).parameters.values()
    names = [p.name for p in parameters]
    missing = [name for name in names if not hasattr(bench.given, name)]
    hold(not missing, f"{', '.join(missing)} is not stored; write self.{(missing or [''])[0]} = {(missing or [''])[0]}")
    given = {name: getattr(bench.given, name) for name in names}
    _stores(type(bench.given)(**given), given)
    if all(p.default is not p.empty for p in parameters):
        _stores(type(bench.given)(), {p.name: p.default for p in parameters})


def _stores(made: Editor, given: dict[str, Any]) -> None:
    extra = sorted(vars(made).keys() - given.keys())
    hold(not extra, f"the constructor also made {', '.join(extra)}; do that in build() or fit(), under names that end in _")
    other = [name for name in given if name not in vars(made) or vars(made)[name] is not given[name]]
    hold(not other, f"{', '.join(other)} is stored as something else than what was given; convert it where it is used")


@promise("get_params() gives the constructor's arguments")
def _get_params(bench: Bench) -> None:
    names, found = list(inspect.signature(type(bench.given)).parameters), bench.given.get_params()
    hold(list(found) == names, f"it gives {list(found)}, the constructor takes {names}; do not override get_params()")


# -- life --------------------------------------------------------------------------------------------------------------


@promise("using it before attach() raises NotAttachedError")
def _not_attached(bench: Bench) -> None:
    uses: dict[str, Callable[[Editor], Any]] = {
        "insert": lambda editor: editor.insert(bench.facts[0]),
        "generate": lambda editor: editor.generate(bench.requests),
        "remove": lambda editor: editor.remove("edit-1"),
        "reset": lambda editor: editor.reset(),
    }
    for name, use in uses.items():
        raises(NotAttachedError, partial(use, bench.copy()), f"{name}() before attach()")


@promise("attach() returns self and leaves the backbone as it is")
def _attach(bench: Bench) -> None:
    returns_self(bench.editor.attach(bench.backbone), bench.editor, "attach(backbone)")
    bench.unchanged("attach()")


@promise("inserting before fit() raises NotFittedError")
def _not_fitted(bench: Bench) -> bool | None:
    if bench.editor.fitted:
        return False
    raises(NotFittedError, lambda: bench.insert(bench.facts[0]), "insert() before fit()")
    return None


@promise("fit() returns self and leaves the backbone as it is")
def _fit(bench: Bench) -> None:
    torch.manual_seed(0)
    returns_self(bench.editor.fit(bench.cases), bench.editor, "fit(cases)")
    bench.unchanged("fit()")
    hold(bench.editor.fitted, "fitted is False after fit(); set self.fitted_ = True there")


@promise("with nothing inserted it answers as the unedited backbone")
def _nothing_inserted(bench: Bench) -> None:
    same_answers(bench.answers(), bench.base, "with nothing inserted", "the unedited backbone's")
    bench.unchanged("generate()")


@promise("with nothing inserted rewrite() gives back an equal request")
def _rewrite_nothing(bench: Bench) -> bool | None:
    if not isinstance(bench.editor, ContextEditor):
        return False
    same = all(bench.editor.rewrite(request) == request for request in bench.requests)
    hold(same, "it changed a request although nothing is inserted; return the request itself")
    return None


# -- editing and answering ---------------------------------------------------------------------------------------------


@promise("insert() changes weights only in a WeightEditor, and nothing else in the backbone")
def _insert_changes(bench: Bench) -> None:
    bench.insert(bench.facts[0])
    if isinstance(bench.editor, WeightEditor):
        bench.rest_unchanged("insert()")
    else:
        bench.unchanged("insert()")


@promise("generate() gives one answer for each request, in their order")
def _order(bench: Bench) -> None:
    forward = bench.answers()
    backward = bench.answers(requests=bench.requests[::-1])
    same_answers(backward[::-1], forward, "to the same requests in reverse order", "those in order")
    twice = bench.answers(requests=[request for request in bench.requests for _ in range(2)])
    same_answers(twice, [text for text in forward for _ in range(2)], "to requests given twice", "those given once")
    alone = [bench.answers(requests=[request])[0] for request in bench.requests[:2]]
    same_answers(alone, forward[:2], "to requests asked alone", "those asked together")
    hold(bench.answers(requests=[]) == [], "it answers an empty list; return []")


@promise("generate() changes nothing")
def _generate_changes_nothing(bench: Bench) -> None:
    weights, edits = bench.state.copy_weights(), dict(bench.editor.edits_)
    before, _ = bench.first
    bench.answers()
    names = bench.state.changed_weights(weights)
    hold(not names, f"weights changed in generate() ({', '.join(names[:3])}); edit in insert() only")
    bench.rest_unchanged("generate()")
    hold(bench.editor.edits_ == edits, "edits_ changed in generate(); insert in insert() only")
    same_answers(bench.answers(), before, "asked again", "those of the first time")


@promise("rewrite() is pure: the same request gives the same, and nothing changes")
def _rewrite_pure(bench: Bench) -> bool | None:
    if not isinstance(bench.editor, ContextEditor):
        return False
    first = [bench.editor.rewrite(request) for request in bench.requests]
    again = [bench.editor.rewrite(request) for request in bench.requests[::-1]][::-1]
    hold(first == again, "the second call gave another request than the first; depend on the request and on edits_ only")
    hold(all(isinstance(found, Request) for found in first), f"it gave {type(first[0]).__name__}; return a Request")
    bench.unchanged("rewrite()")
    return None


@promise("insert() returns a new id, a string, every time, and notes the edit under it")
def _ids(bench: Bench) -> None:
    before = list(bench.editor.edits_)
    ids = before + [bench.insert(fact) for fact in (bench.facts[1], bench.facts[0])]
    hold(all(isinstance(found, str) for found in ids), f"the ids are {ids}; insert() returns a string")
    hold(len(before) == 1 and len(set(ids)) == len(ids), f"the ids are {ids}; use each once")
    noted = list(bench.editor.edits_)
    hold(noted == ids, f"edits_ holds {noted}, expected {ids}; override apply(), not insert()")


@promise("what attach(), fit() and insert() add to it ends in an underscore")
def _names(bench: Bench) -> None:
    own = {*bench.editor.get_params(), "_serial"}
    wrong = [name for name in vars(bench.editor) if name not in own and not name.endswith("_")]
    hold(not wrong, f"found {', '.join(wrong)}; name it {', '.join(name.lstrip('_') + '_' for name in wrong)}")


# -- undoing -----------------------------------------------------------------------------------------------------------


@promise("reset() undoes every insert, weights bit for bit, and keeps what fit() learned")
def _reset(bench: Bench) -> None:
    bench.reset()
    hold(not bench.editor.edits_, "edits_ is not empty after reset(); override revert(), not reset()")
    hold(bench.editor.fitted, "fitted is False after reset(); keep what fit() learned")
    same_answers(bench.answers(), bench.base, "after reset()", "the unedited backbone's")


@promise("inserting again after reset() gives what it gave at first")
def _again(bench: Bench) -> None:
    answers, weights = bench.first
    bench.insert(bench.facts[1])
    bench.reset()
    bench.insert(bench.facts[0])
    names = bench.state.changed_weights(weights)
    hold(not names, f"the same insert gives other weights after reset() ({', '.join(names[:3])}); forget everything in revert()")
    same_answers(bench.answers(), answers, "inserted again after reset()", "those after the first insert")


@promise("an error inside insert() leaves everything as it was")
def _error(bench: Bench) -> None:
    bench.reset()
    bench.insert(bench.facts[0])
    for call in (1, 2, 3):
        weights, edits = bench.state.copy_weights(), dict(bench.editor.edits_)
        try:
            with failing(bench.backbone, call):
                bench.insert(bench.facts[1])
        except Exception:
            where = f"after an error in pass {call} through the model during insert()"
            names = bench.state.changed_weights(weights)
            hold(not names, f"{where} weights differ ({', '.join(names[:3])}); put them back in finally")
            bench.rest_unchanged(where.removeprefix("after "))
            hold(bench.editor.edits_ == edits, f"{where} edits_ differs; override apply(), not insert()")
            continue
        break  # fewer passes than that
    bench.reset()


@promise("remove() takes an edit back or raises NotRemovableError, and KeyError for an unknown id")
def _remove(bench: Bench) -> None:
    bench.reset()
    raises(KeyError, lambda: bench.editor.remove("no such edit"), "remove('no such edit')")
    first = bench.insert(bench.facts[0])
    one = bench.answers()
    second = bench.insert(bench.facts[1])
    two = bench.answers()
    try:
        bench.editor.remove(second)
    except NotRemovableError:
        hold(list(bench.editor.edits_) == [first, second], "edits_ changed although the edit was not removed")
        same_answers(bench.answers(), two, "after NotRemovableError", "those before")
        return bench.reset()
    left = list(bench.editor.edits_)
    hold(left == [first], f"edits_ is {left} after remove({second!r}); override unapply(), not remove()")
    same_answers(bench.answers(), one, "after remove() of the second edit", "those before it was inserted")
    third = bench.insert(bench.facts[1])
    hold(third not in (first, second), f"the id {third!r} of a removed edit was used again")
    bench.editor.remove(first)
    bench.editor.remove(third)
    same_answers(bench.answers(), bench.base, "after all edits were removed", "the unedited backbone's")
    return bench.reset()


# -- keeping -----------------------------------------------------------------------------------------------------------


@promise("save() and load() carry over what fit() learned")
def _save(bench: Bench) -> None:
    answers, _ = bench.first
    bench.reset()
    with tempfile.TemporaryDirectory() as folder:
        bench.editor.save(folder)
        no_pickles(folder)
        other = bench.copy().attach(bench.backbone)
        returns_self(other.load(folder), other, "load(path)")
        hold(other.fitted, "fitted is False after load(); set self.fitted_ = True there")
        bench.insert(bench.facts[0], other)
        try:
            same_answers(bench.answers(other), answers, "of a loaded editor", "those of the saved one")
        finally:
            other.reset()
    bench.unchanged("load(), insert() and reset()")


@promise("save_edits() and load_edits() carry over what was inserted")
def _save_edits(bench: Bench) -> None:
    for fact in bench.facts[:2]:
        bench.insert(fact)
    before = bench.answers()
    with tempfile.TemporaryDirectory() as folder:
        bench.editor.save_edits(folder)
        no_pickles(folder)
        bench.reset()
        torch.manual_seed(0)
        bench.editor.load_edits(folder)
        hold(len(bench.editor.edits_) == 2, f"edits_ holds {len(bench.editor.edits_)} edits after load_edits() of two")
        same_answers(bench.answers(), before, "after load_edits()", "those before save_edits()")
        bench.reset()


@promise("its parameters are the same at the end as at the beginning")
def _parameters(bench: Bench) -> None:
    given, found = bench.given.get_params(), bench.editor.get_params()
    changed = [name for name in given if found.get(name) is not given[name]]
    hold(not changed, f"{', '.join(changed)} was replaced; keep what you derive under names that end in _")
    now = repr(given)
    hold(now == bench.parameters, f"they were {bench.parameters} and are {now}; copy a list or a dict before you change it")
