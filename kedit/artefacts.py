"""Reading and writing what outlives a process: JSON, safetensors and inserted knowledge, each file whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.errors import DataError, ImageError
from kedit.types import ImageRef, Knowledge, Request

if TYPE_CHECKING:
    from torch import Tensor

EDITS = "edits.jsonl"
NOT_LEARNED = ("training", "train.json")
"""What a training leaves beside an artefact: checkpoints and logs, and where it came from."""
IMAGES = "images"
_MAGIC = ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF8", "gif"), (b"RIFF", "webp"), (b"BM", "bmp"))


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to the disk and put it in place of ``path``.

    A crash at any moment leaves the old file or the new one, never a part; missing folders are made. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes to a file as ``replace_file`` does; raises OSError."""
    replace_file(Path(path), lambda file: _fill(file, data))


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented UTF-8 JSON, atomically; raises TypeError for what JSON cannot hold."""
    data = (_dumps(value, indent=2) + "\n").encode()
    write_bytes(path, data)


def read_json(path: str | Path) -> Any:
    """The value in a JSON file; raises DataError naming the file when it is missing or malformed."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path, or write it first") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid UTF-8 JSON: {error}") from error


def read_object(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file; raises DataError as ``read_json`` does, and for any other value."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} holds {found!r:.80}, expected an object with keys; it was changed since kedit wrote it")
    return found


def read_digests(file: Path) -> dict[str, str]:
    """By name the digests of the weights that saved edits were made for; raises DataError where the file does not hold them."""
    found = read_object(file).get("digests")
    if not isinstance(found, dict):
        raise DataError(f"{file} holds no digests of the weights that the edits were made for; save the edits again")
    return found


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as safetensors, atomically; DataError for a suffix other than ``.safetensors``, OSError by the disk."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        replace_file(_safe(Path(path)), lambda file: save_file(plain, file))
    except SafetensorError as error:  # a full disk, which is no OSError there
        raise OSError(f"{path}: {error}") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Named tensors on the CPU; raises DataError for a missing or broken file and for formats that can run code."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(_safe(Path(path)))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a readable safetensors file: {error}") from error
    return tensors


def folder_digest(folder: Path) -> str:
    """SHA-256 over names and contents of what an editor learned, the first 16 hex digits; its training's logs do not count."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.relative_to(folder).parts[0] in NOT_LEARNED:
            continue
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode("utf-8", "surrogateescape"))
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def save_knowledge(folder: str | Path, knowledge: Iterable[Knowledge], *, name: str = EDITS) -> None:
    """Write inserted knowledge to ``folder/<name>``, one object per line, its images to ``folder/images/<digest>.<ext>``.

    Raises ImageError when an image cannot be read; ``folder/<name>`` is then as it was before.
    """
    root = Path(folder)
    lines = [_dumps(_knowledge_to_json(item, root)) + "\n" for item in knowledge]
    data = "".join(lines).encode()
    write_bytes(root / name, data)


def load_knowledge(folder: str | Path, *, name: str = EDITS) -> list[Knowledge]:
    """What ``save_knowledge`` wrote, equal in every field; images come back as paths into the folder.

    Raises DataError (file and line) for a malformed line, an image outside the folder, or one whose content has changed.
    """
    root = Path(folder)
    file = root / name
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    # not splitlines(): a text may hold U+2028, which is no line end in JSON lines
    rows = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    return [_knowledge_from_line(row, root, f"{file}, line {number}") for number, row in rows]


# -- knowledge as JSON -------------------------------------------------------------------------------------------------


def _knowledge_to_json(item: Knowledge, root: Path) -> dict[str, Any]:
    request = item.request
    return {
        "request": {
            "question": request.question,
            "images": [_image_to_json(image, root) for image in request.images],
            "language": request.language,
            "system": request.system,
            "context": [_image_to_json(part, root) if isinstance(part, ImageRef) else part for part in request.context],
        },
        "answer": item.answer,
        "title": item.title,
        "text": item.text,
        "images": [{**_image_to_json(image, root), "caption": caption} for image, caption in item.images],
    }


def _knowledge_from_line(line: str, root: Path, where: str) -> Knowledge:
    try:
        row = json.loads(line)
        asked = row["request"]
        request = Request(
            question=_text(asked["question"]),
            images=tuple(_image_from_json(image, root) for image in asked["images"]),
            language=_text(asked["language"]),
            system=None if asked["system"] is None else _text(asked["system"]),
            context=tuple(_image_from_json(part, root) if isinstance(part, dict) else _text(part) for part in asked["context"]),
        )
        images = tuple((_image_from_json(image, root), _text(image["caption"])) for image in row["images"])
        return Knowledge(request, _text(row["answer"]), _text(row["title"]), _text(row["text"]), images)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except KeyError as error:
        raise DataError(f"{where}: the key {error} is missing; expected an object as save_knowledge writes it") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{where} is malformed: {error}") from error


def _image_to_json(image: ImageRef, root: Path) -> dict[str, str]:
    try:
        data = image.read()
    except OSError as error:
        raise ImageError(f"image {image.path!r} cannot be read: {error}") from error
    name = f"{hashlib.sha256(data).hexdigest()}.{_extension(image, data)}"
    if not (root / IMAGES / name).exists():
        write_bytes(root / IMAGES / name, data)
    return {"image": f"{IMAGES}/{name}"}


def _image_from_json(value: Mapping[str, Any], root: Path) -> ImageRef:
    name = _text(value["image"])
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise DataError(f"image {name!r} lies outside {root}; images must be inside the folder")
    if not path.is_file():
        raise DataError(f"image {name!r} is missing from {root}")
    image = ImageRef(path=str(path))
    if image.digest != path.stem:
        raise DataError(f"image {name!r} is not what was saved: its name and its SHA-256 ({image.digest[:12]}...) differ")
    return image


def _extension(image: ImageRef, data: bytes) -> str:
    suffix = Path(image.path).suffix.lower().lstrip(".") if image.path else ""
    known = next((name for magic, name in _MAGIC if data.startswith(magic)), "bin")
    return suffix if suffix.isalnum() and suffix.isascii() else known


# -- small parts -------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"expected a text, got {value!r}")
    return value


def _safe(path: Path) -> Path:
    if path.suffix != ".safetensors":
        raise DataError(f"{path}: tensors are kept as .safetensors only; formats built on pickle can run code when opened")
    return path


def _dumps(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, as found in scraped text, survive only escaped
        return json.dumps(value, ensure_ascii=True, indent=indent)
    return text


def _fill(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
