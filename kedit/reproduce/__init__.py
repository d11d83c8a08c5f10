"""The papers' tables and figures made again: ours beside those in print, and why they differ."""

from kedit.reproduce.making import reproduce
from kedit.reproduce.planning import plan
from kedit.reproduce.published import paper, papers
from kedit.reproduce.result import Reproduction

__all__ = ["Reproduction", "paper", "papers", "plan", "reproduce"]
