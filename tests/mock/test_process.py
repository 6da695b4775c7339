"""The mock as a process: started, asked, killed, and never left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.log import read_log
from batchrun.mock.process import MockProcess
from tests.mock.wire import CHAT, Client, run, write_body

pytestmark = pytest.mark.process

PARENT = """
import os, sys
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess

mock = MockProcess(MockConfig())
mock.start()
if "fork" in sys.argv and os.fork() == 0:
    sys.stdin.read()  # keeps a copy of the mock's pipe open until the test is over
    os._exit(0)
print(mock.port, flush=True)
os.read(os.pipe()[0], 1)
"""


CROWDED = """
import os, resource
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
while os.open(os.devnull, os.O_RDONLY) < 1_100:
    pass
with MockProcess(MockConfig()) as mock:
    print(mock.stats()["billed"])
"""


def post(port: int) -> int:
    async def test() -> int:
        client = await Client.connect(port)
        answer = await client.ask("POST", CHAT, write_body())
        client.close()
        return answer.status

    return run(test)


def test_a_mock_process_serves_counts_and_logs(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with MockProcess(MockConfig(log_path=str(log), seed=3)) as mock:
        assert mock.base_url == f"http://127.0.0.1:{mock.port}/v1"
        assert mock.pid != os.getpid()
        assert post(mock.port) == 200
        assert mock.stats()["billed"] == 1
        mock.reset()
        assert mock.stats()["billed"] == 0
        assert mock.log_path == log
    assert read_log(log).by_outcome == {"answered": 1}


def test_it_starts_from_a_process_that_has_more_than_a_thousand_files_open() -> None:
    ended = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_a_killed_mock_is_gone_and_its_log_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    mock = MockProcess(MockConfig(log_path=str(log)))
    mock.start()
    assert post(mock.port) == 200
    mock.kill()
    mock.stop()  # harmless
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", mock.port), timeout=5)
    assert read_log(log).billed == 1


def test_a_mock_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RuntimeError, match="did not start"):
        MockProcess(MockConfig(port=taken.getsockname()[1])).start()
    assert "address already in use" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_mock_dies_with_its_parent(how: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout, parent:
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            parent.send_signal(signal.SIGKILL)
            with suppress(ConnectionResetError):  # it had not yet accepted the connection
                assert line.recv(1) == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_quietly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "batchrun.mock", '{"port": 0}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert post(ready["port"]) == 200
        server.send_signal(number)
        out, err = server.communicate(timeout=60)
    assert (server.returncode, out, err) == (0, b"", b"")


def test_the_mock_loads_little() -> None:
    code = "import sys, batchrun.mock.server; print(sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    for heavy in ("openai", "pydantic", "sqlalchemy", "celery", "click", "httptools", "rich"):
        assert f"'{heavy}'" not in loaded
