"""One thread, no network, and each family's tiny model built once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

if TYPE_CHECKING:
    from chromium import Browser

    from kedit.backbone import HFBackbone


@pytest.fixture(scope="session")
def family_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """From a family's name to the folder of its tiny model."""
    import models

    built: dict[str, Path] = {}

    def path(family: str) -> Path:
        if family not in built:
            built[family] = models.build(family, tmp_path_factory.mktemp("models") / family)
        return built[family]

    return path


@pytest.fixture(scope="session")
def backbone(request: pytest.FixtureRequest, family_path: Callable[[str], Path]) -> HFBackbone:
    """A tiny backbone, loaded as a user loads one; shared, so leave it as it was. Choose families by indirect parametrisation."""
    import torch

    from kedit.backbone import load_backbone

    torch.set_num_threads(1)
    return load_backbone(str(family_path(getattr(request, "param", "internvl"))), device="cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no worker is left alone with one at the end (with --no-loadscope-reorder)."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One headless Chromium, in which every test opens its own page; skips where there is none."""
    from chromium import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("takes Chromium to run the page's script: apt-get install chromium")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()
