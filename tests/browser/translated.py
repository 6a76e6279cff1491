"""Studies whose texts are in another language than English, for screenshots and tests."""

from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import Item, Plan, Presentation, Store, Study, add_items, create_study

NAMES = {"de": "Nachhilfe", "ar": "دروس مساعدة"}
CRITERIA = {"de": ("richtig", "verständlich"), "ar": ("صحيحة", "مفهومة")}
SPANS = {"de": ("Tatsache", "Ton"), "ar": ("معلومة", "أسلوب")}
QUESTIONS = {
    "de": (
        (
            "Warum ist der Himmel blau?",
            (
                "Sonnenlicht ist eine Mischung aus **allen** Farben. Die Luft streut das blaue Licht am stärksten, "
                "deshalb erreicht es uns von überall her.\n\nProbier es aus: Ein Tropfen Milch in einem Glas "
                "Wasser wird bläulich."
            ),
            "Wegen der Rayleigh-Streuung, deren Stärke mit $1/\\lambda^4$ geht.",
        ),
        ("Was ist eine Primzahl?", "Eine Zahl.", "Eine Zahl, die nur durch 1 und sich selbst teilbar ist."),
        ("Warum schwimmt Eis?", "Weil es leichter ist als Wasser.", "Das weiß niemand genau."),
    ),
    "ar": (
        (
            "لماذا تبدو السماء زرقاء؟",
            (
                "ضوء الشمس مزيج من **كل** الألوان. يشتّت الهواء الضوء الأزرق أكثر من غيره، ولذلك يصل إلينا من كل "
                "جهة.\n\nجرّب بنفسك: قطرة حليب في كأس ماء تجعله مائلًا إلى الزرقة."
            ),
            "بسبب تشتّت رايلي، الذي تتناسب شدّته مع $1/\\lambda^4$ (Rayleigh scattering).",
        ),
        ("ما العدد الأولي؟", "عدد.", "عدد لا يقبل القسمة إلا على 1 وعلى نفسه."),
        ("لماذا يطفو الجليد؟", "لأنه أخف من الماء.", "لا أحد يعرف ذلك بدقة."),
    ),
}


def translated(store: Store, code: str, *, more: tuple[str, ...] = (), full: bool = True) -> Study:
    """A study in the language; with `full` it asks for criteria, better responses and marked words too."""
    shown = Presentation(criteria=CRITERIA[code] if full else (), corrections=full, spans=SPANS[code] if full else ())
    plan = Plan(overlap=100, gold_rate=0, repeat_rate=0)
    study = create_study(store, NAMES[code], presentation=shown, plan=plan, languages=(code, *more))
    asked = QUESTIONS[code]
    prompts = [Prompt(f"{code}{n}", user(question)) for n, (question, _, _) in enumerate(asked)]
    completions = [
        CompletionRecord(f"{code}{n}{side}", f"{code}{n}", text, "model")
        for n, (_, *texts) in enumerate(asked)
        for side, text in zip("ab", texts, strict=True)
    ]
    items = [Item(f"{code}{n}", f"{code}{n}", (f"{code}{n}a", f"{code}{n}b")) for n in range(len(asked))]
    add_items(store, study.id, prompts, completions, items)
    return study
