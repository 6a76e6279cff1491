"""Take the figures and findings of a laboratory into this folder: `python docs/lab/collect.py runs/lab`.

The findings are the sentences that each experiment computed from its own numbers; what stands around them is here. So a
repetition with another seed, or other code, needs one command to be told truly.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent

INTRODUCTION = """\
# The laboratory

Six experiments on the demonstration's world, and one on games small enough to enumerate. Gold, the raters' true
utility, is known in that world, and so is every effect of RLHF on it. Each is one command; with a finished
`tutelage demo` the models need not be trained again:

```sh
tutelage demo --out runs/demo
tutelage lab kl --from runs/demo        # advantages, estimators, overoptimisation, recipes, rubrics likewise
tutelage lab credit                     # needs no models
```

Every experiment writes `report.html` (self-contained, light and dark), `data.jsonl` with all measurements, the figures
as SVG, and `summary.json`. Finished parts are skipped, so the same command continues an interrupted experiment.
`tutelage lab recipes --recipes grpo own:MINE` compares some of the recipes, or your own. The results below are from one
run of each, on one core of a busy machine: small models, one world, mostly one seed, and seconds that show only the
order of magnitude. The experiments wrote the sentences from their numbers.

[RLHF in one sitting](../rlhf_in_one_sitting.md) explains the figures to beginners. The estimators of the KL are k1 = x,
k2 = x²/2, k3 = exp(−x) − 1 + x and abs = |x|, with x = log π − log π_ref of a sampled token."""

WORDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "kl": (
        "What does the KL do? (`tutelage lab kl`)",
        ("score", "gold", "frontier", "prices", "kl", "length"),
        (
            "Not shown: one reward model, one optimiser and one seed; how fast an unconstrained policy degrades "
            "depends on the learning rate as much as on β, and with fewer steps no penalty would have been needed."
        ),
    ),
    "advantages": (
        "How noisy is the policy gradient? (`tutelage lab advantages`)",
        ("noise", "gae-trained", "gae-fresh"),
        (
            "Not shown: whitening and dividing by a group's spread, which change the scale of a gradient and so "
            "cannot be compared by its noise. Adam and clipping also compensate for much of the noise measured here."
        ),
    ),
    "estimators": (
        "Which estimator of the KL, and where? (`tutelage lab estimators`)",
        ("bias", "spread", "angles", "training-reward", "training-loss"),
        (
            "Not shown: other coefficients. One coefficient is not equally strict for all: abs penalises every "
            "difference, however small, and k2 and k3 are flat near the reference."
        ),
    ),
    "overoptimisation": (
        "How far can a reward model be trusted? (`tutelage lab overoptimisation`)",
        ("best-of-n", "ppo", "best-of-n-fits", "ppo-fits", "remedies-best-of-n", "remedies-ppo"),
        (
            "Not shown: whether the curves hold beyond these distances. Best-of-n reaches only as far as its samples, "
            "and a fitted peak outside the measured range is a guess. The members of the ensembles share their pairs "
            "and their pretraining, so they share mistakes too."
        ),
    ),
    "recipes": (
        "All recipes at equal tokens (`tutelage lab recipes`)",
        ("gold-kl", "gold-seconds", "gold"),
        (
            "Not shown: the results of tuned recipes or longer runs. Recipes designed for long completions that are "
            "right or wrong (dapo, gspo, vapo and their kin) are far from their purpose here."
        ),
    ),
    "rubrics": (
        "Can a rubric be over-optimised? (`tutelage lab rubrics`)",
        ("judge", "gold", "distance"),
        (
            "Not shown: real judges, whose errors about different criteria and between models have causes in common; "
            "errors of other sizes; and a tuned rate of dropout."
        ),
    ),
    "credit": (
        "Which turn gets the credit? (`tutelage lab credit`)",
        ("angles", "going-on"),
        (
            "Not shown: episodes of more than two turns, and networks, whose states share parameters. A bias that "
            "these games show is there in larger ones too; its size is not theirs."
        ),
    ),
}


def main(source: Path) -> None:
    """Copy what is finished, and write the page about all that has ever been copied."""
    for name in WORDS:
        if not (source / name / "summary.json").is_file():
            continue
        place = HERE / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source / name / "figures", place)
        findings = json.loads((source / name / "summary.json").read_text(encoding="utf-8"))["findings"]
        (place / "findings.json").write_text(
            json.dumps(findings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    told = [section(name) for name in WORDS if (HERE / name / "findings.json").is_file()]
    (HERE / "README.md").write_text("\n\n".join([INTRODUCTION, *told]) + "\n", encoding="utf-8")


def section(name: str) -> str:
    """One experiment: its findings, its figures, what it does not show."""
    title, figures, limits = WORDS[name]
    findings = json.loads((HERE / name / "findings.json").read_text(encoding="utf-8"))
    pictures = [
        f'<img src="{name}/{figure}.svg" alt="{figure}" width="{"98%" if figure.startswith("gold-") else "49%"}">'
        for figure in figures
        if (HERE / name / f"{figure}.svg").is_file()
    ]
    bullets = "\n".join(f"- {finding}" for finding in findings)
    return f"## {title}\n\n{bullets}\n\n{limits}\n\n" + "\n".join(pictures)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/lab"))
