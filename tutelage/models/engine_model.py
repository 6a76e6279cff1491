"""Base class of policies and scalar models: a transformer with its tokenizer and engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from tutelage.core.batch import Pairs, Rows
from tutelage.core.rows import RowList
from tutelage.engines.choose import engine_for
from tutelage.engines.interface import Engine
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone, context_of
from tutelage.engines.ranks.passes import Passes
from tutelage.models.merging import output_of, refuse_difference


class EngineModel(ABC):
    """A model whose forward and backward passes an engine computes."""

    def __init__(self, backbone: Backbone, head: Head | None = None) -> None:
        self.backbone = backbone
        self.model: Any = backbone.model
        self.tokenizer = backbone.tokenizer
        self.device, self.dtype = backbone.device, backbone.dtype
        self.engine: Engine = engine_for(backbone, head)
        self.gathered: Callable[[], AbstractContextManager[None]] = nullcontext
        """Context in which all weights are on this rank; for a sharded model see `models.sharding`. Collective."""
        self.gathered_to_save: Callable[[], AbstractContextManager[None]] = nullcontext
        """The same on rank 0 only, in CPU memory."""
        self.passes: Passes | None = None
        """The collective passes through a sharded model."""

    @abstractmethod
    def outside_parameters(self) -> list[nn.Parameter]:
        """Parameters used outside of the engine."""

    @abstractmethod
    def head_in(self, model: nn.Module) -> Head | None:
        """The head used by an engine, in a copy of the model."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model into a folder that `from_pretrained` loads."""

    @staticmethod
    @abstractmethod
    def load(path: str) -> Any:
        """Load a full model from a folder with transformers."""

    def verify(self, folder: Path) -> None:
        """Raise TutelageError if the full model in a folder, as loaded by transformers, gives different outputs."""
        saved = output_of(self.load(str(folder)), self.tokenizer)
        refuse_difference(output_of(self.model, self.tokenizer), saved, self.tokenizer, "The saved model")

    @property
    def context(self) -> int | None:
        """The context length of the model, if its configuration states it."""
        return context_of(self.model)

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that training may change."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def split(self, batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
        """Split rows or pairs into parts of at most `tokens` tokens per forward pass. Yields Int[b]."""
        return self.engine.split(batch, tokens)

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss [] to the gradients of the parameters, as `loss.backward()` does."""
        self.engine.backward(loss)

    def total_norm(self, gradients: Iterable[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
        """√ Σ g² over all gradients. Float[]"""
        return self.engine.total_norm(gradients)

    def metrics(self) -> dict[str, float]:
        """Engine metrics of the last rollout or step."""
        return self.engine.metrics()
