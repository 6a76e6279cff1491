"""The formats of requests and answers: OpenAI's, with vLLM's additions for token ids."""
