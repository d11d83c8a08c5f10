from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from fakes import FakeBackbone

from kedit import answers as module
from kedit.answers import BaseAnswers, PlainAnswers, limited
from kedit.errors import ContractError, ImageError, RequestError, StoreError
from kedit.types import Answer, ImageRef, Request

A, B = Request("a?"), Request("b?")


def lines(answers: BaseAnswers) -> list[dict[str, object]]:
    return [json.loads(line) for line in answers.path.read_text().splitlines()]


def test_each_distinct_request_is_asked_once_and_answers_keep_length_and_order(tmp_path: Path) -> None:
    backbone = FakeBackbone({"a?": "A", "b?": "B"})
    answers = BaseAnswers(backbone, tmp_path)
    assert [a.text for a in answers.ask([A, B, Request("a?"), A])] == ["A", "B", "A", "A"]
    assert backbone.calls == [[A, B]]
    assert [a.text for a in answers.ask([B])] == ["B"]
    assert (backbone.asked, answers.hits, answers.misses) == (2, 3, 2)


def test_another_process_finds_the_answers_on_disk(tmp_path: Path) -> None:
    first = BaseAnswers(FakeBackbone(), tmp_path).ask([A, B])
    backbone = FakeBackbone()
    assert BaseAnswers(backbone, tmp_path).ask([A, B]) == first
    assert backbone.asked == 0


def test_seconds_are_zero_from_the_cache_and_counted_once_for_a_repetition(tmp_path: Path) -> None:
    answers = BaseAnswers(FakeBackbone(), tmp_path)
    fresh, again = answers.try_ask([A, A])
    assert fresh.seconds > 0
    assert again.seconds == 0 == answers.try_ask([A])[0].seconds


@dataclass
class Processor:
    size: int = 1
    chat_template: str = "a"

    def to_json_string(self) -> str:
        return str(self.size)


@pytest.mark.parametrize("change", ["weights", "limit", "dtype", "device", "library", "processor", "template", "generation"])
def test_another_setting_is_another_cache(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, backbone = FakeBackbone(), FakeBackbone()
    first.processor = backbone.processor = Processor()  # type: ignore[attr-defined]
    BaseAnswers(first, tmp_path).ask([A])
    if change == "weights":
        backbone.model[0].weight.data[0, 0] += 1
    elif change == "dtype":
        monkeypatch.setattr(FakeBackbone, "dtype", torch.bfloat16)
    elif change == "device":
        monkeypatch.setattr(FakeBackbone, "device", torch.device("cuda"))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    elif change in ("processor", "template"):
        backbone.processor = Processor(size=2 if change == "processor" else 1, chat_template="b" if change == "template" else "a")  # type: ignore[attr-defined]
    elif change == "generation":
        backbone.model.generation_config = Processor(size=3, chat_template="")  # type: ignore[assignment]
    elif change == "library":
        monkeypatch.setattr(module, "package_version", lambda package: "99")
    BaseAnswers(backbone, tmp_path, 32 if change == "limit" else 64).ask([A])
    assert backbone.asked == 1
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


def test_an_edited_backbone_is_never_asked_for_a_base_answer(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    for answers in (BaseAnswers(backbone, tmp_path), PlainAnswers(backbone)):
        backbone.model[1].weight.data[0, 0] += 1
        with pytest.raises(ContractError, match="1.weight"):
            answers.try_ask([A])
        backbone.model[1].weight.data[0, 0] -= 1
    assert backbone.asked == 0


class Odd(FakeBackbone):
    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        super().generate(requests)
        return [Answer("", 0) if r.question == "empty?" else Answer("nan", 3, finite=False) for r in requests]


def test_an_answer_without_text_or_from_nan_is_never_stored(tmp_path: Path) -> None:
    answers = BaseAnswers(Odd(), tmp_path)
    assert [a.text for a in answers.ask([Request("empty?"), Request("nan?")])] == ["", "nan"]
    assert not answers.path.exists()


def test_one_bad_request_costs_only_itself(tmp_path: Path) -> None:
    backbone = FakeBackbone({"a?": "A", "b?": "B"})
    answers = BaseAnswers(backbone, tmp_path)
    missing = Request("see?", (ImageRef(path=str(tmp_path / "none.png")),))
    null = Request("see?", (ImageRef(path="null\0byte.png"),))
    found = answers.try_ask([A, Request(" "), missing, B, null])
    assert [asked.answer and asked.answer.text for asked in found] == ["A", None, None, "B", None]
    assert isinstance(found[1].error, RequestError)
    assert isinstance(found[2].error, ImageError) and isinstance(found[4].error, ImageError)
    assert len(lines(answers)) == 2
    with pytest.raises(RequestError):
        answers.ask([A, Request(" ")])


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("out of memory"), KeyboardInterrupt()])
def test_what_concerns_all_requests_passes_through(error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = FakeBackbone()

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(backbone, "generate", fail)
    with pytest.raises(type(error)):
        BaseAnswers(backbone, tmp_path).try_ask([A, B])


def test_a_backbone_that_answers_too_few_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = FakeBackbone()
    monkeypatch.setattr(backbone, "generate", lambda requests, max_new_tokens: [Answer("x")])
    with pytest.raises(ContractError, match="1 answers to 2"):
        BaseAnswers(backbone, tmp_path).ask([A, B])


def test_a_cache_cut_at_any_byte_of_its_last_line_loses_that_answer_only(tmp_path: Path) -> None:
    backbone = FakeBackbone({"a?": "红钟", "b?": "ساعة"})
    answers = BaseAnswers(backbone, tmp_path)
    answers.ask([A, B])
    whole = answers.path.read_bytes()
    start = whole.index(b"\n") + 1
    for cut in range(start, len(whole)):
        answers.path.write_bytes(whole[:cut])
        again = FakeBackbone({"a?": "红钟", "b?": "ساعة"})
        assert [a.text for a in BaseAnswers(again, tmp_path).ask([A, B])] == ["红钟", "ساعة"]
        assert again.calls == [[B]]
        assert answers.path.read_bytes() == whole


def test_a_line_of_garbage_in_the_cache_is_passed_over(tmp_path: Path) -> None:
    answers = BaseAnswers(FakeBackbone(), tmp_path)
    answers.ask([A, B])
    answers.path.write_bytes(b"\xff\x00 garbage\n" + answers.path.read_bytes())
    backbone = FakeBackbone()
    BaseAnswers(backbone, tmp_path).ask([A, B])
    assert backbone.asked == 0


def test_the_cache_goes_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "here"))
    assert BaseAnswers(FakeBackbone()).path.parent == tmp_path / "here"
    monkeypatch.delenv("KEDIT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert BaseAnswers(FakeBackbone()).path.parent == tmp_path / ".cache" / "kedit"


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="KEDIT_CACHE"):
        BaseAnswers(FakeBackbone(), tmp_path / "file").ask([A])


