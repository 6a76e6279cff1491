"""Weights of a server: the model and named adapters."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from peft import PeftConfig, PeftModel
from peft.utils import load_peft_weights, set_peft_model_state_dict
from torch import nn

from tutelage.base.errors import TutelageError
from tutelage.engines.network import inner
from tutelage.models.backbone import is_adapter, load_weights
from tutelage.models.policy import Policy
from tutelage.rollout.serving.jobs import Version

FIRST_VERSION = "default"
"""Version of the initial weights, as in vLLM."""


class ServedWeights:
    """Policy, its adapters by name, and the version of the weights. Not thread-safe."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.version: Version = FIRST_VERSION
        self._adapters: dict[str, str] = {}

    @property
    def adapters(self) -> Mapping[str, str]:
        """Folders of the adapters, by name."""
        return self._adapters

    def using(self, adapter: str) -> AbstractContextManager[None]:
        """Context in which the policy uses an adapter, or its own weights for the name ""."""
        model = self.policy.model
        if not isinstance(model, PeftModel):
            return nullcontext()
        if not adapter:
            return model.disable_adapter()
        model.set_adapter(adapter, inference_mode=True)
        return nullcontext()

    def reload(self, path: str) -> None:
        """Load weights from a folder. Raises TutelageError, and changes nothing, if they do not fit."""
        load_weights(self.policy.model, path)

    def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter, or replace the one of that name. Raises TutelageError if it does not fit the model."""
        if not is_adapter(path):
            raise TutelageError(f"{path!r} is not the folder of a LoRA adapter: it has no adapter_config.json.")
        try:
            _check_shapes(self.policy.model, path)
            self._load_adapter(name, path)
        except (ValueError, RuntimeError, KeyError, OSError) as error:
            first = str(error).strip().split("\n")[0][:300]
            raise TutelageError(f"The adapter {path!r} cannot be loaded: {first}") from error
        self._adapters[name] = str(Path(path))

    def _load_adapter(self, name: str, path: str) -> None:
        model = self.policy.model
        if not isinstance(model, PeftModel):
            wrapped = PeftModel.from_pretrained(model, path, adapter_name=name).eval()
            self.policy = Policy(replace(self.policy.backbone, model=wrapped))
        elif name in model.peft_config and _shape(model.peft_config[name]) == _shape(PeftConfig.from_pretrained(path)):
            set_peft_model_state_dict(model, load_peft_weights(path), adapter_name=name)
        else:
            if name in model.peft_config:
                model.delete_adapter(name)
            model.load_adapter(path, name)
            model.eval()
            self.policy = Policy(self.policy.backbone)  # its head may have an adapter only now
            self._drop({*self._adapters, name})

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter. Raises TutelageError if there is none of that name."""
        if name not in self._adapters:
            raise TutelageError(f"There is no adapter {name!r}.")
        del self._adapters[name]
        self._drop(set(self._adapters))

    def _drop(self, kept: set[str]) -> None:
        """Free the adapters except `kept`. PEFT requires at least one: the last one stays until another is loaded."""
        held = self.policy.model.peft_config
        for name in [name for name in held if name not in kept]:
            if len(held) > 1:
                self.policy.model.delete_adapter(name)


def _check_shapes(model: nn.Module, path: str) -> None:
    """Raise TutelageError if an adapter is for other layers than those of the model."""
    layers = {name.replace(".base_layer", ""): layer for name, layer in inner(model).named_modules()}
    for key, matrix in load_peft_weights(path).items():
        name, _, side = key.removeprefix("base_model.model.").partition(".lora_")
        weight = getattr(layers.get(name), "weight", None)
        if weight is None:
            raise TutelageError(f"The adapter {path!r} cannot be used: the model has no layer {name}.")
        size = matrix.shape[-1] if side.removeprefix("embedding_").startswith("A") else matrix.shape[0]
        if size not in weight.shape:
            raise TutelageError(
                f"The adapter {path!r} cannot be used: lora_{side} of {tuple(matrix.shape)} does not fit the layer "
                f"{name} of {tuple(weight.shape)}."
            )


def _shape(settings: PeftConfig) -> dict[str, object]:
    """Settings shared by adapters whose weights can replace each other."""
    places = {"base_model_name_or_path", "inference_mode", "revision", "task_type", "peft_version"}
    return {
        name: sorted(value) if isinstance(value, set | list) else value
        for name, value in settings.to_dict().items()
        if name not in places
    }
