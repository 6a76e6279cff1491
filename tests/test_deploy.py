"""Launch files for several nodes, and the image of the rating server: they parse, start the package, and agree in what
belongs together."""

import json
import os
import re
import subprocess
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import tyro
import yaml

from tutelage.base.errors import TutelageError
from tutelage.commands import study as place
from tutelage.commands.collect.settings import SUBCOMMANDS, Serve
from tutelage.people.web.routes import ROUTES

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


def test_torchrun_starts_the_command_on_every_node(tmp_path: Path) -> None:
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


COLLECT = DEPLOY / "collect"
SECRETS = "/run/secrets/"


def instructions(keyword: str) -> list[str]:
    """The arguments of every instruction of that kind in the Dockerfile, with continued lines joined."""
    lines = [line for line in (COLLECT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [line.split(maxsplit=1)[1] for line in joined if line.split(maxsplit=1)[:1] == [keyword]]


def served(words: list[str]) -> Serve:
    """The settings that a command line of `tutelage collect` gives."""
    assert words[0] == "serve"
    found: Serve = tyro.cli(SUBCOMMANDS[words[0]], args=words[1:])  # type: ignore[assignment]
    return found


def test_the_image_starts_the_rating_server_as_nobody_in_particular() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["tutelage", "collect"]
    settings = served(json.loads(instructions("CMD")[0]))
    assert [settings.port] == [int(port) for port in instructions("EXPOSE")]
    assert settings.host == "0.0.0.0"
    assert instructions("VOLUME") == instructions("WORKDIR")[-1:] == [settings.study]
    assert instructions("USER") == ["tutelage"]
    check = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", instructions("HEALTHCHECK")[0])
    assert check is not None
    assert (int(check[1]), check[2]) in {(settings.port, route.path) for route in ROUTES if route.who == "anyone"}


def test_the_image_holds_what_it_needs_and_no_torch() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    [install] = [each for each in instructions("RUN") if "pip install" in each]
    [extra] = re.findall(r"\.\[(\w+)\]", install)
    assert extra == "collect"
    wanted, seen = [extra], set()
    while wanted:
        seen.add(name := wanted.pop())
        for each in project["optional-dependencies"][name]:
            assert not each.startswith("torch")
            inner = re.fullmatch(r"tutelage\[(.*)\]", each)
            wanted += [part for part in (inner[1].split(",") if inner else ()) if part not in seen]
    assert {"postgres", "oidc"} <= seen
    kept = {line[1:] for line in (COLLECT / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = " ".join(each for each in instructions("COPY") if not each.startswith("--from")).split()
    assert {each for each in copied if not each.startswith("./")} == kept
    assert all((DEPLOY.parent / each).exists() for each in kept)


def test_the_services_of_compose_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = yaml.safe_load((COLLECT / "compose.yaml").read_text())
    server, database = told["services"]["server"], told["services"]["database"]
    words = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in server["command"]]
    settings = served(words)
    assert server["ports"] == [f"127.0.0.1:8000:{settings.port}"]
    assert (COLLECT / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == COLLECT / "Dockerfile"
    named = {name: database["environment"][name] for name in ("POSTGRES_USER", "POSTGRES_DB")}
    address = f"postgresql://{named['POSTGRES_USER']}@database/{named['POSTGRES_DB']}"
    assert settings.db == address
    [subnet] = told["networks"]["default"]["ipam"]["config"]
    assert settings.trusted_proxy == (subnet["gateway"],), "the other container is no proxy"
    assert ip_address(subnet["gateway"]) in ip_network(subnet["subnet"])
    for service in (server, database):
        files = {value for name, value in service["environment"].items() if name.endswith("_FILE")}
        assert files == {SECRETS + name for name in service["secrets"]}
        assert set(service["secrets"]) <= told["secrets"].keys()
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= told["volumes"].keys()
    assert "PASSWORD" not in str([v for n, v in server["environment"].items() if not n.endswith("_FILE")])
    (tmp_path / "database_password").write_text("p@ss/word\n")
    for name, value in server["environment"].items():
        monkeypatch.setenv(name, value.replace(SECRETS, f"{tmp_path}/"))
    assert place.database(settings) == "postgresql://tutelage:p%40ss%2Fword@database/tutelage"
    sources = "".join(file.read_text() for file in Path(place.__file__).parent.rglob("*.py"))
    assert all(name.removesuffix("_FILE") in sources for name in server["environment"])


def test_a_secret_that_cannot_be_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUTELAGE_DB_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(TutelageError, match="TUTELAGE_DB_PASSWORD_FILE"):
        place.with_password("postgresql://a@b/c")
    monkeypatch.setenv("TUTELAGE_DB_PASSWORD", "short")
    assert place.with_password("postgresql://a@b/c") == "postgresql://a:short@b/c"
    for same in ("postgresql://a:b@c/d", "postgresql:///d?host=/run", "study.sqlite"):
        assert place.with_password(same) == same
