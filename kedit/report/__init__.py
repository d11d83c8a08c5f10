"""A run rendered for people: in a terminal, in a notebook, as files and as one page."""

from kedit.report.export import Report, report
from kedit.report.html import run_html
from kedit.report.tables import tables
from kedit.report.text import run_text

__all__ = ["Report", "report", "run_html", "run_text", "tables"]
