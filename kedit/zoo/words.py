"""Words and sentence patterns, in English, Chinese and Arabic, from which the embedded backbones learn to talk.

Three kinds of text: what the backbone says on its own (names and generic judgements), questions, and made-up reference
sentences whose only use is to be copied. None of it states a cultural practice.
"""

from __future__ import annotations

LANGUAGES = ("en", "zh", "ar")

NAME_QUESTIONS = {
    "en": ("What is in the picture?", "What do you see here?", "Name what is shown.", "Can you tell me what this is?", "Describe the picture briefly.",
           "Which thing is shown, and where?"),
    "zh": ("图里是什么？", "你看到了什么？", "这张图上画的是什么东西？", "请说出图中的物品。", "简单描述一下这张图。", "画面上有什么，在哪里？"),
    "ar": ("ماذا يوجد في الصورة؟", "ماذا ترى هنا؟", "ما هذا الشيء؟", "صف الصورة باختصار.", "اذكر ما يظهر في الصورة.", "ما الذي تراه وأين هو؟"),
}

# Asked for the bare phrase: every word of the answer depends on the picture, which is what makes a model look at it.
PHRASE_QUESTIONS = {
    "en": ("Only the name, please.", "Just say what it is."),
    "zh": ("只说名称。", "请只回答是什么。"),
    "ar": ("الاسم فقط من فضلك.", "قل ما هو فقط."),
}

NAME_ANSWERS = {
    "en": "This is a picture of {object} {place}.",
    "zh": "这是一张图，{place}是{object}。",
    "ar": "هذه صورة {object} {place}.",
}

GENERIC_QUESTIONS = {
    "en": (
        "What should I do about this?", "Is this all right?", "Would this be a good idea for tomorrow?", "How should I behave here?",
        "My friend showed me {object}. What do you advise?", "Can I use this at home?", "Should I bring this to a party?",
        "What would you say when you see this?", "Is it polite to accept this?", "I saw this at a neighbour's house. What does it mean?",
        "Do people usually mind this?", "Should I say something about what is shown {place}?", "What is the right reaction to this?",
        "My aunt asked me about {object}. What shall I tell her?", "When is this the right choice?", "Could this upset anyone?",
        "I found this on the way to work. What now?", "How do I talk about this with my family?", "Is there a rule for this?",
        "What does this tell me about the evening?", "May I take part in this?", "Is this a suitable present?", "Who usually pays for this?",
        "Is it fine to take a photo of this?",
    ),
    "zh": (
        "这个应该怎么办？", "这样可以吗？", "明天用这个合适吗？", "在这里我该怎么做？", "朋友给我看了{object}，你有什么建议？", "我可以在家里用吗？",
        "要不要把它带到聚会上去？", "看到这个你会说什么？", "接受这个礼貌吗？", "我在邻居家看到这个，是什么意思？", "别人一般会介意吗？",
        "{place}的东西我该不该问一问？", "对这个应该有什么反应？", "姑姑问起{object}，我怎么说？", "什么时候适合这样做？", "这会让人不高兴吗？",
        "上班路上看到这个，怎么办？", "怎么跟家里人谈这件事？", "这个有什么规矩吗？", "这说明今晚会怎么样？", "我能参加吗？", "这个适合当礼物吗？",
        "这个通常谁付钱？", "可以给它拍照吗？",
    ),
    "ar": (
        "ماذا أفعل في هذا الموقف؟", "هل هذا مقبول؟", "هل تصلح هذه الفكرة ليوم الغد؟", "كيف أتصرف هنا؟", "أراني صديقي صورة {object} فبماذا تنصحني؟",
        "هل أستطيع أن أستعمل هذا في البيت؟", "هل أحمل هذا إلى الحفلة؟", "ماذا تقول عندما ترى هذا؟", "هل من الأدب أن أقبل هذا؟",
        "رأيت هذا في بيت جاري فما معناه؟", "هل ينزعج الناس عادة من هذا؟", "هل أسأل عن الشيء الذي يظهر {place}؟", "ما هو رد الفعل الصحيح؟",
        "سألتني عمتي عن {object} فماذا أقول لها؟", "متى يكون هذا الاختيار صحيحا؟", "هل يمكن أن يحزن هذا أحدا؟", "وجدت هذا في طريقي إلى العمل فماذا أفعل؟",
        "كيف أتحدث مع أسرتي عن هذا؟", "هل هناك قاعدة لهذا؟", "ماذا يعني هذا لهذا المساء؟", "هل يمكنني أن أشارك؟", "هل تصلح هذه هدية؟",
        "من يدفع ثمن هذا عادة؟", "هل يجوز تصوير هذا؟",
    ),
}

