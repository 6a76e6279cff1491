"""Sampling of rollouts in slots: the copy of the weights, the slots and their memory."""

import logging
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rollout
from tutelage.engines.devices import available_memory
from tutelage.engines.gpu.decoding_copy import DecodingCopy, TensorModel
from tutelage.engines.gpu.slots import STEPS, SlotQueue, SlotRow, Slots, SlotSizes
from tutelage.engines.interface import OnToken, SamplingJob
from tutelage.engines.network import Backbone
from tutelage.engines.plans.token_budget import SLOTS
from tutelage.engines.sampling import RolloutBuffer, StopCondition

JOINT = 0.25
"""Share of the available memory that a copy of the weights with joint matrices may take."""
SHARE = 0.3
"""Share of the available memory for keys and values; more only with the fewest slots."""
_log = logging.getLogger(__name__)
_samplers: "weakref.WeakSet[SlotSampler]" = weakref.WeakSet()


def release_slots() -> None:
    """Free slots and copies of weights of all engines; the next rollout allocates them again."""
    for sampler in list(_samplers):
        sampler.release()


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Context in which a GPU is the current device of the thread, for graphs and kernels."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class SlotSampler:
    """Rollouts of one model. Its slots and their graph serve later rollouts of the same sizes."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.device = backbone, backbone.device
        self.copy: DecodingCopy | None = None
        self.slots: Slots | None = None
        self._most = SLOTS[-1]  # slots that memory allowed so far
        _samplers.add(self)

    def release(self) -> None:
        """Free the slots and the copy of the weights."""
        self.copy = self.slots = None

    @torch.no_grad()
    def sample(self, model: TensorModel, job: SamplingJob) -> Rollout:
        """See `Engine.generate`. With `on_token`, all rows have slots, so that a step is one token of each."""
        prompts, count = job.prompts.tokens, job.rows
        unique = list(dict.fromkeys(prompts))
        number = {prompt: index for index, prompt in enumerate(unique)}
        rows = [SlotRow(index, number[prompts[index // job.n]]) for index in range(count)]
        rows.sort(key=lambda row: (row.prompt, row.number))
        with on_device(self.device):
            self._copy_weights(model)
            slots, starts = self._prepared(unique, job)
            buffer = RolloutBuffer(self.backbone, job)
            slots.uniforms[:count] = buffer.uniforms
            slots.response.fill_(buffer.pad)
            for tensor in (slots.logp, slots.length, slots.terminated, slots.active):
                tensor.zero_()
            stop = StopCondition(self.backbone.tokenizer, job.end_ids, job.sampling.stop, torch.device("cpu"))
            self._run(SlotQueue(slots, unique, starts), rows, stop, buffer.pad, job.on_token)
            buffer.response, buffer.logp = slots.response[:count].clone(), slots.logp[:count].clone()
            buffer.length, buffer.terminated = slots.length[:count].clone(), slots.terminated[:count].clone()
            return buffer.rollout()

    @staticmethod
    def _run(queue: SlotQueue, rows: list[SlotRow], stop: StopCondition, pad: int, on_token: OnToken | None) -> None:
        """Sample all rows."""
        slots, count = queue.slots, len(rows)
        with phase("generate", count) as generating:
            queue.fill(rows)
            ended = step = 0
            while ended < count:
                for _ in range(1 if on_token else STEPS):
                    slots.run()
                if on_token is not None:
                    on_token(slots.response[:count, step])
                    step += 1
                if stop.stop:
                    queue.cut(stop, pad)
                ended += queue.release(slots.active.tolist())
                queue.fill(rows)
                generating.advance(ended)

    def _copy_weights(self, model: TensorModel) -> None:
        """The current weights in the copy for decoding."""
        if self.copy is None or not self.copy.serves(model):
            self.release()
            weights = (x for x in tree_leaves(model.network) if isinstance(x, Tensor))
            size = sum(x.numel() * x.element_size() for x in weights)
            self.copy = DecodingCopy(model, joint=JOINT * available_memory(self.device) > size)
        self.copy.refresh()

    def _prepared(self, prompts: Sequence[Sequence[int]], job: SamplingJob) -> tuple[Slots, list[int]]:
        """Slots that have read the prompts, and where each begins: those of the last rollout if they fit; fewer if
        memory ends."""
        assert self.copy is not None
        for sizes in self._sizes(prompts, job):
            try:
                if self.slots is None or not self.slots.serve(sizes, job.sampling, job.end_ids):
                    self.slots = None  # frees their memory first
                    self.slots = Slots(self.copy.model, sizes, job.sampling, job.end_ids)
                return self.slots, self.slots.read(prompts)
            except torch.OutOfMemoryError:
                self.slots = None
                self._most = min(self._most, sizes.slots - 1)
                _log.warning("Sampling in %d slots at once exceeds the memory of the GPU; trying fewer.", sizes.slots)
            torch.cuda.empty_cache()  # after the except block, whose traceback holds tensors
        raise TutelageError(
            f"Sampling needs keys and values of {counted(sum(map(len, prompts)), 'prompt token')} and of completions "
            f"of {counted(job.limit, 'token')}, which exceed the memory of the GPU. Use fewer prompts at "
            "once or a smaller --sampling.max-new-tokens."
        )

    def _sizes(self, prompts: Sequence[Sequence[int]], job: SamplingJob) -> Iterator[SlotSizes]:
        """Sizes to be tried, the most slots first; as many slots as rows at least if these are streamed."""
        assert self.copy is not None
        lengths, rows, limit = [len(prompt) for prompt in prompts], job.rows, job.limit
        least, at_once = (rows, None) if job.on_token else (1, job.rows_at_once)
        tokens, longest, table = _rounded(sum(lengths), 1024), _rounded(max(lengths), 128), _rounded(rows, 16)
        most = min(at_once or SLOTS[-1], max(self._most, SLOTS[0]))
        allowed = [count for count in SLOTS if count <= most] or [most]
        chosen = next((count for count in allowed if count >= rows), allowed[-1])
        room, each = SHARE * available_memory(self.device), self.copy.model.bytes_per_token
        for count in reversed(allowed):
            fits = each * (tokens + count * limit) <= room or self.slots is not None
            if least <= count <= chosen and (fits or count == allowed[0]):
                yield SlotSizes(count, limit, tokens, longest, table)


def _rounded(number: int, unit: int) -> int:
    """The smallest power of two times `unit` that is at least `number`."""
    while unit < number:
        unit *= 2
    return unit
