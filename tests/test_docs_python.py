"""The code of docs/python.md runs as it stands, in one file from top to bottom."""

import json
import re
import shutil
from pathlib import Path

from forked import python

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TOPICS = ["the sun", "rain", "a star", "light", "plants", "the sky", "gravity", "water", "clouds", "air"]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_the_code_of_the_page_runs(tiny_model, tmp_path, monkeypatch):
    """A folder of the model's name stands in for the hub, and small files for the reader's."""
    shutil.copytree(tiny_model("llama"), tmp_path / MODEL)
    asked = [f"What is {topic}{mark}" for topic in TOPICS for mark in "?!"]
    write(tmp_path / "demonstrations.jsonl", [{"prompt": q, "completion": "It is far away."} for q in asked])
    pairs = [{"prompt": q, "chosen": "A star.", "rejected": f"No {n}."} for n, q in enumerate(asked)]
    write(tmp_path / "preferences.jsonl", pairs)
    write(tmp_path / "prompts.jsonl", [{"prompt": q} for q in asked[:8]])
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(blocks) == 8
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = python("import runpy; runpy.run_path('page.py', run_name='__main__')")
    out, told = done.communicate(timeout=600)
    assert done.returncode == 0, told[-3000:]
    assert "unknown setting 'epoch'; did you mean 'epochs'" in out
    assert (tmp_path / "runs" / "mine" / "config.json").is_file()
    assert "rows, read as prompt, chosen, rejected" in told, "remarks are shown once logging is set up"
