"""The tensors of a model with its head, and their copy for decoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from tutelage.engines.gpu.chunked_head import product
from tutelage.engines.gpu.transformer import LayerSteps, LayerTensors, Network, NetworkForm, Rotary
from tutelage.engines.logprobs import Head
from tutelage.engines.network import LinearTensors

T = TypeVar("T")


@dataclass(frozen=True)
class TensorModel:
    """A transformer and its head as tensors."""

    form: NetworkForm
    network: Network
    head: Head
    rotary: Rotary
    steps: LayerSteps

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of a token."""
        return 2 * len(self.network.layers) * self.form.kv_heads * self.form.width * self.form.dtype.itemsize

    def logits(self, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
        """float32 logits, whose products have operands in the dtype of the form."""
        weight, bias = self.head.weight, self.head.bias
        assert weight is not None
        raw = product(states.to(self.form.dtype), weight.T)
        return self.head.scaled(raw if bias is None else raw + bias)


class DecodingCopy:
    """The tensors of a model in the dtype of its products, at addresses that do not change.

    Matrices with a common input are one matrix with all their rows, if `joint` or if they have another dtype and are
    copied anyway. `refresh` copies the current values.
    """

    def __init__(self, model: TensorModel, *, joint: bool) -> None:
        self.source, self.joint = model, joint
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._copies: dict[int, Tensor] = {}
        network = model.network
        layers = tuple(map(self._layer, network.layers))
        weight = None if model.head.weight is None else self._copy(model.head.weight)
        head = Head(weight, model.head.bias, model.head.scale, model.head.softcap)
        copied = Network(self._copy(network.embedding), layers, network.norm.detach())
        self.model = TensorModel(model.form, copied, head, model.rotary, model.steps)
        self.addresses = self._addresses(model)

    def _layer(self, layer: LayerTensors) -> LayerTensors:
        return layer._replace(
            heads=self._joined(layer.heads),
            gates=self._joined(layer.gates),
            output=self._copied(layer.output),
            down=self._copied(layer.down),
        )

    def _joined(self, parts: tuple[LinearTensors, ...]) -> tuple[LinearTensors, ...]:
        """One matrix with the rows of all parts; adapters are stacked, with B as blocks on a diagonal."""
        dtype, scales = self.source.form.dtype, {part.scale for part in parts if part.lora_a is not None}
        copied = self.joint or all(part.weight.dtype != dtype for part in parts)
        adapters = [part for part in parts if part.lora_a is not None]
        biases = [part for part in parts if part.bias is not None]
        if not copied or len(scales) > 1 or len(biases) not in (0, len(parts)) or len(adapters) not in (0, len(parts)):
            return self._copied(parts)
        weight = self._stacked([part.weight for part in parts])
        bias = self._stacked([part.bias for part in parts if part.bias is not None]) if biases else None
        if not adapters:
            return (LinearTensors(weight, bias),)
        downs = [part.lora_a for part in parts if part.lora_a is not None]
        ups = [part.lora_b for part in parts if part.lora_b is not None]
        blocks = weight.new_zeros(len(weight), sum(map(len, downs)))
        row = column = 0
        for up in ups:
            self._pairs.append((blocks[row : row + len(up), column : column + up.shape[1]], up))
            row, column = row + len(up), column + up.shape[1]
        return (LinearTensors(weight, bias, self._stacked(downs), blocks, parts[0].scale),)

    def _stacked(self, parts: Sequence[Tensor]) -> Tensor:
        whole = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:], dtype=self.source.form.dtype)
        row = 0
        for part in parts:
            self._pairs.append((whole[row : row + len(part)], part))
            row += len(part)
        return whole

    def _copied(self, tree: T) -> T:
        """Linear layers with copies of their tensors."""
        return tree_map_only(Tensor, self._copy, tree)

    def _copy(self, x: Tensor) -> Tensor:
        """A copy in the dtype of products; `x` itself if it has that dtype."""
        dtype = self.source.form.dtype
        if x.dtype == dtype:
            return x.detach()
        place = x.data_ptr()
        if place not in self._copies:
            self._copies[place] = torch.empty_like(x, dtype=dtype, requires_grad=False)
            self._pairs.append((self._copies[place], x))
        return self._copies[place]

    @staticmethod
    def _addresses(model: TensorModel) -> list[float | None]:
        """The addresses of all tensors, beside the scales of adapters."""
        leaves = tree_leaves((model.network, model.head.weight, model.head.bias))
        return [x.data_ptr() if isinstance(x, Tensor) else x for x in leaves]

    def serves(self, model: TensorModel) -> bool:
        """Whether `model` has the tensors of this copy, perhaps with other values."""
        return model.form == self.source.form and self._addresses(model) == self.addresses

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current values of the weights."""
        if self._pairs:
            torch._foreach_copy_([own for own, _ in self._pairs], [source for _, source in self._pairs])
