"""`docker-compose.yml` is what the Compose specification allows, and what an operator may rely on.

No container is started here: `tests/test_local.py` shows the same topology with plain processes.
"""

import copy
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError

from batchrun.cli.context import Context
from batchrun.cli.main import cli
from batchrun.settings import Settings

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:?[-?][^}]*)?\}")
SECRET_NAME = re.compile(r"PASSWORD|AUTH|SECRET|TOKEN|API_KEY")
IN_ADDRESS = re.compile(r"//[^/\s]*?:(?P<password>[^@/\s]+)@")
PINNED = re.compile(r":v?\d+\.\d+[\w.-]*\Z")
GRACE = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?\Z")
UNITS = {"s": 1, "m": 60}

Compose = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> Compose:
    loaded: Compose = YAML(typ="safe").load(FILE.read_text())
    return loaded


def ours(compose: Compose) -> dict[str, Compose]:
    """Return the services that run batchrun itself."""
    return {name: one for name, one in compose["services"].items() if one["image"] == "batchrun-llm:local"}


def is_one_shot(service: Compose) -> bool:
    return bool(service.get("restart") == "no")


# -- the rules: each yields what breaks it ----------------------------------------------------------------------------


def unwatched(compose: Compose) -> Iterator[str]:
    """A service that stays has a health check and comes back after a crash; a one-shot has neither."""
    for name, service in compose["services"].items():
        if is_one_shot(service):
            continue
        if not service.get("healthcheck", {}).get("test"):
            yield f"{name} has no health check"
        if service.get("restart") != "unless-stopped":
            yield f"{name} does not come back"


def open_ports(compose: Compose) -> Iterator[str]:
    """Every published port is bound to this machine alone."""
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name} publishes {port}"
        if service.get("network_mode") == "host":
            yield f"{name} is on the host's network"


def words_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every (path, text) of a part of the file."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from words_in(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from words_in(inner, f"{path}[{number}]")
    elif isinstance(value, str):
        yield path, value


def written_secrets(compose: Compose) -> Iterator[str]:
    """No secret stands in the file: each is a variable, and a password's variable must be set."""
    for path, text in words_in(compose):
        name = path.rpartition(".")[2]
        if SECRET_NAME.search(name) and not VARIABLE.fullmatch(text):
            yield f"{path} is written down"
        for found in IN_ADDRESS.finditer(VARIABLE.sub(lambda one: f"${one[1]}{one[2] or ''}".replace("/", ""), text)):
            if not found["password"].startswith("$"):
                yield f"{path} has a password in its address"
    for path, text in words_in(compose):
        for variable, otherwise in VARIABLE.findall(text):
            if variable.endswith("PASSWORD") and not otherwise.startswith(":?"):
                yield f"{path}: {variable} may be empty"


def loose_images(compose: Compose) -> Iterator[str]:
    """Every image of others has a version, and ours is built from this checkout."""
    for name, service in compose["services"].items():
        image = VARIABLE.sub(lambda one: (one[2] or "").removeprefix(":-"), service["image"])
        if service["image"] == "batchrun-llm:local":
            if service["build"]["context"] != ".":
                yield f"{name} is not built from here"
        elif not PINNED.search(image):
            yield f"{name} takes {image}"
    for base in re.findall(r"^FROM (\S+)", compose["x-batchrun"]["build"]["dockerfile_inline"], re.MULTILINE):
        if not PINNED.search(base):
            yield f"the build takes {base}"


def short_grace(compose: Compose) -> Iterator[str]:
    """A worker may finish its drain before it is killed."""
    for name, service in compose["services"].items():
        command = service.get("command", [])
        if "--drain-timeout" not in command:
            continue
        drain_s = float(command[command.index("--drain-timeout") + 1])
        minutes, seconds = GRACE.match(service.get("stop_grace_period", "10s")).groups(default="0")  # type: ignore[union-attr]
        if 60 * int(minutes) + int(seconds) < drain_s + 15:
            yield f"{name} is killed {service.get('stop_grace_period')} after SIGTERM, and drains for {drain_s:g} s"


