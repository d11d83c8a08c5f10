"""Rows of EasyEdit-style files as edits with the questions that measure them; one table holds what each field becomes.

The table is of the fields of MMEdit, VLKEB, MMKE-Bench, FGVEdit, ADS-Edit and ComprehendEdit. No two of these use a name for
different things, so that a row is read by the fields it has, whatever it was taken for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY
from kedit.files.rows import Pictures, Row
from kedit.types import ImageRef

PORTABILITY, RELATION, IMAGE_RELATION = "portability", "relation", "image_relation"
QUESTION, ANSWER = ("src", "question", "query", "text"), ("alt", "answer", "target")
IMAGE, REPHRASED = ("image", "image_path", "image_name"), ("image_rephrase",)
LOCALITY = (CROSS_LANGUAGE, CROSS_SCENARIO)


@dataclass(frozen=True)
class Kind:
    """What a file can be taken for: the fields that tell it, whether answers are a few words, and what rows are grouped by."""

    marks: tuple[str, ...]
    short: bool = True
    group: str = ""
    heading: str = ""


KINDS: Mapping[str, Kind] = {
    "fgvedit": Kind(("src", "fg_loc_q")),
    "mmke": Kind(("src", "knowledge_type"), short=False, group="knowledge_type", heading="kind of knowledge"),
    "comprehend": Kind(("question", "multimodal_locality_prompt"), group="Category", heading="category"),
    "ads": Kind(("src", "image_type"), short=False, group="data_type", heading="kind of data"),
    "vlkeb": Kind(("src", "alt", "image", "m_loc_q")),
    "e-ic": Kind(("src", "alt", "image", "m_loc_q"), short=False),
    "e-vqa": Kind(("src", "alt", "image", "m_loc_q")),
}
"""By name, the more telling first; the last three have the same fields and are told apart by paths (see ``kind_of``)."""


def kind_of(row: Row) -> str | None:
    """What a row's file is, by its fields; None for what is no edit, such as a pool of locality questions."""
    found = next((name for name, kind in KINDS.items() if all(mark in row.values for mark in kind.marks)), None)
    if found != "vlkeb":
        return found
    if "port_new" in row.values or re.search(r"(^|/)m\.[^/]+/", str(row.get("image"))):
        return found
    return "e-ic" if "caption" in row.file.name.lower() else "e-vqa"


@dataclass(frozen=True)
class Slot:
    """A question that a row may hold: which dimension it measures, and the names of the fields of question, answer, images."""

    name: str
    dimension: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    images: tuple[str, ...] = ()
    """None: asked without an image."""


def _relations() -> Iterator[Slot]:
    for n in ("", "_1", "_2"):
        yield Slot(f"rel{n}", RELATION, (f"rel{n}",), (f"rel_ans{n}", f"rel{n}_ans"))
        answers = (f"m_rel_ans{n}", f"m_rel{n}_ans")
        yield Slot(f"m_rel{n}", IMAGE_RELATION, (f"m_rel{n}",), answers, IMAGE)
        yield Slot(f"m_rel{n}_rephrase", IMAGE_RELATION, (f"m_rel{n}",), answers, REPHRASED)


