"""What is installed is whole: the wheel carries the migrations, and the index's name and the command are ours."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    made = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_carries_code_and_migrations_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    beside = {str(path.relative_to(ROOT / "migrations")) for path in (ROOT / "migrations").rglob("*.py")}
    assert {f"batchrun/_migrations/{name}" for name in beside} <= shipped
    assert {name.partition("/")[0] for name in shipped} == {"batchrun"}
    assert not [name for name in shipped if "__pycache__" in name]


def test_the_distribution_has_our_name_and_the_command_its_own(wheel: zipfile.ZipFile) -> None:
    info = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    assert message_from_bytes(wheel.read(f"{info}/METADATA"))["Name"] == "batchrun-llm"
    assert b"batchrun = batchrun.__main__:main" in wheel.read(f"{info}/entry_points.txt")
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
