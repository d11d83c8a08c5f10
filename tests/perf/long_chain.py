"""What one more insert costs as a chain grows: seconds and resident memory, by position. Not a test: it reports, asserts nothing.

python tests/perf/long_chain.py --inserts 1000 mcki ike
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import kedit
from kedit.zoo.catalogue import editor_params

BACKBONE = "tiny-internvl"


def resident() -> float:
    """MB in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("editors", nargs="+")
    parser.add_argument("--inserts", type=int, default=1000)
    given = parser.parse_args()
    os.environ["KEDIT_CACHE"] = tempfile.mkdtemp(prefix="kedit-perf-")
    backbone = kedit.load_backbone(BACKBONE)
    benchmark = kedit.benchmark("kibench-open", lifelong={"chain": given.inserts})
    (case,) = benchmark.cases("lifelong")
    for item in case.chain:
        _ = item.request.key  # draws the picture: the benchmark's cost, not the editor's
    for name in given.editors:
        editor = kedit.editor(name, editor_params(BACKBONE, name))
        run = kedit.evaluate({"x": editor}, backbone, benchmark, tasks="single", limit=1)  # brings or fits what it learned
        assert not run.failures, run.failures
        spent: list[float] = []
        begin = perf_counter()
        at = {0: resident()}
        for number, item in enumerate(case.chain, 1):
            start = process_time()
            editor.insert(item)
            spent.append(process_time() - start)
            if number % max(given.inserts // 10, 1) == 0:
                at[number] = resident()
                last = spent[-max(given.inserts // 10, 1) :]
                print(f"{name:8} {number:6} inserts  {1000 * median(last):7.1f} ms of CPU each  {at[number]:8.1f} MB", flush=True)
        start = process_time()
        editor.generate([probe.request for probe in case.probes[:30]])
        print(f"{name:8} 30 questions at the end: {process_time() - start:.1f} s of CPU; inserts {perf_counter() - begin:.0f} s")
        editor.reset()


if __name__ == "__main__":
    main()
