"""Files of edits: MMEdit, VLKEB, MMKE-Bench, FGVEdit, ADS-Edit and ComprehendEdit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from kedit.benchmarks.checks.base import Format, Rule, names, said
from kedit.benchmarks.checks.dirt import IN_ANSWERS, IN_REPHRASES, SHOWN, dirt
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row

_ENTITY = re.compile(r"(^|/)m\.[0-9a-z_]+/")
_NUMBERED = re.compile(r"\d+_COCO_")


def targets(source: str, target: str) -> Rule:
    """A rule: what is inserted is there and says something new; dirt in it and in the question's paraphrase."""

    def rule(row: Row) -> Iterator[Finding]:
        value, asked, rephrased = row.get(target), said(row, source), row.get("rephrase")
        if not said(row, target):
            yield Finding("empty_target", row.where, f"{target} is empty: loaders leave the row out", False)
        elif isinstance(value, str):
            yield from dirt(IN_ANSWERS, target, value, row.where)
            if value == row.get("pred"):
                yield Finding("unchanged", row.where, f"{target} is what the model was said to answer: {value[:SHOWN]!r}", False)
        if isinstance(rephrased, str):
            yield from dirt(IN_REPHRASES, "rephrase", rephrased, row.where)
            if rephrased.strip() == asked:
                yield Finding("same_rephrase", row.where, f"rephrase is the question itself: {asked[:SHOWN]!r}", False)

    return rule


def _paired(*pairs: tuple[str, str]) -> Rule:
    """A rule: of a question and its answer there are both or none."""

    def rule(row: Row) -> Iterator[Finding]:
        for question, answer in pairs:
            if bool(said(row, question)) != bool(said(row, answer)):
                there, lacking = (question, answer) if said(row, question) else (answer, question)
                yield Finding("half", row.where, f"{names(there)[0]} is there without {names(lacking)[0]}", False)

    return rule


def _hops(row: Row) -> Iterator[Finding]:
    """Portability questions in one of their two shapes."""
    hops = row.get("port_new")
    for hop in hops if isinstance(hops, list) else [] if hops is None else [hops]:
        nested = hop.get("Q&A") if isinstance(hop, Mapping) else None
        one = isinstance(hop, Mapping) and all(str(hop.get(key, "")).strip() for key in ("port_q", "port_a"))
        many = isinstance(nested, Mapping) and all(str(nested.get(key, "")).strip() for key in ("Question", "Answer"))
        if not (one or many):
            yield Finding("hop", row.where, f"port_new holds {hop!r:.80}, expected port_q and port_a, or Q&A", True)


def _entity(row: Mapping[str, Any]) -> bool:
    return bool(_ENTITY.search(str(row.get("image", ""))))


def _multi_hop(row: Mapping[str, Any]) -> bool:
    hops = row.get("port_new")
    return isinstance(hops, list) and any(isinstance(hop, Mapping) and "Q&A" in hop for hop in hops)


def _numbered(row: Mapping[str, Any]) -> bool:
    return bool(_NUMBERED.match(PurePosixPath(str(row.get("image_rephrase", ""))).name))


def _plain(row: Mapping[str, Any]) -> bool:
    return not (_entity(row) or _numbered(row))


_LOCALITY = (("loc", "loc_ans"), ("m_loc", "m_loc_q"))
_EDIT = ("src", "alt", "rephrase", "image", "image_rephrase", "loc", "m_loc")
_MMKE = (*_EDIT, "knowledge_type")
_RULES = (targets("src", "alt"), _paired(("loc", "loc_ans"), ("m_loc_q", "m_loc_a")), _hops)


def _edits(name: str, *keys: str, **more: Any) -> Format:
    given: dict[str, Any] = {"images": ("image", "image_rephrase", "m_loc"), "locality": _LOCALITY, "rules": _RULES} | more
    return Format(name, keys=keys or _EDIT, texts=("src",), answer="alt", **given)


def _of_kind(name: str, kind: str, *pairs: tuple[str, str]) -> Format:
    """MMKE-Bench keeps three kinds of knowledge, each with columns of its own."""
    keys = (*_MMKE, *(question for question, _ in pairs))
    images = ("image", "image_rephrase", "m_loc", "one_hop_img")
    return _edits(
        name, *keys, tells=lambda row: kind in str(row["knowledge_type"]), images=images, rules=(*_RULES, _paired(*pairs))
    )


_RELATED = tuple((f"{k}rel_{n}", f"{k}rel_ans_{n}|{k}rel_{n}_ans") for k in ("", "m_") for n in (1, 2))
FORMATS = (
    _edits("MMEdit E-VQA", more=("pred",), tells=_numbered),
    _edits("VLKEB", more=("pred",), tells=_entity),
    _edits("VLKEB with one hop", *_EDIT, "port_new", tells=lambda row: not _multi_hop(row)),
    _edits("VLKEB with several hops", *_EDIT, "port_new", tells=_multi_hop),
    _edits("MMEdit E-IC, or another file of its shape", more=("pred",), tells=_plain),
    _of_kind("MMKE-Bench (entities)", "entity", *_RELATED),
    _of_kind("MMKE-Bench (visual knowledge)", "visual", ("rel", "rel_ans"), ("m_rel", "m_rel_ans")),
    _of_kind("MMKE-Bench (user specific)", "user", *_RELATED),
    _edits(
        "FGVEdit",
        *("src", "alt", "rephrase", "image", "fg_gen_q", "fg_gen_a", "fg_loc_q", "fg_loc_a"),
        images=("image",),
        locality=(("loc", "loc_ans"),),
        rules=(targets("src", "alt"), _paired(("loc", "loc_ans"), ("fg_gen_q", "fg_gen_a"), ("fg_loc_q", "fg_loc_a"))),
    ),
    _edits(
        "ADS-Edit",
        *("src", "alt", "rephrase", "image", "image_rephrase", "image_type"),
        more=("loc", "m_loc", "data_type", "source"),
    ),
    Format(
        "ComprehendEdit",
        keys=("question", "answer", "rephrase", "image", "locality_prompt", "multimodal_locality_image"),
        more=("pid", "multimodal_locality_prompt", "multimodal_locality_ground_truth", "Category", "source"),
        id="pid",
        texts=("question",),
        answer="answer",
        images=("image", "multimodal_locality_image"),
        locality=(("locality_prompt",), ("multimodal_locality_image", "multimodal_locality_prompt")),
        rules=(targets("question", "answer"),),
    ),
)
