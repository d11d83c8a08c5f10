"""Insertion benchmarks from EasyEdit-style files: MMEdit, VLKEB, MMKE-Bench, FGVEdit, ADS-Edit and ComprehendEdit.

A row becomes a case: its edit is inserted and asked again (reliability), and its other fields are questions that measure it.
What must not change is compared with the unedited backbone's own answer, as everywhere here; answers that the file gives for
such questions are kept for the teacher-forced metrics alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.easyedit_rows import IMAGE_RELATION, KINDS, LOCALITY, PORTABILITY, RELATION, Edit, Question, Reader, kind_of
from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY, round_robin
from kedit.errors import DataError, unknown_name
from kedit.files.rows import Pictures, Row, content_digest, files_of, rows_of
from kedit.protocols import RELIABILITY, final, retention
from kedit.types import Case, ImageRef, Knowledge, Probe, Request

ALIASES = (
    *("VLKEB_images/mmkb_images", "VLKEB_images", "mmkb_images", "datasets/VLKEB_images/mmkb_images", "datasets/VLKEB_images"),
    *("datasets", "data_image", "images", "data/images", "coco_images"),
)
"""Folders that images are also looked for in: what the data sets' own instructions and mirrors call them."""
SHORT, LONG = "Answer in a few words.", "Answer in one or two sentences."
"""System prompts, by the kind of answer that a data set has."""
SHORT_ANSWER = "Question: {} Short answer:"
"""The template that most published numbers were made with; off by default."""
CHAIN = 3
"""Edits that an image needs to be a chain."""
_DIMENSIONS = (
    Dimension(RELIABILITY, "Rel"),
    Dimension(GENERALITY, "Gen"),
    Dimension(CROSS_LANGUAGE, "Same-image Loc", True),
    Dimension(CROSS_SCENARIO, "Other Loc", True),
    Dimension(PORTABILITY, "Port"),
    Dimension(RELATION, "Relation"),
    Dimension(IMAGE_RELATION, "Image relation"),
)
_WHY = {
    GENERALITY: "no row asks its edit in another way or of another image",
    CROSS_LANGUAGE: "no row asks anything else about the image that it edits, in another language or not",
    CROSS_SCENARIO: "no row asks about something else",
}
_TEST = re.compile(r"(?<![a-z])(eval|test|val)(?![a-z])[^/]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """One file as it was read: its edits, (file and row, reason) of what was skipped, and dirt by kind."""

    path: Path
    kind: str
    edits: tuple[Edit, ...]
    skipped: tuple[tuple[str, str], ...]
    dirt: Mapping[str, int]


class EasyEdit:
    """Insertion from EasyEdit-style files: MMEdit (E-VQA, E-IC), VLKEB, MMKE-Bench, FGVEdit, ADS-Edit, ComprehendEdit.

    ``path`` is a file or a folder, of which files named "train" are the train split and files that hold no edits are left
    aside; beside a single file its train file is found by name, or ``train`` names one. ``kind`` says what the rows are
    (one of ``KINDS``) where "auto" would be wrong. ``images`` is one folder or several that image paths start from, by default
    the data's and the usual ones beside it. ``hops`` (1 to 4, or several) keeps the portability questions of these and rows
    that have one; None asks all there are.

    ``chains`` adds a task in which the edits of an image that has at least 3 are inserted one after the other;
    ``chain_length`` takes the first so many of images with enough, so that retention can be compared step by step.
    ``template`` (such as ``SHORT_ANSWER``) has a ``{}`` for the question and is put around whatever is asked of an image;
    ``system`` is the system prompt, None for the one that suits the answers. ``clean=False`` asks rephrases as they are.

    Raises DataError, which names file and row, on first use. ``excluded`` says which dimensions the data cannot measure.
    """

    name = "easyedit"

    def __init__(
        self,
        path: str | Path,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        train: str | Path | None = None,
        kind: str = "auto",
        hops: int | Sequence[int] | None = None,
        chains: bool = False,
        chain_length: int | None = None,
        template: str | None = None,
        system: str | None = None,
        clean: bool = True,
    ) -> None:
        self.path = path
        self.images = images
        self.train_path = train
        self.kind = kind
        self.hops = hops
        self.chains = chains
        self.chain_length = chain_length
        self.template = template
        self.system = system
        self.clean = clean

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        return Path(self.path) if Path(self.path).is_dir() else Path(self.path).parent

    @cached_property
    def pictures(self) -> Pictures:
        """Where images are looked for: in the folders given, else in the data's; and below the usual names there or beside it."""
        if self.images is None:
            above = [self.folder.resolve().parent, self.folder.resolve().parent.parent]
            roots, places = [self.folder], [self.folder, *above]
        else:
            roots = [Path(self.images)] if isinstance(self.images, str | Path) else [Path(root) for root in self.images]
            places = roots
        return Pictures([*roots, *(place / name for place in places for name in ALIASES if (place / name).is_dir())])

    @cached_property
    def _paths(self) -> tuple[list[Path], list[Path]]:
        """Files to evaluate on, and files to train on."""
        files = files_of(Path(self.path))
        given = [] if self.train_path is None else files_of(Path(self.train_path))
        if Path(self.path).is_file():
            return files, given or _beside(files[0])
        named = [file for file in files if "train" in file.relative_to(self.path).as_posix().lower()]
        return [file for file in files if file not in named and file not in given], given or named

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What is evaluated on; raises DataError where there is no edit, and where two files hold the same ones."""
        found = self._sources(self._paths[0], Path(self.path).is_dir())
        if not any(source.edits for source in found):
            reasons = Counter(reason for source in found for _, reason in source.skipped)
            raise DataError(f"{self.path} holds no edit; {_listed(reasons) or 'expected rows of ' + ', '.join(KINDS)}")
        seen: dict[tuple[object, ...], Path] = {}
        for source in found:
            for edit in source.edits:
                key = (edit.images, edit.question, edit.answer)
                if seen.setdefault(key, source.path) != source.path:
                    raise DataError(f"{seen[key]} and {source.path} hold the same edits: give one of the files, not the folder")
        return found

    @cached_property
    def train_sources(self) -> tuple[Source, ...]:
        """What editors may learn from, none where there is no train file."""
        return self._sources(self._paths[1], len(self._paths[1]) > 1)

    def _sources(self, paths: Iterable[Path], several: bool) -> tuple[Source, ...]:
        found = [self._read(path, self.folder if path.is_relative_to(self.folder) else path.parent, several) for path in paths]
        return tuple(source for source in found if source is not None)

    def _read(self, path: Path, root: Path, several: bool) -> Source | None:
        """One file; None for a file of something else where it is one of several."""
        if self.kind != "auto" and self.kind not in KINDS:
            raise unknown_name("kind of file", self.kind, ["auto", *KINDS])
        rows = iter(rows_of(path, root))
        first = next(rows, None)
        kind = None if first is None else kind_of(first)
        if kind is None and several:
            return None
        if first is None:
            raise DataError(f"{path} holds no rows")
        if kind is None and self.kind == "auto":
            keys = ", ".join(map(str, first.values)) or "none"
            wanted = "; ".join(f"{name} ({', '.join(one.marks)})" for name, one in KINDS.items())
            say = "rename the keys, or say which it is: easyedit:FILE:kind=e-vqa, in Python kind='e-vqa'"
            raise first.error(f"not an edit. Keys found: {keys}. Expected those of {wanted}; {say}")
        hops = (self.hops,) if isinstance(self.hops, int) else None if self.hops is None else tuple(self.hops)
        taken = kind if self.kind == "auto" and kind is not None else self.kind
        return _source(path, chain([first], rows), Reader(taken, self.pictures, hops, self.clean))

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the files and what decides how they are asked, 64 hex digits; images have their own digests."""
        settings = [self.kind, self.hops, self.chains, self.chain_length, self.template, self.system, self.clean, SHORT, LONG]
        return content_digest((source.path for source in (*self.sources, *self.train_sources)), settings)

    # -- what is in them -----------------------------------------------------------------------------------------------

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(file and row, reason) of what is not asked."""
        return [one for source in self.sources for one in source.skipped]

    @cached_property
    def excluded(self) -> dict[str, str]:
        """By dimension that other insertion benchmarks have: why these data cannot measure it, so that Overall leaves it out."""
        have = {one.dimension for source in self.sources for edit in source.edits for one in edit.others}
        return {name: why for name, why in _WHY.items() if name not in have}

    @cached_property
    def notes(self) -> list[str]:
        """What a reader should know: what files were taken for, what was skipped, cleaned and left out."""
        lines = [f"{s.path.name}: taken for {s.kind}, {len(s.edits)} edits, {len(s.skipped)} rows skipped" for s in self.sources]
        lines += [f"skipped: {_listed(Counter(reason for _, reason in self.skipped))}"] if self.skipped else []
        dirt = sum((Counter(source.dirt) for source in self.sources), Counter[str]())
        lines += [f"{n} {what}" for what, n in dirt.items()]
        counts = f"Overall is a mean over {len(self.tasks['single'].dimensions)} dimensions"
        return lines + [f"{name} is no dimension here: {why}; {counts}" for name, why in self.excluded.items()]

    def leaks(self) -> dict[str, int]:
        """How many images, edits and locality questions of the evaluation also occur in the train file."""

        def seen(sources: Sequence[Source]) -> dict[str, set[object]]:
            edits = [edit for source in sources for edit in source.edits]
            others = [one for edit in edits for one in edit.others if one.dimension in LOCALITY]
            return {
                "images": {image for edit in edits for image in edit.images},
                "edits": {(edit.images, edit.question, edit.answer) for edit in edits},
                "locality questions": {(one.images, one.question) for one in others},
            }

        train, test = seen(self.train_sources), seen(self.sources)
        return {name: len(found & train[name]) for name, found in test.items()}

    # -- cases ---------------------------------------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """ "single", and "chains" where asked for; the dimensions are those that some row has a question for."""
        have = {RELIABILITY} | {one.dimension for source in self.sources for edit in source.edits for one in edit.others}
        dimensions = tuple(dimension for dimension in _DIMENSIONS if dimension.name in have)
        headings = {KINDS[source.kind].heading for source in self.sources} - {""}
        groups = {"topic_group": " or ".join(sorted(headings))} if headings else {}
        groups |= {"file": "file"} if len(self.sources) > 1 else {}
        tasks = {"single": Task("single", final, dimensions, groups=groups)}
        if self.chains:
            protocol = final if self.chain_length is None else retention
            tasks["chains"] = Task("chains", protocol, dimensions, groups=groups)
        return tasks

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """The cases of a task, taken from the files in turn; ``limit`` counts edits, for chains images."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks, "" if self.chains else "Chains are asked for by chains=True.")
        units = {str(s.path): [(edit,) for edit in s.edits] if task == "single" else self._chains(s) for s in self.sources}
        several = len(self.sources) > 1
        chosen = [(_below(self.folder, name) if several else "", unit) for name, _, unit in round_robin(units, limit)]
        return Lazy(len(chosen), lambda k: self._case(chosen[k][1], chosen[k][0], "" if task == "single" else "chain/"))

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """A case per edit of the train file; empty where there is none."""
        edits = [edit for _, _, edit in round_robin({str(s.path): s.edits for s in self.train_sources}, limit)]
        return Lazy(len(edits), lambda k: self._case((edits[k],), "", ""))

    def _chains(self, source: Source) -> list[tuple[Edit, ...]]:
        """The edits of each image that has enough, in the file's order; a question that comes again would undo the first."""
        least = CHAIN if self.chain_length is None else self.chain_length
        by_image: dict[tuple[ImageRef, ...], dict[str, Edit]] = {}
        for edit in source.edits:
            by_image.setdefault(edit.images, {}).setdefault(edit.question, edit)
        return [tuple(edits.values())[: self.chain_length] for edits in by_image.values() if len(edits) >= least]

    def _case(self, edits: Sequence[Edit], file: str, prefix: str) -> Case:
        inserted, probes = [], []
        for step, edit in enumerate(edits, 1):
            request = self._request(edit.kind, edit.question, edit.images)
            inserted.append(Knowledge(request, edit.answer))
            tags = {"slot": "src", **({"raw_answer": edit.raw} if edit.raw != edit.answer else {})}
            probes.append(Probe(RELIABILITY, request, edit.answer, step, tags))
            probes += [self._probe(edit.kind, one, step) for one in edit.others]
        tags = {**edits[0].tags, **({"file": file} if file else {})}
        return Case(f"{prefix}{edits[0].uid}", tuple(inserted), tuple(probes), tags)

    def _probe(self, kind: str, one: Question, step: int) -> Probe:
        """Without a reference what must stay as it is; the file's own answer to that goes along for older metrics."""
        kept = one.dimension in LOCALITY
        tags = {"slot": one.slot, **one.tags, **({"forced_answer": one.answer} if kept and one.answer else {})}
        return Probe(one.dimension, self._request(kind, one.question, one.images), None if kept else one.answer, step, tags)

    def _request(self, kind: str, question: str, images: tuple[ImageRef, ...]) -> Request:
        if self.template is not None and "{}" not in self.template:
            raise DataError(f"template {self.template!r} has no {{}} for the question, as {SHORT_ANSWER!r} has")
        asked = self.template.replace("{}", question) if self.template and images else question
        system = (SHORT if KINDS[kind].short else LONG) if self.system is None else self.system
        return Request(asked, images, system=system or None)


def _source(path: Path, rows: Iterable[Row], reader: Reader) -> Source:
    edits: list[Edit] = []
    skipped: list[tuple[str, str]] = []
    for row in rows:
        found = reader.edit(row)
        if isinstance(found, Edit):
            edits.append(found)
        else:
            skipped.append((row.where, found))
    return Source(path, reader.kind, tuple(edits), tuple(skipped), reader.dirt)


def _beside(file: Path) -> list[Path]:
    """The train file that belongs to a file, by the names that data sets use; none where it is not there."""
    names = [_TEST.sub(lambda m: m[0].replace(m[1], "train", 1), file.name), f"train{file.suffix}"]
    return [found for name in names if name != file.name and (found := file.with_name(name)).is_file()][:1]


def _below(folder: Path, name: str) -> str:
    return Path(name).relative_to(folder).as_posix()


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({n})" for reason, n in reasons.items())
