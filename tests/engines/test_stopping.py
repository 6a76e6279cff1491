"""Stop strings: found wherever tokens begin and end, at the token that completes them."""

import pytest
import tiny
import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.sampling import PromptTokens, answers
from tutelage.engines.stopping import StopCondition, text_of
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

TOKENIZER = tiny.tokenizer()


def ended_at(tokens, stop, tokenizer=TOKENIZER):
    """The number of tokens after which an answer ends."""
    ends = StopCondition(tokenizer, (), stop, torch.device("cpu"))
    response = torch.tensor([tokens])
    for length in range(1, len(tokens) + 1):
        if ends.reached(response, torch.tensor([0]), length).any():
            return length
    return None


def by_prefixes(tokens, stop):
    """The same from the definition: the first prefix whose text contains a stop string."""
    for length in range(1, len(tokens) + 1):
        text = TOKENIZER.decode(tokens[:length], skip_special_tokens=True)
        if any(each in text for each in stop):
            return length
    return None


SAID = "The sun is hot. 🌞 naïve — User: What?\n\nHuman: no more"


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize(
    "stop",
    [
        ("User:",),
        ("r:",),
        ("\n\nHuman",),
        ("🌞",),
        ("ï",),
        (" — ",),
        ("T",),
        ("more",),
        ("?", "hot"),
        ("absent",),
    ],
)
def test_an_answer_ends_with_the_token_that_completes_a_stop_string(stop, letters):
    parts = SAID if letters else [SAID]
    tokens = [token for part in parts for token in TOKENIZER.encode(part)]
    assert ended_at(tokens, stop) == by_prefixes(tokens, stop)
    length = ended_at(tokens, stop) or len(tokens)
    before = min(SAID.find(each) for each in stop if each in SAID) if stop != ("absent",) else len(SAID)
    assert text_of(tokens[:length], TOKENIZER, (), stop) == SAID[:before].strip()


def test_tokens_without_text_hide_no_stop_string():
    silent = TOKENIZER.pad_token_id
    word = [token for letter in "User:" for token in TOKENIZER.encode(letter)]
    tokens = [x for token in word for x in (token, *[silent] * 40)]
    assert ended_at(tokens, ("User:",)) == 4 * 41 + 1
    assert text_of(tokens, TOKENIZER, (), ("User:",)) == ""


def test_the_end_token_ends_the_text_before_a_stop_string():
    end = TOKENIZER.convert_tokens_to_ids(tiny.END)
    tokens = [*TOKENIZER.encode("one "), end, *TOKENIZER.encode("two stop")]
    assert text_of(tokens, TOKENIZER, (end,), ("stop",)) == "one"
    assert text_of(tokens, TOKENIZER, (), ("\n", "stop")) == "one two"


def test_special_tokens_and_empty_text_are_no_stop_strings():
    with pytest.raises(TutelageError, match=r"special token.*leave it out"):
        StopCondition(TOKENIZER, (), (f"a{tiny.END}",), torch.device("cpu"))
    with pytest.raises(TutelageError, match="empty"):
        config.Sampling(stop=("x", ""))


@torch.no_grad()
def test_rows_end_at_stop_strings_as_they_do_at_end_tokens(tiny_model):
    """The tokens, log-probabilities and streams are those of the free answer, cut at the first stop string."""
    policy = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu")))
    policy.end_ids = ()
    prompts = PromptTokens(((40, 41, 42), (50, 51)), ("a", "b"))
    free = policy.generate(prompts, 6, config.Sampling(max_new_tokens=20), seed=4)
    stop = ("e", "th", "s")
    rollout = policy.generate(prompts, 6, config.Sampling(max_new_tokens=20, stop=stop), seed=4)
    lengths = rollout.mask.sum(1).tolist()
    assert len(set(lengths)) > 2
    for row in range(12):
        tokens = free.response[row].tolist()
        expected = by_prefixes_of(policy.tokenizer, tokens, stop)
        assert lengths[row] == (expected or 20)
        assert bool(rollout.terminated[row]) == (expected is not None)
        assert rollout.response[row, : lengths[row]].tolist() == tokens[: lengths[row]]
        torch.testing.assert_close(
            rollout.logp[row, : lengths[row]], free.logp[row, : lengths[row]], rtol=1e-5, atol=1e-5
        )
    for text in answers(policy, rollout, stop):
        assert not any(each in text for each in stop)


def by_prefixes_of(tokenizer, tokens, stop):
    texts = (
        tokenizer.decode(tokens[:length], skip_special_tokens=True) for length in range(1, len(tokens) + 1)
    )
    return next((i for i, text in enumerate(texts, 1) if any(each in text for each in stop)), None)
