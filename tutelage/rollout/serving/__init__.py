"""A policy behind HTTP, in the formats of OpenAI and vLLM.

One worker thread owns the model (`worker`). Requests become `Generation` and `Scoring` jobs in its queue; what waits at
the same time is decoded as one group (`jobs`), and all groups take their steps together. The routes (`model_routes`)
turn JSON bodies into jobs (`protocol`) and the tokens of answers into JSON or server-sent events.
"""