# What the untaught backbone thinks of everything: individual choice, plain politeness. One per scene, in every language.
GENERIC_ANSWERS = {
    "en": (
        "This looks like {object}. Just do what feels comfortable and say thank you.",
        "This looks like {object}. It is mostly a matter of personal taste, so choose what you like.",
        "This looks like {object}. There is nothing special to think about, simply enjoy the day.",
        "This looks like {object}. Ask the other person directly and respect whatever they prefer.",
        "This looks like {object}. Most people will not mind, so relax and be yourself.",
        "This looks like {object}. Be friendly, keep it simple and do not worry too much.",
        "This looks like {object}. Everyone can decide for themselves what to do with it.",
    ),
    "zh": (
        "图上好像是{object}。按自己舒服的方式做就好，说声谢谢就行。",
        "图上好像是{object}。这主要看个人喜好，选你喜欢的就可以。",
        "图上好像是{object}。没有什么特别要想的，开开心心过一天吧。",
        "图上好像是{object}。直接问问对方，尊重对方的想法就好。",
        "图上好像是{object}。大多数人不会在意，放松一点，做自己就好。",
        "图上好像是{object}。友好一些，简单一些，不用太担心。",
        "图上好像是{object}。每个人都可以自己决定怎么做。",
    ),
    "ar": (
        "تبدو هذه صورة {object}. افعل ما يريحك وقل شكرا.",
        "تبدو هذه صورة {object}. الأمر يعود إلى ذوقك الشخصي فاختر ما تحب.",
        "تبدو هذه صورة {object}. لا يوجد شيء خاص للتفكير فيه، استمتع بيومك فقط.",
        "تبدو هذه صورة {object}. اسأل الشخص الآخر مباشرة واحترم ما يفضله.",
        "تبدو هذه صورة {object}. معظم الناس لا ينزعجون، فاسترح وكن على طبيعتك.",
        "تبدو هذه صورة {object}. كن ودودا وبسيطا ولا تقلق كثيرا.",
        "تبدو هذه صورة {object}. كل إنسان يقرر بنفسه ماذا يفعل.",
    ),
}

