"""Performance of devices: GPUs by name from their data sheets, and clusters of them."""

from dataclasses import dataclass

from tutelage.base.errors import TutelageError, did_you_mean

GB = 1e9
GIB = 2.0**30


@dataclass(frozen=True)
class Device:
    """One GPU, or the CPU of a machine, with rates from data sheets or measurements."""

    name: str
    memory: float
    """Bytes."""
    bf16: float
    """Dense bf16 matrix-product operations per second."""
    float32: float
    """float32 matrix-product operations per second, without TF32, as torch's default."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    link: float
    """Bytes per second to another device of the same node, in one direction."""
    runtime: float = 1.0 * GIB
    """Bytes used by the process and its libraries on the device before a model is loaded."""
    source: str = ""
    """Source of the rates."""
    matrix_share: float = 0.70
    """Share of the stated rate reached by large products."""
    memory_share: float = 0.80
    """Share of the stated bandwidth reached by reading."""
    link_share: float = 0.70
    """Share of the stated link bandwidth reached by collective operations."""
    step_overhead: float = 8e-4
    """Kernel launch overhead of transformers' modules, in seconds per layer and decoded token."""
    is_gpu: bool = True
    gpu_engine: bool = False
    """Whether the engine `gpu` computes on it: see `engines.devices`."""

    def rate(self, *, half: bool) -> float:
        """Achieved operations per second of large products."""
        return self.matrix_share * (self.bf16 if half else self.float32)

    @property
    def reading(self) -> float:
        """Achieved memory bandwidth in bytes per second."""
        return self.memory_share * self.bandwidth


def _gpu(name: str, memory: float, bf16: float, float32: float, read: float, link: float, source: str) -> Device:
    """A GPU by its data sheet: GB, TFLOP/s dense, TFLOP/s, GB/s, GB/s in one direction."""
    rates = bf16 * 1e12, float32 * 1e12, read * GB, link * GB
    return Device(name, memory * GB, *rates, source=source, gpu_engine=source.startswith("NVIDIA"))


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("b200", 180, 2250, 75, 7700, 900, "NVIDIA DGX B200 data sheet (per GPU)"),
        _gpu("h200", 141, 989, 67, 4800, 450, "NVIDIA H200 data sheet, SXM"),
        _gpu("h100", 80, 989, 67, 3350, 450, "NVIDIA H100 data sheet, SXM"),
        _gpu("a100-80", 80, 312, 19.5, 2039, 300, "NVIDIA A100 data sheet, 80 GB SXM"),
        _gpu("a100-40", 40, 312, 19.5, 1555, 300, "NVIDIA A100 data sheet, 40 GB SXM"),
        _gpu("mi300x", 192, 1307, 163, 5300, 448, "AMD Instinct MI300X data sheet"),
        _gpu("l40s", 48, 362, 91.6, 864, 32, "NVIDIA L40S data sheet"),
        _gpu("l4", 24, 121, 30.3, 300, 32, "NVIDIA L4 data sheet"),
        _gpu("4090", 24, 165, 82.6, 1008, 32, "NVIDIA Ada GPU architecture white paper, GeForce RTX 4090"),
    )
}
"""GPUs by name. Rates are dense; links are one direction of NVLink, Infinity Fabric or PCIe."""


def gpu_named(name: str) -> Device:
    """The GPU called `name`. Raises TutelageError, listing the known GPUs, for another name."""
    if name.lower() in GPUS:
        return GPUS[name.lower()]
    longer = [known for known in GPUS if name and known.startswith(name.lower())]
    guess = did_you_mean(name.lower(), GPUS, meant=longer)
    raise TutelageError(f"The table has no GPU {name!r}{guess} It has {', '.join(GPUS)}.")


@dataclass(frozen=True)
class Cluster:
    """Identical devices in nodes, with one process per device."""

    device: Device
    count: int = 1
    per_node: int = 8
    network: float = 50e9
    """Bytes per second between two nodes for each device, in one direction: 400 Gbit/s InfiniBand."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.per_node < 1:
            raise TutelageError(f"--gpus {self.count} and --gpus-per-node {self.per_node}: both must be at least 1.")

    @property
    def in_node(self) -> int:
        """Devices used per node."""
        return min(self.count, self.per_node)

    def link(self, among: int) -> float:
        """Bytes per second per device of a collective operation over `among` devices.

        A ring sends every byte into a node once and forwards it between devices, so the bandwidths of a node's adapters
        add up.
        """
        between = min(self.in_node * self.network, self.device.link)
        return self.device.link_share * (self.device.link if among <= self.per_node else between)
