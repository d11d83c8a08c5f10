"""Nothing in view: what the other conditions are compared with."""

from __future__ import annotations

from kedit.methods.base import Base


class ZeroShot(Base):
    """Answers from what the model knows, whatever is inserted (the parametric condition of CROPE, section 4)."""

    @property
    def name(self) -> str:
        return "zero-shot"
