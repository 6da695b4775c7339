"""The pictures of the docs: shown somewhere, whole by themselves, telling nothing of the machine they are from."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
FOREIGN = re.compile(
    r"https?://(?!127\.0\.0\.1:|www\.w3\.org/2000/svg)|@font-face|url\((?!#)|(?<![\w.])/(home|root|tmp|work|usr)/"
)


@pytest.fixture
def make(tmp_path: Path) -> ModuleType:
    """The script that makes them; here it writes into a folder of the test's."""
    spec = importlib.util.spec_from_file_location("pictures_make", ROOT / "docs" / "pictures" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = tmp_path  # type: ignore[attr-defined]
    return module


def words_of(picture: Path) -> str:
    """Return all that is written in a picture."""
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    return "".join(text.text or "" for text in texts).replace("\xa0", " ")


def test_there_is_a_run_a_trial_and_an_ended_job() -> None:
    assert [path.stem for path in PICTURES] == ["ended", "run", "trial"]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_whole_by_itself(picture: Path) -> None:
    assert FOREIGN.findall(picture.read_text(encoding="utf-8")) == []
    assert words_of(picture).startswith("$ batchrun ")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_shown_somewhere(picture: Path) -> None:
    shown = [
        document
        for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        if re.search(rf"!\[[^\]]+\]\((docs/)?pictures/{picture.name}\)", document.read_text(encoding="utf-8"))
    ]
    assert shown


def test_the_script_draws_what_stood_on_the_screen_last(make: ModuleType) -> None:
    screen = make.Screen()
    screen.feed("$ batchrun x\n\r\x1b[1mold\x1b[0m  1\x1b[K\n  longer\x1b[K\n\x1b[J")
    screen.feed("\r\x1b[2A\x1b[32mnew\x1b[0m 2\x1b[K\n\x1b[J")
    screen.feed("\r\x1b[1A\x1b[Jsaid\n\rend < of it\x1b[K\n\x1b[J")
    assert screen.text == "$ batchrun x\nsaid\nend < of it\n"
    make.draw("one", screen.lines)
    drawn = make.HERE / "one.svg"
    assert FOREIGN.findall(drawn.read_text(encoding="utf-8")) == []
    words = words_of(drawn)
    assert 0 <= words.find("$ batchrun x") < words.find("said") < words.find("end < of it")
    assert "old" not in words
