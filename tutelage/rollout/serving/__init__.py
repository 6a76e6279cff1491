"""A policy behind HTTP, in the formats of OpenAI and vLLM.

One worker thread owns the model (`worker`). Requests become `Generation` and `Scoring` jobs in its queue; jobs that
wait at the same time are decoded as one group (`jobs`), and all groups take their steps together. The routes
(`model_routes`) turn JSON bodies into jobs (`protocol`) and generated tokens into JSON or server-sent events.
"""
