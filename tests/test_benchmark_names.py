"""From what is typed to a benchmark with its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedit.benchmarks import benchmark
from kedit.errors import DataError, UnknownNameError


def test_options_follow_the_name_and_keyword_options_go_before_them() -> None:
    assert len(benchmark("mini-kviscuit:circular=True").cases("test")[0].probes) == 4
    assert len(benchmark("mini-kviscuit:circular=True", circular=False).cases("test")[0].probes) == 1


def test_options_follow_a_path(tmp_path: Path) -> None:
    made = benchmark(f"kviscuit:{tmp_path}:circular=True,language=en")
    assert (made.path, made.circular, made.language) == (str(tmp_path), True, "en")  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["mini-kviscuit:circlar=True", "kibench-open:nothing=1", "no-such-benchmark"])
def test_an_unknown_option_or_name_is_answered_with_the_known_ones(spec: str) -> None:
    with pytest.raises(UnknownNameError, match="Known: "):
        benchmark(spec)


def test_options_that_cannot_be_read_are_shown() -> None:
    with pytest.raises(DataError, match="circular="):
        benchmark("mini-kviscuit:circular=")


def test_a_benchmark_whose_fields_have_fixed_names_says_so_when_they_are_to_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="takes no mapping.*rename them"):
        benchmark(f"easyedit:{tmp_path}", mapping={"src": "prompt"})
