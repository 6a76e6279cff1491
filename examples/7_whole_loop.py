"""The whole loop of RLHF through the Python API, on the embedded world: some four minutes on one core.

    python examples/7_whole_loop.py runs/whole_loop

pretraining → fine-tuning → sampling → simulated people compare → reward model → PPO → evaluation

When the script runs again, an interrupted call continues and a finished one returns at once.
"""

import sys
from pathlib import Path
from random import Random

import tutelage as tt
from tutelage.data.formats import load_comparisons, load_completions, load_prompts
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Preference
from tutelage.data.worlds import World, gold
from tutelage.people.simulated_raters import panel

SHAPE = tt.Shape(vocabulary=1600, hidden=96, layers=3, heads=3, context=160)
SAMPLING = tt.Sampling(temperature=0.7, max_new_tokens=80)
TOKENS, DEMONSTRATIONS = 500_000, 1500  # of the text for pretraining; for fine-tuning
PROMPTS, HELD_OUT, RATERS, STEPS = 400, 96, 12, 20  # one rater is careless and one adversarial; steps of PPO


def write_data(world: World, data: Path) -> None:
    """Text, demonstrations and prompts of the world, for training topics and held-out topics."""
    data.mkdir(parents=True, exist_ok=True)
    write_jsonl(data / "corpus.jsonl", ({"text": text} for text in world.corpus(TOKENS)))
    write_jsonl(data / "demonstrations.jsonl", map(to_row, world.demonstrations(DEMONSTRATIONS)))
    write_jsonl(data / "prompts.jsonl", map(to_row, world.prompts("train")[:PROMPTS]))
    write_jsonl(data / "held_out.jsonl", map(to_row, world.prompts("held_out")[:HELD_OUT]))


def compare(sample: Path, preferences: Path) -> int:
    """Let simulated people compare the pairs in a folder of samples; returns the number of decided pairs.

    With real people in their place: `tutelage collect init STUDY --from-sample FOLDER`, `tutelage collect serve STUDY`,
    and then `tt.reward(data=STUDY, ...)`.
    """
    prompts = {prompt.id: prompt for prompt in load_prompts(sample / "prompts.jsonl").records}
    texts = {answer.id: answer.text for answer in load_completions(sample / "completions.jsonl").records}
    raters, dice = panel(0, RATERS, 0.5), Random(0)
    decided = []
    for pair in load_comparisons(sample / "comparisons.jsonl").records:
        prompt, a, b = prompts[pair.prompt_id], texts[pair.a_id], texts[pair.b_id]
        question = prompt.messages[-1].content
        worth_a, worth_b = gold([question, question], [a, b])
        vote = dice.choice(raters).judge(worth_a, worth_b, len(a.split()), len(b.split()), dice)
        if vote.verdict in ("left", "right"):
            better, worse = (a, b) if vote.verdict == "left" else (b, a)
            decided.append(Preference(prompt.messages, better, worse))
    write_jsonl(preferences, map(to_row, decided))
    return len(decided)


def main(out: Path) -> tt.EvaluateResult:
    """Run the loop in a folder, and return the comparison of the improved policy with the fine-tuned one."""
    data = out / "data"
    write_data(World(0), data)
    base = tt.pretrain(
        data=data / "corpus.jsonl",
        out=out / "pretrain",
        shape=SHAPE,
        batch_size=8,
        max_length=128,
        optimiser={"lr": 4e-3, "warmup": 0.03},
        resume=True,
    )
    sft = tt.sft(
        model=base.model,
        data=data / "demonstrations.jsonl",
        out=out / "sft",
        batch_size=8,
        optimiser={"lr": 1e-3, "warmup": 0.05},
        sampling={"max_new_tokens": 48},
        resume=True,
    )
    samples = tt.sample(
        model=sft.model, prompts=data / "prompts.jsonl", out=out / "sample", n=6, pairs=6, sampling=SAMPLING
    )
    print(f"{compare(samples.out, out / 'preferences.jsonl')} of {samples.pairs} pairs decided")
    reward = tt.reward(
        model=sft.model, data=out / "preferences.jsonl", out=out / "reward", optimiser={"lr": 1e-3}, resume=True
    )
    policy = tt.improve(
        model=sft.model,
        prompts=data / "prompts.jsonl",
        reward=reward.model,
        recipe="ppo",
        set=["shaping.normalise=running", "penalty.coef=0.05", "update.epochs=2", "update.minibatches=2"],
        critic_lr=3e-3,
        watch={"gold/mean": gold},
        steps=STEPS,
        batch_size=48,
        sampling=SAMPLING,
        optimiser={"lr": 5e-4},
        out=out / "ppo",
        resume=True,
    )
    return tt.evaluate(
        model=policy.model,
        against=sft.model,
        prompts=data / "held_out.jsonl",
        reward={"gold": gold, "score": reward.model},
        sampling=SAMPLING,
        out=out / "evaluate",
    )


if __name__ == "__main__":
    result = main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/whole_loop"))
    print(f"gold {result.against['gold_mean']:+.2f} before, {result.figures['gold_mean']:+.2f} after")
    print(f"win rate by gold {result.win_rate('gold'):.2f}, KL {result.figures['kl']:.2f} nats per answer")
