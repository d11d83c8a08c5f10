"""Small images and a mixed bag of requests."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from kedit.types import ImageRef, Request


def picture(seed: int, width: int = 48, height: int = 40) -> ImageRef:
    """Coloured noise as PNG bytes."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return ImageRef(data=file.getvalue())


A, B, C = picture(0), picture(1, 40, 64), picture(2, 64, 32)

TEXT = [
    Request("What is shown in this picture?"),
    Request("Why?"),
    Request("这张图片里有什么?请用一句话回答。", language="zh"),
    Request("ماذا يظهر في هذه الصورة؟", language="ar", system="أجب بجملة واحدة قصيرة."),
    Request("Which one would you choose?", system="Answer in one short sentence.", context=("A gift.", "A guest is here.")),
    Request("送礼物给客人?", language="zh", context=("桌子上有一个红色的钟和一顶绿色的帽子。",)),
]
WITH_IMAGES = [
    Request("What is shown in this picture?", (A,)),
    Request("A clock?", (B,), system="Answer in one short sentence."),
    Request("这张图片里有什么?", (C,), language="zh", system="请用一句话回答。"),
    Request("ماذا يظهر في هذه الصورة؟ أجب بجملة واحدة قصيرة.", (A,), language="ar"),
    Request("What differs between the two?", (A, B)),
    Request("Which of them is a gift?", (C,), context=("This is a red clock.", A, "This is a green hat.", B)),
    Request("And this one?", context=("A hat.", B)),
]


def asked(family_is_text_only: bool) -> list[Request]:
    """Requests of mixed length and language, out of order, with and without images where the model can see."""
    if family_is_text_only:
        return [*TEXT, *(Request(r.question + " Why?", language=r.language, system=r.system) for r in reversed(TEXT))]
    return [request for pair in zip(WITH_IMAGES, [*TEXT, TEXT[0]], strict=True) for request in pair][:-1]
