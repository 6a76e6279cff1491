"""A board of growing runs: what it reads, where its points are, and what it costs."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.report.board import (
    LINES,
    ROWS,
    Board,
    FollowedRun,
    GrowingTable,
    View,
    render_frame,
    render_parts,
    run_folders,
)


def write(folder: Path, rows: list[dict[str, object]], name: str = "metrics") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def steps(count: int, start: int = 1, **more: float) -> list[dict[str, object]]:
    return [{"step": n, "seconds": float(n), "score/mean": n / 10, **more} for n in range(start, start + count)]


def followed(folder: Path, board: Board | None = None) -> FollowedRun:
    run = FollowedRun("run", folder)
    run.refresh()
    return run


def test_only_what_was_added_is_read_and_a_line_that_is_not_finished_waits(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    table = GrowingTable(file)
    assert table.grow() == []
    file.write_text('{"a": 1}\n{"a"')
    assert table.grow() == [{"a": 1}]
    assert table.read == 9
    with file.open("a") as more:
        more.write(": 2}\nno JSON\n[3]\n")
    assert table.grow() == [{"a": 2}]
    assert table.grow() == []
    assert table.rows == [{"a": 1}, {"a": 2}]
    file.write_text('{"b": 1}\n')
    assert table.grow() == table.rows == [{"b": 1}]


def test_a_file_that_was_replaced_by_a_longer_one_is_read_again(tmp_path: Path) -> None:
    """A resumed run drops its last lines and writes others, of which a board that nobody looked at saw nothing."""
    write(tmp_path, steps(9))
    run = followed(tmp_path)
    (tmp_path / "new").mkdir()
    write(tmp_path / "new", [*steps(4), *steps(16, 5, loss=0.25)])
    (tmp_path / "new" / "metrics.jsonl").replace(tmp_path / "metrics.jsonl")
    run.refresh()
    assert [row["step"] for row in run.content.metrics] == list(range(1, 21))
    assert [row.get("loss") for row in run.content.metrics] == [None] * 4 + [0.25] * 16
    write(tmp_path, steps(1, 21))
    run.refresh()
    assert len(run.content.metrics) == 21


def test_a_run_that_cannot_be_read_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "good", steps(3))
    (tmp_path / "odd" / "metrics.jsonl").mkdir(parents=True)
    write(tmp_path / "locked", steps(3))
    scan = os.scandir

    def refusing(folder: Path) -> object:
        if Path(folder).name == "locked":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    board = Board(tmp_path)
    board.refresh()
    assert {name: len(run.content.metrics) for name, run in board.runs.items()} == {"good": 3, "odd": 0}
    monkeypatch.undo()
    shutil.rmtree(tmp_path)
    board.refresh()
    assert board.runs == {}


def test_steps_that_are_written_again_count_once_with_their_last_values(tmp_path: Path) -> None:
    write(tmp_path, steps(5))
    run = followed(tmp_path)
    write(tmp_path, [{"step": 4, "score/mean": 9.0}, {"step": 2.5, "score/mean": 7.0}, *steps(1, 6)])
    run.refresh()
    assert [(row["step"], row["score/mean"]) for row in run.content.metrics] == [
        (1, 0.1), (2, 0.2), (2.5, 7.0), (3, 0.3), (4, 9.0), (5, 0.5), (6, 0.6),
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("")
    write(tmp_path, steps(2))
    run.refresh()
    assert len(run.content.metrics) == 2


def test_seconds_and_tokens_go_on_when_a_run_is_resumed(tmp_path: Path) -> None:
    clock = [(1, 2.0), (2, 4.0), (3, 1.0), (4, 3.0)]  # resumed before step 3
    write(tmp_path, [{"step": n, "seconds": s, "tokens_per_second": 10.0 * n} for n, s in clock])
    run = followed(tmp_path)
    places = {over: [place for place, _ in run.placed(View(over=over))] for over in ("step", "seconds", "tokens")}
    assert places["step"] == [1, 2, 3, 4]
    assert places["seconds"] == [2, 4, 5, 7]
    assert places["tokens"] == [20, 60, 90, 170]
    without = tmp_path / "without"
    write(without, [{"step": 1, "loss": 1.0}])
    assert followed(without).placed(View(over="seconds")) == followed(without).placed(View(over="tokens")) == []


def test_runs_share_a_chart_within_the_part_that_is_shown(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "deep/b")):
        write(tmp_path / name, [{"step": n, "own": (n - 3) * (number + 1)} for n in range(1, 8)])
    write(tmp_path / "a" / "checkpoints" / "step-1", steps(2))
    (tmp_path / "a" / "model").mkdir()
    (tmp_path / "a" / "model" / "config.json").write_text('{"model_type": "llama"}')
    board = Board(tmp_path)
    board.refresh()
    assert list(board.runs) == ["a", "deep/b"]
    main, rest = board.charts(View())
    assert main == []
    (own,) = rest
    assert own.figure.title == "own"
    assert (own.plot.low, own.plot.high) == (1, 7)
    assert "a" in own.figure.drawing
    assert "deep/b" in own.figure.drawing
    (part,) = board.charts(View(low=2, high=5))[1]
    assert (part.plot.low, part.plot.high) == (2, 5)
    (positive,) = board.charts(View(log=True))[1]  # values from 1 on, at the fourth step
    assert (positive.plot.low, positive.plot.high) == (4, 7)
    (alone,) = board.charts(View(runs=("a",)))[1]
    assert "deep/b" not in alone.figure.drawing
    assert board.charts(View(low=100))[1] == []


def test_a_view_is_read_from_a_query_and_nonsense_is_nothing() -> None:
    query = {"run": ["a", "b"], "over": ["tokens"], "log": ["1"], "low": ["1e3"], "high": ["nan"], "search": [" x "]}
    assert View.of(query) == View(("a", "b"), "tokens", True, 1000.0, None, "x")
    assert View.of({"over": ["<script>"], "low": ["one"]}) == View()


def test_a_run_is_done_running_or_stopped(tmp_path: Path) -> None:
    write(tmp_path, steps(2))
    assert followed(tmp_path).status == "running"
    old = time.time() - 1000
    os.utime(tmp_path / "metrics.jsonl", (old, old))
    assert followed(tmp_path).status == "stopped"
    (tmp_path / "summary.json").write_text("{}")
    assert followed(tmp_path).status == "done"


def test_samples_are_found_by_their_words_the_latest_first(tmp_path: Path) -> None:
    rows = [{"step": n, "prompt": f"Why {n}?", "completion": "Because of RAIN." if n % 2 else "So."} for n in range(60)]
    write(tmp_path, rows, "samples")
    write(tmp_path, steps(1))
    board = Board(tmp_path)
    board.refresh()
    found, count = board.samples(View(search="rain"))
    assert count == 30
    assert [each.step for each in found] == list(range(59, 19, -2))
    assert board.samples(View(search="why 7?"))[1] == 1


def test_texts_are_shown_and_never_run(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    folder = tmp_path / "<img src=x>"
    write(folder, [{"step": 1, evil: 1.0}])
    write(folder, [{"step": 1, "prompt": evil, "completion": evil}], "samples")
    board = Board(tmp_path)
    board.refresh()
    parts = render_parts(board, View(more=True))
    assert "<script" not in parts
    assert "<img" not in parts
    assert render_frame(board, "n").count("<script") == 1


def test_following_a_long_run_takes_a_hundredth_of_a_processor(tmp_path: Path) -> None:
    """A run of 20,000 steps and 40 metrics that adds 20 steps in the two seconds between two looks."""
    metrics = {f"metric/{n}": 1.5 for n in range(40)}
    write(tmp_path, [{"step": n, "seconds": n / 10, **metrics} for n in range(1, 20_001)])
    board = Board(tmp_path)
    board.refresh()
    spent = []
    for look in range(5):
        write(
            tmp_path, [{"step": n, "seconds": n / 10, **metrics} for n in range(20_001 + 20 * look, 20_021 + 20 * look)]
        )
        began = time.process_time()
        board.refresh()
        spent.append(time.process_time() - began)
    (run,) = board.runs.values()
    assert len(run.content.metrics) == 20_100
    assert min(spent) < 0.02
    assert len(run.placed(View())) <= ROWS


def test_at_most_as_many_runs_as_can_be_told_apart(tmp_path: Path) -> None:
    for number in range(LINES + 3):
        write(tmp_path / f"run-{number:02}", steps(1))
        os.utime(tmp_path / f"run-{number:02}" / "metrics.jsonl", (number, number))
    board = Board(tmp_path)
    board.refresh()
    assert [run.name for run in board.selected(View())] == [f"run-{number:02}" for number in range(3, LINES + 3)]
    assert len(list(run_folders(tmp_path))) == LINES + 3
    with pytest.raises(TutelageError, match="no folder"):
        Board(tmp_path / "none")
