"""Environments of verifiers, with modules of the shape of its release 0.4; `make test-verifiers` has the real ones."""

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest
from call_templates import TAGGED
from test_player import LONG, Script, played

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.generators import environment_of, episode_prompts
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.data.records import Message
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import Environment

MODULES = ("", ".v1", ".v1.configs", ".v1.configs.agent", ".v1.dialects", ".v1.dialects.chat", ".v1.harnesses")
MODULES += (".v1.harnesses.utils", ".v1.harnesses.utils.mcp", ".v1.utils", ".v1.utils.loaders")
TOOL = {"type": "function", "function": {"name": "map_far", "parameters": {"type": "object"}}}
CALL = '<tool_call>{{"name": "{}", "arguments": {{"place": "Ayr"}}}}</tool_call>'
KEPT = []
"""Modules, whose tasks last as long as this process."""
TURNS = [f"I look.{CALL.format('map_far')}", CALL.format("near"), "It is 6.5 miles."]


@dataclass
class Data:
    idx: int
    prompt: object
    system_prompt: str | None = None
    answer: str = ""

    def model_dump(self, **_):
        return {"idx": self.idx, "answer": self.answer}


@dataclass
class Seat:
    """An agent's configuration."""

    harness: object = None
    client: object = None
    model_fields_set: frozenset = frozenset()
    retries: object = field(default_factory=lambda: SimpleNamespace(max_retries=0, rules=[]))


class Tasks(list):
    """A taskset."""

    bounded = True


@dataclass
class Stub:
    """What the environment of the modules does: its tasks, its seats, and the errors and the reward of an episode."""

    taskset: Tasks
    seats: dict = field(default_factory=lambda: {"agent": Seat()})
    errors: list = field(default_factory=list)
    rewards: dict = field(default_factory=dict)
    configs: list = field(default_factory=list)
    results: list = field(default_factory=list)
    harness: object = None
    retries: object = field(default_factory=lambda: SimpleNamespace(max_retries=0, rules=[]))
    late: tuple = ()

    def __post_init__(self):
        self.config = self

    @asynccontextmanager
    async def serving(self):
        yield

    async def run_episode(self, task, context, on_trace):
        trace = SimpleNamespace(id=f"trace-{id(task)}-{id(on_trace)}", errors=[], agent=SimpleNamespace(name="agent"))
        on_trace(trace)
        address = context.client.base_url.replace("/v1", f"/{trace.id}/v1")  # without the proxy, which adds a header
        harness = self.harness(SimpleNamespace(tool_timeout=5.0))
        self.results.append(await harness.launch(context, trace, None, address, "secret", {"map": "x"}, task.data))
        trace.rewards, trace.is_timeout, trace.stop_condition = dict(self.rewards), "trace" in self.late, "done"
        late = "episode" in self.late
        return SimpleNamespace(ok=not self.errors, errors=self.errors, traces=[trace], is_timeout=late)


def task(number, **data):
    return SimpleNamespace(key=f"{number:016d}{'0' * 48}", data=Data(number, **data))


@pytest.fixture
def stub(monkeypatch):
    made = Stub(Tasks([task(0, prompt="How far?", system_prompt="Be brief.", answer="6.5"), task(1, prompt="Why?")]))
    modules = {name: ModuleType(f"verifiers{name}") for name in MODULES}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"verifiers{name}", module)
    v1, mcp = modules[".v1"], modules[".v1.harnesses.utils.mcp"]
    modules[""].v1 = v1
    v1.load_environment = lambda own: made.configs.append(own) or made

    class Harness:
        def __class_getitem__(cls, _):
            return cls

        def __init__(self, own):
            self.config = own

        def resolve_prompt(self, data):
            return data.system_prompt, data.prompt

    v1.Harness, v1.HarnessConfig, v1.AgentConfig = Harness, object, Seat
    v1.ProgramResult = lambda *values: values
    v1.UserMessage = lambda content: SimpleNamespace(role="user", content=content)
    v1.EvalClientConfig = v1.ModelContext = SimpleNamespace
    modules[".v1.configs.agent"].agent_config_fields = lambda own: own.seats
    modules[".v1.dialects.chat"].message_to_wire = vars
    loaders = modules[".v1.utils.loaders"]
    loaders.default_harness_id = lambda taskset: "bash"
    kind = SimpleNamespace(model_fields={"agent": SimpleNamespace(default=Seat())}, model_validate=lambda own: own)
    loaders.env_config_type = lambda taskset, env: kind

    async def connect_mcp(own, stack):
        assert isinstance(stack, AsyncExitStack)
        return [TOOL], {"map_far": ("map", "far")}, {"map": None}

    async def call_mcp(servers, places, name, arguments):
        return {"Ayr": "6.5"}[arguments["place"]]

    mcp.connect_mcp, mcp.call_mcp = connect_mcp, call_mcp
    monkeypatch.delitem(sys.modules, "tutelage.rollout.verifiers_environment", raising=False)
    monkeypatch.delitem(sys.modules, "tutelage_chat", raising=False)
    import tutelage.rollout.verifiers_environment as module

    KEPT.append(module)
    made.harness = module.ChatHarness
    yield made
    sys.modules.pop("tutelage.rollout.verifiers_environment", None)


