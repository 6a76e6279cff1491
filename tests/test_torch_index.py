"""Which build of torch the Makefile takes."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from urllib.error import URLError

import pytest
from offenders import for_each

SCRIPT = Path(__file__).parents[1] / "scripts" / "torch_index.py"
OPTION = "--extra-index-url=https://download.pytorch.org/whl/cpu"


@pytest.fixture
def script(monkeypatch):
    """The script as a module, on Linux without a GPU, where every index answers."""
    spec = spec_from_file_location("torch_index", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    monkeypatch.setattr(module, "is_reachable", lambda: True)
    return module


def test_without_a_gpu_it_is_the_build_for_processors(script):
    option, sentence = script.option([])
    assert option == OPTION
    assert "200 MB" in sentence


def test_with_a_gpu_it_is_what_pip_finds(script, monkeypatch):
    monkeypatch.setattr(script, "has_gpu", lambda: True)
    option, sentence = script.option(["--quiet"])
    assert (option, "CUDA, about 3 GB" in sentence) == ("", True)


def test_an_index_that_cannot_be_reached_changes_nothing_and_is_told(script, monkeypatch):
    monkeypatch.setattr(script, "is_reachable", lambda: False)
    option, sentence = script.option([])
    assert (option, "cannot be reached" in sentence, "3 GB" in sentence) == ("", True, True)


def test_the_build_for_cpus_can_be_asked_for_beside_a_gpu(script, monkeypatch):
    monkeypatch.setattr(script, "has_gpu", lambda: True)
    assert script.option(["--cpu"])[0] == OPTION
    assert script.option(["--cpu", "--no-index"]) == ("", "")
    monkeypatch.setattr(script, "is_reachable", lambda: False)
    option, sentence = script.option(["--cpu"])
    assert (option, "cannot be reached" in sentence, "CUDA" in sentence) == ("", True, False)


@pytest.mark.parametrize("words", [["--index-url", "https://mine"], ["--extra-index-url=x"], ["--no-index"]])
def test_an_index_of_the_user_settles_it(script, words):
    assert script.option(words) == ("", "")


def test_macos_has_one_build(script, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert script.option([]) == ("", "")


@for_each([URLError("no such host"), TimeoutError(), ConnectionResetError(), ValueError()])
def test_no_failure_of_the_network_stops_it(failure, monkeypatch):
    spec = spec_from_file_location("torch_index", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def fail(*given, **more):
        raise failure

    monkeypatch.setattr(module.urllib.request, "urlopen", fail)
    assert module.is_reachable() is False


def test_what_pip_gets_is_on_stdout_alone():
    done = subprocess.run([sys.executable, str(SCRIPT), "--no-index"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("\n", "")
