"""EleutherAI's evaluation harness on a policy: its tasks with our log-probabilities and our sampler.

lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness) requests the log-likelihood of a
continuation after a context, the log-likelihood of a whole text, and a generation until a stop string. Few-shot
prompts, metrics and standard errors are computed by the harness.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from tutelage.base import config
from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_template import apply_template, has_template
from tutelage.data.chat_tokens import pad_token_id
from tutelage.engines.interface import PromptTokens
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS
from tutelage.models.policy import Policy

CONTEXT = 2048
"""Context length in tokens if the configuration of the policy has none."""
ANSWER = 256
"""Maximum tokens of a generation if a task sets no limit."""


@dataclass(frozen=True)
class TaskFigures:
    """Results of a policy on tasks."""

    figures: Mapping[str, float]
    """Values by `task/metric`, and their standard errors by `task/metric_error`."""
    samples: tuple[Mapping[str, Any], ...]
    """One row per document: task, number, target, generations, and metrics."""
    versions: Mapping[str, Any]
    """Versions of the tasks; results are comparable only within a version."""


def run_tasks(policy: Policy, settings: EvaluateSettings) -> TaskFigures:
    """Evaluate a policy on the tasks of `settings`.

    Raises TutelageError for a task that does not exist or whose data cannot be read.
    """
    manager = _manager(settings.task_folder)
    _check_names(settings.tasks, manager)
    if settings.task_chat and not has_template(policy.tokenizer):
        raise TutelageError(f"The tokenizer of {settings.model.path} has no chat template: omit --task-chat.")
    log = logging.getLogger("lm_eval")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        results = simple_evaluate(
            PolicyLM(policy, settings.seed),
            tasks=list(settings.tasks),
            num_fewshot=settings.task_shots,
            limit=settings.limit or None,
            apply_chat_template=settings.task_chat,
            task_manager=manager,
            random_seed=settings.seed,
            numpy_random_seed=settings.seed,
            torch_random_seed=settings.seed,
            fewshot_random_seed=settings.seed,
        )
    except (OSError, ValueError) as error:  # errors of the hub, of data sets, and of inconsistent tasks
        reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
        raise TutelageError(f"The tasks {', '.join(settings.tasks)} could not be run: {reason}") from error
    finally:
        log.setLevel(level)
    assert results is not None  # None only on ranks other than the first
    return TaskFigures(
        dict(_figures(results["results"])), tuple(_samples(results["samples"])), dict(results["versions"])
    )


@cache
def _manager(folder: str) -> Any:
    """Return the tasks of the harness and those of a folder; reading them takes seconds."""
    return TaskManager(include_path=folder or None)


def _check_names(names: Sequence[str], manager: Any) -> None:
    for name in names:
        if not manager.match_tasks([name]):
            guess = did_you_mean(name, manager.all_tasks, most=3)
            raise TutelageError(
                f"lm-evaluation-harness has no task {name!r}{guess} It has arc_easy, hellaswag, gsm8k and others; "
                "--task-folder adds a folder of custom tasks."
            )


def _figures(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Extract the numbers from a results table with keys `metric,filter` and `metric_stderr,filter`."""
    figures = []
    for task, row in results.items():
        for key, value in row.items():
            metric, comma, kind = key.partition(",")
            if not comma or not isinstance(value, int | float):
                continue
            name = metric.removesuffix("_stderr") + ("" if kind == "none" else f" ({kind})")
            figures.append((f"{task}/{name}" + ("_error" if metric.endswith("_stderr") else ""), float(value)))
    return figures


