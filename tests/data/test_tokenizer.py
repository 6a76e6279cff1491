"""Pieces of text add up to the text of the whole answer, and no piece is ever taken back."""

import random

import pytest
import tiny
from offenders import for_each
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tutelage.data.tokenizer import TextStream, encode_text, token_bytes
from tutelage.engines.sampling import text_of

ALPHABETS = {"any": range(300), "words": [*range(5, 120), *range(270, 300)], "spaces": [227, 204, 36, 37, 295, 38]}


def streamed(tokens, tokenizer, stop, *, strips):
    """The pieces of a stream that gets tokens up to a stop string."""
    stream, pieces = TextStream(tokenizer, stop, strips=strips), []
    for token in tokens:
        pieces.append(stream.push(token))
        if stream.found is not None:
            break
    return [*pieces, stream.finish()], stream


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("stop", [(), ("e",), ("th", "t"), ("\nUser:", " a")])
def test_pieces_add_up_to_the_text(alphabet, stop):
    tokenizer, chance = tiny.tokenizer(), random.Random(f"{alphabet}{stop}")
    cut = 0
    for _ in range(60):
        tokens = chance.choices(list(ALPHABETS[alphabet]), k=chance.randint(0, 24))
        pieces, stream = streamed(tokens, tokenizer, stop, strips=True)
        assert "".join(pieces) == text_of(tokens, tokenizer, (), stop)
        cut += stream.found is not None
        raw = tokenizer.decode(tokens, skip_special_tokens=True)
        pieces, _ = streamed(tokens, tokenizer, (), strips=False)
        assert "".join(pieces) == raw
    assert (cut > 0) == bool(stop) or alphabet == "spaces"


def test_text_comes_early_but_not_what_may_be_taken_away():
    tokenizer = tiny.tokenizer()
    tokens = tokenizer.encode("Stars are \u2603 hot.\nUser: no", add_special_tokens=False)
    pieces, stream = streamed(tokens, tokenizer, ("\nUser:",), strips=True)
    assert stream.found == "\nUser:"
    assert "".join(pieces) == "Stars are \u2603 hot."
    assert pieces[-1] == "", "all of it was certain before the end"
    assert not any(piece.endswith((" ", "\ufffd")) for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 5


def test_of_two_stop_strings_the_first_in_the_text_counts():
    tokenizer = tiny.tokenizer()
    tokens = tokenizer.encode("one two three", add_special_tokens=False)
    pieces, stream = streamed(tokens, tokenizer, ("three", "two"), strips=False)
    assert (stream.found, "".join(pieces)) == ("two", "one ")


TEXTS = [
    "plain text",
    "naïve 你好",
    "👨\u200d👩\u200d👧 🇩🇪",
    "e\u0301 \u202eabc\u202c",
    "\ufffd is one",
    "\n\t \x7f\xa0\xad",
]


@for_each(TEXTS)
def test_the_bytes_of_tokens_are_those_of_the_text(text):
    tokenizer = tiny.tokenizer()
    assert b"".join(token_bytes(token, tokenizer) for token in encode_text(text, tokenizer)) == text.encode()


def test_the_bytes_of_tokens_for_bytes():
    pieces = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁hi": 256, "你": 257, "<unk>": 258}
    model = models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True)
    whole = Tokenizer(model)
    whole.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="<unk>")
    assert [token_bytes(byte, tokenizer) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert [token_bytes(token, tokenizer) for token in (256, 257)] == [b" hi", "你".encode()]
