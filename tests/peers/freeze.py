"""Call the peers' own functions on fixed inputs, and freeze inputs, outputs and versions for `test_golden.py`.

    .bench/peers/bin/python tests/peers/freeze.py        # TRL 1.16: writes trl-1.16.0.json
    .bench/peers-ppo/bin/python tests/peers/freeze.py    # TRL 1.12: writes trl-1.12.0.json, PPO and nothing else

`make bench` makes both environments. Nothing of Tutelage is imported. TRL keeps most of its losses in methods of its
trainers, so these are called on the smallest object that has what they read; the code that runs is TRL's. What is
replaced is said beside it: the forward pass of a model (log-probabilities are given instead), generation, and the
distribution over processes.

Not called, because there is nothing to call: ORPO's whole loss (its odds-ratio term is; the other is a plain mean), KTO
with more than one process, GRPO's corrections for another sampler's log-probabilities.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from torch import Tensor

Case = dict[str, Any]


def numbers(*shape: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    """Normal numbers of three decimals, which a file can hold exactly enough."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (drawn * scale + shift).mul(1000).round().div(1000).float()


def plain(value: Any) -> Any:
    """Tensors as nested lists."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


class Alone:
    """One process that gathers from nobody, in the place of an Accelerator."""

    device = torch.device("cpu")
    num_processes, process_index, sync_gradients, is_main_process = 1, 0, True, True

    def gather(self, x: Any) -> Any:
        return x

    def gather_for_metrics(self, x: Any) -> Any:
        return x

    def reduce(self, x: Any, reduction: str = "sum") -> Any:
        return x

    def print(self, *words: object) -> None:
        pass

    def unwrap_model(self, model: Any) -> Any:
        return model

    @contextmanager
    def accumulate(self, model: Any) -> Iterator[None]:
        yield


def trainer(**settings: Any) -> Any:
    """What the loss methods read of their trainer."""
    common = {
        "accelerator": Alone(),
        "model": SimpleNamespace(training=True),
        "aux_loss_enabled": False,
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_total_train_tokens": 0,
        "_tp_size": 1,
    }
    return SimpleNamespace(**(common | settings))


# Log-probabilities and entropy ---------------------------------------------------------------------------------------


def token_scores() -> Case:
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    logits, index = numbers(3, 5, 11, seed=1, scale=2.0), torch.arange(15).reshape(3, 5) % 11
    heads = []
    for seed, (temperature, softcap, scale, biased) in enumerate(
        [(1.0, None, 1.0, False), (0.7, None, 1.0, True), (1.3, 3.0, 0.5, False)]
    ):
        states, weight, bias = (
            numbers(6, 4, seed=10 + seed),
            numbers(11, 4, seed=20 + seed),
            numbers(11, seed=30 + seed) if biased else None,
        )
        given = [x.requires_grad_() for x in (states, weight, bias) if x is not None]
        targets = torch.tensor([0, 3, 10, 7, 7, 1])
        logp, entropy, *_ = ChunkedLogProbFunction.apply(
            states, weight, bias, targets, temperature, 5, softcap, scale, ("entropy",)
        )
        to_logp, to_entropy = numbers(6, seed=40 + seed), numbers(6, seed=50 + seed)
        gradients = torch.autograd.grad((logp * to_logp + entropy * to_entropy).sum(), given)
        heads.append(
            {
                "settings": {"temperature": temperature, "softcap": softcap, "scale": scale},
                "states": states,
                "weight": weight,
                "bias": bias,
                "targets": targets,
                "to_logp": to_logp,
                "to_entropy": to_entropy,
                "logp": logp,
                "entropy": entropy,
                "gradients": gradients,
            }
        )
    return {
        "logits": logits,
        "index": index,
        "temperature": 0.8,
        "selective_log_softmax": selective_log_softmax(logits, index, temperature=0.8),
        "entropy_from_logits": entropy_from_logits(logits),
        "heads": heads,
    }


# Preference losses ---------------------------------------------------------------------------------------------------

CHOSEN, REJECTED = (5, 3, 4, 2), (3, 6, 4, 1)
"""Tokens of the answers of four pairs."""


def answers() -> dict[str, Tensor]:
    """Sums of log-probabilities of whole answers."""
    return {
        "chosen": numbers(4, seed=61, scale=3.0, shift=-9.0),
        "rejected": numbers(4, seed=62, scale=3.0, shift=-9.0),
        "ref_chosen": numbers(4, seed=63, scale=3.0, shift=-9.0),
        "ref_rejected": numbers(4, seed=64, scale=3.0, shift=-9.0),
    }


def dpo() -> Case:
    from trl import DPOTrainer

    found: Case = {"answers": answers(), "lengths": [CHOSEN, REJECTED], "beta": 0.1}
    for name, smoothing in (("sigmoid", 0.0), ("hinge", 0.0), ("ipo", 0.0), ("robust", 0.1)):
        found[name] = [_dpo(DPOTrainer, name, smoothing, pair) for pair in range(4)]
    return found


def _dpo(kind: Any, loss: str, smoothing: float, pair: int) -> float:
    """One pair at a time, since the method gives a mean. The model's forward pass is replaced by log-probabilities that
    add up to the given sums, all on the first token of an answer."""
    width = 1 + max(CHOSEN[pair], REJECTED[pair])
    mask = torch.zeros(2, width, dtype=torch.long)
    mask[0, 1 : 1 + CHOSEN[pair]], mask[1, 1 : 1 + REJECTED[pair]] = 1, 1
    given = {name: column[pair : pair + 1] for name, column in answers().items()}
    logps = torch.zeros(2, width - 1)
    logps[:, 0] = torch.cat([given["chosen"], given["rejected"]])
    out = SimpleNamespace(
        log_probs=logps,
        entropy=torch.zeros_like(logps),
        mean_logits=torch.zeros_like(logps),
        is_top1=torch.zeros_like(logps, dtype=torch.bool),
    )
    me = trainer(
        precompute_ref_logps=True,
        ld_alpha=None,
        f_divergence_type="reverse_kl",
        loss_types=[loss],
        loss_weights=[1.0],
        beta=0.1,
        label_smoothing=smoothing,
        use_weighting=False,
        args=SimpleNamespace(),
    )
    inputs = {
        "input_ids": torch.ones_like(mask),
        "attention_mask": torch.ones_like(mask),
        "completion_mask": mask,
        "ref_chosen_logps": given["ref_chosen"],
        "ref_rejected_logps": given["ref_rejected"],
    }
    return float(kind._compute_loss(me, lambda **_: out, inputs, False))


def kto() -> Case:
    """Two good answers and two bad ones; the drift of unrelated answers is positive once and negative once."""
    from trl import KTOTrainer

    given = answers()
    logp, ref = given["chosen"], given["ref_chosen"]
    label = torch.tensor([True, False, True, False])
    found: Case = {"logp": logp, "ref_logp": ref, "label": label, "beta": 0.1, "weights": [1.0, 1.33], "cases": []}
    for unrelated in ([-8.0, -9.0, -7.5, -6.0], [-12.0, -11.0, -9.0, -10.0]):
        ref_unrelated = [-9.0, -9.5, -8.0, -7.0]
        mask = torch.tensor([[0, 1, 1]] * 4)

        def model(input_ids: Tensor, **_: Any) -> Any:
            sums = torch.tensor(unrelated) if input_ids[0, 0] == 2 else logp  # noqa: B023 - called at once
            logps = torch.zeros(4, 2)
            logps[:, 0] = sums
            return SimpleNamespace(log_probs=logps, entropy=torch.zeros(4, 2), mean_logits=torch.zeros(4, 2))

        me = trainer(
            precompute_ref_logps=True,
            calculate_KL=True,
            loss_type="kto",
            beta=0.1,
            desirable_weight=1.0,
            undesirable_weight=1.33,
        )
        me._compute_kl_logps = lambda model, batch, me=me: KTOTrainer._compute_kl_logps(me, model, batch)
        batch = {
            "input_ids": torch.ones_like(mask),
            "attention_mask": torch.ones_like(mask),
            "completion_mask": mask,
            "KL_input_ids": torch.full_like(mask, 2),
            "KL_attention_mask": torch.ones_like(mask),
            "KL_completion_mask": mask,
            "label": label,
            "ref_logps": ref,
            "ref_KL_logps": torch.tensor(ref_unrelated),
        }
        loss = float(KTOTrainer._compute_loss(me, model, batch, False))
        found["cases"].append({"unrelated": unrelated, "ref_unrelated": ref_unrelated, "loss": loss})
    return found


def without_reference() -> Case:
    """CPO's losses, SimPO among them, of log-probabilities per token, and ORPO's odds-ratio term."""
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer

    given = answers()
    per_token = {
        "chosen": given["chosen"] / torch.tensor(CHOSEN),
        "rejected": given["rejected"] / torch.tensor(REJECTED),
    }
    both = (per_token["chosen"], per_token["rejected"])
    cpo = {"alpha": 0.0, "label_smoothing": 0.0}
    simpo = trainer(beta=2.0, simpo_gamma=1.0, loss_type="simpo", **cpo)
    hinge = trainer(beta=1.0, loss_type="hinge", **cpo)
    return {
        "answers": given,
        "lengths": [CHOSEN, REJECTED],
        "simpo": CPOTrainer.cpo_loss(simpo, *both)[0],
        "hinge_of_sums": CPOTrainer.cpo_loss(hinge, given["chosen"], given["rejected"])[0],
        "orpo_odds": ORPOTrainer.odds_ratio_loss(trainer(beta=0.1), *both)[0],
    }


def reward() -> Case:
    from trl import RewardTrainer

    chosen, rejected, margin = numbers(5, seed=71), numbers(5, seed=72), numbers(5, seed=73).abs()
    scores = torch.cat([chosen, rejected])

    def loss(**more: Any) -> float:
        me = trainer(args=SimpleNamespace(center_rewards_coefficient=more.pop("centre", None)))
        inputs = {"input_ids": torch.ones(10, 2), "attention_mask": torch.ones(10, 2), **more}
        return float(RewardTrainer.compute_loss(me, lambda **_: SimpleNamespace(logits=scores[:, None]), inputs))

    return {
        "chosen": chosen,
        "rejected": rejected,
        "margin": margin,
        "plain": loss(),
        "with_margin": loss(margin=margin),
        "centred": loss(centre=0.01),
    }


# Policy gradients ----------------------------------------------------------------------------------------------------

LENGTHS, LIMIT = (4, 2, 5), 6
"""Tokens of three responses, padded to five, and the limit that one of them might have reached."""


def grpo() -> Case:
    """Loss and its gradient to the log-probabilities. The forward pass is replaced by given log-probabilities."""
    logp = numbers(3, 5, seed=81, scale=0.4, shift=-1.5)
    given = {
        "logp": logp,
        "old_logp": logp + numbers(3, 5, seed=82, scale=0.25),
        "ref_logp": logp + numbers(3, 5, seed=83, scale=0.3),
        "mask": (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).long(),
        "advantage": numbers(3, seed=84),
    }
    cases = [
        {"loss_type": name, "epsilon_high": high, "beta": beta, "level": level, "corrected": corrected}
        for name, high, beta, level, corrected in (
            ("grpo", 0.2, 0.0, "token", False),
            ("grpo", 0.28, 0.0, "token", False),
            ("grpo", 0.2, 0.1, "token", False),
            ("grpo", 0.2, 0.1, "token", True),
            ("bnpo", 0.2, 0.0, "token", False),
            ("dr_grpo", 0.2, 0.0, "token", False),
            ("dapo", 0.28, 0.0, "token", False),
            ("cispo", 5.0, 0.0, "token", False),
            ("cispo", 1.1, 0.0, "token", False),
            ("grpo", 0.2, 0.0, "sequence", False),
        )
    ]
    return given | {"limit": LIMIT, "cases": [case | _grpo(given, case) for case in cases]}


def _grpo(given: dict[str, Tensor], case: Case) -> Case:
    from trl import GRPOTrainer

    logp = given["logp"].clone().requires_grad_()
    me = trainer(
        beta=case["beta"],
        loss_type=case["loss_type"],
        importance_sampling_level=case["level"],
        epsilon_low=0.2,
        epsilon_high=case["epsilon_high"],
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1,
        max_completion_length=LIMIT,
        _entropy_bonus_enabled=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, torch.zeros_like(logp), None),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=case["corrected"], steps_per_generation=1),
    )
    inputs = {
        "prompt_ids": torch.ones(3, 2, dtype=torch.long),
        "prompt_mask": torch.ones(3, 2, dtype=torch.long),
        "completion_ids": torch.ones(3, 5, dtype=torch.long),
        "completion_mask": given["mask"],
        "advantages": given["advantage"],
        "old_per_token_logps": given["old_logp"],
        "ref_per_token_logps": given["ref_logp"],
        "num_items_in_batch": given["mask"].sum(),
    }
    loss = GRPOTrainer._compute_loss(me, None, inputs)
    return {"loss": loss, "gradient": torch.autograd.grad(loss, logp)[0]}


def rloo_loss() -> Case:
    """One ratio for a whole response, the product over its tokens."""
    from trl import RLOOTrainer

    logp = numbers(3, 5, seed=91, scale=0.4, shift=-1.5).requires_grad_()
    old = logp.detach() + numbers(3, 5, seed=92, scale=0.1)
    mask = (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).long()
    advantage = numbers(3, seed=94)
    me = trainer(
        epsilon_low=0.2,
        epsilon_high=0.2,
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, torch.zeros_like(logp), None),
    )
    inputs = {
        "prompt_ids": torch.ones(3, 2, dtype=torch.long),
        "prompt_mask": torch.ones(3, 2, dtype=torch.long),
        "completion_ids": torch.ones(3, 5, dtype=torch.long),
        "completion_mask": mask,
        "advantages": advantage,
        "old_logps": (old * mask).sum(1),
    }
    loss = RLOOTrainer._compute_loss(me, None, inputs)
    gradient = torch.autograd.grad(loss, logp)[0]
    return {"logp": logp, "old_logp": old, "mask": mask, "advantage": advantage, "loss": loss, "gradient": gradient}


SCORES = [[1.0, 0.0, 0.0, 1.0], [0.2, 0.4, 0.6, 0.8], [1.0, 1.0, 1.0, 1.0]]


def group_advantages() -> Case:
    """A real trainer around a tiny model; what it would generate and score is given."""
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    found: Case = {"scores": SCORES}
    for scale in ("group", "none"):
        made = _real(GRPOTrainer, GRPOConfig, beta=0.0, scale_rewards=scale)
        found[f"grpo_{scale}"] = _advantages(made, (None, None, None, {}, None, None))
    made = _real(RLOOTrainer, RLOOConfig, beta=0.0)
    found["rloo"] = _advantages(made, ())
    logp, ref = numbers(12, 3, seed=95, shift=-1.5), numbers(12, 3, seed=96, shift=-1.5)
    made = _real(RLOOTrainer, RLOOConfig, beta=0.05)
    given = iter([logp, ref])
    made._get_per_token_logps_and_entropies = lambda *_, **__: (next(given), None, None)
    found["rloo_with_kl"] = {"logp": logp, "ref_logp": ref, "beta": 0.05, "advantage": _advantages(made, ())}
    return found


def _real(kind: Any, settings: Any, **more: Any) -> Any:
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<pad>", "<end>", "a", "b", "c"])}
    speech = Tokenizer(models.WordLevel(words, unk_token="a"))
    speech.pre_tokenizer = pre_tokenizers.Whitespace()
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    with TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(vocab_size=5, **shape)).save_pretrained(folder)
        return kind(
            model=folder,
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=speech, pad_token="<pad>", eos_token="<end>", padding_side="left"
            ),
            reward_funcs=lambda prompts, **_: [score for group in SCORES for score in group],
            train_dataset=Dataset.from_dict({"prompt": ["a b"] * 3}),
            args=settings(
                output_dir=f"{folder}/run",
                use_cpu=True,
                bf16=False,
                report_to="none",
                per_device_train_batch_size=12,
                num_generations=4,
                **more,
            ),
        )


def _advantages(made: Any, rest: tuple[Any, ...]) -> list[list[float]]:
    made.model.train()
    tokens = [[2, 3, 1]] * 12
    if rest:
        made._generate = lambda prompts: ([[2, 3]] * 12, tokens, None, ["b"] * 12, *rest[2:])
    else:
        made._generate = lambda prompts: ([[2, 3]] * 12, tokens, ["b"] * 12)
    out = made._generate_and_score_completions([{"prompt": "a b"}] * 12)
    return plain(out["advantages"].reshape(3, 4))


def overlong() -> Case:
    from trl.rewards import get_soft_overlong_punishment

    lengths = [0, 60, 80, 81, 90, 99, 100]
    given = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    return {"lengths": lengths, "limit": 100, "cache": 20, "scores": given([[1] * n for n in lengths])}


def distillation() -> Case:
    """The divergence between student and teacher: of GKD (experimental), from logits, and of the DistillationTrainer,
    which projects hidden states chunk by chunk, with its gradients."""
    from trl.experimental.gkd.gkd_trainer import GKDTrainer
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    student, teacher = numbers(2, 4, 9, seed=121, scale=2.0), numbers(2, 4, 9, seed=122, scale=2.0)
    labels = torch.tensor([[-100, 3, 1, 4], [2, 5, -100, -100]])
    betas = (0.0, 0.1, 0.5, 0.9, 1.0)
    cases = []
    for beta in betas:
        for temperature in (1.0, 0.7):
            logits = student.clone().requires_grad_()
            given = {"beta": beta, "temperature": temperature}
            loss = GKDTrainer.generalized_jsd_loss(logits, teacher, labels, **given)
            (gradient,) = torch.autograd.grad(loss, logits)
            cases.append(given | {"loss": loss, "gradient": gradient})
    states, weight = numbers(6, 4, seed=123), numbers(9, 4, seed=124)
    ref_states, ref_weight = numbers(6, 3, seed=125), numbers(9, 3, seed=126)
    to_loss = numbers(6, seed=127)
    chunked = []
    for beta in betas:
        leaves = [states.clone().requires_grad_(), weight.clone().requires_grad_()]
        found, _ = ChunkedDivergenceFunction.apply(
            *leaves, None, ref_states, ref_weight, None, beta, 0.8, 1.0, 3.0, 0.5, None
        )
        gradients = torch.autograd.grad((found * to_loss).sum(), leaves)
        chunked.append({"beta": beta, "divergence": found, "gradients": gradients})
    return {
        "student": student,
        "teacher": teacher,
        "labels": labels,
        "cases": cases,
        "states": states,
        "weight": weight,
        "ref_states": ref_states,
        "ref_weight": ref_weight,
        "to_loss": to_loss,
        "chunked": chunked,
    }


# PPO (TRL 1.12) ------------------------------------------------------------------------------------------------------


def whitening() -> Case:
    from trl.experimental.ppo.ppo_trainer import masked_mean, masked_var, masked_whiten

    x = numbers(3, 5, seed=101, scale=2.0, shift=1.0)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return {
        "x": x,
        "mask": mask,
        "mean": masked_mean(x, mask),
        "var": masked_var(x, mask),
        "var_biased": masked_var(x, mask, unbiased=False),
        "whitened": masked_whiten(x, mask),
        "scaled": masked_whiten(x, mask, shift_mean=False),
    }


END, PAD = 1, 0
RESPONSES = [[3, 4, END, 2, 5], [2, 5, 3, 4, 6]]
"""What was generated: the first ends after its third token, what follows is cut; the second never ends."""


def ppo(kl_estimator: str) -> Case:
    """One whole step of `PPOTrainer.train` on two responses: one epoch of one minibatch.

    Given are the logits of the sampler, the reference and the policy at its update, the values then and now, and the
    scores. The trainer's own rewards, GAE, whitening and loss run; the advantages are read off the call that whitens
    them, the loss and its gradients off the backward pass.
    """
    from trl.experimental.ppo import ppo_trainer as module

    response = torch.tensor(RESPONSES)
    sampled, ref = numbers(2, 5, 7, seed=111), numbers(2, 5, 7, seed=112)
    now = (sampled + numbers(2, 5, 7, seed=113, scale=0.3)).requires_grad_()
    old_value, score = numbers(2, 5, seed=114), numbers(2, seed=116)
    value = (old_value + numbers(2, 5, seed=115, scale=0.3)).requires_grad_()
    query = torch.full((2, 1), 2)

    def shifted(x: Tensor) -> Tensor:
        """As a model gives it: the entry that predicts a token stands one before it, one more at the end."""
        return torch.cat([x, torch.zeros_like(x[:, :1])], 1)

    class Model:
        policy = None
        value_model = SimpleNamespace(
            base_model_prefix="trunk",
            trunk=lambda **_: SimpleNamespace(hidden_states=[shifted(old_value)[..., None]]),
            score=lambda states: states,
        )

        def train(self) -> None:
            pass

        def __call__(self, **_: Any) -> Any:
            return SimpleNamespace(logits=shifted(now * 1.0)), shifted(value)[..., None]

    losses: list[Tensor] = []
    accelerator = Alone()
    accelerator.backward = losses.append  # type: ignore[attr-defined]
    args = SimpleNamespace(
        response_length=5, temperature=1.0, num_ppo_epochs=1, num_mini_batches=1, gradient_accumulation_steps=1,
        num_total_batches=1, total_episodes=2, logging_steps=1, eval_steps=None, save_steps=None, batch_size=2,
        local_batch_size=2, local_mini_batch_size=2, per_device_train_batch_size=2, kl_coef=0.05,
        local_rollout_forward_batch_size=2, kl_estimator=kl_estimator, whiten_rewards=False, gamma=0.99, lam=0.95,
        cliprange=0.2, cliprange_value=0.2, vf_coef=0.1, missing_eos_penalty=None, num_sample_generations=0,
        ds3_gather_for_generation=False,
    )  # fmt: skip
    nothing = SimpleNamespace(should_save=False)
    handler = SimpleNamespace(**{f"on_{at}": lambda *_: nothing for at in ("train_begin", "step_end", "train_end")})
    logged: dict[str, float] = {}
    me = trainer(
        args=args,
        optimizer=SimpleNamespace(step=lambda: None, zero_grad=lambda: None),
        ref_model=lambda **_: SimpleNamespace(logits=shifted(ref)),
        reward_model=SimpleNamespace(
            base_model_prefix="trunk",
            trunk=lambda **_: SimpleNamespace(hidden_states=[score[:, None, None].expand(2, 6, 1)]),
            score=lambda states: states,
        ),
        processing_class=SimpleNamespace(pad_token_id=PAD, eos_token_id=END),
        dataloader=[{"input_ids": query}],
        state=SimpleNamespace(),
        callback_handler=handler,
        control=nothing,
        lr_scheduler=SimpleNamespace(step=lambda: None, get_last_lr=lambda: [0.0]),
        stop_token_id=END,
        train_dataset_len=2,
        is_deepspeed_enabled=False,
        log=logged.update,
    )
    me.accelerator, me.model = accelerator, Model()
    whitened: list[tuple[Tensor, Tensor, Tensor]] = []
    real: Callable[..., Tensor] = module.masked_whiten

    def remembering(values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
        out = real(values, mask, shift_mean)
        whitened.append((values.clone(), mask, out.clone()))
        return out

    with (
        patch.object(module, "unwrap_model_for_generation", lambda model, *_, **__: nullcontext(model)),
        patch.object(module, "batch_generation", lambda *_: (torch.cat([query, response], 1), sampled)),
        patch.object(module, "masked_whiten", remembering),
        patch("numpy.random.permutation", lambda n: torch.arange(n).numpy()),
    ):
        module.PPOTrainer.train(me)
    (advantage, mask, white), loss = whitened[0], losses[0]
    to_logits, to_value = torch.autograd.grad(loss, (now, value))
    return {
        "settings": {name: getattr(args, name) for name in ("kl_coef", "gamma", "lam", "cliprange", "vf_coef")},
        "response": response,
        "mask": mask,
        "sampled_logits": sampled,
        "ref_logits": ref,
        "logits": now,
        "old_value": old_value,
        "value": value,
        "score": score,
        "advantage": advantage,
        "whitened": white,
        "loss": loss,
        "logged": {name: logged[name] for name in ("objective/kl", "loss/policy_avg", "loss/value_avg")},
        "gradient_logits": to_logits,
        "gradient_value": to_value,
    }


def main() -> None:
    """Freeze whatever the installed version has."""
    if version("trl").startswith("1.12."):
        cases = {"whitening": whitening(), "ppo": {kind: ppo(kind) for kind in ("k1", "k3")}}
    else:
        made = (
            token_scores, dpo, kto, without_reference, reward, grpo, rloo_loss, group_advantages, overlong,
            distillation,
        )  # fmt: skip
        cases = {case.__name__: case() for case in made}
    versions = {name: version(name) for name in ("trl", "torch", "transformers")}
    place = Path(__file__).parent / f"trl-{versions['trl']}.json"
    place.write_text(json.dumps({"versions": versions, **plain(cases)}) + "\n")
    print(place, place.stat().st_size, "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
