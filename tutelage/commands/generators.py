"""Generators of completions: the policy or vLLM in this process, or servers."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.config.bases import COLOCATED, OPENENV, VERIFIERS, EpisodeSettings, PolicySettings
from tutelage.base.errors import TutelageError
from tutelage.commands.runs import remark
from tutelage.data.formats import LoadedRecords, load_prompts
from tutelage.data.records import Prompt
from tutelage.engines.ranks.ranks import Ranks
from tutelage.engines.sampling import TextVocabulary
from tutelage.models.backbone import ModelVocabulary
from tutelage.models.merging import tied_layers
from tutelage.models.policy import Policy
from tutelage.rollout import server
from tutelage.rollout.colocated import ColocatedGenerator
from tutelage.rollout.distributed import dealt_generator, shared_generator
from tutelage.rollout.generator import Generator, RolloutError
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.prefetch import Ahead
from tutelage.train.run.folder import Run

if TYPE_CHECKING:
    from tutelage.rollout.environment import Environment

PlayerOf = Callable[[Generator], Generator]
NOT_AHEAD = Ahead()
"""No lag: every step waits for its own rollout."""
WEIGHTS = "weights"
"""Folder in a run directory through which servers receive new weights."""


def training_generator(
    settings: PolicySettings,
    policy: Policy,
    sampling: config.Sampling,
    run: Run,
    ahead: Ahead = NOT_AHEAD,
    player: PlayerOf = lambda generator: generator,
) -> Generator:
    """Return the generator of a policy in training. Raises TutelageError if a server cannot be used.

    Each rank samples completions for some of the prompts; with servers, only rank 0 requests them. `player` returns the
    generator of episodes whose turns another one samples.
    """
    if not settings.rollouts:
        return dealt_generator(player(LocalGenerator(policy)), run.ranks, policy.device, policy.gathered)
    if settings.rollouts == COLOCATED:
        return player(_colocated_generator(policy, sampling, run.ranks))
    return shared_generator(
        lambda: ahead.of(player(_trained_elsewhere(settings, policy, sampling, run, ahead.staleness))),
        run.ranks,
        policy.gathered_to_save,
    )


def _trained_elsewhere(
    settings: PolicySettings, policy: Policy, sampling: config.Sampling, run: Run, staleness: int
) -> Generator:
    """Return the generator that queries the servers and sends them the weights of the policy."""
    servers, how = _servers(settings.rollouts), settings.sync_by
    if how == "disk":
        _refuse_untied(policy, "--sync disk", "Use --sync lora, or other targets.")
    save = policy.save if how == "lora" else policy.save_whole
    folder = Path(settings.sync_folder) if settings.sync_folder else run.path / WEIGHTS
    probe = server.Probe(policy, sampling.temperature)
    direct = server.nccl_handover(policy) if how == "nccl" else None
    weights = server.WeightSync(how, save, folder, probe, keep=staleness + 1, wait=not staleness, direct=direct)
    for each in servers:
        handover = weights.handover(each)
        if not (handover.adapters or run.start):
            _refuse_other_model(each, policy, probe)
        if staleness and not (handover.adapters or each.api.labels):
            raise TutelageError(
                f"The server {each.url} does not report which weights wrote a token, which --staleness needs. "
                "Start vLLM with --enable-scale-out, or train adapters (--lora.rank) with --sync lora."
            )
    # two threads must not use one tokenizer
    vocabulary = ModelVocabulary(copy.deepcopy(policy.tokenizer), tuple(policy.end_ids))
    return server.ServerGenerator(servers, vocabulary, weights, device=policy.device)


def _refuse_other_model(each: server.RolloutServer, policy: Policy, probe: server.Probe) -> None:
    """Refuse to replace the weights of a server of another model, which may have the same shape: neither the name of
    the server's model nor its log-probabilities are those of the policy."""
    path = str(getattr(policy.model.config, "_name_or_path", ""))
    if {each.model, each.source} & {path, *(path[place + 1 :] for place, sign in enumerate(path) if sign == "/")}:
        return
    try:
        probe.check(each)
    except RolloutError as error:
        raise TutelageError(
            f"The server {each.url} serves {each.source}, not {path}, and would lose its weights. Start a server with "
            f"the policy's model. ({error})"
        ) from error


def _colocated_generator(policy: Policy, sampling: config.Sampling, ranks: Ranks) -> Generator:
    """Return the generator on vLLM in this process. Raises TutelageError if there are other ranks, or if vLLM cannot
    serve the policy."""
    if ranks.size > 1:
        raise TutelageError(
            f"--rollouts vllm is an engine for one process, and this run has {ranks.size}: give addresses of servers."
        )
    _refuse_untied(policy, "--rollouts vllm", "Use other targets.")
    generator = ColocatedGenerator(policy, sampling.temperature or 1.0)
    remark("Completions come from vLLM in this process.")
    return generator


