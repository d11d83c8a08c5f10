"""Opening images: one way, whole or not at all, never from the network."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from kedit.errors import ImageError
from kedit.types import ImageRef

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 64_000_000
_URL = re.compile(r"^[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def open_image(image: ImageRef, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The first frame of an image as RGB, turned as its EXIF data say, transparency over white.

    ``max_pixels`` (width x height) is checked on the header, before anything is decoded. Raises ImageError, which names the
    path or the digest, for a missing, unreadable, truncated or too large image, and for a path that is a URL.
    """
    from PIL import Image, UnidentifiedImageError

    label = _label(image)
    data = _read(image, label)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own cap is lower and an error
            opened = Image.open(io.BytesIO(data))
        _check_size(opened.size, max_pixels, label)
        _decode(opened)
        return _flatten(_rotated(opened))
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(f"image {label} is too large: {error}; kedit opens at most {max_pixels:,} pixels") from error
    except UnidentifiedImageError:
        raise ImageError(f"image {label} is not an image that Pillow can read ({len(data)} bytes, {data[:8]!r}...)") from None
    except MemoryError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, zlib.error, ValueError...
        raise ImageError(f"image {label} is broken or truncated: {error}") from error


def _label(image: ImageRef) -> str:
    return repr(image.path) if image.path is not None else f"with digest {image.digest[:16]}"


def _read(image: ImageRef, label: str) -> bytes:
    if image.path is None:
        return image.read()
    path = image.path
    if _URL.match(path):
        raise ImageError(f"image {label} is a URL; kedit never reads images from the network: download it and give its path")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"image {label} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null byte in the path
        raise ImageError(f"image {label} cannot be read: {error}") from error


def _check_size(size: tuple[int, int], max_pixels: int, label: str) -> None:
    width, height = size
    if width * height > max_pixels:
        raise ImageError(f"image {label} has {width} x {height} pixels; at most {max_pixels:,} are opened: shrink it first")
    if width * height == 0:
        raise ImageError(f"image {label} is empty: {width} x {height} pixels")


def _decode(opened: Image.Image) -> None:
    """Decode fully; a truncated file raises even where another library has asked Pillow to pad such files with grey."""
    from PIL import ImageFile

    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        opened.load()
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def _rotated(opened: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(opened)
    except Exception:  # noqa: BLE001 - illegal EXIF data raise almost anything; the pixels are fine
        return opened


def _flatten(decoded: Image.Image) -> Image.Image:
    from PIL import Image

    if decoded.mode.startswith("I;16"):  # convert() would clip 16-bit greys at 255 instead of scaling them
        decoded = decoded.convert("I").point(lambda value: value / 257).convert("L")
    if decoded.has_transparency_data:
        seen = decoded.convert("RGBA")
        white = Image.new("RGBA", seen.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, seen).convert("RGB")
    return decoded.convert("RGB")
