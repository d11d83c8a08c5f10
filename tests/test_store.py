from __future__ import annotations

import errno
import json
import os
import resource
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import AddNoise, FakeBackbone, FakeBenchmark, Prepend

from kedit import jsonl
from kedit.config import difference, git_state, redact, run_config
from kedit.errors import DataError, StoreError, UnknownNameError
from kedit.run import Run
from kedit.store import RunStore, read_records, records_file
from kedit.types import Record

CONFIG: dict[str, Any] = {
    "identity": {"editors": {"a": {"params": {"lr": 0.1}}}, "seed": 0, "tasks": {"t": {"dimensions": [], "order": None}}},
    "environment": {"started": "now"},
}
RECORD = Record("t", "案1", 0, "reliability", 1, 1, "zh", "红钟 \u2028 ﷽", "礼", False, 3, 0.25, ("empty",), {"raw": "1"})


def records(n: int) -> list[Record]:
    return [replace(RECORD, case=f"案{i}") for i in range(n)]


def filled(folder: Path, n: int = 3) -> Path:
    with RunStore.open(folder, CONFIG) as store:
        for record in records(n):
            store.append("a", [record])
    return records_file(folder, "a")


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    file = filled(tmp_path / "run")
    assert read_records(file) == records(3)
    first = file.read_text(encoding="utf-8").split("\n")[0]
    assert list(json.loads(first)) == sorted(json.loads(first))
    assert "红钟" in first


def test_text_that_is_no_valid_unicode_comes_back_too(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, CONFIG) as store:
        store.append("a", [replace(RECORD, output="\ud800 红")])
    assert read_records(records_file(tmp_path, "a"))[0].output == "\ud800 红"


def test_the_configuration_is_on_disk_before_any_record(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG):
        assert json.loads((tmp_path / "run" / "run.json").read_text()) == CONFIG
        assert not (tmp_path / "run" / "records").exists()


def test_a_file_cut_at_every_byte_of_its_last_line_loses_that_record_only(tmp_path: Path) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for cut in range(start, len(whole)):
        file.write_bytes(whole[:cut])
        assert read_records(file) == records(2)  # a reader of a run in progress
        with RunStore.open(tmp_path, CONFIG) as store:
            assert store.done("a") == {r.key for r in records(2)}
            assert file.read_bytes() == whole[:start]
            store.append("a", records(3)[2:])
        assert file.read_bytes() == whole


@pytest.mark.parametrize("tail", [b"\0" * 40 + b"\n", b'{"half": \n', b"[1]\n", b"\xe7\xba\n"])
def test_a_last_line_that_the_system_never_wrote_out_is_dropped(tail: bytes, tmp_path: Path) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole + tail)
    with RunStore.open(tmp_path, CONFIG):
        assert file.read_bytes() == whole


