"""New LoRA adapters: which layers have one, and what is left without."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.network import inner
from tutelage.engines.trials import passes, tokens_of, without_dropout
from tutelage.models.merging import tied_layers
from tutelage.models.model_files import first_line, listed, without_numbers, without_warnings

PAST_ADAPTERS = {
    "dt_proj": {"falcon_mamba", "jamba", "mamba"},
    "out_proj": {"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"},
}
"""Linear layers of recurrent architectures whose weights are read past an adapter; PEFT refuses the second."""
_log = logging.getLogger(__name__)


def add_lora(
    model: PreTrainedModel, lora: config.Lora, *, task: str, seed: int, save: list[str] | None = None
) -> PeftModel:
    """A LoRA adapter (Hu et al. 2021, arXiv 2106.09685) on every linear layer except the head, or on `targets`.

    Its weights are initialised from `seed`. `save` lists modules that are fully trained and saved, such as a reward
    head.
    """
    _refuse_rank(model, lora.rank)
    targets: str | list[str] = "all-linear" if lora.targets == "auto" else lora.targets.split(",")
    names = sorted({name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear)})
    past = read_past(model)
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft divides by the rank; any number will do
        lora_dropout=lora.dropout,
        target_modules=targets,
        exclude_modules=[*_without_adapter(model), *past] if lora.targets == "auto" else None,
        modules_to_save=save,
        task_type=task,
    )
    try:
        with torch.random.fork_rng(devices=[]), without_warnings():
            torch.manual_seed(seed)
            adapted = get_peft_model(model, settings).eval()
    except ValueError as error:
        raise TutelageError(
            f"--lora.targets {lora.targets!r} cannot be adapted in a {type(model).__name__} ({first_line(error)}). Its "
            f"linear layers are: {', '.join(names)}."
        ) from error
    if vain := [name for name in past if hasattr(model.get_submodule(name), "lora_A")]:
        raise TutelageError(
            f"--lora.targets {lora.targets!r} adapts {listed(sorted(set(map(without_numbers, vain))))}, whose weight a "
            f"{type(model).__name__} reads past the layer, so that the adapter would change nothing: leave it out."
        )
    if lora.targets == "auto":
        _tell_of_weights_without_adapter(adapted)
    if tied := tied_layers(adapted):
        _log.info(
            "%s has an adapter (--lora.targets), and its weight is also that of another layer: the saved model has a "
            "matrix for each (tie_word_embeddings is false).",
            " and ".join(tied),
        )
    return adapted


def _without_adapter(model: PreTrainedModel) -> Iterator[str]:
    """Names of linear layers whose adapter would have no effect, or fail: `PAST_ADAPTERS`, and subclasses that return
    more or less than x Wᵀ, such as routers and grouped layers."""
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear):
            is_past = model.config.model_type in PAST_ADAPTERS.get(name.rpartition(".")[2], ())
            if is_past or (type(part) is not nn.Linear and not passes(_is_linear, part)):
                yield name


def read_past(model: PreTrainedModel) -> list[str]:
    """Names of linear layers whose weight the model reads without calling them. An adapter there has no effect in
    training, and changes the model when it is merged: the router of LongCat, for example.

    Such a layer is not called in a forward pass whose output depends on its weight. If the pass fails, the result is
    empty.
    """
    layers = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    tokens = tokens_of(model, torch.arange(1, 17)[None] * 7)
    if tokens.is_meta:
        return []
    called: set[str] = set()
    hooks = [part.register_forward_hook(lambda *_, name=name: called.add(name)) for name, part in layers.items()]
    used: list[str] = []

    def watch() -> bool:
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)
        weights = {name: part.weight for name, part in layers.items() if name not in called}
        if weights:
            with torch.enable_grad(), _with_gradient(list(weights.values())):
                output = model(input_ids=tokens, use_cache=False).logits.float().square().mean()
                gradients = torch.autograd.grad(output, list(weights.values()), allow_unused=True)
            used.extend(name for name, each in zip(weights, gradients, strict=True) if each is not None)
        return True

    with without_dropout(model):
        passes(watch)
    for hook in hooks:
        hook.remove()
    return used


@contextmanager
def _with_gradient(weights: Sequence[Tensor]) -> Iterator[None]:
    """Context in which these weights have a gradient."""
    before = [weight.requires_grad for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight, needed in zip(weights, before, strict=True):
            weight.requires_grad_(needed)


def _is_linear(part: nn.Linear) -> bool:
    row = torch.ones(1, part.in_features, dtype=part.weight.dtype, device=part.weight.device)
    return bool(part(row).shape == (1, part.out_features))


def _tell_of_weights_without_adapter(model: PeftModel) -> None:
    """Warn of matrices beside embeddings and head that are in no linear layer, such as fused experts."""
    whole = inner(model)
    tables = [part for part in whole.modules() if isinstance(part, nn.Embedding)]
    apart = {id(weight) for part in (*tables, whole.get_output_embeddings()) if part for weight in part.parameters()}
    sizes: Counter[str] = Counter()
    for name, weight in whole.named_parameters():
        has_none = not weight.requires_grad and not any(part in name for part in (".base_layer.", "original_module"))
        if has_none and weight.dim() > 1 and id(weight) not in apart:
            sizes[without_numbers(name)] += weight.numel()
    if sizes:
        total = sum(weight.numel() for name, weight in whole.named_parameters() if "lora_" not in name)
        _log.warning(
            "--lora.targets auto adapts linear layers only: %s of the weights of %s stay as they are, in %s. "
            "--lora.rank 0 trains them.",
            f"{sizes.total() / total:.0%}",
            type(whole).__name__,
            listed([name for name, _ in sizes.most_common()]),
        )


def _refuse_rank(model: nn.Module, rank: int) -> None:
    """Raise TutelageError for a rank above that of every linear layer: B A of rank r cannot exceed the rank of W."""
    widest = max((min(weight.shape) for weight in model.parameters() if weight.dim() == 2), default=rank)
    if rank > widest:
        raise TutelageError(
            f"--lora.rank is {rank}, but no linear layer of this model has a rank above {widest}: 8 to 64 are usual, "
            "and 0 trains the weights themselves."
        )
