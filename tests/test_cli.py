"""The command line as a user meets it: help, misspelt names, a run that resumes, a report, data commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kedit.cli import main


def kedit(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize(
    "command", [[], ["run"], ["report"], ["check"], ["editors"], ["data", "build"], ["data", "check"], ["zoo", "train"]]
)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = kedit(*command, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--editors", "finetun"], "Did you mean 'finetune'"),
        (["--benchmark", "kibench-opn"], "Did you mean 'kibench-open'"),
        (["--protocols", "singel"], "Did you mean 'single'"),
        (["--editors", "ike", "--set", "ike.demo=2"], "Did you mean 'demos'"),
        (["--editors", "base", "--set", "ike.demos=2"], "expected EDITOR.PARAM=VALUE"),
        (["--backbone", "tiny-intern"], "Did you mean 'tiny-internvl'"),
        (["--editors", "nowhere.py:Mine"], "there is no file"),
        (["--editors", "mcki", "--set", "mcki.dim=wide"], "MCKI: dim is 'wide', expected a number"),
        (["--editors", "mcki:threshold=auto"], "MCKI: threshold is 'auto', expected a number or None"),
        (["--editors", "lora", "--set", "lora.plain=false"], "LoRA: plain is 'false', expected True or False"),
        (["--dtype", "int8"], "unknown dtype 'int8'"),
        (["--device", "nonsense"], "device 'nonsense' cannot be used here"),
    ],
)
def test_a_misspelt_name_or_value_is_answered_with_what_was_expected(words: list[str], said: str, tmp_path: Path) -> None:
    result = kedit("run", "--out", str(tmp_path / "run"), *words)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "run").exists()


def test_two_editors_of_one_class_are_told_apart_and_parameters_may_hold_commas() -> None:
    from kedit.commands.fitted import editors_of
    from kedit.commands.shared import split

    names = split(None, None, "ike:demos=4,seed=1, ike:demos=2,lora")  # type: ignore[arg-type]
    assert names == ("ike:demos=4,seed=1", "ike:demos=2", "lora")
    found = editors_of(names, ("lora.rank=2",), "tiny-internvl")
    assert list(found) == ["base", "ike", "ike-2", "lora"]
    assert [found["ike"].get_params()[key] for key in ("demos", "seed", "pool")] == [4, 1, 580]
    assert found["lora"].get_params()["rank"] == 2


def test_lists_name_what_there_is() -> None:
    assert "kibench-open" in kedit("data", "list").output
    assert "tiny-internvl" in kedit("zoo", "list").output
    assert "IKE(demos=16" in kedit("editors").output
    info = kedit("data", "info", "kibench-open").output
    assert "single: 4000 cases" in info and "train: 11600 cases" in info


def test_data_is_built_checked_and_shown(tmp_path: Path) -> None:
    assert kedit("data", "build", "kibench-open", "--cases", "1", "--out", str(tmp_path / "open")).exit_code == 0
    assert kedit("data", "check", str(tmp_path / "open")).exit_code == 0
    assert kedit("data", "check", str(tmp_path)).exit_code != 0
    assert kedit("data", "show", "kibench-open", "--sheet", str(tmp_path / "sheet.png")).exit_code == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_repeated_for_nothing_and_another_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "run"
    words = ["run", "--editors", "ike", "--set", "ike.demos=0", "--protocols", "single", "--limit", "1", "--out", str(out)]
    first = kedit(*words)
    assert first.exit_code == 0, first.output
    files = {file.name: file.read_bytes() for file in (out / "records").iterdir()}
    assert set(files) == {"base.jsonl", "ike.jsonl"}  # the do-nothing row comes by itself
    assert kedit(*words).exit_code == 0
    assert files == {file.name: file.read_bytes() for file in (out / "records").iterdir()}
    refused = kedit(*words, "--seed", "1")
    assert refused.exit_code != 0 and "seed" in refused.output
    shown = kedit("report", str(out))
    assert shown.exit_code == 0, shown.output
    assert "ike" in shown.output and (out / "report" / "index.html").exists()


def test_rows_that_are_not_asked_are_named_and_a_run_of_nothing_is_no_success(tmp_path: Path) -> None:
    file, row = tmp_path / "mine.jsonl", {"question": "What is this?", "image": "none.png", "language": "en"}
    file.write_text(json.dumps({**row, "answer": ""}) + "\n", encoding="utf-8")
    result = kedit("run", "--benchmark", f"kibench:{file}", "--editors", "base", "--out", str(tmp_path / "run"))
    assert result.exit_code == 1
    assert "1 rows of kibench are left out, first" in result.output and "line 1: answer is empty" in result.output
    assert "nothing was answered: kibench holds no case of single" in result.output
    file.write_text(json.dumps({**row, "answer": "A drum."}) + "\n", encoding="utf-8")
    result = kedit("run", "--benchmark", f"kibench:{file}", "--editors", "base", "--out", str(tmp_path / "failed"))
    assert result.exit_code == 1 and "nothing was answered: all 1 failed" in result.output


def test_a_foreign_layout_names_its_keys_and_is_read_with_a_mapping(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8), "red").save(tmp_path / "a.png")
    rows = [
        {"case_id": f"c{k}", "scenario": f"s{k % 2}", "photo": "a.png", "lang": "zh", "utterance": f"问题{k}", "gold": f"答案{k}"}
        for k in range(4)
    ]
    file = tmp_path / "single" / "test.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    refused = kedit("data", "info", f"kibench:{tmp_path}")
    assert refused.exit_code != 0
    assert "utterance" in refused.output and "--mapping" in refused.output
    names = ("question=utterance", "answer=gold", "image=photo")
    read = kedit("data", "info", f"kibench:{tmp_path}", *(word for name in names for word in ("--mapping", name)))
    assert read.exit_code == 0, read.output
    assert "single: 4 cases" in read.output
    assert "expected NAME=THEIRS" in kedit("data", "info", f"kibench:{tmp_path}", "--mapping", "question").output


def test_a_report_of_no_run_says_what_is_missing(tmp_path: Path) -> None:
    result = kedit("report", str(tmp_path))
    assert result.exit_code != 0 and "is not a run" in result.output
