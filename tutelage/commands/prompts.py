"""The prompts of a run that samples."""

from collections.abc import Sequence

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.runs import remark
from tutelage.models.policy import Policy
from tutelage.rollout.prompts import EncodedPrompt


def fitting_prompts(policy: Policy, prompts: Sequence[EncodedPrompt], limit: int) -> list[EncodedPrompt]:
    """The prompts that leave room for an answer of `limit` tokens; a remark counts the others.

    Raises TutelageError where none does.
    """
    room = (policy.context or 1 << 30) - limit
    fitting = [each for each in prompts if len(each.tokens) <= room]
    if not fitting:
        raise TutelageError(
            f"No prompt fits: the model has {counted(room + limit, 'position')}, and {limit} are kept for the "
            "answer. Set a smaller --sampling.max-new-tokens."
        )
    if len(fitting) < len(prompts):
        missing = len(prompts) - len(fitting)
        remark(f"{counted(missing, 'prompt')} left out: longer than {counted(room, 'token')}.")
    return fitting