def unordered(compose: Compose) -> Iterator[str]:
    """Whoever uses the ledger waits for its tables, and they for a Postgres that answers."""
    for name, service in ours(compose).items():
        if "BATCHRUN_DB" not in service["environment"]:
            continue
        needs = {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        wanted = (
            {"postgres": "service_healthy"}
            if name == "migrate"
            else {"migrate": "service_completed_successfully", "redis": "service_healthy"}
        )
        if needs != wanted:
            yield f"{name} waits for {needs}"


def unsafe_redis(compose: Compose) -> Iterator[str]:
    """The broker keeps what it is given, evicts nothing, and asks for a password."""
    words = " ".join(compose["services"]["redis"]["command"])
    for needed in ("--appendonly yes", "--maxmemory-policy noeviction", '--requirepass "$$REDISCLI_AUTH"'):
        if needed not in words:
            yield f"redis runs without {needed}"


def lost_volumes(compose: Compose) -> Iterator[str]:
    """Every volume is declared, every folder of the checkout exists, and what must last lies on one."""
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                if not (ROOT / source).is_dir():
                    yield f"{name} mounts {source}, which is not there"
            elif source not in compose["volumes"]:
                yield f"{name} mounts {source}, which is not declared"
    for name, place in (("postgres", "/var/lib/postgresql/data"), ("redis", "/data"), ("worker", "/var/lib/batchrun")):
        if not any(volume.split(":")[1] == place for volume in compose["services"][name].get("volumes", [])):
            yield f"{name} keeps {place} in its container"


RULES = (
    unwatched, open_ports, written_secrets, loose_images, short_grace, unordered, unsafe_redis, lost_volumes,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_file_keeps_the_rule(rule: Callable[[Compose], Iterator[str]], compose: Compose) -> None:
    assert list(rule(compose)) == []


BREACHES: list[tuple[Any, tuple[str, ...], Any]] = [
    (unwatched, ("services", "worker", "healthcheck"), {}),
    (unwatched, ("services", "redis", "restart"), "on-failure"),
    (open_ports, ("services", "postgres", "ports"), ["5432:5432"]),
    (open_ports, ("services", "redis", "ports"), ["0.0.0.0:6379:6379"]),
    (open_ports, ("services", "mock", "network_mode"), "host"),
    (written_secrets, ("services", "postgres", "environment", "POSTGRES_PASSWORD"), "batchrun"),
    (written_secrets, ("services", "postgres", "environment", "POSTGRES_PASSWORD"), "${POSTGRES_PASSWORD:-x}"),
    (written_secrets, ("services", "worker", "environment", "BATCHRUN_BROKER"), "redis://:x@redis:6379/0"),
    (written_secrets, ("services", "worker", "environment", "OPENAI_API_KEY"), "sk-1"),
    (loose_images, ("services", "redis", "image"), "redis"),
    (loose_images, ("services", "redis", "image"), "redis:latest"),
    (loose_images, ("services", "vllm", "image"), "vllm/vllm-openai:${VLLM_TAG:-latest}"),
    (loose_images, ("x-batchrun", "build", "dockerfile_inline"), "FROM python\n"),
    (short_grace, ("services", "worker", "stop_grace_period"), "10m"),
    (short_grace, ("services", "worker", "stop_grace_period"), "30s"),
    (unordered, ("services", "worker", "depends_on"), {"redis": {"condition": "service_started"}}),
    (unsafe_redis, ("services", "redis", "command"), ["redis-server"]),
    (lost_volumes, ("services", "redis", "volumes"), []),
    (lost_volumes, ("services", "worker", "volumes"), ["./inpts:/srv/batchrun/inputs", "home:/var/lib/batchrun"]),
    (lost_volumes, ("volumes",), {}),
]


@pytest.mark.parametrize(("rule", "path", "value"), BREACHES)
def test_a_breach_of_the_rule_is_seen(rule: Any, path: tuple[str, ...], value: Any, compose: Compose) -> None:
    broken = copy.deepcopy(compose)
    *above, last = path
    part = broken
    for key in above:
        part = part[key]
    part[last] = value
    assert list(rule(broken)) != []


# -- the specification ------------------------------------------------------------------------------------------------


def judged_by_the_specification(path: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(words, capture_output=True, text=True)


def test_the_file_is_what_the_compose_specification_allows(tmp_path: Path) -> None:
    assert judged_by_the_specification(FILE).returncode == 0
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(FILE.read_text().replace("stop_grace_period:", "stop_grace_periods:"))
    assert judged_by_the_specification(broken).returncode == 1


def test_a_key_that_stood_twice_would_be_seen() -> None:
    with pytest.raises(DuplicateKeyError):
        YAML(typ="safe").load(f"{FILE.read_text()}\nname: other\n")


# -- what it says of batchrun -----------------------------------------------------------------------------------------


def parse(group: click.Group, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse a command line without running anything; a wrong one raises."""
    context = group.make_context("batchrun", list(arguments), parent=parent, obj=Context())
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    if isinstance(command, click.Group):
        parse(command, rest, context)
    else:
        command.make_context(name, rest, parent=context, obj=Context())


def test_every_command_of_a_container_parses(compose: Compose) -> None:
    for service in ours(compose).values():
        parse(cli, service["command"])
    with pytest.raises(click.UsageError):
        parse(cli, ["worker", "--drain", "600"])


def test_every_command_of_the_comments_names_what_is_there(compose: Compose) -> None:
    told = re.findall(r"^#\s+(docker compose .*)$", FILE.read_text(), re.MULTILINE)
    assert len(told) >= 3
    for line in told:
        words = shlex.split(line)
        if "run" in words:
            service, *arguments = words[words.index("run") + 2 :]
            assert service in compose["services"]
            parse(cli, arguments)
        if "--profile" in words:
            profile = words[words.index("--profile") + 1]
            assert any(profile in one.get("profiles", []) for one in compose["services"].values())


def test_every_variable_of_batchrun_exists(compose: Compose) -> None:
    known = {f"BATCHRUN_{name.upper()}" for name in Settings.model_fields}
    for service in ours(compose).values():
        assert {name for name in service["environment"] if name.startswith("BATCHRUN_")} <= known


def test_every_variable_of_the_file_is_explained_in_the_example(compose: Compose) -> None:
    example = (ROOT / ".env.example").read_text()
    explained = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", example, re.MULTILINE))
    for _, text in words_in(compose):
        for variable, otherwise in VARIABLE.findall(text):
            assert variable in explained, f"explain {variable} in .env.example"
            if otherwise.startswith(":-") and not explained[variable].startswith("http"):
                assert explained[variable] == otherwise[2:], f"{variable}: another default in .env.example"
    assert not explained["POSTGRES_PASSWORD"]
    assert not explained["REDIS_PASSWORD"]


def test_the_build_finds_what_it_copies(compose: Compose) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {"batchrun", "migrations", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} == set(allowed)
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    recipe = compose["x-batchrun"]["build"]["dockerfile_inline"]
    (extra,) = re.findall(r"'\.\[(\w+)\]'", recipe)
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