def test_a_last_line_longer_than_the_window_that_is_read_is_still_found(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    jsonl.append(file, [{"a": "x"}, {"a": "y" * 300_000}])
    whole = file.read_bytes()
    assert jsonl.repair(file) == 0
    file.write_bytes(whole[:-10])
    assert jsonl.repair(file) == len(whole) - 10 - whole.index(b"\n") - 1
    assert list(jsonl.read(file)) == [{"a": "x"}]


@pytest.mark.parametrize("line", [b"{broken}\n", b"\xff\n", b'{"task": "t"}\n'])
def test_a_malformed_line_elsewhere_names_file_and_line(line: bytes, tmp_path: Path) -> None:
    file = filled(tmp_path)
    first, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(first + b"\n" + line + rest)
    with RunStore.open(tmp_path, CONFIG) as store, pytest.raises(DataError, match="a.jsonl, line 2"):
        store.done("a")


def changed(path: str, value: object) -> dict[str, Any]:
    config = json.loads(json.dumps(CONFIG))
    *parents, last = path.split(".")
    place = config
    for key in parents:
        place = place[key]
    place[last] = value
    return config  # type: ignore[no-any-return]


def test_another_configuration_is_refused_with_every_difference(tmp_path: Path) -> None:
    whole = filled(tmp_path).read_bytes()
    other = changed("identity.editors.a.params.lr", 0.2)
    other["identity"]["extra"] = None
    with pytest.raises(StoreError) as refused:
        RunStore.open(tmp_path, other)
    assert "editors.a.params.lr: 0.1 -> 0.2" in str(refused.value)
    assert "extra: (absent) -> null" in str(refused.value)
    assert "another folder" in str(refused.value)
    assert records_file(tmp_path, "a").read_bytes() == whole
    RunStore.open(tmp_path, CONFIG).close()  # the refusal let go of the lock


def test_of_an_editor_that_only_one_configuration_has_the_beginning_is_shown() -> None:
    editor = {"class": "package.Mine", "params": {f"parameter_{n}": n for n in range(50)}}
    (line,) = difference({"editors": {"mine": editor}}, {"editors": {}})
    assert line.startswith('editors.mine: {"class": "package.Mine"')
    assert line.endswith("... -> (absent)")
    assert len(line) < 200


def test_another_time_or_machine_is_no_other_configuration(tmp_path: Path) -> None:
    filled(tmp_path)
    with RunStore.open(tmp_path, changed("environment.started", "later")) as store:
        assert len(store.done("a")) == 3
    assert json.loads((tmp_path / "run.json").read_text()) == CONFIG


def test_not_a_number_equals_itself_in_a_configuration() -> None:
    assert difference({"x": float("nan")}, {"x": float("nan")}) == []


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        held = RunStore.open(tmp_path, CONFIG)
        os.write(go, b"x")
        signal.pause()
        held.close()
    os.read(ready, 1)
    try:
        with pytest.raises(StoreError, match="in use by another process"):
            RunStore.open(tmp_path, CONFIG)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    RunStore.open(tmp_path, CONFIG).close()


def test_records_without_a_configuration_are_not_adopted(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(StoreError, match=r"no run\.json"):
        RunStore.open(tmp_path, CONFIG)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(StoreError, match="run"):
            RunStore.open(path, CONFIG)


def test_a_full_disk_is_reported_and_leaves_only_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()
    write, room = os.write, [30]

    def full(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(descriptor, data[: room[0]])
        room[0] -= done
        return done

    with RunStore.open(tmp_path, CONFIG) as store:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreError, match=r"a\.jsonl: No space left on device.*intact"):
            store.append("a", [RECORD])
    assert file.read_bytes() == whole


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_file_that_really_cannot_grow_is_reported_and_stays_whole(tmp_path: Path) -> None:
    file = filled(tmp_path)
    whole = file.read_bytes()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 25, len(whole) + 25))
        with RunStore.open(tmp_path, CONFIG) as store, pytest.raises(StoreError, match=r"a\.jsonl"):
            store.append("a", [RECORD])

    assert in_child(work) == 0
    assert file.read_bytes() == whole


def test_a_read_only_folder_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)

        def work() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write anywhere
            with pytest.raises(StoreError, match="Permission denied"):
                RunStore.open(Path(folder) / "run", CONFIG)

        assert in_child(work) == 0


def test_a_failure_is_noted_once_and_crossed_out_when_made_good(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, CONFIG) as store:
        store.fail("a", "t", "1", "insert", ValueError("broken"))
        store.fail("a", "t", "2", "base", ValueError("lost"))
    for _ in range(2):
        with RunStore.open(tmp_path, CONFIG) as store:
            store.fail("a", "t", "1", "insert", ValueError("broken"))
    assert len((tmp_path / "failures.jsonl").read_text().splitlines()) == 2
    with RunStore.open(tmp_path, CONFIG) as store:
        store.succeed("a", "t", "2", {"insert": [0.5], "ask": [0.1]})
    run = Run.load(tmp_path)
    assert run.failures == [{"editor": "a", "task": "t", "case": "1", "stage": "insert", "error": "ValueError: broken"}]
    assert run.timings == [{"editor": "a", "task": "t", "case": "2", "insert": [0.5], "ask": [0.1]}]


