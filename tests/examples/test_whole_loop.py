"""`examples/7_whole_loop.py` runs, and what it returns is what stands in its folder."""

import json
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "7_whole_loop.py"


def test_the_whole_loop_through_the_python_api(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / "loop")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = capsys.readouterr().out
    summary = json.loads((tmp_path / "loop" / "evaluate" / "summary.json").read_text())
    before, after = summary["against"]["gold_mean"], summary["model"]["gold_mean"]
    assert f"gold {before:+.2f} before, {after:+.2f} after" in told
    assert f"win rate by gold {summary['win_rate']['gold']['win_rate']:.2f}" in told
    assert summary["model"]["kl"] > 0, "PPO moved the policy"
    assert summary["prompts"] == 32
