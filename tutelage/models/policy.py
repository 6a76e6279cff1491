"""A causal language model as a policy: from tokens to log-probabilities of the completion, its divergence from another
policy, and perplexities under it."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from tutelage.base import config
from tutelage.core.batch import Rollout, Rows, TokenScores
from tutelage.engines.choose import engine_for
from tutelage.engines.interface import Engine, PromptTokens, SamplingJob
from tutelage.engines.logprobs import Head, ValueHead
from tutelage.engines.network import Backbone, end_ids_of, head_of, inner
from tutelage.engines.trials import verified_head
from tutelage.models.backbone import load_whole, save_model
from tutelage.models.budget import Budget, token_values
from tutelage.models.engine_model import EngineModel
from tutelage.models.merging import merge
from tutelage.models.model_files import check_saved

REFERENCE = "reference"  # adapter name of the frozen copy


class Policy(EngineModel):
    """The model being trained and its reference.

    With a new LoRA adapter, the reference is the model with the adapter disabled, at no memory cost; with an adapter
    loaded from a folder, it is a frozen copy of that adapter; without LoRA, a frozen copy of the model. Call
    `freeze_reference` before the first step, or `refer_to` another model.
    """

    load = staticmethod(load_whole)

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone, verified_head(backbone.model))
        self.end_ids = end_ids_of(backbone)
        self._reference: Engine | None = None  # of a frozen copy of the model, or of another model
        self._fresh_adapter = isinstance(self.model, PeftModel) and _adapter_is_zero(self.model)

    @property
    def head(self) -> Head:
        return self.engine.head

    @property
    def is_exact(self) -> bool:
        """Whether `generate` and `scores` give the same log-probabilities (see `Engine.is_exact`)."""
        return self.engine.is_exact

    @property
    def extends_exactly(self) -> bool:
        """Whether turns of kept contexts have the log-probabilities of `scores` (see `Engine.extends_exactly`)."""
        return self.engine.extends_exactly

    def outside_parameters(self) -> list[nn.Parameter]:
        """None."""
        return []

    def head_in(self, model: nn.Module) -> Head | None:
        """The output head of a copy of the model."""
        return head_of(model) if self.head.is_known else Head()

    @property
    def width(self) -> int:
        """The size of the head's input; a model may project hidden states before it (OPT-350m)."""
        return int(inner(self.model).get_output_embeddings().weight.shape[1])

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the model's vocabulary."""
        return int(inner(self.model).get_output_embeddings().weight.shape[0])

    def freeze_reference(self, frozen_copy: Callable[[], Engine] | None = None) -> None:
        """Set the reference to the current policy. `frozen_copy` creates the engine of a frozen copy of the model, if
        one is needed."""
        if not isinstance(self.model, PeftModel):
            self._reference = (frozen_copy or self._frozen_copy)()
        elif not self._fresh_adapter:
            self.model.add_adapter(REFERENCE, self.model.peft_config["default"])
            _copy_adapter(self.model, "default", REFERENCE)
            self.model.set_adapter("default")

    def refer_to(self, other: "Policy") -> None:
        """Set the reference to another, frozen policy, such as the teacher of distillation."""
        self._reference = other.engine

    def _frozen_copy(self) -> Engine:
        frozen = copy.deepcopy(self.model).requires_grad_(False).eval()
        head = verified_head(frozen) if self.head.is_known else Head()
        return engine_for(replace(self.backbone, model=frozen), head)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Context in which the policy acts as the reference, without gradients."""
        with self._reference_engine() as reference:
            policy, self.engine = self.engine, reference
            try:
                yield
            finally:
                self.engine = policy

    @contextmanager
    def _reference_engine(self) -> Iterator[Engine]:
        """Context that yields the engine of the reference, without gradients."""
        with torch.no_grad():
            if self._reference is not None:
                yield self._reference
            elif isinstance(self.model, PeftModel):
                with self._other_adapter():
                    yield self.engine
            else:
                raise RuntimeError("freeze_reference() was never called")

    @contextmanager
    def _other_adapter(self) -> Iterator[None]:
        assert isinstance(self.model, PeftModel)
        if REFERENCE not in self.model.peft_config:
            with self.model.disable_adapter():
                yield
            return
        self.model.set_adapter(REFERENCE, inference_mode=True)
        try:
            yield
        finally:
            self.model.set_adapter("default")

    def states(self, rows: Rows) -> Float[Tensor, "M d"]:
        """The hidden state before each of the M completion tokens, row by row. Float[M, d]"""
        return self.engine.states(rows)

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        value_head: ValueHead | None = None,
        divergence: float | None = None,
    ) -> TokenScores:
        """Log-probability, and on request entropy and value, of every completion token. Each Float[B, R]

        `divergence` adds the divergence of next-token distributions from the reference, at the cost of a forward pass
        of the reference: 1 for KL(policy‖reference), or another `mixture` of `core.kl.exact_divergence`.
        """
        return self.engine.score(
            rows,
            temperature=temperature,
            entropy=entropy,
            value_head=value_head,
            reference=None if divergence is None else self._reference_engine,
            mixture=1.0 if divergence is None else divergence,
        )

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """The logits of the M completion tokens divided by the temperature, in plain autograd. Float[M, V]

        Supports derivatives of any order. This is the largest tensor in training, so pass few rows, and use `scores`
        for the log-probabilities of tokens.
        """
        return self.engine.logits(rows, temperature=temperature)

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        rows_at_once: int | None = None,
        on_token: Callable[[Int[Tensor, " B"]], None] | None = None,
    ) -> Rollout:
        """Sample `n` completions per prompt; row b belongs to prompt b // n."""
        return self.engine.generate(SamplingJob(prompts, n, sampling, self.end_ids, seed, rows_at_once, on_token))

    def save(self, folder: Path) -> None:
        """Write the policy, or only its adapter, as transformers and PEFT do."""
        save_model(self.model, self.tokenizer, folder)

    def save_whole(self, folder: Path) -> None:
        """Write the policy as a full model, with adapters merged into a copy of the weights."""
        if isinstance(self.model, PeftModel):
            check_saved(self.model, folder)
        save_model(self._whole(), self.tokenizer, folder)

    def weights(self) -> Mapping[str, Float[Tensor, "..."]]:
        """Weights of the full model under the names of its files, tied ones once, with adapters merged into a copy."""
        model = self._whole()
        held = {name: parameter.detach() for name, parameter in model.named_parameters()}
        tensors: Mapping[str, Tensor] = revert_weight_conversion(model, held)
        return tensors

    def _whole(self) -> Any:
        if not isinstance(self.model, PeftModel):
            return self.model
        copied = copy.deepcopy(self.model)
        copied.set_adapter("default")
        return merge(copied, self.tokenizer)


