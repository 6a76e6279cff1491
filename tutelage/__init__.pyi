# Written by scripts/interface.py.

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Required, TypeAlias, TypedDict, Unpack, overload

from tutelage import train as train
from tutelage.algorithms.recipe import Recipe as Recipe
from tutelage.algorithms.registry import RECIPES as RECIPES
from tutelage.base.concurrency import Calls as Calls
from tutelage.base.config.sections import Checkpoints as Checkpoints
from tutelage.base.config.sections import Lora as Lora
from tutelage.base.config.sections import Model as Model
from tutelage.base.config.sections import Optimiser as Optimiser
from tutelage.base.config.sections import Sampling as Sampling
from tutelage.base.config.sections import SearchSettings
from tutelage.base.config.sections import Shape as Shape
from tutelage.base.errors import TutelageError as TutelageError
from tutelage.base.version import __version__ as __version__
from tutelage.commands.compare.settings import CompareSettings as CompareSettings
from tutelage.commands.distill.settings import DistillSettings as DistillSettings
from tutelage.commands.dpo.settings import DpoSettings as DpoSettings
from tutelage.commands.evaluate.run import EvaluateResult as EvaluateResult
from tutelage.commands.evaluate.settings import EvaluateSettings as EvaluateSettings
from tutelage.commands.export.run import ExportGgufResult
from tutelage.commands.export.settings import ExportGgufSettings as ExportGgufSettings
from tutelage.commands.improve.settings import ImproveSettings as ImproveSettings
from tutelage.commands.loading import load_policy as load_policy
from tutelage.commands.loading import load_reward as load_reward
from tutelage.commands.loading import load_reward_model as load_reward_model
from tutelage.commands.plan.run import PlanResult as PlanResult
from tutelage.commands.plan.run import plan as plan
from tutelage.commands.plan.settings import PlanSettings as PlanSettings
from tutelage.commands.pretrain.settings import PretrainSettings as PretrainSettings
from tutelage.commands.promote.run import Promotion as Promotion
from tutelage.commands.promote.settings import PromoteSettings as PromoteSettings
from tutelage.commands.raters.run import RatersResult as RatersResult
from tutelage.commands.raters.settings import RatersSettings as RatersSettings
from tutelage.commands.rejection.settings import RejectionSettings as RejectionSettings
from tutelage.commands.results import DistillResult as DistillResult
from tutelage.commands.results import DpoResult as DpoResult
from tutelage.commands.results import ImproveResult as ImproveResult
from tutelage.commands.results import PretrainResult as PretrainResult
from tutelage.commands.results import RejectionResult as RejectionResult
from tutelage.commands.results import RewardResult as RewardResult
from tutelage.commands.results import SftResult as SftResult
from tutelage.commands.reward.settings import RewardSettings as RewardSettings
from tutelage.commands.sample.run import SampleResult as SampleResult
from tutelage.commands.sample.settings import SampleSettings as SampleSettings
from tutelage.commands.serve.settings import ServeSettings as ServeSettings
from tutelage.commands.sft.settings import SftSettings as SftSettings
from tutelage.commands.terminal import complete as complete
from tutelage.data.formats import load_demonstrations as load_demonstrations
from tutelage.data.formats import load_preferences as load_preferences
from tutelage.data.formats import load_prompts as load_prompts
from tutelage.people.programs.client import StudyClient as StudyClient
from tutelage.people.programs.signatures import verify_webhook as verify_webhook
from tutelage.report.comparison import Comparison as Comparison
from tutelage.rollout.serving.policy_server import PolicyServer
from tutelage.train.run.loop import Training

_Item: TypeAlias = str | Path | Callable[..., object]

class _ExportGguf(TypedDict, total=False):
    to: Literal["gguf"]
    model: Required[str | Path]
    out: Required[str | Path]
    weights: Literal["f32", "f16", "bf16", "q8_0"]
    quiet: bool

