"""Rollouts from servers of inference engines, over HTTP: token ids in, token ids and log-probabilities out.

`connect` finds out what a server is and how it is spoken to (an `Api`: vLLM, SGLang, or completions with token ids);
`ServerGenerator` spreads the prompts of a rollout over the servers, and `Handover` is how they get new weights.
"""
