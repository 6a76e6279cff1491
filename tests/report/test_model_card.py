"""Model cards: the lineage by the folders, the hub's own front matter, and nothing that must not be published."""

import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import ModelCard

from tutelage.report.model_card import model_card, write_model_card

BASE_CARD = "---\nlicense: other\nlicense_name: open-ish\nlicense_link: https://example.org/l\n---\n# Base\n"


def write(folder: Path, name: str, content: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def stage(root: Path, name: str, summary: dict[str, object], **settings: object) -> Path:
    """A finished run, started in `root`."""
    write(
        root / name,
        "config.json",
        {"format": "tutelage-run/1", "settings": {"out": name} | settings, "data": f"9 rows, of {name}"},
    )
    write(root / name, "summary.json", summary)
    write(root / name / "model", "config.json", {"model_type": "llama"})
    return root / name


@pytest.fixture
def improved(tmp_path: Path) -> Path:
    """A policy by sft, a reward model from a study, improve and an evaluation; the base is a folder with a licence."""
    root = tmp_path / "secret-place"
    write(root / "base", "config.json", {})
    (root / "base" / "README.md").write_text(BASE_CARD)
    stage(root, "tuned", {"held_out/loss": 2.5}, model={"path": "base"}, data="demos.jsonl", rouge=32)
    quality = {"accuracy": 0.725, "accuracy_interval": [0.7, 0.75], "ceiling": {"agreement": 0.64, "value": 0.8}}
    reward = stage(
        root, "judge", quality, model={"path": "tuned/model"}, centre="", data="postgresql://me:word@host/db"
    )
    write(
        reward,
        "study.json",
        {
            "database": "postgresql://me:word@host/db",
            "study": "kindness",
            "snapshot": {"last_judgement": 412},
            "selection": {"kinds": ["person"]},
            "raters": 7,
        },
    )
    final = stage(
        root,
        "final",
        {"kl/reference": 3.5, "accuracy": 0.111},
        model={"path": "tuned/model"},
        reward=["judge/model=0.5"],
        recipe="grpo",
    )
    write(
        root / "compared",
        "config.json",
        {"out": "compared", "model": {"path": "final/model"}, "against": "tuned/model"},
    )
    rate = {"gold": {"win_rate": 0.81, "win_rate_ci": [0.75, 0.87]}}
    tasks = {"figures": ["arc/acc", "odd/em"], "versions": {"arc": 1.0}}
    reached = {"arc/acc": 0.4567, "arc/acc_error": 0.0123, "odd/em": 0.5}
    write(root / "compared", "summary.json", {"win_rate": rate, "tasks": tasks, "model": reached})
    return final


def test_a_card_tells_the_lineage_from_the_base_to_the_win_rate(improved: Path) -> None:
    card = model_card(improved)
    headings = [line for line in card.splitlines() if line.startswith("### ")]
    assert headings == ["### 1. tuned: sft", "### 2. judge: reward", "### 3. final: improve"]
    for fact in (
        "rows read and their fingerprint: 9 rows, of tuned",
        "accuracy: 72.5% (95 % interval 70.0% to 75.0%)",
        "study: kindness, up to judgement 412, raters of kind: person; 7 raters",
        "agreement of two raters on a pair: 64.0%",
        "KL from the reference in the last rollout, nats per completion: 3.5",
        "reward: stage judge",
        "final against stage tuned by `gold`: win rate 81.0% (95 % interval 75.0% to 87.0%), ties half",
        "final on `arc` (lm-evaluation-harness, version 1.0 of the task): acc 0.457, standard error 0.012",
        "final on `odd` (lm-evaluation-harness, version unknown of the task): em 0.500",
        "folder `base`, whose licence is `open-ish`",
        "The score is the reward that was maximised",
    ):
        assert fact in card, fact
    assert "11.1%" not in card, "the accuracy of a batch is not that of a reward model"


def test_a_card_gives_no_address_and_no_path_away(improved: Path) -> None:
    card = model_card(improved)
    assert "word@host" not in card
    assert "secret-place" not in card


def test_the_front_matter_is_the_hubs_and_names_the_licence_of_the_base(improved: Path) -> None:
    data = ModelCard(model_card(improved)).data
    assert data.library_name == "transformers"
    assert data.tags == ["tutelage", "improve", "grpo"]
    assert (data.license, data.license_name) == ("other", "open-ish")
    assert data.base_model is None, "a folder is no name on the hub"


def test_a_card_does_not_depend_on_where_the_folders_lie(improved: Path, tmp_path: Path) -> None:
    before = model_card(improved)
    moved = shutil.move(improved.parent, tmp_path / "elsewhere")
    assert model_card(Path(moved) / "final") == before


def test_a_base_of_the_hub_is_named_with_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "cache" / "abc123"
    write(snapshot, "config.json", {})
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    known = {"maker/small": str(snapshot / "config.json")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: known.get(name))
    first = model_card(stage(tmp_path, "one", {}, model={"path": "maker/small"}, rouge=1))
    data = ModelCard(first).data
    assert (data.base_model, data.license) == ("maker/small", "apache-2.0")
    assert "`maker/small` at revision `abc123`" in first
    gone = model_card(stage(tmp_path, "two", {}, model={"path": "gone/model"}, rouge=1))
    assert ModelCard(gone).data.base_model is None, "a folder that was removed is no name on the hub either"


def test_writing_a_card_again_changes_nothing_and_keeps_how_scores_are_read(improved: Path) -> None:
    judge = improved.parent / "judge"
    file = judge / "model" / "README.md"
    file.write_text("---\nlibrary_name: transformers\n---\n\n# Reward model\n\nRead at the last token.\n")
    write_model_card(judge)
    once = file.read_text()
    assert "Read at the last token." in once
    assert ModelCard(once).data.tags == ["tutelage", "reward-model", "reward"]
    write_model_card(judge)
    assert file.read_text() == once


def test_runs_that_name_each_other_end(tmp_path: Path) -> None:
    one = stage(tmp_path, "one", {}, model={"path": "two/model"}, rouge=1)
    stage(tmp_path, "two", {}, model={"path": "one/model"}, rouge=1)
    assert "### 2. one: sft" in model_card(one)


def test_damaged_neighbours_leave_a_card(improved: Path) -> None:
    root = improved.parent
    (root / "compared" / "summary.json").write_text("{")
    (root / "judge" / "summary.json").write_text("[]")
    (root / "base" / "README.md").write_text("---\na: [\n---\n")
    assert "### 3. final: improve" in model_card(improved)