@overload
def export_gguf(settings: ExportGgufSettings, /) -> ExportGgufResult: ...
@overload
def export_gguf(**settings: Unpack[_ExportGguf]) -> ExportGgufResult: ...

class _Pretrain(TypedDict, total=False):
    engine: Literal["auto", "plain", "cpu", "gpu"]
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    optimiser: Optimiser | Mapping[str, object]
    epochs: float
    batch_size: int
    max_length: int
    held_out: float
    evaluate_every: int
    evaluate_rows: int
    data: Required[str | Path]
    model: str | Path
    dtype: Literal["auto", "float32", "bf16"]
    device: str | Path
    shape: Shape | Mapping[str, object]

@overload
def pretrain(settings: PretrainSettings, /) -> PretrainResult: ...
@overload
def pretrain(**settings: Unpack[_Pretrain]) -> PretrainResult: ...
@overload
def prepare_pretrain(settings: PretrainSettings, /) -> AbstractContextManager[Training[PretrainResult]]: ...
@overload
def prepare_pretrain(**settings: Unpack[_Pretrain]) -> AbstractContextManager[Training[PretrainResult]]: ...

class _Sft(TypedDict, total=False):
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    optimiser: Optimiser | Mapping[str, object]
    epochs: float
    batch_size: int
    max_length: int
    held_out: float
    evaluate_every: int
    evaluate_rows: int
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    study: str | Path
    kinds: Sequence[Literal["human", "llm", "simulated"]]
    study_rows: Sequence[Literal["votes", "live", "corrections"]]
    data: Required[str | Path]
    answers: Literal["last", "every"]
    samples: int
    rouge: int
    sampling: Sampling | Mapping[str, object]
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def sft(settings: SftSettings, /) -> SftResult: ...
@overload
def sft(**settings: Unpack[_Sft]) -> SftResult: ...
@overload
def prepare_sft(settings: SftSettings, /) -> AbstractContextManager[Training[SftResult]]: ...
@overload
def prepare_sft(**settings: Unpack[_Sft]) -> AbstractContextManager[Training[SftResult]]: ...

class _Reward(TypedDict, total=False):
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    optimiser: Optimiser | Mapping[str, object]
    epochs: float
    batch_size: int
    max_length: int
    held_out: float
    evaluate_every: int
    evaluate_rows: int
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    study: str | Path
    kinds: Sequence[Literal["human", "llm", "simulated"]]
    study_rows: Sequence[Literal["votes", "live", "corrections"]]
    data: Required[str | Path]
    loss: Literal["soft", "bt", "margin", "scaled", "davidson"]
    steps: bool
    separator: str | Path
    test: str | Path
    centre: str | Path
    patience: int
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def reward(settings: RewardSettings, /) -> RewardResult: ...
@overload
def reward(**settings: Unpack[_Reward]) -> RewardResult: ...
@overload
def prepare_reward(settings: RewardSettings, /) -> AbstractContextManager[Training[RewardResult]]: ...
@overload
def prepare_reward(**settings: Unpack[_Reward]) -> AbstractContextManager[Training[RewardResult]]: ...

class _Improve(TypedDict, total=False):
    environment: str | Path
    tools: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    agent: str | Path
    agent_processes: int
    turns: int
    environment_timeout: float
    deterministic: bool
    trust: str | Path
    trust_study: str | Path
    trust_anyway: bool
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    optimiser: Optimiser | Mapping[str, object]
    rollouts: str | Path
    sampling: Sampling | Mapping[str, object]
    sync: Literal["auto", "lora", "disk", "nccl"]
    sync_folder: str | Path
    steps: int
    batch_size: int
    sample_every: int
    prompts: Required[str | Path]
    reward: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    recipe: str | Recipe
    set: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    critic: Literal["trunk", "network"]
    critic_from: str | Path
    critic_lr: float
    ptx: str | Path
    mismatch: Literal["auto", "recompute", "truncated", "none"]
    mismatch_cap: float
    staleness: int
    watch: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def improve(settings: ImproveSettings, /) -> ImproveResult: ...
