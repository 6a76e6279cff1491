"""Checks of the machine: each names what is missing, and what to do about it."""

import os
import shutil
from contextlib import closing

import pytest
import torch
from cards import pretend
from offenders import for_each

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.collect.settings import Serve
from tutelage.commands.doctor import machine
from tutelage.commands.doctor.machine import GIB, check_machine
from tutelage.commands.serve.settings import ServeSettings
from tutelage.engines import devices as memory
from tutelage.engines.cpu.native import bindings
from tutelage.rollout.serving.asgi_server import listen


def by_subject(*given):
    return {check.subject: check for check in check_machine(*given)}


def test_every_part_of_the_machine_is_named_once():
    checks = check_machine()
    subjects = [check.subject for check in checks]
    assert len(set(subjects)) == len(subjects)
    assert {"tutelage", "libraries", "CPU", "engine", "memory", "disk", "database"} <= set(subjects)
    assert all(check.advice for check in checks if check.state != "ok")


@for_each([(0.3, "ok"), (4.0, "ok"), (4.1, "warning")])
def test_a_busy_machine_is_told(load, state, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    processor = by_subject()["CPU"]
    assert (processor.state, "OMP_NUM_THREADS=1" in processor.advice) == (state, state == "warning")


def test_a_missing_compiler_costs_time_and_is_told(monkeypatch):
    def missing():
        raise TutelageError("No compiler was found. Install g++ or clang++ (CXX names another).")

    monkeypatch.setenv("TUTELAGE_ENGINE", "auto")
    monkeypatch.setattr(bindings, "library", missing)
    engine = by_subject()["engine"]
    assert engine.state == "warning"
    assert "Install g++" in engine.advice


def test_an_engine_that_does_not_exist_is_a_fault(monkeypatch):
    monkeypatch.setenv("TUTELAGE_ENGINE", "fast")
    engine = by_subject()["engine"]
    assert engine.state == "fault"
    assert "TUTELAGE_ENGINE is 'fast'" in engine.advice


def test_the_reference_engine_is_named_with_its_cause(monkeypatch):
    monkeypatch.setenv("TUTELAGE_ENGINE", "plain")
    assert by_subject()["engine"].result == "plain on the CPU (TUTELAGE_ENGINE is plain)"


@for_each(
    [
        ("auto", {}, "ok", "gpu on cuda:0 (Triton 3.7)"),
        ("auto", {"capability": (7, 5)}, "warning", "plain on cuda:0"),
        ("plain", {}, "ok", "TUTELAGE_ENGINE is plain"),
        ("cpu", {}, "fault", "none on cuda:0"),
        ("gpu", {"capability": (7, 5)}, "fault", "none on cuda:0"),
    ]
)
def test_the_engine_of_each_gpu_is_named_with_its_cause(variable, changes, state, word, monkeypatch, tmp_path):
    monkeypatch.setenv("TUTELAGE_ENGINE", variable)
    pretend(monkeypatch, tmp_path, count=2, **changes)
    found = by_subject()
    assert (found["engine 0"].state, found["engine 1"].state) == (state, state)
    assert word in found["engine 0"].result
    assert ("8.0" in found["engine 0"].advice) == bool(changes)
    assert "compute capability" in found["GPU 0"].result


@pytest.mark.parametrize(("free", "state"), [(79, "ok"), (40, "warning")])
def test_a_gpu_that_others_use_is_told(monkeypatch, tmp_path, free, state):
    pretend(monkeypatch, tmp_path, free=free)
    gpu = by_subject()["GPU 0"]
    assert (gpu.state, f"{free} of 80 GiB free" in gpu.result) == (state, True)


def test_why_there_is_no_gpu_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in by_subject()["GPU"].result


@pytest.mark.parametrize(("free", "state"), [(100.0, "ok"), (1.0, "warning")])
def test_little_room_is_told(monkeypatch, tmp_path, free, state):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=int(free * GIB)))
    monkeypatch.setattr(memory, "available_memory", lambda device: free * GIB)
    found = by_subject(tmp_path)
    assert (found["disk"].state, found["memory"].state) == (state, state)
    assert found["disk"].result == f"{free:,.1f} GiB free in {tmp_path}"


def test_the_default_port_is_that_of_both_servers_and_told_where_it_is_taken(monkeypatch):
    assert ServeSettings(model=config.Model("m")).port == Serve(study="s").port == machine.PORT
    with closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(machine, "PORT", port)
        found = by_subject()[f"port {port}"]
        assert (found.state, "--port" in found.advice) == ("warning", True)
    assert by_subject()[f"port {port}"].state == "ok"


def test_a_folder_that_is_not_there_is_a_fault(tmp_path):
    assert by_subject(tmp_path / "none")["disk"].state == "fault"


def test_an_extra_that_is_missing_names_its_installation(monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda module: None)
    assert by_subject()["extra rules"].advice == "pip install 'tutelage[rules]'"
