"""Launch files for several nodes: they parse, start the package, and agree in what belongs together."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_valid_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)


def fake(folder: Path, name: str, body: str) -> None:
    """An executable that stands for a program of a cluster."""
    (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
    (folder / name).chmod(0o755)


def started(folder: Path, script: str, *words: str, **environment: str) -> list[str]:
    """The words that torchrun gets from a script."""
    fake(folder, "torchrun", f'printf "%s\\n" "$@" > {folder}/words')
    fake(folder, "scontrol", "echo node7; echo node8")
    fake(folder, "srun", 'shift; exec "$@"')
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run([DEPLOY / script, *words], check=True, env=path | environment)
    return (folder / "words").read_text().splitlines()


def test_torchrun_starts_the_verb_on_every_node(tmp_path: Path) -> None:
    words = started(tmp_path, "torchrun.sh", "sft", "--out", "a b", HEAD="node0", NODES="3", GPUS="2")
    assert words[words.index("--nnodes") + 1] == "3"
    assert words[words.index("--rdzv-endpoint") + 1] == "node0:29400"
    assert words[-5:] == ["-m", "tutelage", "sft", "--out", "a b"]


def test_slurm_names_the_first_node_and_its_own_job(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "4242"}
    slurm["SLURM_SUBMIT_DIR"] = str(DEPLOY.parent)
    words = started(tmp_path, "slurm.sh", "improve", "--resume", **slurm)
    assert words[words.index("--rdzv-endpoint") + 1] == "node7:29642"
    assert words[words.index("--nproc-per-node") + 1] == "8"
    assert words[-3:] == ["tutelage", "improve", "--resume"]


def test_the_objects_of_kubernetes_belong_together() -> None:
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    found = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in objects}
    job, service = found["Job", "tutelage"], found["Service", "tutelage"]
    pod = job["template"]["spec"]
    (train,) = pod["containers"]
    arguments = dict(word.split("=", 1) for word in train["args"] if "=" in word)
    assert job["completions"] == job["parallelism"] == int(arguments["--nnodes"])
    assert train["resources"]["limits"]["nvidia.com/gpu"] == arguments["--nproc-per-node"]
    assert service["selector"] == {"job-name": "tutelage"}
    assert pod["subdomain"] == "tutelage"
    assert arguments["--rdzv-endpoint"] == f"tutelage-0.tutelage:{service['ports'][0]['port']}"
    for one in (pod, found["Deployment", "tutelage-rollouts"]["template"]["spec"]):
        volumes = {volume["name"] for volume in one["volumes"]}
        assert {mount["name"] for box in one["containers"] for mount in box["volumeMounts"]} == volumes
    labels = found["Deployment", "tutelage-rollouts"]["template"]["metadata"]["labels"]
    assert found["Service", "tutelage-rollouts"]["selector"] == labels
