from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedit.errors import UnknownNameError
from kedit.rouge import ROUGE_ID, MultilingualTokenizer, rouge_id, rouge_l

ZH = "月饼来自中国。"
AR = "السَّلامُ عليكم ورحمة الله"
tokens = MultilingualTokenizer().tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop_me: 3.5 km", ["don", "t", "stop", "me", "3", "5", "km"]),
        ("月饼 mooncake，来自中国2024年。", ["月", "饼", "mooncake", "来", "自", "中", "国", "2024", "年"]),
        ("ＡＢＣ１２", ["abc12"]),
        ("コーヒー", ["コ", "ー", "ヒ", "ー"]),
        ("ภาษา", ["ภ", "า", "ษ", "า"]),
        ("한국어 말", ["한국어", "말"]),
        ("naïve Straße", ["naïve", "strasse"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("هَدِيَّةٌ", ["هدية"]),
        ("إلى أين آخر ٱسم", ["الى", "اين", "اخر", "اسم"]),
        ("كتـــاب ٢٠٢٤ ۱۲", ["كتاب", "2024", "12"]),
        ("ﻻ", ["لا"]),
        ("می\u200cخواهم \u202bنعم\u202c", ["میخواهم", "نعم"]),
        ("❤️ 👍🏽 … !؟", []),
        ("", []),
    ],
)
def test_tokens_of_each_script(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_decomposed_text_gives_the_tokens_of_composed_text() -> None:
    assert tokens("cafe\u0301") == tokens("café")


def test_letter_folding_is_an_option_and_off_by_default() -> None:
    assert tokens("هدية على") == ["هدية", "على"]
    assert MultilingualTokenizer(fold_letters=True).tokenize("هدية على مؤتمر") == ["هديه", "علي", "موتمر"]
    assert rouge_l("هديه", "هدية") == 0.0
    assert rouge_l("هديه", "هدية", rouge="multilingual-fold") == 100.0


@pytest.mark.parametrize("text", [ZH, AR, "A warm gift.", "привет мир", "こんにちは", "नमस्ते"])
def test_identical_texts_score_exactly_100(text: str) -> None:
    assert rouge_l(text, text) == 100.0


@pytest.mark.parametrize("text", [ZH, AR])
def test_legacy_scores_identical_chinese_and_arabic_0_as_the_library_does(text: str) -> None:
    assert rouge_l(text, text, rouge="legacy") == 0.0


def test_shared_latin_words_do_not_hide_different_chinese() -> None:
    pair = ("月饼 mooncake 来自中国", "粽子 mooncake 来自日本")
    assert rouge_l(*pair, rouge="legacy") == 100.0
    assert rouge_l(*pair) == pytest.approx(100 * 3 / 7)


def test_arabic_without_its_vowel_marks_is_the_same() -> None:
    assert rouge_l("السلام عليكم ورحمة الله", AR) == 100.0


def test_disjoint_texts_score_0() -> None:
    assert rouge_l("月饼", "粽子") == 0.0
    assert rouge_l("نعم", "لا") == 0.0


@pytest.mark.parametrize(("candidate", "reference"), [("", ""), ("word", ""), ("word", "!?"), ("!?", "!?"), ("👍", "👍")])
def test_a_reference_without_a_word_is_unscored(candidate: str, reference: str) -> None:
    assert rouge_l(candidate, reference) is None


def test_an_empty_answer_to_a_proper_reference_scores_0() -> None:
    assert rouge_l("", "月饼") == 0.0
    assert rouge_l("…", "gift") == 0.0


def test_2000_random_ascii_pairs_score_as_the_stock_library() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    stock = RougeScorer(["rougeL"])
    rng = random.Random(0)
    alphabet = "abcABC019 _-'.,\n\t"
    for _ in range(2000):
        a, b = ("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 25))) for _ in range(2))
        ours = rouge_l(a, b)
        if ours is None:
            assert not tokens(b)
        else:
            assert ours == 100 * stock.score(b, a)["rougeL"].fmeasure


def plain_lcs(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return plain_lcs(a[:-1], b[:-1]) + 1
    return max(plain_lcs(a[:-1], b), plain_lcs(a, b[:-1]))


@pytest.mark.parametrize("words", [list("月饼来自中国粽"), ["هدية", "ضيف", "بيت", "نعم", "لا"], ["red", "gift", "for", "a"]])
def test_agrees_with_a_recursive_longest_common_subsequence(words: list[str]) -> None:
    rng = random.Random(1)
    for _ in range(60):
        a, b = ([rng.choice(words) for _ in range(rng.randint(1, 7))] for _ in range(2))
        common = plain_lcs(a, b)
        p, r = common / len(a), common / len(b)
        expected = 200 * p * r / (p + r) if common else 0.0
        assert rouge_l(" ".join(a), " ".join(b)) == pytest.approx(expected)


texts = st.text(alphabet=st.sampled_from(list("ab1 .月饼中هديةإأَـ٢é\u200dー")), max_size=20)


@settings(max_examples=200, deadline=None)
@given(texts, texts)
def test_scores_are_symmetric_and_between_0_and_100(a: str, b: str) -> None:
    there, back = rouge_l(a, b), rouge_l(b, a)
    if there is not None:
        assert 0 <= there <= 100
    if there is not None and back is not None:
        assert there == pytest.approx(back)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_tokenizing_tokens_again_changes_nothing(text: str) -> None:
    once = tokens(text)
    assert tokens(" ".join(once)) == once


def test_every_kind_has_an_id_of_its_own_and_a_misspelt_one_is_named() -> None:
    kinds = ("multilingual", "multilingual-fold", "legacy")
    assert len({rouge_id(kind) for kind in kinds}) == len(kinds)
    assert rouge_id() == ROUGE_ID
    with pytest.raises(UnknownNameError, match="multilingual"):
        rouge_l("a", "a", rouge="multilingal")