SLOTS = (
    Slot("rephrase", GENERALITY, ("rephrase",), ANSWER, IMAGE),
    Slot("image_rephrase", GENERALITY, ("image_rephrase_question", *QUESTION), ANSWER, REPHRASED),
    Slot("fg_gen", GENERALITY, ("fg_gen_q",), ("fg_gen_a",), IMAGE),
    Slot("t_g", GENERALITY, ("T_G_qs",), ("T_G_ans",), IMAGE),
    Slot("fg_loc", CROSS_LANGUAGE, ("fg_loc_q",), ("fg_loc_a",), IMAGE),
    Slot("m_loc", CROSS_SCENARIO, ("m_loc_q", "multimodal_locality_prompt"), ("m_loc_a", "multimodal_locality_ground_truth"),
         ("m_loc", "multimodal_locality_image")),
    Slot("loc", CROSS_SCENARIO, ("loc", "locality_prompt"), ("loc_ans", "locality_ground_truth")),
    Slot("port_t", PORTABILITY, ("port_T_qs",), ("port_ans",)),
    Slot("port_m", PORTABILITY, ("port_M_qs",), ("port_ans",), IMAGE),
    *_relations(),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question that measures an edit; ``answer`` is what is wanted, or for locality what the file gives, "" for nothing."""

    slot: str
    dimension: str
    question: str
    answer: str
    images: tuple[ImageRef, ...]
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Edit:
    """What a row inserts, and the questions that measure it; ``raw`` is the answer as the file holds it."""

    uid: str
    kind: str
    question: str
    answer: str
    raw: str
    images: tuple[ImageRef, ...]
    others: tuple[Question, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Reader:
    """Reads rows of one file; ``dirt`` counts what was found and how it was dealt with, by its description."""

    kind: str
    pictures: Pictures
    hops: tuple[int, ...] | None = None
    clean: bool = True
    dirt: Counter[str] = field(default_factory=Counter)
    _known: dict[str, tuple[ImageRef, ...]] = field(default_factory=dict)

    def edit(self, row: Row) -> Edit | str:
        """The row's edit, or why it is skipped; raises DataError, with file and row, for a row that cannot be read."""
        raw = self._answer(row, ANSWER)
        if not any(name in row.values for name in ANSWER):
            raise row.error(f"no answer to insert ({', '.join(ANSWER)}); keys here: {', '.join(row.values) or 'none'}")
        question, images = row.text(*QUESTION).strip(), self._images(row, IMAGE)
        if not images:
            raise row.error(f"no image ({', '.join(IMAGE)}); keys here: {', '.join(row.values)}")
        if not raw.strip():
            return "the answer is empty"
        ports = tuple(self._ports(row, images))
        if self.hops is not None and not ports:
            return f"no question of {' or '.join(map(str, self.hops))} hops"
        if raw != raw.strip():
            self.dirt["answers had blanks or line breaks around them, which were cut"] += 1
        slots = tuple(found for slot in SLOTS if (found := self._slot(slot, row)) is not None)
        wording = _described if str(row.get("source")).lower() == "vsr" else str
        others = tuple(_worded(one, wording) for one in (*slots, *ports))
        return Edit(row.uid, self.kind, wording(question), raw.strip(), raw, images, others, self._tags(row))

    def _slot(self, slot: Slot, row: Row) -> Question | None:
        question = row.maybe(*slot.questions).strip()
        images = self._images(row, slot.images) if question else ()
        if not question or (slot.images and not images):
            return None
        if slot.name == "rephrase":
            question = self._rephrased(question, row.text(*QUESTION).strip())
        answer = self._answer(row, slot.answers).strip()
        if not answer and slot.dimension not in LOCALITY:
            self.dirt[f"questions of the field {slot.questions[0]} have no answer and are not asked"] += 1
        if not question or (not answer and slot.dimension not in LOCALITY):
            return None
        return Question(slot.name, slot.dimension, question, answer, images)

    def _rephrased(self, text: str, question: str) -> str:
        if text == question:
            self.dirt["rephrases are the question itself"] += 1
        found, what = rephrased(text, question) if self.clean else (text, "")
        if what:
            self.dirt[what] += 1
        return found

    def _answer(self, row: Row, names: Sequence[str]) -> str:
        """A text as it is, or a number as it is written; "" where there is none."""
        value = row.get(*names)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if value is None or value == "" or (isinstance(value, str) and not value.strip()):
            return ""
        return row.text(*names)

    def _images(self, row: Row, names: Sequence[str]) -> tuple[ImageRef, ...]:
        value = row.get(*names) if names else None
        if value is None or (isinstance(value, str | list | tuple) and not value):
            return ()
        if not isinstance(value, str):
            return self.pictures.refs(value, row)
        if value not in self._known:  # one image is named by several fields of a row
            self._known[value] = self.pictures.refs(value, row)
        return self._known[value]

    def _ports(self, row: Row, images: tuple[ImageRef, ...]) -> Iterator[Question]:
        """Questions that combine the edit with other knowledge, of the hops asked for; VLKEB has them in two shapes."""
        listed = row.get("port_new") or []
        if not isinstance(listed, list | tuple):
            raise row.error(f"port_new is {listed!r:.80}, expected a list of questions with answers")
        shown = self._images(row, ("one_hop_img",)) or images
        for one in listed:
            hop, pair = _port(one, row)
            if self.hops is None or hop in self.hops:
                question, answer = pair.text("Question", "port_q").strip(), self._answer(pair, ("Answer", "port_a")).strip()
                if not answer:
                    raise row.error("an entry of port_new has no answer")
                yield Question(f"port_{hop}_hop", PORTABILITY, question, answer, shown, {"hop": str(hop)})

    def _tags(self, row: Row) -> dict[str, str]:
        tags = {"raw": row.uid}
        kind = KINDS[self.kind]
        if kind.group and (group := row.maybe(kind.group)):
            tags["topic_group"] = group
        if scenario := self._scenario(row):
            tags["scenario"] = scenario
        return tags

    def _scenario(self, row: Row) -> str:
        """What several rows are about, where paths tell it: an entity's folder, an image with several edits."""
        path = row.get(*IMAGE)
        path = path.get("path") if isinstance(path, Mapping) else path
        if not isinstance(path, str):
            return ""
        folders = PurePosixPath(path.replace("\\", "/")).parent.parts
        if self.kind == "vlkeb":
            return next((part for part in folders if part.startswith("m.")), "")
        if self.kind == "mmke":
            return "/".join([row.maybe("knowledge_type"), *folders]) if len(folders) > 1 else ""
        return path if self.kind == "fgvedit" else ""


def _port(one: Any, row: Row) -> tuple[int, Row]:
    """The hops of one entry of ``port_new``, and its question and answer as a row of the same place."""
    if isinstance(one, Mapping) and isinstance(pair := one.get("Q&A"), Mapping):
        hop = re.match(r"\s*(\d+)", str(one.get("port_type")))
        if hop is None:
            raise row.error(f"port_type is {one.get('port_type')!r:.80}, expected one such as '2-hop'")
        return int(hop[1]), replace(row, values=pair)
    if isinstance(one, Mapping) and "port_q" in one:
        return 1, replace(row, values=one)
    raise row.error(f"an entry of port_new is {one!r:.80}, expected port_type and Q&A, or port_q and port_a")


_REFUSAL = re.compile(r"(i'm|i am) sorry\b|as an ai\b", re.IGNORECASE)
_LABEL = re.compile(r"[^\"“?]*\b(rewritten|rephrased?|paraphrased?)\b[^\"“?]*:\s*", re.IGNORECASE)
_PAIR = re.compile(r"[\"“][^\"“”]*[\"”][^\"“”]*\bas:? [\"“]([^\"“”]*)[\"”]\.?")


def rephrased(text: str, question: str) -> tuple[str, str]:
    """The one rephrase in what a language model wrote, and what had to be done to it ("" for nothing).

    Quotation marks around the whole are taken off, as are labels ("Rewritten as:"); of several lines the first one counts
    that is neither a label nor the question itself. A refusal gives "".
    """
    if _REFUSAL.match(text):
        return "", "rephrases are refusals of a language model and are not asked"
    lines = [line for line in map(_bare, text.splitlines()) if line]
    other = [line for line in lines if line != question] or lines
    if not other:
        return "", "rephrases have no words and are not asked"
    if len(text.splitlines()) > 1:
        return other[0], "rephrases had several lines, of which the first that rephrases is asked"
    return other[0], "" if other[0] == text else "rephrases lost quotation marks or a label around them"


def _bare(line: str) -> str:
    """A line without the label before it and the quotation marks around it."""
    line = line.strip()
    bare = line[label.end() :] if (label := _LABEL.match(line)) else line
    quoted = _PAIR.fullmatch(bare) or re.fullmatch(r"[\"“]([^\"“”]*)[\"”]", bare)
    return (quoted[1] if quoted else bare).strip()


def _described(text: str) -> str:
    return f"Is this description of the picture true or false? {text}"


def _worded(question: Question, wording: Any) -> Question:
    """Questions about the edit in the wording of its source; those about something else as they are."""
    return question if question.dimension in LOCALITY else replace(question, question=wording(question.question))
