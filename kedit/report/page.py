"""The one self-contained page: facts, tables, curves and the browser of cases; no network, one script known by its hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from kedit.report.escape import html_text, script_json
from kedit.report.html import notes_html, table_html
from kedit.report.pack import packed
from kedit.report.results import Results
from kedit.report.tables import Table

_STYLES = ("page.css", "cases.css", "print.css")
_SCRIPTS = ("data.js", "answers.js", "study.js", "filters.js", "page.js")
"""In this order one script: what a later one uses stands in an earlier one."""


@dataclass(frozen=True)
class Figure:
    """A plot that was saved, with the title that stands for it where it cannot be seen."""

    title: str
    png: Path
    svg: Path


def page(results: Results, found: Sequence[Table], figures: Sequence[Figure], browser: Mapping[str, Any]) -> str:
    """The HTML of the page. Its policy allows inline styles, images in data URIs and exactly this script."""
    style, script = _joined(_STYLES), _joined(_SCRIPTS)
    identity = results.run.config["identity"]
    title = f"{identity['benchmark']['name']} on {identity['backbone']['id']}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html_text(title)}</title>
<style>{style}</style>
</head>
<body>
<header id="top"><h1>{html_text(title)}</h1>
{_facts(results)}
<nav><a href="#scores">Scores</a><a href="#curves">Curves</a><a href="#groups">Groups and retention</a>
<a href="#cases">Cases</a></nav>
</header>
<main>
<section id="scores"><h2>Scores</h2>{"".join(_tables(found, "scores", "measures"))}</section>
<section id="curves"><h2>Curves</h2>{"".join(map(_figure, figures)) or "<p>No plots: nothing was asked yet.</p>"}</section>
<section id="groups"><h2>Groups and retention</h2>{"".join(_tables(found, "groups", "retention"))}</section>
<section id="cases"><h2 tabindex="-1">Cases</h2><p id="cut">{_cut(browser)}</p>
<noscript><p>The browser of cases needs JavaScript; tables and curves do not.</p></noscript>
<form id="filters" role="search" aria-label="Filter and sort the questions"></form>
<p id="count" role="status"></p><div id="list"></div><div id="pager"></div></section>
<section id="study" hidden></section>
</main>
<script type="application/json" id="data">{script_json(packed(browser))}</script>
<script>{script}</script>
</body>
</html>
"""


def _joined(names: Sequence[str]) -> str:
    return "".join(files("kedit.report").joinpath(name).read_text(encoding="utf-8") for name in names)


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _facts(results: Results) -> str:
    rows = "".join(f"<div><dt>{html_text(k)}</dt><dd>{html_text(v)}</dd></div>" for k, v in _fact_rows(results) if v)
    return f"<dl>{rows}</dl>"


def _fact_rows(results: Results) -> Iterator[tuple[str, str]]:
    identity = results.run.config["identity"]
    environment = results.run.config.get("environment", {})
    backbone, benchmark, decoding = identity["backbone"], identity["benchmark"], identity["decoding"]
    yield "Backbone", f"{backbone['id']}, {backbone['dtype']} on {backbone['device']}"
    yield "Weights", str(backbone["fingerprint"])[:16]
    yield "Benchmark", f"{benchmark['name']}, revision {str(benchmark['revision'])[:12]}, limit {benchmark['limit'] or 'none'}"
    yield "Tasks", ", ".join(f"{name} ({row['cases']} cases)" for name, row in identity["tasks"].items())
    yield "Editors", ", ".join(results.editors)
    yield "Decoding", f"greedy, {decoding['max_new_tokens']} new tokens" + (", plain" if decoding.get("plain") else "")
    yield "Score", ", ".join(dict.fromkeys(way.id for task in results.run.tasks for way, _ in results.scorings(task).values()))
    yield "Seed", str(identity["seed"])
    yield "Packages", ", ".join(f"{k} {v}" for k, v in {**identity["packages"], **_kedit(environment)}.items() if v)
    yield "Started", str(environment.get("started") or "")
    git = environment.get("git") or {}
    yield "Source", f"{str(git['commit'])[:12]}{', with changes' if git.get('changed') else ''}" if git.get("commit") else ""


def _kedit(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {"kedit": environment.get("packages", {}).get("kedit")}


def _tables(found: Sequence[Table], *kinds: str) -> Iterator[str]:
    for table in found:
        if table.kind in kinds:
            inner = f'<div class="scroll" tabindex="0">{table_html(table)}</div>{notes_html(table)}'
            yield f'<article class="{table.kind}"><h3>{html_text(table.title)}</h3>{inner}</article>'


def _figure(figure: Figure) -> str:
    data = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
    title = html_text(figure.title)
    return f'<figure><img alt="{title}" src="data:image/svg+xml;base64,{data}"></figure>'


def _cut(browser: Mapping[str, Any]) -> str:
    shown, total = len(browser["cases"]), browser["total"]
    if shown == total:
        return f"All {total} cases."
    return f"{shown} of {total} cases are on this page, evenly spaced over the run; every answer is in the run's records folder."
