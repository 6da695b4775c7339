"""Addresses as people write them."""

import pytest

from batchrun.endpoint.address import host_port, is_local, is_loopback, normalise_base_url, proxy_for, request_url
from batchrun.endpoint.sdk import Client
from batchrun.errors import EndpointFault

UNDERSTOOD = [
    # typed or pasted, base URL
    ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/v1//", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/v1/v1", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1"),
    ("http://127.0.0.1:8000/v1/chat/completions/", "http://127.0.0.1:8000/v1"),
    ("https://api.example.com/v1/embeddings", "https://api.example.com/v1"),
    ("https://api.example.com/v1/responses", "https://api.example.com/v1"),
    ("https://api.example.com/v1/models", "https://api.example.com/v1"),
    ("https://api.example.com/v1/completions", "https://api.example.com/v1"),
    ("https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1"),
    ("https://host.example/openai/v1/chat/completions", "https://host.example/openai/v1"),
    (
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    ("https://open.bigmodel.cn/api/paas/v4", "https://open.bigmodel.cn/api/paas/v4"),
    ("HTTPS://API.Example.com:443/v1", "https://api.example.com/v1"),
    ("http://example.com:80/v1", "http://example.com/v1"),
    ("  http://127.0.0.1:8000/v1\n", "http://127.0.0.1:8000/v1"),
    ("'http://127.0.0.1:8000/v1'", "http://127.0.0.1:8000/v1"),
    ('"http://127.0.0.1:8000/v1"\r\n', "http://127.0.0.1:8000/v1"),
    ("\u201chttp://127.0.0.1:8000/v1\u201d", "http://127.0.0.1:8000/v1"),
    ("\ufeffhttp://127.0.0.1:8000/v1\u200b", "http://127.0.0.1:8000/v1"),
    ("<http://127.0.0.1:8000/v1>", "http://127.0.0.1:8000/v1"),
    ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ("[::1]:8000", "http://[::1]:8000/v1"),
    ("localhost", "http://localhost/v1"),
    ("localhost:8000", "http://localhost:8000/v1"),
    ("127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ("192.168.1.20:8000", "http://192.168.1.20:8000/v1"),
    ("vllm:8000", "http://vllm:8000/v1"),
    ("gpu.internal/v1", "http://gpu.internal/v1"),
    ("api.openai.com", "https://api.openai.com/v1"),
    ("api.example.com:8443/v1", "https://api.example.com:8443/v1"),
    ("8.8.8.8:8000", "https://8.8.8.8:8000/v1"),
    ("http://büro.example/v1", "http://xn--bro-hoa.example/v1"),
    ("http://my_model_server:8000/v1", "http://my_model_server:8000/v1"),
]


@pytest.mark.parametrize(("text", "base_url"), UNDERSTOOD)
def test_an_address_is_understood_as_people_write_it_and_twice_changes_nothing(text: str, base_url: str) -> None:
    assert normalise_base_url(text) == base_url
    assert normalise_base_url(base_url) == base_url


NOT_UNDERSTOOD = [
    ("", "is empty"),
    (" '' \n", "is empty"),
    ("http://127.0.0.1 :8000/v1", "white space"),
    ("http://127.0.0.1:8000/v1\nhttp://other/v1", "line break"),
    ("ftp://host/v1", "'ftp://'"),
    ("htp://host/v1", "'htp://'"),
    ("http:/host/v1", "misspelt"),
    ("https:host/v1", "misspelt"),
    ("http//host/v1", "misspelt"),
    ("http://user:pass-word@host/v1", "credentials"),
    ("http://sk-1234567@host/v1", "credentials"),
    ("user:pass-word@host/v1", "credentials"),
    ("http://host:80800/v1", "port"),
    ("http://host:pass-word/v1", "port"),
    ("http://[::1/v1", "cannot be taken apart"),
    ("http://[host]/v1", "no"),
    ("http:///v1", "no valid host"),
    ("http://host/v1?api-version=1", "query"),
    ("http://host/v1#top", "fragment"),
    ("http://ho$t/v1", "no valid host"),
    ("http://a..b/v1", "no valid host"),
    ("{BASE_URL}", "no valid host"),
]


@pytest.mark.parametrize(("text", "words"), NOT_UNDERSTOOD)
def test_what_is_no_address_is_named_with_a_hint_and_without_secrets(text: str, words: str) -> None:
    with pytest.raises(EndpointFault) as caught:
        normalise_base_url(text)
    assert words in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert "pass-word" not in str(caught.value) + caught.value.hint
    assert "1234567" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("base_url", "path", "url"),
    [
        ("http://h:1/v1", "/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("https://h/openai/v1", "/v1/embeddings", "https://h/openai/v1/embeddings"),
        ("https://h/v1beta/openai", "/v1/chat/completions", "https://h/v1beta/openai/chat/completions"),
        ("http://h/v1", "/tokenize", "http://h/v1/tokenize"),
    ],
)
def test_a_request_url_is_the_sdks_own(base_url: str, path: str, url: str) -> None:
    assert request_url(base_url, path) == url
    client = Client(base_url, "EMPTY", timeout_s=1)
    assert client.ready_url(path) == url
    assert str(client._prepare_url(path.removeprefix("/v1"))) == url


@pytest.mark.parametrize(
    ("host", "local", "loopback"),
    [
        ("localhost", True, True),
        ("LOCALHOST.", True, True),
        ("api.localhost", True, True),
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("0.0.0.0", True, True),
        ("[::1]", True, True),
        ("[::ffff:127.0.0.1]", True, True),
        ("10.1.2.3", True, False),
        ("172.16.0.1", True, False),
        ("172.32.0.1", False, False),
        ("192.168.0.1", True, False),
        ("100.64.1.1", True, False),
        ("169.254.1.1", True, False),
        ("[fd00::1]", True, False),
        ("[2001:4860:4860::8888]", False, False),
        ("8.8.8.8", False, False),
        ("vllm", True, False),
        ("gpu.local", True, False),
        ("host.docker.internal", True, False),
        ("vllm.default.svc.cluster.local", True, False),
        ("api.openai.com", False, False),
        ("localhost.example.com", False, False),
        ("127.0.0.1.example.com", False, False),
    ],
)
def test_local_and_loopback_hosts_are_known(host: str, local: bool, loopback: bool) -> None:
    assert is_local(f"http://{host}:8000/v1") is local
    assert is_loopback(f"http://{host}/v1") is loopback


def test_the_host_and_port_of_a_connection_are_named() -> None:
    assert host_port("https://api.openai.com/v1") == "api.openai.com:443"
    assert host_port("http://[::1]/v1") == "[::1]:80"
    assert host_port("http://vllm:8000/v1") == "vllm:8000"


@pytest.mark.parametrize(
    ("environment", "base_url", "proxy"),
    [
        ({}, "https://api.openai.com/v1", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://api.openai.com/v1", "http://p:3128"),
        ({"https_proxy": "p:3128"}, "https://api.openai.com/v1", "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, "https://api.openai.com/v1", None),
        ({"HTTP_PROXY": "http://p:3128"}, "http://vllm:8000/v1", "http://p:3128"),
        ({"ALL_PROXY": "http://p:3128"}, "https://api.openai.com/v1", "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, "http://localhost:8000/v1", None),
        ({"HTTP_PROXY": "http://p:3128"}, "http://127.0.0.1:8000/v1", None),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "vllm"}, "http://vllm:8000/v1", None),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "vllm:8000"}, "http://vllm:8000/v1", None),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": ".corp.example, x"}, "http://llm.corp.example/v1", None),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, "http://10.2.3.4:8000/v1", None),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, "http://11.2.3.4:8000/v1", "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "*"}, "http://vllm:8000/v1", None),
        ({"HTTP_PROXY": ""}, "http://vllm:8000/v1", None),
    ],
)
def test_proxies_are_the_environments_choice_but_for_loopback(
    environment: dict[str, str], base_url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(base_url) == proxy
