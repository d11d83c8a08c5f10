"""What editors with a router and a replacement model share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kedit.editor import Hit, Progress, ReplacementEditor
from kedit.replacement.model import Replacement
from kedit.routers.routed import Routed
from kedit.types import Answer, Case, Knowledge, Request

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.forcing import Forced


class Replaced(Routed, ReplacementEditor):
    """An editor that answers routed requests with a replacement model; a subclass makes the router in ``make_router``.

    A subclass has the parameters below and ``index`` (see ``Memory``). Router and replacement share nothing, so they are
    trained one after the other, into the folders ``router`` and ``replacement``; both must be fitted before an insert.
    """

    encoder: Any
    router_train: str
    key_text: str
    threshold: float
    calibration: str
    all_negatives: bool
    router_epochs: int
    router_batch_size: int
    router_lr: float
    replacement: str | None
    replacement_layers: Sequence[int] | None
    replacement_epochs: int
    replacement_batch_size: int
    replacement_lr: float
    stored_image: bool
    seed: int
    replacement_: Replacement

    def router_params(self) -> dict[str, Any]:
        """The parameters that scope routers of all kinds have, by the router's names for them."""
        return {
            "encoder": self.encoder,
            "train": self.router_train,
            "key_text": self.key_text,
            "threshold": self.threshold,
            "calibration": self.calibration,
            "all_negatives": self.all_negatives,
            "epochs": self.router_epochs,
            "batch_size": self.router_batch_size,
            "lr": self.router_lr,
            "seed": self.seed,
        }

    def make_replacement(self) -> Replacement:
        """Hook: a replacement without its model."""
        return Replacement(
            model=self.replacement,
            layers=self.replacement_layers,
            stored_image=self.stored_image,
            lr=self.replacement_lr,
            epochs=self.replacement_epochs,
            batch_size=self.replacement_batch_size,
            seed=self.seed,
        )

    def build(self) -> None:
        self.__dict__.pop("replacement_", None)  # before the next one is read: two need not fit
        super().build()
        self.replacement_ = self.make_replacement().attach(self.backbone_)

    @property
    def fitted(self) -> bool:
        return hasattr(self, "replacement_") and self.router_.fitted and self.replacement_.fitted

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the router, then the replacement, each with what ``val`` says about it."""
        self._require_attached()
        self.router_.fit(cases, val=val, out=below(out, "router"), progress=progress)
        self.replacement_.fit(cases, val=val, out=below(out, "replacement"), progress=progress)
        return self

    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        return self.routed(requests)

    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        return self.replacement_.answer(requests, knowledge, max_new_tokens=token_limit(self.backbone_))

    def forced_hit(self, hit: Hit, answer: str, k: int) -> Forced | None:
        return self.replacement_.forced(hit.request, hit.knowledge, answer, k)

    def notes(self) -> Mapping[str, str | int | float]:
        return {"replacement model": self.replacement_.backbone_.id}

    def save(self, path: str | Path) -> None:
        super().save(path)
        self.replacement_.save(Path(path) / "replacement")

    def load(self, path: str | Path) -> Self:
        super().load(path)
        self.replacement_.load(Path(path) / "replacement")
        return self


def below(folder: str | Path | None, name: str) -> Path | None:
    """A folder inside the one for a training's checkpoints; None where there is none."""
    return None if folder is None else Path(folder) / name


def token_limit(backbone: Backbone) -> int:
    """New tokens per answer that this backbone is limited to now, when it is asked without naming a limit."""
    return int(inspect.signature(backbone.generate).parameters["max_new_tokens"].default)
