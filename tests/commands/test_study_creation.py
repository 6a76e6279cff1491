"""The questions that `tutelage collect init` makes of what there is."""

from collections import Counter
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.commands.collect.settings import Init, Judge, Simulate
from tutelage.commands.iterate import IterateSettings
from tutelage.commands.study_creation import main_questions
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Output of `tutelage sample`: three prompts with four completions and three pairs each."""
    prompts = [Prompt(f"p{n}", user(f"Question {n}?")) for n in range(3)]
    completions = [CompletionRecord(f"{p.id}c{k}", p.id, f"response {k}", "m") for p in prompts for k in range(4)]
    pairs = [Comparison(f"{p.id}-{k}", p.id, f"{p.id}c{k}", f"{p.id}c{k + 1}") for p in prompts for k in range(3)]
    for name, records in {"prompts": prompts, "completions": completions, "comparisons": pairs}.items():
        write_jsonl(tmp_path / f"{name}.jsonl", map(to_row, records))
    return tmp_path


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 9, 20, None])
def test_a_limit_counts_questions_spread_over_the_prompts(sample: Path, limit: int | None) -> None:
    made = main_questions(Init(study="s", from_sample=sample, limit=limit))
    assert len(made.items) == min(9, limit or 9)
    each = Counter(item.prompt for item in made.items)
    assert max(each.values()) - min(each.get(f"p{n}", 0) for n in range(3)) <= 1
    assert {prompt.id for prompt in made.prompts} == set(each)
    assert {text.id for text in made.completions} == {key for item in made.items for key in item.responses}


@for_each(
    [
        (Init, {"study": "s", "from_pairs": "f"}),
        (Judge, {"study": "s", "reward": "r"}),
        (IterateSettings, {"study": "s", "policy": "p", "prompts": "f"}),
    ]
)
def test_a_limit_below_one_is_refused(settings: type, words: dict[str, object]) -> None:
    for limit in (0, -3):
        with pytest.raises(TutelageError, match=rf"--limit is {limit};"):
            settings(**words, limit=limit)


def test_answers_of_simulated_raters_are_at_least_one() -> None:
    with pytest.raises(TutelageError, match="--answers is -1;"):
        Simulate(study="s", answers=-1)