def test_records_that_came_late_are_put_in_their_place(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, CONFIG) as store:
        store.append("a", [records(3)[i] for i in (1, 2, 0)])
        store.arrange("a", [r.key for r in records(3)])
    assert read_records(records_file(tmp_path, "a")) == records(3)


@pytest.mark.parametrize(
    "name", ["ike-2", "a/b", "../up", "..", "", "红", "my editor", "a\\b", "CON:", "\ud800", "x" * 300, "红" * 200]
)
def test_every_display_name_gives_a_file_of_its_own_in_the_folder(name: str, tmp_path: Path) -> None:
    file = records_file(tmp_path, name)
    assert file.parent == tmp_path / "records"
    assert not set(file.name) & set("/\\: ")
    assert file.name not in {records_file(tmp_path, other).name for other in ("a-b", "up", "my-editor") if other != name}
    assert len(os.fsencode(file.name)) <= 255


def test_loading_what_is_no_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run\.json"):
        Run.load(tmp_path)


def test_a_run_names_its_editors_and_tasks_and_refuses_others(tmp_path: Path) -> None:
    filled(tmp_path)
    run = Run.load(tmp_path)
    assert (run.editors, run.tasks, len(run.records("a", "t"))) == (["a"], ["t"], 3)
    with pytest.raises(UnknownNameError):
        run.records("b")
    with pytest.raises(UnknownNameError):
        run.records("a", "u")


# -- what run.json says --------------------------------------------------------------------------------------------------


def config(editor: Any = None, **changes: Any) -> dict[str, Any]:
    benchmark = FakeBenchmark(2)
    work = {name: (task, benchmark.cases(name)) for name, task in benchmark.tasks.items()}
    options = {"limit": None, "seed": 0, "max_new_tokens": 64, "plain": False} | changes
    return run_config({"x": editor or AddNoise()}, FakeBackbone(), benchmark, work, **options)


def test_everything_that_changes_results_changes_the_identity() -> None:
    same = config()["identity"]
    assert difference(same, config()["identity"]) == []
    assert difference(same, config(AddNoise(size=0.2))["identity"]) == ["editors.x.params.size: 0.1 -> 0.2"]
    assert len(difference(same, config(Prepend())["identity"])) == 3
    for option, value in {"limit": 1, "seed": 1, "max_new_tokens": 32, "plain": True}.items():
        assert len(difference(same, config(**{option: value})["identity"])) == 1, option


class Reads(Prepend):
    def __init__(self, *, file: str) -> None:
        self.file = file

    @property
    def content(self) -> str:
        return Path(self.file).read_text()


def test_what_a_named_file_holds_is_part_of_the_identity(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    before = config(Reads(file=str(file)))["identity"]
    file.write_text("two")
    assert difference(before, config(Reads(file=str(file)))["identity"]) == ['editors.x.content: "one" -> "two"']


class Keyed(Prepend):
    def __init__(self, *, api_key: str = "", hook: object = None, names: object = ()) -> None:
        self.api_key = api_key
        self.hook = hook
        self.names = names


def test_no_secret_and_no_memory_address_is_stored() -> None:
    stored = config(Keyed(api_key="sk-123", hook=object(), names={"b", "a"}))["identity"]["editors"]["x"]["params"]
    assert stored == {"api_key": "(not stored)", "hook": "<object object>", "names": ["a", "b"]}


@pytest.mark.parametrize("url", ["https://user:secret@host/a/b.git", "https://secret@host/a/b.git?token=secret"])
def test_credentials_in_a_remote_are_taken_out(url: str) -> None:
    assert redact(url) == "https://host/a/b.git"


def test_outside_git_there_is_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() is None
