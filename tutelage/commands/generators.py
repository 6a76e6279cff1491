"""Generators of completions: the policy in this process, or servers."""

import copy
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.bases import RolloutServers
from tutelage.base.errors import TutelageError
from tutelage.commands.runs import remark
from tutelage.engines.ranks.ranks import Ranks
from tutelage.engines.sampling import TextVocabulary
from tutelage.models.merging import tied_layers
from tutelage.models.policy import Policy
from tutelage.rollout import server
from tutelage.rollout.distributed import dealt_generator, shared_generator
from tutelage.rollout.generator import Generator
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.prefetch import Ahead
from tutelage.rollout.vocabulary import ModelVocabulary
from tutelage.train.run.folder import Run

NOT_AHEAD = Ahead()
"""No lag: every step waits for its own rollout."""
WEIGHTS = "weights"
"""Folder in a run directory through which servers receive new weights."""


def training_generator(
    settings: RolloutServers, policy: Policy, sampling: config.Sampling, run: Run, ahead: Ahead = NOT_AHEAD
) -> Generator:
    """Return the generator of a policy in training. Raises TutelageError if a server cannot be used.

    Each rank samples completions for some of the prompts; with servers, only rank 0 requests them.
    """
    if not settings.rollouts:
        return dealt_generator(LocalGenerator(policy), run.ranks, policy.gathered)
    return shared_generator(
        lambda: _trained_elsewhere(settings, policy, sampling, run.path, ahead), run.ranks, policy.gathered_to_save
    )


def _trained_elsewhere(
    settings: RolloutServers, policy: Policy, sampling: config.Sampling, out: Path, ahead: Ahead
) -> Generator:
    """Return the generator that queries the servers and sends them the weights of the policy."""
    staleness = ahead.staleness
    servers, how = _servers(settings.rollouts), settings.sync_by
    if how == "disk" and (tied := tied_layers(policy.model)):
        raise TutelageError(
            f"--sync disk sends a whole model with a separate matrix for {' and '.join(tied)} (--lora.targets), "
            "which the servers' model shares with another layer. Use --sync lora, or other targets."
        )
    save = policy.save if how == "lora" else policy.save_whole
    folder = Path(settings.sync_folder) if settings.sync_folder else out / WEIGHTS
    probe = server.Probe(policy, sampling.temperature)
    direct = server.nccl_handover(policy) if how == "nccl" else None
    weights = server.WeightSync(how, save, folder, probe, keep=staleness + 1, wait=not staleness, direct=direct)
    for each in servers:
        handover = weights.handover(each)
        if staleness and not (handover.adapters or each.api.labels):
            raise TutelageError(
                f"The server {each.url} does not report which weights wrote a token, which --staleness needs. "
                "Start vLLM with --enable-scale-out, or train adapters (--lora.rank) with --sync lora."
            )
    # two threads must not use one tokenizer
    vocabulary = ModelVocabulary(copy.deepcopy(policy.tokenizer), tuple(policy.end_ids))
    return ahead.of(server.ServerGenerator(servers, vocabulary, weights, device=policy.device))


def fixed_generator(rollouts: str, policy: Policy, sampling: config.Sampling, ranks: Ranks) -> Generator:
    """Return the generator of a fixed policy. Raises TutelageError if a server has other weights."""
    if not rollouts:
        return dealt_generator(LocalGenerator(policy), ranks)
    return shared_generator(lambda: _fixed_elsewhere(rollouts, policy, sampling), ranks)


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
