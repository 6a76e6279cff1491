"""Settings of a plan."""

from dataclasses import dataclass

from tutelage.base.config.limits import at_least
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The devices that a run is planned for, and the lengths of its texts."""

    gpu: str = ""
    """GPU of the table: b200, h200, h100, a100-80, a100-40, mi300x, l40s, l4 or 4090. Empty measures this machine."""
    gpus: int = 1
    """GPUs, one process each; those of --servers count among them."""
    gpus_per_node: int = 8
    """GPUs of one machine."""
    network: float = 400.0
    """Gbit/s between machines, for each GPU."""
    servers: int = 0
    """GPUs that generate responses as servers (vLLM or SGLang, in bf16) in place of the GPUs that train."""
    price: float = 0.0
    """Price of one GPU per hour, in any currency; 0 prints no cost."""
    prompt_tokens: int = 0
    """Mean tokens of a prompt; 0 counts them in the data, which takes the model's tokenizer."""
    response_tokens: int = 0
    """Mean tokens of a response; 0 counts them in the data, or takes the limit where responses are generated."""

    def __post_init__(self) -> None:
        at_least(self, gpus=1, gpus_per_node=1, servers=0, price=0, prompt_tokens=0, response_tokens=0)
        if not self.network > 0:
            raise TutelageError(f"--network is {self.network}; it must be above 0.")
        if self.servers >= self.gpus:
            raise TutelageError(
                f"--servers {self.servers} of --gpus {self.gpus} leaves no GPU to train on: give more --gpus."
            )
        if not self.gpu and (self.gpus > 1 or self.servers):
            raise TutelageError("--gpus and --servers plan for GPUs of the table: name one with --gpu.")