def _adapter_is_zero(model: PeftModel) -> bool:
    """Whether the adapter has no effect, like a newly initialised one."""
    last = ("lora_B", "lora_embedding_A")  # matrices initialised to 0
    return all(not p.any() for name, p in model.named_parameters() if any(part in name for part in last))


def _copy_adapter(model: PeftModel, source: str, target: str) -> None:
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            words = name.split(".")  # in an embedding, the adapter name comes last
            if "lora_" in name and target in words:
                parameter.copy_(own[".".join(source if word == target else word for word in words)])
                parameter.requires_grad_(False)


def response_logp(
    policy: Policy, rows: Rows, *, temperature: float = 1.0, budget: int | Budget = 8192
) -> Float[Tensor, "B R"]:
    """log π of every completion token under `policy`."""
    return token_values(
        policy.split, lambda part: policy.scores(part, temperature=temperature).logp, rows, Budget.of(budget)
    )


def sequence_kl(
    rollout: Rollout, other: Policy, *, temperature: float, budget: int | Budget = 8192
) -> tuple[float, float]:
    """KL(π‖other) in nats per completion, from completions sampled by π: (k1 estimate, its standard error).

    The mean over completions of Σ_t log π(token) − log other(token), both at the sampling temperature. Both models must
    have the same vocabulary.
    """
    theirs = response_logp(other, rollout, temperature=temperature, budget=budget)
    per_answer = ((rollout.logp - theirs) * rollout.mask).sum(1)
    error = float(per_answer.std()) / math.sqrt(len(per_answer)) if len(per_answer) > 1 else math.nan
    return float(per_answer.mean()), error


def perplexity(policy: Policy, rows: Rows, *, budget: int | Budget = 8192) -> float:
    """Perplexity of the completions under `policy`: exp of the mean negative log-likelihood per completion token."""
    logp = response_logp(policy, rows, budget=budget)
    return math.exp(min(700.0, -float((logp * rows.mask).sum() / rows.mask.sum().clamp(min=1))))
