"""Which pairs to ask: how many votes each way of choosing saves until a reward model is as accurate.

    python -m bench.which_pairs [--seeds 12]          # writes bench/results/which_pairs.json

The pool has pairs of answers of the tutoring world by an older policy (the styles of its demonstrations) and a newer
one (the best of three of them), within prompts. Votes follow the gold utility with the noise at which people agree in
72.5 %. The reward model is Bradley-Terry on hashed counts of words, with a ridge; an ensemble of six is fitted to
resampled votes. After 50 random votes, 50 at a time are asked: 70 % by the way of choosing, 30 % at random. Accuracy is
measured by the gold utility, on random pairs about other topics. Votes saved: those that the random choice needs for
its accuracy at 300 and at 600 votes, less those that this way needs, from accuracies averaged over seeds; the interval
resamples seeds.
"""

import argparse
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from tutelage.stats.acquisition import closeness, disagreement, information

from tutelage.data.worlds.gold import gold, words
from tutelage.data.worlds.styles import choose_style, compose
from tutelage.data.worlds.topics import Topic, topics
from tutelage.people.simulated_raters import calibrated_tau
from tutelage.stats.vote_codes import Bools, Floats, Ints

RESULTS = Path(__file__).parent / "results" / "which_pairs.json"
WIDTH, RIDGE, MODELS = 96, 1.0, 6
BATCH, MOST, RANDOM_SHARE = 50, 800, 0.3
LEVELS = (300, 600)

Choice = Callable[[Floats, Bools], Floats]
"""The worth of pairs, from p of each model [M, N] and whether a pair is between the policies [N]."""
WAYS: Mapping[str, Choice | None] = {
    "random": None,
    "closest scores": lambda p, _: closeness(p),
    "disagreement": lambda p, _: disagreement(p),
    "information": lambda p, _: information(p),
    "old against new": lambda p, between: between + 1e-6 * disagreement(p),
}


@dataclass(frozen=True)
class Pairs:
    """N pairs: the difference of the sides' features [N, D], of their gold utilities [N], and whether they are between
    the policies [N]."""

    features: Floats
    gold: Floats
    between: Bools


def make_pairs(count: int, about: Sequence[Topic], rng: Random) -> Pairs:
    """Pairs of two of four answers to a prompt, two by each policy."""
    features, utility, between = [], [], []
    while len(features) < count:
        topic = rng.choice(about)
        prompt = f"What is {topic.name}?"
        drawn = [compose(topic, choose_style(rng), rng) for _ in range(8)]
        worth = gold([prompt] * 8, drawn)
        newer = [max(range(a, a + 3), key=lambda n: worth[n]) for a in (2, 5)]
        one, other = rng.sample([0, 1, *newer], 2)
        features.append(_features(drawn[one]) - _features(drawn[other]))
        utility.append(worth[one] - worth[other])
        between.append((one < 2) != (other < 2))
    return Pairs(np.array(features), np.array(utility), np.array(between))


def _features(answer: str) -> Floats:
    """Square roots of hashed counts of words, with the length and the marks."""
    counts = np.zeros(WIDTH + 3)
    for word in words(answer):
        counts[zlib.crc32(word.encode()) % WIDTH] += 1
    counts[WIDTH:] = len(words(answer)) / 10, answer.count("?"), answer.count("!")
    return np.sqrt(counts)


def fit(features: Floats, vote: Floats, weight: Floats) -> Floats:
    """The weights of features [D] that maximise the likelihood of votes with a ridge, by Newton's method."""
    found = np.zeros(features.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-features @ found))
        slope = features.T @ (weight * (vote - p)) - RIDGE * found
        curvature = (features * (weight * p * (1 - p))[:, None]).T @ features + RIDGE * np.eye(len(found))
        found = found + np.linalg.solve(curvature, slope)
    return found


def course(way: Choice | None, pool: Pairs, vote: Floats, test: Pairs, seed: int) -> list[float]:
    """The accuracy after each batch of votes."""
    generator = np.random.default_rng(seed)
    asked = np.zeros(len(vote), dtype=bool)
    asked[generator.permutation(len(vote))[:BATCH]] = True
    accuracy = []
    while True:
        features, told = pool.features[asked], vote[asked]
        main = fit(features, told, np.ones(len(told)))
        accuracy.append(float(((test.features @ main > 0) == (test.gold > 0)).mean()))
        if asked.sum() >= MOST:
            return accuracy
        wanted = BATCH
        if way is not None:
            ensemble = [fit(features, told, generator.poisson(1, size=len(told)).astype(float)) for _ in range(MODELS)]
            p = 1 / (1 + np.exp(-np.array(ensemble) @ pool.features.T))
            worth = np.where(asked, -np.inf, way(p, pool.between))
            wanted = round(RANDOM_SHARE * BATCH)
            asked[np.argsort(-worth, kind="stable")[: BATCH - wanted]] = True
        left: Ints = np.flatnonzero(~asked)
        asked[generator.choice(left, size=wanted, replace=False)] = True


def votes_needed(curve: Floats, level: float) -> float:
    """The votes at which a curve, made monotone, first reaches this accuracy; MOST if it never does."""
    rising = np.maximum.accumulate(curve)
    number = BATCH * (1 + np.arange(len(curve)))
    if rising[-1] < level:
        return float(MOST)
    at = int(np.argmax(rising >= level))
    if at == 0:
        return float(number[0])
    share = (level - rising[at - 1]) / (rising[at] - rising[at - 1])
    return float(number[at - 1] + share * BATCH)


def saved(curves: Mapping[str, Floats], way: str, votes: int) -> tuple[float, float, float]:
    """Votes saved by this way, with the 95 % interval over resampled seeds."""
    generator = np.random.default_rng(0)
    seeds = len(curves[way])

    def once(chosen: Ints) -> float:
        random = curves["random"][chosen].mean(axis=0)
        level = float(np.maximum.accumulate(random)[votes // BATCH - 1])
        return votes_needed(random, level) - votes_needed(curves[way][chosen].mean(axis=0), level)

    draws = [once(generator.integers(seeds, size=seeds)) for _ in range(1000)]
    low, high = np.quantile(draws, [0.025, 0.975])
    return once(np.arange(seeds)), float(low), float(high)


def main() -> None:
    """Simulate all ways on the same pools and votes, and print what each saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    seeds = parser.parse_args().seeds
    collected: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        rng = Random(seed)
        about = rng.sample(topics(), len(topics()))
        held_out = len(about) // 3
        pool, test = make_pairs(1500, about[held_out:], rng), make_pairs(1000, about[:held_out], rng)
        tau = calibrated_tau(pool.gold.tolist())
        chance = 1 / (1 + np.exp(-pool.gold / tau))
        vote = (np.random.default_rng(seed).random(len(chance)) < chance).astype(float)
        for name, way in WAYS.items():
            collected[name].append(course(way, pool, vote, test, seed))
        print(seed, {name: round(curves[-1][-1], 3) for name, curves in collected.items()}, flush=True)
    curves = {name: np.array(each) for name, each in collected.items()}
    found = {
        name: {
            "accuracy": {str(n): float(curves[name][:, n // BATCH - 1].mean()) for n in (100, *LEVELS, MOST)},
            "saved": {str(n): saved(curves, name, n) for n in LEVELS},
        }
        for name in WAYS
    }
    RESULTS.write_text(json.dumps({"seeds": seeds, "ways": found}, indent=1) + "\n")
    for name, told in found.items():
        print(f"{name:<16}", {k: round(v, 3) for k, v in told["accuracy"].items()}, told["saved"])


if __name__ == "__main__":
    main()
