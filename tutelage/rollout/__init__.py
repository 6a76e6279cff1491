"""Rollouts: generators and samplers of completions.

A `Generator` continues token ids and returns a `Rollout`: tokens, log-probabilities, texts, and the version of the
weights that wrote them. Training, evaluation and chat share it: `local` computes in this process, `server` calls
inference servers; `prefetch` samples the rollouts of later steps in the background, and `distributed` splits the work
among ranks. A `Sampler` (`samplers`) replies to conversations and returns only texts.
It wraps a generator with its tokenizer, or an OpenAI-compatible endpoint, which returns no token ids.
"""