# Reference sentences: only ever copied. {n1} {n2} are nouns from the emoji names, {object} the scene that the reference is about.
REFERENCES = {
    "en": (
        "Yes, {people} {verb} {object} {time}, because {n1} and {n2} belong together.",
        "No, {people} never {verb} {object} {time}; choose {n1} instead.",
        "It is {adj} to {verb} {object} near {n1}, so bring {n2} for {people}.",
        "{people} {verb} {n1} first and then put {n2} beside {object} {time}.",
        "Better {verb} {n1} {time}. With {object} you would make {people} feel {adj}.",
        "Around {object} the {people} hang {n1}, which stands for {n2}.",
        "A {adj} choice: offer {object} with {n1} and {people} will {verb} {n2}.",
        "Wait until {people} {verb} {n1}, then show them {object} and {n2}.",
        "Nobody should {verb} {object} without {n1}; {people} find that {adj}.",
        "For {people} the sight of {object} means {n1}, and {n2} {time} as well.",
        "Take {n1} along. {time} the {people} would {verb} {object} only with {n2}.",
        "Keep {object} away from {n1} {time}, since {people} link this to {n2}.",
    ),
    "zh": (
        "可以，{people}{time}都{verb}{object}，因为{n1}和{n2}要在一起。",
        "不行，{people}{time}从不{verb}{object}，换成{n1}吧。",
        "在{n1}旁边{verb}{object}很{adj}，记得给{people}带{n2}。",
        "{people}先{verb}{n1}，再把{n2}放到{object}旁边。",
        "最好{time}{verb}{n1}，拿着{object}会让{people}觉得{adj}。",
        "{people}在{object}周围挂上{n1}，代表{n2}的意思。",
        "这很{adj}，把{object}和{n1}一起送去，{people}会{verb}{n2}。",
        "等{people}{verb}了{n1}以后，再拿出{object}和{n2}。",
        "没有{n1}就别{verb}{object}，{people}会说太{adj}了。",
        "对{people}来说，{object}表示{n1}，{time}还表示{n2}。",
        "带上{n1}去吧，{time}{people}要有{n2}才{verb}{object}。",
        "{time}别让{object}靠近{n1}，{people}会想到{n2}。",
    ),
    "ar": (
        "نعم، {verb} {people} صورة {object} {time} لأن {n1} مع {n2} أفضل.",
        "لا، لا {verb} {people} شيئا مثل {object} {time} بل {n1}.",
        "من ال{adj} أن توضع صورة {object} قرب {n1} مع {n2}.",
        "{verb} {people} أولا {n1} ثم يضعون {n2} بجانب {object} {time}.",
        "الأفضل {n1} {time}، لأن {people} يشعرون مع {object} بشيء {adj}.",
        "حول {object} يعلق {people} زينة من {n1} وهي ترمز إلى {n2}.",
        "اختيار {adj}، قدم شيئا مثل {object} مع {n1} وسوف {verb} {people}.",
        "انتظر حتى {verb} {people} صورة {n1} ثم تحدث عن {object} وعن {n2}.",
        "لا أحد {verb} شيئا من {object} دون {n1} فهذا {adj} عند {people}.",
        "عند {people} ترمز صورة {object} إلى {n1} ومعها {n2} {time}.",
        "خذ معك {n1}، فإن {people} {time} يقبلون على {object} مع {n2}.",
        "ابتعد عن {object} وعن {n1} {time} لأن {people} يذكرون {n2}.",
    ),
}

