"""Steps as token ids, and their ends."""

import copy

import torch
from call_templates import TAGGED, WITHOUT_THOUGHTS
from offenders import for_each

from tutelage.core.rows import EncodedRow, collate, read_at
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Message, ToolCall, spoken, user
from tutelage.data.tokenizer import encode_text
from tutelage.models.backbone import load_tokenizer
from tutelage.models.step_scores import EncodedSteps, encode_steps, step_rows

ASKED = user("How far is it?")
CALL = Message("assistant", "Let me look.", calls=(ToolCall("map", '{"to": "b"}', "1"),))
RESULT = Message("tool", "3 km", name="map", call_id="1")
SAID = Message("assistant", "It is 3 km.")
NEXT = Message("user", "Sure?")
CPU = torch.device("cpu")


def tokenizer_of(folder, template=None):
    tokenizer = copy.deepcopy(load_tokenizer(folder))
    if template is not None:
        tokenizer.chat_template = template
    return tokenizer


@for_each(["qwen3", "llama", "gpt2"])
def test_a_step_of_text_ends_with_its_separator_whether_another_follows_or_not(family, tiny_model):
    tokenizer = tokenizer_of(tiny_model(family))
    texts = ["First a.", "Then <|im_end|> b.", "Last c."]
    whole = encode_steps(ASKED, texts, "\n\n", tokenizer)
    (row,) = whole.contexts
    assert row.prompt == tuple(encode(ASKED, None, tokenizer)[0])
    for count in (1, 2, 3):
        alone = encode_steps(ASKED, texts[:count], "\n\n", tokenizer)
        assert alone.contexts[0].response == row.response[: whole.ends[count - 1][1]]
        assert alone.ends == whole.ends[:count]
    second, third = (whole.ends[place][1] for place in (0, 1))
    assert row.response[second:third] == tuple(encode_text("Then <|im_end|> b.\n\n", tokenizer))


def test_turns_are_the_tokens_that_the_template_writes_for_the_whole_conversation(tiny_model):
    tokenizer = tokenizer_of(tiny_model("qwen3"), TAGGED)
    steps = ((CALL, RESULT), (SAID, NEXT), (SAID,))
    encoded = encode_steps(ASKED, steps, "", tokenizer)
    (row,) = encoded.contexts
    prompt, last = encode((*ASKED, CALL, RESULT, SAID, NEXT), spoken(SAID), tokenizer)
    assert [*row.prompt, *row.response] == [*prompt, *last]
    ends = [row.response[end - 1] for _, end in encoded.ends]
    assert ends == [last[-1]] * 3
    first = encode(ASKED, CALL, tokenizer)[1]
    assert row.response[: encoded.ends[0][1]] == tuple(first)


def test_a_context_begins_where_the_template_rewrites_the_past(tiny_model):
    tokenizer = tokenizer_of(tiny_model("qwen3"), WITHOUT_THOUGHTS)
    thoughtful = Message("assistant", "<think>Hm.</think>So.")
    encoded = encode_steps(ASKED, ((thoughtful, NEXT), (SAID,)), "", tokenizer)
    assert len(encoded.contexts) == 2
    assert [context for context, _ in encoded.ends] == [0, 1]
    assert encoded.contexts[1].prompt == tuple(encode((*ASKED, thoughtful, NEXT), None, tokenizer)[0])


def test_only_some_steps_keep_no_token_after_the_last_of_them():
    row, other = EncodedRow((1,), (2, 3, 4, 5)), EncodedRow((6, 7), (8, 9))
    whole = EncodedSteps((row, other), ((0, 2), (0, 4), (1, 2)))
    assert whole.only([True, False, True]) == EncodedSteps((EncodedRow((1,), (2, 3)), other), ((0, 2), (1, 2)))
    assert whole.only([False, False, True]) == EncodedSteps((other,), ((0, 2),))
    assert whole.fitting(5) == [True, False, True]


def test_columns_are_the_places_after_the_marked_tokens_of_each_context():
    """Against a loop: two contexts of one completion, one of another, of unequal lengths."""
    items = [
        EncodedSteps((EncodedRow((1, 2), (3, 4, 5)), EncodedRow((1, 6, 7), (8, 9))), ((0, 1), (0, 3), (1, 2))),
        EncodedSteps((EncodedRow((5,), (6, 7, 8, 9)),), ((0, 2),)),
    ]
    rows = step_rows(items, 0, CPU)
    assert rows.mask.tolist() == [[True, True, True], [True, False, False]]
    contexts, places = rows.contexts, list(zip(*(place.tolist() for place in rows.places), strict=True))
    assert contexts.mask.sum(1).tolist() == [4, 3, 5]
    assert places == [(0, 1), (0, 3), (1, 2), (2, 2)]
    assert rows.lengths().tolist() == [6 + 6, 6]
    assert rows.rows(torch.tensor([1])).contexts.response.tolist() == [[6, 7, 8, 9, 0]]


def test_a_context_that_is_full_loses_its_first_token_for_the_one_at_its_end():
    contexts = collate([EncodedRow((1, 2, 3), (4, 5)), EncodedRow((2,), (4, 5))], 0, CPU)
    marked = torch.tensor([[False, True], [True, False]])
    rows = read_at(contexts, marked, longest=5)
    assert rows.contexts.lengths().tolist() == [5, 4]
    assert rows.contexts.prompt[0][rows.contexts.prompt_mask[0]].tolist() == [2, 3]
    assert read_at(contexts, marked).contexts.lengths().tolist() == [6, 4]
