"""Pushing: the model with a fresh card and nothing else, private unless asked, and nothing sent where it is refused."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.commands.push import push


class Hub:
    """Stands for HfApi: the calls that reach it, or the error that it answers with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error = error

    def create_repo(self, repo: str, **options: Any) -> Any:
        if self.error:
            raise self.error
        self.calls.append((repo, options))
        return RepoUrl(repo_id=repo)

    def upload_folder(self, **options: Any) -> None:
        self.calls.append(("upload", options))


class RepoUrl(SimpleNamespace):
    def __str__(self) -> str:
        return f"https://hub.example/{self.repo_id}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "dpo"
    (folder / "model").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"format": "tutelage-run/1", "settings": {"out": "dpo", "unpaired": False}})
    )
    (folder / "summary.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"w")
    return folder


@pytest.mark.parametrize("public", [False, True])
def test_the_model_goes_with_its_card_and_is_private_unless_asked(run: Path, public: bool) -> None:
    hub = Hub()
    pushed = push(run, "me/mine", public=public, api=hub)
    assert [file.name for file in pushed.files] == ["README.md", "model.safetensors"]
    assert pushed.address == "https://hub.example/me/mine"
    assert hub.calls == [
        ("me/mine", {"private": not public, "exist_ok": True}),
        ("upload", {"repo_id": "me/mine", "folder_path": run / "model", "commit_message": "Upload dpo"}),
    ]


def test_the_card_has_what_was_evaluated_since(run: Path) -> None:
    push(run, "me/mine", api=Hub())
    compared = run.parent / "compared"
    compared.mkdir()
    sides = {"out": "compared", "model": {"path": "dpo/model"}, "against": "sft/model"}
    (compared / "config.json").write_text(json.dumps(sides))
    (compared / "summary.json").write_text(json.dumps({"win_rate": {"gold": {"win_rate": 0.6}}}))
    assert "win rate" not in (run / "model" / "README.md").read_text()
    push(run, "me/mine", api=Hub())
    assert "by `gold`: win rate 60.0%" in (run / "model" / "README.md").read_text()


def test_a_list_only_sends_nothing_and_lists_the_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = Hub(AssertionError("a listing asked the hub"))
    assert push(run, "me/mine", list_only=True, api=hub).address == ""
    assert cli.main(("push", str(run), "--repo", "me/mine", "--list-only")) == 0
    printed = capsys.readouterr().out
    assert "model.safetensors" in printed
    assert "Nothing was uploaded" in printed


@for_each(["../mine", "a/b/c", "", "me/my model"])
def test_a_name_that_the_hub_cannot_have_is_refused_before_anything(repo: str, run: Path) -> None:
    with pytest.raises(TutelageError, match="not a valid repository name"):
        push(run, repo, api=Hub(AssertionError("asked the hub")))
    assert not (run / "model" / "README.md").exists()


def test_a_run_that_is_not_finished_is_refused(run: Path) -> None:
    (run / "summary.json").unlink()
    with pytest.raises(TutelageError, match="not the folder of a finished run"):
        push(run, "me/mine", api=Hub())


def http_error() -> Exception:
    import httpx

    request = httpx.Request("POST", "https://hub.example")
    return HfHubHTTPError("403 Forbidden", response=httpx.Response(403, request=request))


@pytest.mark.parametrize(
    "error", [http_error(), LocalTokenNotFoundError("no token"), ConnectionError("offline")], ids=repr
)
def test_what_the_hub_refuses_is_said_with_a_remedy(run: Path, error: Exception) -> None:
    with pytest.raises(TutelageError, match=r"refused me/mine.*hf auth login"):
        push(run, "me/mine", api=Hub(error))
