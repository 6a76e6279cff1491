"""Rollouts: generators and samplers of completions.

A `Generator` continues token ids and returns a `Rollout`: the tokens, their log-probabilities, the texts, and the
version of the weights that wrote them. Training, evaluation and chat use one: `local` computes in this process,
`server` asks inference servers, `scripted` follows a script; `prefetch` has another draw the rollouts of later steps
already, and `distributed` shares the work among ranks. A `Sampler` (`samplers`) answers conversations and returns texts
alone. A generator with its tokenizer is one, and so is an OpenAI-compatible endpoint, which gives no token ids.
"""
