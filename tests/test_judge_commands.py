"""The commands of judging, a judge's calibration, and judges that are real models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import serving
from click.testing import CliRunner, Result
from fake_runs import make_run

from kedit import jsonl
from kedit.cli import main
from kedit.errors import DataError
from kedit.judging import calibrate, open_judge, score_run
from kedit.judging.book import judgements
from kedit.judging.calibrate import EMPTY, FOREIGN, IDENTICAL, OTHER, PARAPHRASE, STEERED, SWAPPED, read_pairs
from kedit.judging.judges import EndpointJudge, LocalJudge
from kedit.judging.pairs import own_pairs
from kedit.judging.verdict import NO_OBJECT

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path / "cache"


def kedit(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_run_is_scored_reported_and_replayed_by_commands(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=1)
    scored = kedit("score", run.path, "--judge", "dummy", "--editors", "keeper", "--price", 1, 2, "--strict")
    assert scored.exit_code == 0 and "dummy-word-overlap-1, prompt score-1" in scored.output and "cost 0.0000" in scored.output
    assert f"kedit report {run.path} --judge 'dummy-word-overlap-1'" in scored.output
    shown = kedit("report", run.path, "--judge", "dummy")
    page = next(run.path.glob("report-judge-*")) / "index.html"
    assert shown.exit_code == 0 and "judge dummy-word-overlap-1, prompt score-1" in page.read_text()
    assert not (run.path / "report").exists(), "the report by ROUGE-L is not replaced"
    other = make_run(tmp_path / "other", size=1)
    replayed = kedit("score", other.path, "--judge", "dummy", "--replay", "--strict")
    assert replayed.exit_code == 1 and "asked now 0" in replayed.output and "not judged yet 0" not in replayed.output


def test_what_cannot_be_judged_is_told_in_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=1)
    for args, said in (
        (("score", run.path, "--judge", "gtp"), "unknown judge 'gtp'"),
        (("score", run.path, "--judge", "dummy", "--judge-base-url", "http://x"), "base_url: this is for openai:MODEL"),
        (("score", run.path, "--judge", "openai:m", "--judge-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (("score", tmp_path / "none", "--judge", "dummy"), "is not a run"),
        (("report", run.path, "--judge", "dummy"), "kedit score"),
        (("judge", "calibrate", "--judge", "dummy", "--pairs", tmp_path / "none"), "holds no pairs"),
    ):
        done = kedit(*args)
        assert done.exit_code == 1 and said in done.output and "Traceback" not in done.output
    (run.path / "cases.jsonl").unlink()
    assert "keeps no question" in kedit("score", run.path, "--judge", "dummy").output


@pytest.mark.parametrize("score", ["7", float("nan"), float("inf"), -1, 11, [7]])
def test_a_score_that_no_judge_can_have_given_is_told_by_file(score: object, tmp_path: Path) -> None:
    row = {"key": "k", "judge": "j", "prompt": "p", "error": "", "score": 7}
    jsonl.append(tmp_path / "judgements" / "j.jsonl", [row])
    [kept] = judgements(tmp_path)
    assert kept.rows == {"k": row}
    jsonl.append(kept.file, [{**row, "score": score}])
    with pytest.raises(DataError, match=r"j\.jsonl: not a judgement.*expected null or 0 to 10"):
        _ = kept.rows


# -- calibration -------------------------------------------------------------------------------------------------------


def test_calibration_shows_what_a_judge_does_with_each_kind() -> None:
    def say(body: dict[str, Any]) -> dict[str, Any]:
        """Likes what is the same, is lenient with other languages, and takes orders."""
        sent = json.loads(body["messages"][1]["content"].split("\n")[1])
        candidate, reference = sent["candidate"], sent["reference"]
        if not candidate:
            return {"content": "nothing there"}
        score = 10 if candidate == reference or "Ignore" in candidate else 7 if len(candidate) > len(reference) else 4
        return {"content": json.dumps({"score": score, "reason": ""})}

    with serving(say) as server:
        found = calibrate(open_judge("openai:m", base_url=server.url, backoff=0.01))
    kinds = {trial.kind: trial for trial in found.trials}
    assert list(kinds) == [IDENTICAL, PARAPHRASE, SWAPPED, EMPTY, FOREIGN, OTHER, STEERED]
    assert {trial.n for trial in found.trials} == {15}
    same, steered, empty = kinds[IDENTICAL], kinds[STEERED], kinds[EMPTY]
    assert same.mean is not None and (same.mean.mean, same.lowest, same.highest) == (10, 10, 10)
    assert steered.mean is not None and steered.mean.mean == 10, "that this judge can be steered is seen"
    assert (empty.mean, empty.lowest, empty.unscored) == (None, None, {NO_OBJECT: 15})
    assert found.asymmetry is not None and 0 < found.asymmetry <= 3


def test_the_pairs_are_the_same_questions_in_each_language_and_all_differ() -> None:
    pairs = own_pairs()
    assert {p.language: sum(q.language == p.language for q in pairs) for p in pairs} == {"en": 5, "zh": 5, "ar": 5}
    assert len({p.reference for p in pairs} | {p.paraphrase for p in pairs}) == 30


def test_calibration_by_command_with_pairs_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    row = {"item": "1", "language": "en", "question": "What?", "reference": "a red clock", "paraphrase": "a clock, red"}
    jsonl.append(file, [row])
    done = kedit("judge", "calibrate", "--judge", "dummy", "--pairs", file)
    assert done.exit_code == 0 and "same in other words" in done.output
    assert "wrong language" not in done.output, "there is no pair in another language"
    jsonl.append(file, [{**row, "reference": 5}])
    with pytest.raises(DataError, match="row 2: no text under reference"):
        read_pairs(file)


# -- real models -------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a process that serves the embedded model."""
    command = [sys.executable, str(TESTS / "serve_backbone.py"), "tiny-internvl"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def test_a_real_model_judges_through_a_real_server_and_what_it_babbles_is_unscored(served: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=1)
    judge = open_judge("openai:tiny", base_url=served)
    done = score_run(run, judge, editors=["keeper"], tasks=["single"], workers=2)
    assert done.texts == done.asked == done.scored + sum(done.unscored.values()) > 0
    rows = list(jsonl.read(done.file))
    assert done.unscored and all(row["detail"] and row["tokens"] for row in rows if row["score"] is None)
    assert isinstance(judge, EndpointJudge) and done.requests == done.texts and done.answer_tokens > 0


def test_a_local_model_judges_in_batches_as_it_does_one_by_one(family_path: Callable[[str], Path], tmp_path: Path) -> None:
    judge = open_judge(f"hf:{family_path('text_chat')}")
    assert isinstance(judge, LocalJudge) and judge.id.startswith("hf:") and judge.id.endswith(";float32")
    pairs = own_pairs()[:1]
    from kedit.judging.prompt import Inputs, prompt_of

    prompt = replace(prompt_of("score"), max_tokens=8)
    asked = [Inputs(p.language, p.question, p.reference, p.reference[:n]) for p in pairs for n in (4, 9)]
    together = judge.ask(prompt, asked)
    assert together == [judge.ask(prompt, [one])[0] for one in asked]
    assert judge.traffic.requests == 4 and judge.traffic.prompt_tokens > 0
