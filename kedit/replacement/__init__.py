"""Smaller models that answer in a backbone's place; the home of what editors with such a model share."""

from kedit.replacement.model import Replacement, lessons

__all__ = ["Replacement", "lessons"]
