"""Rollouts: generators and samplers of responses.

A `Generator` continues token ids and returns a `Rollout`: the tokens, their log-probabilities, the texts, and the
version of the weights that wrote them. Training, evaluation and chat use one: `local` computes in this process,
`server` asks inference servers, `scripted` follows a script; `ahead` has another draw the rollouts of later steps
already, and `current` has it take over the weights before each. A `Sampler` answers conversations and returns texts
alone. A generator with its tokenizer is one (`GeneratorSampler`), and so is an OpenAI-compatible endpoint (`http`),
which gives no token ids.
"""
