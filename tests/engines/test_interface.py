"""Decoders of one context, in turn and together: each computes what it computes alone."""

import pytest
import torch

from tutelage.base import config
from tutelage.engines.interface import PromptBatch
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

BATCHES = (
    PromptBatch(((40, 41, 42), (50,)), (2, 1)),
    PromptBatch(((9, 60, 61, 62, 63, 64, 65), (7, 8)), (1, 1)),
    PromptBatch(((40, 41, 42),), (1,)),
)
STEPS = 5


def tokens(batch, step):
    """Some tokens for the lines of a batch."""
    return torch.tensor([(17 * line + 29 * step) % 90 + 5 for line in range(sum(batch.answers))])


def logits_of(decoder, batch, step):
    return decoder.start() if step == 0 else decoder.step(tokens(batch, step))


@pytest.mark.parametrize("engine", ["plain", "auto"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma2"])
def test_decoders_in_turn_compute_what_each_computes_alone(tiny_model, family, engine):
    policy = Policy(load_backbone(config.Model(tiny_model(family), device="cpu", engine=engine)))
    alone = []
    with torch.no_grad():
        for batch in BATCHES:
            with policy.engine.decoding() as decoders:
                decoder = decoders.decoder(batch, STEPS + 1)
                alone.append([logits_of(decoder, batch, step) for step in range(STEPS)])
        with policy.engine.decoding() as decoders:
            begun = [(decoders.decoder(batch, STEPS + 1), batch) for batch in BATCHES]
            for turn in range(STEPS + len(BATCHES)):
                for late, (decoder, batch) in enumerate(begun):
                    if 0 <= (step := turn - late) < STEPS:
                        found = logits_of(decoder, batch, step)
                        torch.testing.assert_close(found, alone[late][step], rtol=1e-4, atol=1e-4)
                if turn == 3:
                    decoders.restore()


@pytest.mark.parametrize("engine", ["plain", "auto"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_joined_steps_compute_what_each_decoder_computes_alone(tiny_model, family, engine):
    """Lines are dropped on the way, so that decoders differ in what they hold."""
    policy = Policy(load_backbone(config.Model(tiny_model(family), device="cpu", engine=engine)))
    kept = torch.tensor([0, 2])

    def logits_alone(decoder, batch, step):
        if batch is BATCHES[0] and step == 3:
            decoder.keep(kept)
        given = tokens(batch, step)
        return decoder.start() if step == 0 else decoder.step(given[kept] if _dropped(batch, step) else given)

    with torch.no_grad():
        alone = {}
        for number, batch in enumerate(BATCHES):
            with policy.engine.decoding() as decoders:
                decoder = decoders.decoder(batch, STEPS + 1)
                alone[number] = [logits_alone(decoder, batch, step) for step in range(STEPS)]
        with policy.engine.decoding() as decoders:
            made = [decoders.decoder(batch, STEPS + 1) for batch in BATCHES]
            for decoder in made:
                decoder.start()
            for step in range(1, STEPS):
                if step == 3:
                    made[0].keep(kept)
                given = [
                    tokens(batch, step)[kept] if _dropped(batch, step) else tokens(batch, step) for batch in BATCHES
                ]
                for number, logits in enumerate(decoders.step(made, given)):
                    torch.testing.assert_close(logits, alone[number][step], rtol=1e-4, atol=1e-4)


def _dropped(batch, step):
    return batch is BATCHES[0] and step >= 3
