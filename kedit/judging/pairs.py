"""Questions with a reference and the same said otherwise, in English, Chinese and Arabic, to try a judge out with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A question with its reference, and the same answer in other words; one ``item`` may be there in several languages."""

    item: str
    language: str
    question: str
    reference: str
    paraphrase: str


_EN = [
    (
        "Is this a good present to bring when I am invited to dinner?",
        "Yes, a bottle of wine is a usual present for the host, and it need not be opened that evening.",
        "It is: wine is what many guests bring, and the host may keep it for another day.",
    ),
    (
        "What is the object on the shelf?",
        "It is a copper coffee pot with a long handle.",
        "A long-handled pot of copper for coffee.",
    ),
    (
        "How should I greet the person in the picture?",
        "Shake hands firmly, look the person in the eye and say your name.",
        "With a firm handshake, eye contact and your name.",
    ),
    (
        "When are these lanterns hung up?",
        "They are hung up for the last day of the new year's celebrations.",
        "On the day on which the celebrations of the new year end.",
    ),
    (
        "May I take my shoes inside?",
        "Better leave them at the door; slippers are offered to guests.",
        "No, shoes stay at the entrance, and guests get slippers.",
    ),
]
_ZH = [
    (
        "受邀去吃晚饭时,带这个礼物合适吗?",
        "合适,送一瓶红酒给主人是常见的做法,当晚不一定要打开。",
        "可以的,很多客人都会带酒,主人可以留到以后再喝。",
    ),
    ("架子上的东西是什么?", "是一把长柄的铜咖啡壶。", "那是煮咖啡用的铜壶,带有长长的手柄。"),
    ("我应该怎样问候图中的人?", "用力握手,看着对方的眼睛,并说出自己的名字。", "有力地握手,保持目光接触,同时自我介绍。"),
    ("这些灯笼什么时候挂?", "在新年庆祝活动的最后一天挂起来。", "新年庆典结束的那一天会挂上。"),
    ("我可以穿鞋进屋吗?", "最好把鞋留在门口,主人会给客人准备拖鞋。", "不行,鞋要放在门口,客人换拖鞋。"),
]
_AR = [
    (
        "هل هذه هدية مناسبة عندما أُدعى إلى العشاء؟",
        "نعم، زجاجة من النبيذ هدية معتادة للمضيف، ولا يلزم فتحها في تلك الليلة.",
        "هي كذلك: كثير من الضيوف يحضرون النبيذ، وقد يحتفظ به المضيف ليوم آخر.",
    ),
    ("ما الشيء الموجود على الرف؟", "إنه إبريق قهوة نحاسي بمقبض طويل.", "إبريق من النحاس للقهوة، مقبضه طويل."),
    (
        "كيف أحيي الشخص الذي في الصورة؟",
        "صافحه بقوة وانظر في عينيه واذكر اسمك.",
        "بمصافحة قوية ونظرة مباشرة مع ذكر اسمك.",
    ),
    (
        "متى تُعلّق هذه الفوانيس؟",
        "تُعلّق في اليوم الأخير من احتفالات العام الجديد.",
        "في اليوم الذي تنتهي فيه احتفالات السنة الجديدة.",
    ),
    (
        "هل أدخل بحذائي؟",
        "الأفضل أن تتركه عند الباب، فالضيوف تُقدّم لهم نعال.",
        "لا، الأحذية تبقى عند المدخل ويُعطى الضيوف نعالاً.",
    ),
]


def own_pairs() -> list[Pair]:
    """15 pairs: the same five questions in three languages."""
    found = []
    for language, rows in (("en", _EN), ("zh", _ZH), ("ar", _AR)):
        found += [Pair(str(number), language, *row) for number, row in enumerate(rows)]
    return found
