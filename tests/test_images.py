"""An image opens the same everywhere, whole or with an error that names it, and never from the network."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFile

from kedit.errors import ImageError
from kedit.images import open_image
from kedit.types import ImageRef


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> ImageRef:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return ImageRef(data=file.getvalue())


def colour(image: Image.Image) -> tuple[int, ...]:
    value = image.getpixel((0, 0))
    assert isinstance(value, tuple)
    return tuple(int(part) for part in value)


def header_only_png(width: int, height: int) -> bytes:
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)


@pytest.mark.parametrize(
    "image, expected",
    [
        (Image.new("RGB", (2, 2), (1, 2, 3)), (1, 2, 3)),
        (Image.new("L", (2, 2), 77), (77, 77, 77)),
        (Image.new("1", (2, 2), 1), (255, 255, 255)),
        (Image.new("RGBA", (2, 2), (10, 20, 30, 255)), (10, 20, 30)),
        (Image.new("RGBA", (2, 2), (10, 20, 30, 0)), (255, 255, 255)),
        (Image.new("RGBA", (2, 2), (0, 0, 0, 51)), (204, 204, 204)),
        (Image.new("LA", (2, 2), (0, 0)), (255, 255, 255)),
        (Image.new("I;16", (2, 2), 257 * 100), (100, 100, 100)),
    ],
)
def test_every_mode_becomes_rgb_over_white(image: Image.Image, expected: tuple[int, ...]) -> None:
    opened = open_image(encoded(image))
    assert opened.mode == "RGB"
    assert colour(opened) == expected


def test_palettes_are_resolved_with_their_transparency() -> None:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([9, 9, 9, 200, 100, 50])
    assert colour(open_image(encoded(image))) == (200, 100, 50)
    assert colour(open_image(encoded(image, transparency=1))) == (255, 255, 255)


def test_cmyk_and_animations_open_as_their_first_frame() -> None:
    assert open_image(encoded(Image.new("CMYK", (3, 2)), "JPEG")).size == (3, 2)
    frames = [Image.new("RGB", (2, 2), shade) for shade in ((255, 0, 0), (0, 255, 0))]
    assert colour(open_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))) == (255, 0, 0)


def test_exif_orientation_turns_the_image() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.new("RGB", (4, 2), (255, 255, 255))
    assert open_image(encoded(image, exif=exif)).size == (2, 4)
    assert open_image(encoded(image)).size == (4, 2)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("exif", [b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\xff", b"Exif\x00\x00nonsense", b"Exif\x00\x00"])
def test_illegal_exif_data_are_ignored(exif: bytes) -> None:
    assert open_image(encoded(Image.new("RGB", (4, 2)), "JPEG", exif=exif)).size == (4, 2)


def test_a_path_and_its_bytes_give_the_same_pixels(tmp_path: Path) -> None:
    image = encoded(Image.effect_noise((8, 8), 90))
    (tmp_path / "a.png").write_bytes(image.data or b"")
    assert open_image(ImageRef(path=str(tmp_path / "a.png"))).tobytes() == open_image(image).tobytes()


@pytest.mark.parametrize("size", [(30_000, 30_000), (8001, 8000), (2**31 - 1, 2**31 - 1)])
def test_too_many_pixels_are_refused_from_the_header_alone(size: tuple[int, int]) -> None:
    data = header_only_png(*size)  # it has no pixels: decoding would raise another error
    with pytest.raises(ImageError, match=r"pixels|too large"):
        open_image(ImageRef(data=data))


def test_the_limit_of_pixels_is_the_largest_allowed() -> None:
    image = encoded(Image.new("L", (10, 10)))
    assert open_image(image, max_pixels=100).size == (10, 10)
    with pytest.raises(ImageError, match="10 x 10"):
        open_image(image, max_pixels=99)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
@pytest.mark.parametrize("pad_with_grey", [False, True])
def test_a_truncated_image_is_an_error_and_never_grey(kind: str, pad_with_grey: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", pad_with_grey)
    data = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), kind).data or b""
    with pytest.raises(ImageError, match="digest"):
        open_image(ImageRef(data=data[: len(data) // 2]))
    assert pad_with_grey == ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("data", [b"", b"no image", b"<svg/>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_an_error_with_its_digest(data: bytes) -> None:
    image = ImageRef(data=data)
    with pytest.raises(ImageError, match=image.digest[:16]):
        open_image(image)


@pytest.mark.parametrize("path", ["missing.png", ".", "", "a\x00b"])
def test_a_path_that_cannot_be_read_is_an_error(path: str) -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        open_image(ImageRef(path=path))


@pytest.mark.parametrize("path", ["http://a.org/x.png", "HTTPS://a.org/x.png", "file:///etc/hostname", "s3://b/x.png", "ftp:/x"])
def test_urls_are_refused(path: str) -> None:
    with pytest.raises(ImageError, match="network"):
        open_image(ImageRef(path=path))