@overload
def improve(**settings: Unpack[_Improve]) -> ImproveResult: ...
@overload
def prepare_improve(settings: ImproveSettings, /) -> AbstractContextManager[Training[ImproveResult]]: ...
@overload
def prepare_improve(**settings: Unpack[_Improve]) -> AbstractContextManager[Training[ImproveResult]]: ...

class _Dpo(TypedDict, total=False):
    trust: str | Path
    trust_study: str | Path
    trust_anyway: bool
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    optimiser: Optimiser | Mapping[str, object]
    epochs: float
    batch_size: int
    max_length: int
    held_out: float
    evaluate_every: int
    evaluate_rows: int
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    rollouts: str | Path
    sampling: Sampling | Mapping[str, object]
    sync: Literal["auto", "lora", "disk", "nccl"]
    sync_folder: str | Path
    prompts: str | Path
    reward: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    rounds: int
    prompts_per_round: int
    samples: int
    study: str | Path
    kinds: Sequence[Literal["human", "llm", "simulated"]]
    study_rows: Sequence[Literal["votes", "live", "corrections"]]
    data: str | Path
    loss: str | Path
    set: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    unpaired: bool
    judge: str | Path
    judge_model: str | Path
    judge_question: str | Path
    reference: str | Path
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def dpo(settings: DpoSettings, /) -> DpoResult: ...
@overload
def dpo(**settings: Unpack[_Dpo]) -> DpoResult: ...
@overload
def prepare_dpo(settings: DpoSettings, /) -> AbstractContextManager[Training[DpoResult]]: ...
@overload
def prepare_dpo(**settings: Unpack[_Dpo]) -> AbstractContextManager[Training[DpoResult]]: ...

class _Rejection(TypedDict, total=False):
    trust: str | Path
    trust_study: str | Path
    trust_anyway: bool
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    optimiser: Optimiser | Mapping[str, object]
    epochs: float
    batch_size: int
    max_length: int
    held_out: float
    evaluate_every: int
    evaluate_rows: int
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    rollouts: str | Path
    sampling: Sampling | Mapping[str, object]
    sync: Literal["auto", "lora", "disk", "nccl"]
    sync_folder: str | Path
    prompts: str | Path
    reward: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    rounds: int
    prompts_per_round: int
    samples: int
    keep: int
    overall: float
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def rejection(settings: RejectionSettings, /) -> RejectionResult: ...
@overload
def rejection(**settings: Unpack[_Rejection]) -> RejectionResult: ...
@overload
def prepare_rejection(settings: RejectionSettings, /) -> AbstractContextManager[Training[RejectionResult]]: ...
@overload
def prepare_rejection(**settings: Unpack[_Rejection]) -> AbstractContextManager[Training[RejectionResult]]: ...

class _Distill(TypedDict, total=False):
    shard: Literal["none", "full", "hybrid"]
    tokens_at_once: int | None
    activation_checkpointing: bool
    out: Required[str | Path]
    seed: int
    resume: bool
    quiet: bool
    checkpoints: Checkpoints | Mapping[str, object]
    trackers: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    profile: bool
    model: Required[Model | str | Path]
    lora: Lora | Mapping[str, object]
    optimiser: Optimiser | Mapping[str, object]
    rollouts: str | Path
    sampling: Sampling | Mapping[str, object]
    sync: Literal["auto", "lora", "disk", "nccl"]
    sync_folder: str | Path
    steps: int
    batch_size: int
    sample_every: int
    teacher: str | Path
    prompts: str | Path
    data: str | Path
    on_policy: float
    recipe: str | Recipe
    set: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def distill(settings: DistillSettings, /) -> DistillResult: ...
