"""SGLang's API by its contract: what is sent, and how an answer in its form is read."""

from pathlib import Path

import pytest
from offenders import for_each
from served import serving

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.transport import Transport, Unanswered
from tutelage.rollout.server.api import Connection, TokenRequest, TokenResponse
from tutelage.rollout.server.rollout_servers import SGLANG_LORA
from tutelage.rollout.server.sglang import SglangApi, SglangDiskHandover

ASKED = TokenRequest((5, 6), 2, 7, config.Sampling(0.7, max_new_tokens=4), (0, 9), "m", "run-1")


def said(tokens, reason="stop"):
    entries = [[-0.5 * place, token, None] for place, token in enumerate(tokens, 1)]
    finish = {"type": reason, "message": "server is shutting down"}
    info = {"output_token_logprobs": entries, "finish_reason": finish, "weight_version": "run-1"}
    return {"text": "", "meta_info": info}


def test_responses_and_their_seeds():
    with serving(lambda asked, number: [said((4, 9)), said((4, 4, 4, 4), "length")]) as served:
        found = SglangApi().generate(Connection(served.url, Transport("it")), ASKED)
    assert found == [
        TokenResponse((4, 9), (-0.5, -1.0), True, ("run-1",) * 2),
        TokenResponse((4, 4, 4, 4), (-0.5, -1.0, -1.5, -2.0), False, ("run-1",) * 4),
    ]
    (asked,) = served.asked
    assert asked["input_ids"] == [[5, 6], [5, 6]]
    assert [params["sampling_seed"] for params in asked["sampling_params"]] == [7, 8]
    assert asked["sampling_params"][0]["top_k"] == -1
    assert asked["sampling_params"][0]["stop_token_ids"] == [0, 9]
    assert asked["lora_path"] == ["run-1", "run-1"]


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ([said((4,), "abort")] * 2, Unanswered, "aborted a request: server is shutting down"),
        ({"text": "old form"}, TutelageError, "did not answer as SGLang's /generate does"),
    ],
)
def test_an_answer_that_is_none(answer, error, told):
    with serving(lambda asked, number: answer) as served, pytest.raises(error, match=told):
        SglangApi().generate(Connection(served.url, Transport("it", retries=0)), ASKED)


@for_each(
    [
        (SGLANG_LORA, True, ["/load_lora_adapter"]),
        (SglangDiskHandover(), True, ["/update_weights_from_disk"]),
        (SglangDiskHandover(), False, ["/pause_generation", "/update_weights_from_disk", "/continue_generation"]),
    ]
)
def test_new_weights(handover, wait, paths):
    with serving(lambda asked, number: {"success": True}) as served:
        handover.give(Connection(served.url, Transport("it")), Path("/weights"), "run-2", wait=wait)
    assert [asked["path"].removeprefix("/v1") for asked in served.asked] == paths
    told = next(asked for asked in served.asked if "/weights" in asked.values())
    assert "run-2" in told.values()
