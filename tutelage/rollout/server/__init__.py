"""Rollouts from servers of inference engines, over HTTP: token ids in, token ids and log-probabilities out.

`connect` finds out what a server is and how it is spoken to (an `Api`: vLLM, SGLang, or completions with token ids);
`ServerGenerator` spreads the prompts of a rollout over the servers, and `Handover` is how they get new weights.
"""

from tutelage.base.lazy import lazy_names

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
