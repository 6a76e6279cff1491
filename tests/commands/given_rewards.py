"""Reward functions that tests name on the command line, as module:function."""

import os
import time


def vowels(prompts, texts):
    """The share of vowels; waits where a test wants time to interfere."""
    time.sleep(float(os.environ.get("TUTELAGE_TEST_WAIT", "0")))
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in texts]


def length(prompts, texts):
    """The number of characters."""
    return [float(len(text)) for text in texts]


def raises(prompts, texts):
    """Fails as people's functions do."""
    raise KeyError("topic")


def nothing_but_one(prompts, texts):
    """The same for every answer."""
    return [1.0] * len(texts)


def of_the_prompt(prompts, texts):
    """The length of the prompt, whatever the answer."""
    return [len(prompt) / 10 for prompt in prompts]


NUMBER = 3
