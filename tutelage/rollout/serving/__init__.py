"""Policy server over HTTP, in the formats of OpenAI and vLLM.

One worker thread owns the model (`worker`). Requests become `Generation` and `Scoring` jobs in its queue; jobs that
are queued together are decoded as one group (`jobs`), and all groups advance in lockstep. The routes
(`model_routes`) convert JSON bodies to jobs (`protocol`) and generated tokens to JSON or server-sent events.
"""
