from __future__ import annotations

import pytest

from kedit.flags import collapsed, flags_of, wrong_script
from kedit.types import Answer


@pytest.mark.parametrize(
    ("text", "language", "wrong"),
    [
        ("A red clock.", "en", False),
        ("红色的钟", "en", True),
        ("هدية حمراء", "en", True),
        ("送钟 clock 不吉利", "zh", False),
        ("The clock 钟 is red", "zh", True),
        ("ساعة OK", "ar", False),
        ("a red clock", "ar", True),
        ("赤い時計です", "ja", False),
        ("красные часы", "ru", False),
        ("roter Wecker", "ru", True),
        ("红色的钟", "zh-CN", False),
        ("2024: 100 %!", "zh", False),
        ("", "ar", False),
        ("whatever", "tlh", False),
    ],
)
def test_wrong_script_is_the_dominant_script_of_words(text: str, language: str, wrong: bool) -> None:
    assert wrong_script(text, language) is wrong


@pytest.mark.parametrize(
    ("text", "stuck"),
    [
        ("the clock the clock the clock the clock the clock the clock", True),
        ("红" * 20, True),
        ("a" * 64, True),
        ("! " * 30, True),
        ("This gift is warm and kind, a guest would like it on the table in the evening.", False),
        ("送钟在中文里与送终同音，所以最好换一个礼物，比如茶叶或者水果。", False),
        ("no no no", False),
        ("A gift for the host is kind. A gift for the host is kind.", False),
        ("A gift for the host is kind. " * 3, True),
    ],
)
def test_collapsed_is_a_text_that_repeats_itself(text: str, stuck: bool) -> None:
    assert collapsed(text) is stuck


def test_flags_name_everything_that_is_wrong() -> None:
    assert flags_of(Answer("  ", finite=False), "en") == ("empty", "nonfinite")
    assert flags_of(Answer("红钟", truncated=True), "en", reference_tokens=65) == ("truncated", "wrong_script", "long_reference")
    assert flags_of(Answer("A clock."), "en", reference_tokens=64) == ()