def test_many_requests_are_asked_in_parts_each_kept_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 4)
    backbone = FakeBackbone()
    answers = BaseAnswers(backbone, tmp_path)
    generate, seen = backbone.generate, []

    def spy(requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        seen.append(len(lines(answers)) if answers.path.exists() else 0)
        return generate(requests, max_new_tokens=max_new_tokens)

    monkeypatch.setattr(backbone, "generate", spy)
    answers.ask([Request(f"{n}?") for n in range(10)])
    assert seen == [0, 4, 8]


def test_the_plain_way_asks_one_at_a_time_and_remembers_nothing() -> None:
    backbone = FakeBackbone()
    answers = PlainAnswers(backbone)
    assert [a.answer for a in answers.try_ask([A, B, A])] == [a.answer for a in answers.try_ask([A, B, A])]
    assert [len(call) for call in backbone.calls] == [1] * 6


def test_the_limit_holds_inside_the_block_only() -> None:
    backbone = FakeBackbone()
    with limited(backbone, 5):
        assert backbone.generate([A])[0].truncated
        backbone.generate([A], max_new_tokens=7)
    backbone.generate([A])
    assert backbone.limits == [5, 7, 64]
    assert "generate" not in vars(backbone)


def test_two_processes_share_one_cache_without_mixing_lines(tmp_path: Path) -> None:
    children = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            answers = BaseAnswers(FakeBackbone(), tmp_path)
            for n in range(15):
                answers.ask([Request(f"{child}-{n}?"), Request(f"shared {n}?")])
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    backbone = FakeBackbone()
    answers = BaseAnswers(backbone, tmp_path)
    answers.ask(
        [Request(f"{child}-{n}?") for child in range(3) for n in range(15)] + [Request(f"shared {n}?") for n in range(15)]
    )
    assert backbone.asked == 0
    assert all(line.keys() == {"key", "text", "tokens", "truncated"} for line in lines(answers))
