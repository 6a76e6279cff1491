"""`examples/7_whole_loop.py` runs, and what it returns is what stands in its folder."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "7_whole_loop.py"


def test_the_whole_loop_through_the_python_api(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "loop"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((tmp_path / "loop" / "evaluate" / "summary.json").read_text())
    before, after = summary["against"]["gold_mean"], summary["model"]["gold_mean"]
    assert f"gold {before:+.2f} before, {after:+.2f} after" in done.stdout
    assert f"win rate by gold {summary['win_rate']['gold']['win_rate']:.2f}" in done.stdout
    assert summary["model"]["kl"] > 0, "PPO moved the policy"
    assert summary["prompts"] == 32
