"""A causal language model seen as a policy: tokens in, log-probabilities of the response out."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tutelage import config
from tutelage.core.batch import Pairs, Rollout, Rows, TokenScores
from tutelage.data.chat import end_token_ids
from tutelage.models.backbone import Backbone, head_of, inner, save_model
from tutelage.models.gradients import Gradients, total_norm
from tutelage.models.lean import make_lean
from tutelage.models.logprobs import Head, exact_divergence, token_scores
from tutelage.models.rows import before_each_response_token, spread
from tutelage.models.rows import positions as positions
from tutelage.models.states import micro_batches, run_trunk, states_before

if TYPE_CHECKING:
    from tutelage.models.sampling import PromptTokens

REFERENCE = "reference"  # the adapter name of a frozen copy


class Policy:
    """The model being trained, and the way to ask the reference it started from.

    With LoRA on a whole model the reference is the model with its adapter off; with an adapter that was loaded
    from a folder it is a frozen copy of that adapter; without LoRA it is a frozen copy of the model.
    Only the first costs no memory. Call `freeze_reference` before the first step.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.model: Any = backbone.model
        make_lean(self.model)
        self.tokenizer = backbone.tokenizer
        self.device, self.dtype = backbone.device, backbone.dtype
        self.end_ids = end_token_ids(self.tokenizer, getattr(inner(self.model), "generation_config", None))
        self.head = head_of(self.model)
        self._reference: nn.Module | None = None
        self._fresh_adapter = isinstance(self.model, PeftModel) and _adapter_is_zero(self.model)
        self._gradients = Gradients(self.parameters())
        if not self._head_is_reproduced():
            self.head = Head()

    def parameters(self) -> list[nn.Parameter]:
        """What training may change."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def width(self) -> int:
        """The size of a hidden state as the head sees it: a model may project before it (OPT-350m)."""
        return int(inner(self.model).get_output_embeddings().weight.shape[1])

    @property
    def vocabulary(self) -> int:
        """How many tokens the model can say."""
        return int(inner(self.model).get_output_embeddings().weight.shape[0])

    @property
    def context(self) -> int | None:
        """How many tokens the model can attend to, where its configuration says."""
        return getattr(inner(self.model).config.get_text_config(), "max_position_embeddings", None)

    def freeze_reference(self) -> None:
        """Take the policy as it is now for the reference."""
        if not isinstance(self.model, PeftModel):
            self._reference = copy.deepcopy(self.model).requires_grad_(False).eval()
        elif not self._fresh_adapter:
            self.model.add_adapter(REFERENCE, self.model.peft_config["default"])
            _copy_adapter(self.model, "default", REFERENCE)
            self.model.set_adapter("default")

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the policy answers as the reference does, and nothing is recorded for the gradient."""
        with torch.no_grad():
            if isinstance(self.model, PeftModel):
                with self._other_adapter():
                    yield
                return
            if self._reference is None:
                raise RuntimeError("freeze_reference() was never called")
            policy, head = self.model, self.head
            self.model = self._reference
            self.head = head_of(self.model) if head.is_known else Head()
            try:
                yield
            finally:
                self.model, self.head = policy, head

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

    def precision(self) -> Any:
        """The context of a forward pass: bfloat16 arithmetic over float32 weights, or nothing."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def states(self, rows: Rows) -> Tensor:
        """The hidden state before each of the M response tokens, from which it is predicted, row by row. Float[M, d]"""
        with self.precision():
            if self.head.is_known:
                return states_before(self.model, rows)
            mask = torch.cat([rows.prompt_mask, rows.mask], 1)
            logits = self.model(
                input_ids=torch.cat([rows.prompt, rows.response], 1),
                attention_mask=mask.long(),
                position_ids=positions(mask),
            ).logits
        return before_each_response_token(logits, rows)[rows.mask]

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        value_head: Callable[[Tensor], Tensor] | None = None,
        exact_kl: bool = False,
    ) -> TokenScores:
        """Log-probability, and where asked entropy and value, of every response token. Each Float[B, R]

        Only response positions reach the head, and no logits outlive their chunk (see `logprobs`). `exact_kl` asks
        for KL(policy‖reference) of every token's whole distribution, for another forward pass of the reference.
        """
        here = self.states(rows)
        with self.precision():
            logp, entropies = token_scores(
                here, self.head, rows.response[rows.mask], temperature=temperature, entropy=entropy
            )
        kl = self._divergence(rows, here, temperature) if exact_kl else None
        return TokenScores(
            logp=spread(logp, rows.mask),
            entropy=None if entropies is None else spread(entropies, rows.mask),
            value=None if value_head is None else spread(value_head(here.float()).squeeze(-1), rows.mask),
            exact_kl=None if kl is None else spread(kl, rows.mask),
        )

    def _divergence(self, rows: Rows, here: Tensor, temperature: float) -> Tensor:
        """KL(policy‖reference) at the states `here` of the response tokens. Float[N]"""

        def ref_logits(states: Tensor) -> Tensor:
            with self.reference():
                return self.head.logits(states)

        with self.reference():
            there = self.states(rows)
        with self.precision():
            return exact_divergence(here, self.head, there, ref_logits, temperature=temperature)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the parameters, as `loss.backward()` does."""
        with self._gradients.in_place():
            loss.backward()

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """√ Σ g² over all gradients, exact to float32. []"""
        return total_norm(gradients)

    def split(self, batch: Rows | Pairs, tokens: int) -> Iterator[Tensor]:
        """Split rows or pairs into parts for which a forward pass computes at most `tokens` tokens. Yields Int[b]."""
        return micro_batches(self.model, batch, tokens)

    def generate(
        self,
        prompts: "PromptTokens",
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        on_policy: bool = False,
        on_token: Callable[[Tensor], None] | None = None,
    ) -> Rollout:
        """Sample `n` answers to each prompt; row b answers prompt b // n.

        `on_policy` says that these rows are scored with gradients next, each once, before any weight changes.
        """
        from tutelage.models.sampling import sample

        return sample(self, prompts, n, sampling, seed=seed, on_token=on_token)

    def logits(self, rows: Rows, *, temperature: float = 1.0) -> Tensor:
        """The logits before each of the N response tokens, over the temperature, in plain autograd. Float[N, V]

        Derivatives of any order can be taken of them where gradients are recorded. Nothing larger exists in
        training, so keep the rows few; `scores` is the way to the tokens' own log-probabilities.
        """
        derivable = twice_differentiable() if torch.is_grad_enabled() else nullcontext()
        with derivable, self.precision():
            return self.head.logits(self.states(rows)) / temperature

    def metrics(self) -> dict[str, float]:
        """What computing the last step was like, for the log of a step; nothing here."""
        return {}

    def save(self, folder: Path) -> None:
        """Write the policy (or its adapter alone) as transformers and PEFT do."""
        if isinstance(self.model, PeftModel):
            self.model.save_pretrained(str(folder), selected_adapters=["default"])
            self.tokenizer.save_pretrained(folder)
        else:
            save_model(self.model, self.tokenizer, folder)

    def save_whole(self, folder: Path) -> None:
        """Write the policy as a whole model: an adapter is folded into its weights, and this policy stays as it is."""
        if not isinstance(self.model, PeftModel):
            save_model(self.model, self.tokenizer, folder)
            return
        merged = copy.deepcopy(self.model)
        merged.set_adapter("default")
        save_model(merged.merge_and_unload(), self.tokenizer, folder)

    @torch.no_grad()
    def _head_is_reproduced(self) -> bool:
        """Compare head(trunk(x)) with the model's own logits once, on a few tokens: an unknown architecture may
        do something to its logits that the configuration does not name."""
        vocabulary = int(inner(self.model).config.get_text_config().vocab_size)
        tokens = (torch.arange(1, 6, device=self.device) * 7 % vocabulary)[None]
        mask = torch.ones_like(tokens, dtype=torch.bool)
        expected = self.model(
            input_ids=tokens, attention_mask=mask.long(), position_ids=positions(mask)
        ).logits
        try:
            got = self.head.logits(run_trunk(self.model, tokens, mask)[0])
        except (RuntimeError, TypeError, AttributeError):
            return False
        return got.shape == expected[0].shape and torch.allclose(
            got, expected[0].float(), rtol=1e-3, atol=1e-3
        )


def twice_differentiable() -> AbstractContextManager[None]:
    """Inside, attention runs on kernels whose gradient has a gradient; the fused ones have none."""
    return sdpa_kernel(SDPBackend.MATH)


def _adapter_is_zero(model: PeftModel) -> bool:
    """Whether the adapter changes nothing yet, as a new one does."""
    return all(not p.any() for name, p in model.named_parameters() if "lora_B" in name)


def _copy_adapter(model: PeftModel, source: str, target: str) -> None:
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            if f".{target}." in name:
                parameter.copy_(own[name.replace(f".{target}.", f".{source}.")])
                parameter.requires_grad_(False)