def environment_of(settings: EpisodeSettings) -> "Environment | None":
    """Return the environment of episodes, with its tools. Raises TutelageError if one cannot be used."""
    if not settings.has_episodes:
        return None
    from tutelage.base.modules import function_named  # imported here: other runs need neither tools nor a player
    from tutelage.rollout.agent import AgentProgram
    from tutelage.rollout.environment import Environment
    from tutelage.rollout.episodes import EnvironmentClass, play_with_tools
    from tutelage.rollout.tools.builtin import load_tools

    tools, turns, seconds = load_tools(settings.tools), settings.turns, settings.environment_timeout
    if settings.agent:
        program = AgentProgram(settings.agent)
        return Environment(program, tools, turns, seconds, settings.agent, settings.agent_processes, pays=False)
    kind, _, address = settings.environment.partition(":")
    if kind == VERIFIERS:
        from tutelage.rollout.verifiers_environment import VerifiersEnvironment

        tasks = VerifiersEnvironment(address)
        return Environment(tasks, tools, turns, seconds, tasks.name, deterministic=settings.deterministic)
    if kind == OPENENV:
        from tutelage.rollout.openenv_environment import OpenEnvEnvironment

        there, most = OpenEnvEnvironment(address), settings.agent_processes
        return Environment(there, there.tools, turns, seconds, there.name, most, settings.deterministic, pays=False)
    play = function_named(settings.environment) if settings.environment else play_with_tools
    pays = play is not play_with_tools
    if isinstance(play, type) and callable(getattr(play, "reset", None)):
        play = EnvironmentClass(play, tools)
        tools, pays = play.tools, play.pays
    name = settings.environment or "play_with_tools"
    return Environment(play, tools, turns, seconds, name, deterministic=settings.deterministic, pays=pays)


def episode_prompts(source: str, environment: "Environment | None") -> LoadedRecords[Prompt]:
    """Return the prompts of a file or data set, or the tasks of an environment that is named in its place."""
    if environment is None or source != environment.name or not hasattr(environment.play, "prompts"):
        return load_prompts(source)
    records: tuple[Prompt, ...] = environment.play.prompts()
    columns = tuple(dict.fromkeys(name for prompt in records for name in prompt.data))
    places = tuple(f"task {number}" for number in range(len(records)))
    return LoadedRecords(source, "tasks", columns, len(records), records, places=places)


def playing(
    environment: "Environment | None", policy: Policy, prompts: Sequence[Prompt], generator: Generator
) -> Generator:
    """Return the generator of episodes whose turns `generator` samples; `generator` itself without an environment."""
    if environment is None:
        return generator
    from tutelage.rollout.player import Player

    by_id = {prompt.id: prompt for prompt in prompts}
    return Player(generator, environment, by_id, policy, policy.context, policy.device)


def _refuse_untied(policy: Policy, option: str, instead: str) -> None:
    """Refuse a transfer of whole models in which a merged adapter separates tied weights."""
    if tied := tied_layers(policy.model):
        raise TutelageError(
            f"{option} sends a whole model with a separate matrix for {' and '.join(tied)} (--lora.targets), which "
            f"the other model shares with another layer. {instead}"
        )


def fixed_generator(
    rollouts: str,
    policy: Policy,
    sampling: config.Sampling,
    ranks: Ranks,
    player: PlayerOf = lambda generator: generator,
) -> Generator:
    """Return the generator of a fixed policy. Raises TutelageError if a server has other weights."""
    if not rollouts:
        return dealt_generator(player(LocalGenerator(policy)), ranks, policy.device)
    if rollouts == COLOCATED:
        generator = player(_colocated_generator(policy, sampling, ranks))
        generator.sync(0)
        return generator
    return shared_generator(lambda: player(_fixed_elsewhere(rollouts, policy, sampling)), ranks)


def _fixed_elsewhere(rollouts: str, policy: Policy, sampling: config.Sampling) -> Generator:
    servers = _servers(rollouts)
    probe = server.Probe(policy, sampling.temperature or 1.0)
    for each in servers:
        probe.check(each)
    return server.ServerGenerator(servers, policy, device=policy.device)


def unseen_generator(rollouts: str, vocabulary: TextVocabulary, ranks: Ranks) -> Generator:
    """Return the generator of a model that is not loaded here, so that the weights of servers are not verified."""
    return shared_generator(lambda: server.ServerGenerator(_servers(rollouts), vocabulary), ranks)


def _servers(rollouts: str) -> "list[server.RolloutServer]":
    servers = server.connect(server.addresses(rollouts))
    for each in servers:
        remark(f"Completions come from {each.url}, {each.release} with {each.model}, by {each.api.name}.")
    return servers
