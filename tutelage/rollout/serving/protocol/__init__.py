"""Formats of requests and responses: OpenAI's, with vLLM's additions for token ids."""