@overload
def distill(**settings: Unpack[_Distill]) -> DistillResult: ...
@overload
def prepare_distill(settings: DistillSettings, /) -> AbstractContextManager[Training[DistillResult]]: ...
@overload
def prepare_distill(**settings: Unpack[_Distill]) -> AbstractContextManager[Training[DistillResult]]: ...

class _Sample(TypedDict, total=False):
    environment: str | Path
    tools: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    agent: str | Path
    agent_processes: int
    turns: int
    environment_timeout: float
    deterministic: bool
    rollouts: str | Path
    model: Required[Model | str | Path]
    prompts: Required[str | Path]
    out: Required[str | Path]
    n: int
    pairs: int
    reward: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    best_of: int
    test_time: SearchSettings | Mapping[str, object]
    endpoint: str | Path
    sampling: Sampling | Mapping[str, object]
    name: str | Path
    seed: int
    quiet: bool
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def sample(settings: SampleSettings, /) -> SampleResult: ...
@overload
def sample(**settings: Unpack[_Sample]) -> SampleResult: ...

class _Raters(TypedDict, total=False):
    votes: Required[str]
    item: str | Path
    rater: str | Path
    choice: str | Path
    gold: str | Path
    keep_rejected: bool
    use_gold: bool
    strength: str | Path
    order: str | Path
    model: Literal["auto", "majority", "coin", "biased", "ordinal", "hierarchical", "matrix"]
    level: Literal["nominal", "ordinal", "interval"]
    out: str | Path
    raters_out: str | Path
    show: int
    diagram: str | Path
    seed: int

@overload
def raters(settings: RatersSettings, /) -> RatersResult: ...
@overload
def raters(**settings: Unpack[_Raters]) -> RatersResult: ...

class _Evaluate(TypedDict, total=False):
    environment: str | Path
    tools: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    agent: str | Path
    agent_processes: int
    turns: int
    environment_timeout: float
    deterministic: bool
    rollouts: str | Path
    model: Required[Model | str | Path]
    prompts: str | Path
    tasks: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    task_folder: str | Path
    task_shots: int | None
    task_chat: bool
    out: Required[str | Path]
    against: str | Path
    reward: _Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]
    reward_bench: str | Path
    base: str | Path
    text: str | Path
    names: Sequence[str]
    references: str | Path
    n: int
    limit: int
    sampling: Sampling | Mapping[str, object]
    seed: int
    quiet: bool
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def evaluate(settings: EvaluateSettings, /) -> EvaluateResult: ...
@overload
def evaluate(**settings: Unpack[_Evaluate]) -> EvaluateResult: ...

class _Compare(TypedDict, total=False):
    runs: Required[tuple[Path, ...]]
    out: Path | None
    json: bool

@overload
def compare(settings: CompareSettings, /) -> Comparison: ...
@overload
def compare(**settings: Unpack[_Compare]) -> Comparison: ...

class _Promote(TypedDict, total=False):
    run: Required[Path]
    outcomes: str | None
    study: str | Path
    split: float
    margin: float
    level: float
    tolerance: float
    slow: float | None
    hours: float
    link: Path | None
    undo: bool
    json: bool

@overload
def promote(settings: PromoteSettings, /) -> Promotion: ...
@overload
def promote(**settings: Unpack[_Promote]) -> Promotion: ...

class _Serve(TypedDict, total=False):
    model: Required[Model | str | Path]
    name: str | Path
    host: str | Path
    port: int
    rows: int
    queue: int
    max_new_tokens: int
    max_body: int
    weight_updates: bool
    feedback: str | Path
    study: str | Path
    share: float
    days: float
    per_minute: int
    against: str | Path
    split: float
    against_timeout: float
    dtype: Literal["auto", "float32", "bf16"]
    device: str
    engine: Literal["auto", "plain", "cpu", "gpu"]

@overload
def serve(settings: ServeSettings, /) -> PolicyServer: ...
@overload
def serve(**settings: Unpack[_Serve]) -> PolicyServer: ...
