"""Rollouts from inference servers over HTTP: token ids in, token ids and log-probabilities out.

`connect` detects the kind of a server and its protocol (an `Api`: vLLM, SGLang, or completions with token ids);
`ServerGenerator` distributes the prompts of a rollout over the servers, and `Handover` transfers new weights to
them.
"""

from tutelage.base.modules import lazy_names

_PLACES = {
    "RolloutServer": "tutelage.rollout.server.rollout_servers",
    "ServerGenerator": "tutelage.rollout.server.server_generator",
    "Probe": "tutelage.rollout.server.probe",
    "WeightSync": "tutelage.rollout.server.weight_sync",
    "addresses": "tutelage.rollout.server.rollout_servers",
    "connect": "tutelage.rollout.server.rollout_servers",
    "nccl_handover": "tutelage.rollout.server.nccl",
}

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