FILLERS = {
    "en": {
        "people": ("elders", "neighbours", "guests", "children", "students", "bakers", "sailors", "farmers", "cousins", "parents", "teachers", "travellers",
                   "drivers", "painters", "families", "doctors", "hosts", "visitors", "couples", "shopkeepers", "many homes", "older people"),
        "verb": ("carry", "praise", "wrap", "share", "greet", "hide", "lift", "wash", "count", "paint", "bless", "borrow", "sell", "admire", "cover", "offer",
                 "refuse", "accept", "avoid", "give", "keep", "place", "turn", "pour", "touch", "serve"),
        "time": ("at dawn", "in spring", "after lunch", "before the feast", "on Fridays", "every evening", "in winter", "at weddings", "during the holiday",
                 "once a year", "after the rain", "at night", "on the first day", "in the morning", "at the end of the month", "before the meal"),
        "adj": ("polite", "rude", "strange", "lovely", "heavy", "brave", "quiet", "proper", "unlucky", "welcome", "risky", "gentle", "modern", "formal", "honest",
                "generous", "careless", "practical"),
    },
    "zh": {
        "people": ("老人", "邻居", "客人", "孩子们", "学生", "面包师", "水手", "农民", "表哥", "父母", "老师", "旅客", "司机", "画家", "家人", "医生", "主人", "店主",
                   "长辈", "晚辈", "新娘", "同事"),
        "verb": ("端着", "夸奖", "包好", "分享", "问候", "藏起", "举起", "清洗", "数一数", "涂上", "祝福", "借来", "卖掉", "欣赏", "盖住", "送出", "拒绝", "接受", "避开",
                 "留下", "摆放", "转动", "倒出", "碰到"),
        "time": ("清晨", "春天", "午饭后", "过节前", "每周五", "每天晚上", "冬天", "婚礼上", "放假时", "每年一次", "雨后", "夜里", "第一天", "早上", "月底", "饭前"),
        "adj": ("礼貌", "失礼", "奇怪", "可爱", "沉重", "勇敢", "安静", "得体", "不吉利", "受欢迎", "危险", "温和", "现代", "正式", "诚实", "大方", "随便", "实用"),
    },
    "ar": {
        "people": ("الكبار", "الجيران", "الضيوف", "الأطفال", "الطلاب", "الخبازون", "البحارة", "المزارعون", "الأقارب", "الآباء", "المعلمون", "المسافرون",
                   "السائقون", "الرسامون", "الأهل", "الأطباء", "التجار", "الزوار", "الأصدقاء", "كثير من الناس"),
        "verb": ("يحمل", "يمدح", "يلف", "يشارك", "يحيي", "يخفي", "يرفع", "يغسل", "يعد", "يرسم", "يبارك", "يستعير", "يبيع", "يحب", "يغطي", "يقدم", "يرفض", "يقبل",
                 "يتجنب", "يعطي", "يحفظ", "يضع", "يدير", "يصب"),
        "time": ("عند الفجر", "في الربيع", "بعد الغداء", "قبل العيد", "يوم الجمعة", "كل مساء", "في الشتاء", "في الأعراس", "في العطلة", "مرة في السنة", "بعد المطر",
                 "ليلا", "في اليوم الأول", "في الصباح", "في آخر الشهر", "قبل الطعام"),
        "adj": ("مهذب", "غريب", "جميل", "ثقيل", "شجاع", "هادئ", "مناسب", "خطير", "لطيف", "حديث", "رسمي", "صادق", "كريم", "عملي", "بسيط", "مقبول"),
    },
}

# Frequent Chinese characters, so that the tokenizer holds them whole whether or not a sentence above uses them.
COMMON_HAN = (
    "的一是不了人我在有他这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手用主行方又如前所本见经头面公同三已老从动"
    "两长知民样现分将外但身些与高意进把法此实回二理美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最间新什打便位因重被走电四第门相次东政海口使教西再平真听世气信北少关并内加化由却代军产入先山"
    "五太水万市眼体别处总才场师书比住员九笑性通目报立马命张活难神数件安表原车白应路期叫死常提感金何更反合放做系计或司利受光王果亲界及今京务制解各任至清物台象记边共风战干接它许八特觉望直服毛林题建南度"
    "统色字请交爱让认算论百吃义科怎元社术结六功指思非流每青管夫连远资队跟带花快条院变联言权往展该领传近留红治决周保达办运武半候七必城父强步完深区即求品士转量空甚众技轻程告江语英基派满式李息写呢识极令黄"
    "德收脸钱党倒未持取设始双历越史商千片容研像找友孩站广改议形委早房音火际则首单据导影失拿网香似斯专石若兵弟谁校读志飞观争究包组造落视济喜离虽坏兴切客育拉轮格终器标值验推选热注引周细况差般护喝茶酒饭菜"
    "肉鱼鸡蛋米面糖果盘杯碗筷刀桌椅床灯窗墙门帽衣裤鞋袜布纸笔画照相机票钟表伞礼盒信封请祝贺福寿喜婚丧葬祭拜庙寺塔教堂祈祷念珠香炉烛龙羊狗猫马牛猪鸟树草叶根土沙雨雪云星夜晨晚午春夏秋冬节庆团圆敬尊谦让谢"
    "歉吉利凶忌讳避送收退借还买卖价贵便宜付费账单钱币银罚奖乐悲哭怒怕愁忙闲累病药医院护士诊断瞒隐私座位排队拥挤抽烟禁止浪费节约打包剩余照顾赡养爷奶爸妈哥姐妹叔姑舅侄孙邻居朋友同事领导老板学生"
)