def _samples(samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for task, documents in samples.items():
        for one in documents:
            row = {"task": task, "number": one["doc_id"], "filter": one["filter"], "target": one["target"]}
            row |= {"answers": one["filtered_resps"], **{name: one[name] for name in one["metrics"]}}
            rows.append(row)
    return rows


class PolicyLM(TemplateLM):
    """A policy as a model of the harness."""

    def __init__(self, policy: Policy, seed: int = 0) -> None:
        super().__init__()
        self.policy, self.seed = policy, seed
        self.tokenizer = policy.tokenizer
        self.max_length = policy.context or CONTEXT

    @property
    def eot_token_id(self) -> int:
        """Id of the end token."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """Id of the token before a text: the start token, else the end token."""
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else int(first)

    @property
    def tokenizer_name(self) -> str:
        """Name by which the harness distinguishes tokenizers."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **more: object) -> list[int]:
        """Return the token ids of a text, with the special tokens of the tokenizer unless the text contains them."""
        start = self.tokenizer.bos_token
        if add_special_tokens is None:
            add_special_tokens = not (start and string.startswith(start))
        return self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Format a conversation with the tokenizer's chat template."""
        return apply_template(
            chat_history,
            self.tokenizer,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    @torch.no_grad()
    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **more: object
    ) -> list[tuple[float, bool]]:
        """Return Σ log π(token) of each continuation after its context, and whether every token is the greedy one."""
        rows = []
        for _, context, continuation in requests:
            ids = (context + continuation)[-self.max_length :]
            cut = max(len(ids) - len(continuation), 1)  # keep at least one token of context
            rows.append(EncodedRow(tuple(ids[:cut]), tuple(ids[cut:])))
        batch = collate(rows, pad_token_id(self.tokenizer), self.policy.device)
        results: list[tuple[float, bool]] = [(0.0, True)] * len(rows)
        for index in self.policy.split(batch, max(1, CHUNK_ELEMENTS // self.policy.vocabulary)):
            part = batch.rows(index).trimmed()
            logp = self.policy.logits(part).log_softmax(-1)
            tokens = part.response[part.mask]
            own = logp.gather(-1, tokens[:, None]).squeeze(-1)
            lengths = part.mask.sum(1).tolist()
            pieces = zip(own.split(lengths), (logp.argmax(-1) == tokens).split(lengths), strict=True)
            for number, (values, likeliest) in zip(index.tolist(), pieces, strict=True):
                results[number] = (float(values.double().sum()), bool(likeliest.all()))
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return Σ log π(token) of whole texts, split into windows of the context length if longer."""
        windows: list[tuple[None, list[int], list[int]]] = []
        counts = []
        for request in requests:
            (text,) = request.args
            parts = get_rolling_token_windows(
                token_list=self.tok_encode(text, add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            own = [(None, *make_disjoint_window(part)) for part in parts]
            windows += own
            counts.append(len(own))
        values = iter(value for value, _ in self._loglikelihood_tokens(windows))
        return [sum(next(values) for _ in range(count)) for count in counts]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Generate a completion of each context up to the first stop string, which is removed."""
        texts = [""] * len(requests)
        groups: dict[config.Sampling, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(self._sampling(request.args[1]), []).append(number)
        for sampling, numbers in groups.items():
            room = max(1, self.max_length - sampling.max_new_tokens)
            prompts = [self.tok_encode(requests[number].args[0])[-room:] for number in numbers]
            tokens = PromptTokens(
                tuple(tuple(prompt or [self.prefix_token_id]) for prompt in prompts), tuple(map(str, numbers))
            )
            rollout = self.policy.generate(tokens, 1, sampling, seed=self.seed)
            for row, number in enumerate(numbers):  # undecorated, with spaces before the first word
                ids = rollout.response[row][rollout.mask[row]]
                text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
                texts[number] = min((text.partition(stop)[0] for stop in sampling.stop), key=len, default=text)
        return texts

    def _sampling(self, request: Mapping[str, Any]) -> config.Sampling:
        """Return the sampling settings of a task; greedy by default."""
        options = normalize_gen_kwargs(dict(request), ANSWER)
        greedy = not options["do_sample"]
        return config.Sampling(
            temperature=0.0 if greedy else options["temperature"],
            top_k=0 if greedy else int(options.get("top_k") or 0),
            top_p=1.0 if greedy else float(options.get("top_p") or 1.0),
            max_new_tokens=min(int(options["max_gen_toks"]), max(1, self.max_length // 2)),
            stop=tuple(text for text in options["until"] if text),
        )