@pytest.fixture(scope="module")
def policy(tiny_model):
    return Policy(load_backbone(config.Model(tiny_model("qwen3", max_position_embeddings=500), device="cpu")))


def environment(**more):
    settings = ImproveSettings(
        model=config.Model("m"), prompts="verifiers:miles", environment="verifiers:miles", out="x", **more
    )
    return environment_of(settings)


def run(policy, made, **more):
    script = Script(policy, TAGGED, TURNS)
    prompts = episode_prompts("verifiers:miles", made).records
    return played(script, made, prompts[:1], 2, sampling=LONG, generator=script.generator, **more)


def test_tasks_are_prompts_and_their_functions_rewards(stub, policy):
    stub.rewards = {"right": SimpleNamespace(value=2.0), "calls": SimpleNamespace(value=0.5)}
    made = environment()
    loaded = episode_prompts("verifiers:miles", made)
    assert loaded.records[0].messages == (Message("system", "Be brief."), Message("user", "How far?"))
    assert loaded.records[0].data["answer"] == "6.5"
    assert {"answer", "task"} <= set(loaded.columns)
    rollout = run(policy, made)
    assert [one.role for one in rollout.transcripts[0]] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    found, missing = (one.content for one in rollout.transcripts[1] if one.role == "tool")
    assert (found, "near" in missing) == ("6.5", True)
    assert rollout.outcome.tolist() == [2.5, 2.5]
    assert rollout.terminated.all()
    assert stub.results == [(0, "", "")] * 2
    (own,) = stub.configs
    assert own["taskset"] == {"id": "miles"}
    assert own["agent"] == {"runtime": {"type": "subprocess"}, "harness": {"id": "tutelage_chat"}}


def test_a_limit_of_turns_ends_an_episode(stub, policy):
    rollout = run(policy, environment(turns=2))
    assert rollout.truncated.all()
    assert rollout.outcome.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("kind", "is_fault"), [("SandboxError", True), ("TaskError", False)])
def test_infrastructure_is_a_fault_and_an_error_of_a_task_a_mistake(stub, policy, kind, is_fault):
    stub.errors = [SimpleNamespace(type=kind, message="it broke")]
    if not is_fault:
        with pytest.raises(TutelageError, match="it broke"):
            run(policy, environment())
        return
    rollout = run(policy, environment())
    assert rollout.outcome.isnan().all()
    assert not (rollout.terminated | rollout.truncated).any()


def test_an_episode_that_was_not_scored_is_a_fault(stub, policy):
    stub.rewards = {"right": None}
    assert run(policy, environment()).outcome.isnan().all()


@pytest.mark.parametrize("late", ["trace", "episode"])
def test_an_episode_that_a_clock_of_verifiers_cuts_is_a_fault(stub, policy, late):
    stub.rewards, stub.late = {"right": SimpleNamespace(value=2.0)}, (late,)
    stub.errors = [SimpleNamespace(type="TaskError", message="nothing to score")]
    rollout = run(policy, environment())
    assert rollout.outcome.isnan().all()
    assert not (rollout.terminated | rollout.truncated).any()


def test_retries_of_verifiers_are_refused(stub):
    """They would add turns of an attempt that failed to those of the next one."""
    again = SimpleNamespace(max_retries=1, rules=[]), SimpleNamespace(max_retries=0, rules=["any"])
    for seat, own in [(again[0], stub.retries), (stub.retries, again[1])]:
        stub.seats, stub.retries = {"agent": Seat(retries=seat)}, own
        with pytest.raises(TutelageError, match="retries"):
            environment()


def test_environments_that_cannot_be_played_are_refused(stub, policy):
    stub.seats = {"solver": Seat(), "user": Seat()}
    with pytest.raises(TutelageError, match="solver, user"):
        environment()
    stub.seats = {"solver": Seat(), "user": Seat(client="its own")}
    assert isinstance(environment(), Environment)
    stub.taskset.append(task(2, prompt=None))
    with pytest.raises(TutelageError, match="Task 2"):
        episode_prompts("verifiers:miles", environment())
    stub.taskset.bounded = False
    with pytest.raises(TutelageError, match="no end"):
        environment()
    with pytest.raises(TutelageError, match="--tools"):
        environment(tools=("calculator",))


def test_a_prompt_of_another_file_is_refused(stub, policy):
    script, made = Script(policy, TAGGED, TURNS), environment()
    with pytest.raises(TutelageError, match="--prompts verifiers:miles"):
        played(script, made, sampling=LONG, generator=script.generator)


def test_a_missing_package_is_named():
    from tutelage.base.extras import missing

    for name, environment in (("verifiers", "verifiers:x"), ("openenv", "openenv:http://127.0.0.1:1")):
        try:
            __import__(name)
        except ModuleNotFoundError:
            settings = ImproveSettings(model=config.Model("m"), prompts="p", environment=environment, out="x")
            with pytest.raises(ModuleNotFoundError) as caught:
                environment_of(settings)
            assert f"tutelage[{name}]" in str(missing(caught.value, "improve"))
