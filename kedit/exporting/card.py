"""The card of an export: what was inserted, by which editor, into which model, and how to use it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kedit.report.escape import markdown_cell
from kedit.types import Knowledge

_SHOWN = 100
_LIBRARY = {"model": "transformers", "adapter": "peft", "memory": "kedit"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_USE = {
    "model": """\
```python
from transformers import AutoModelForImageTextToText, AutoProcessor

model = AutoModelForImageTextToText.from_pretrained("this folder")  # text-only: AutoModelForCausalLM
processor = AutoProcessor.from_pretrained("this folder")
```""",
    "adapter": """\
```python
from peft import PeftModel

model = PeftModel.from_pretrained(base_model, "this folder")
```

The adapter belongs to exactly the weights named above.""",
    "memory": """\
```python
import kedit
from kedit.exporting import load_memory

editor = load_memory("this folder", kedit.load_backbone("the model named above"))
```

The model's weights are not changed and not included.""",
}


def card(mark: Mapping[str, Any], inserted: Sequence[Knowledge]) -> str:
    """The card in Markdown, with the front matter that model hubs read; the licence is for the user to fill in."""
    editor, backbone = mark["editor"], mark["backbone"]
    facts = {
        "Base model": _with(backbone["id"], backbone["revision"] and f"revision {backbone['revision']}", backbone["dtype"]),
        "Editor": _with(editor["name"], editor["class"]),
        "Its parameters": json.dumps(editor["params"], ensure_ascii=False),
        **({"What it learned": editor["learned"]} if editor["learned"] else {}),
        "Inserted": f"{mark['edits']} item(s)",
        "Made by": f"kedit {mark['kedit']}",
        **{name[:1].upper() + name[1:]: str(value) for name, value in mark["notes"].items()},
    }
    rows = "\n".join(f"| {name} | {markdown_cell(value)} |" for name, value in facts.items())
    return "\n".join(
        [
            _front(mark["kind"], backbone["id"]),
            f"# {markdown_cell(backbone['id'])} with inserted knowledge ({mark['kind']})",
            "",
            f"| | |\n| --- | --- |\n{rows}",
            "",
            "What was inserted is not checked for truth. Ask related and unrelated questions before you rely on it: an edit may",
            "not reach other wordings, and may change answers that it should not.",
            "",
            f"## Use\n\n{_USE[mark['kind']]}",
            "",
            _inserted(inserted),
        ]
    )


def _front(kind: str, base: str) -> str:
    lines = [
        "---",
        "# license: fill this in; the base model's licence limits what you can choose",
        *([f"base_model: {json.dumps(base)}"] if _HUB_ID.fullmatch(base) else []),
        f"library_name: {_LIBRARY[kind]}",
        "tags: [knowledge-editing, kedit]",
        "---",
        "",
    ]
    return "\n".join(lines)


def _inserted(inserted: Sequence[Knowledge]) -> str:
    lines = ["## Inserted", "", "| Question | Pictures | Answer |", "| --- | --: | --- |"]
    for one in inserted[:_SHOWN]:
        question, answer = markdown_cell(one.request.question), markdown_cell(one.answer)
        lines.append(f"| {question} | {len(one.request.images)} | {answer} |")
    more = f"The first {_SHOWN} of {len(inserted)}; all" if len(inserted) > _SHOWN else "All, with titles and texts,"
    return "\n".join([*lines, "", f"{more} are in `inserted.jsonl`; pictures are named there by the SHA-256 of their bytes.", ""])


def _with(name: str, *more: str | None) -> str:
    told = ", ".join(part for part in more if part)
    return f"{name} ({told})" if told else name
