"""What a reply tells about gateways on its way, and whether one that looks like a refusal proves that no work was done.

Seen on a real LiteLLM proxy (1.108; docs/gateways.md): a clean JSON 500 where the provider did the work, billed it, and
the connection then broke. `llm_provider-*` headers show only that something upstream answered with a status: they stand
over a provider's own JSON error, and as well over a web page, an empty body, cut JSON, and an answer under 200 that the
proxy could not read.
"""

import json
import re
from collections.abc import Mapping

from batchrun.endpoint.problem import problem_of

PREFIXES = {
    "x-litellm-": "LiteLLM",
    "x-envoy-": "Envoy",
    "cf-": "Cloudflare",
    "x-amzn-": "AWS",
    "x-amz-": "AWS",
    "x-kong-": "Kong",
    "x-portkey-": "Portkey",
    "helicone-": "Helicone",
    "x-apisix-": "APISIX",
    "x-azure-": "Azure",
    "apim-": "Azure API Management",
    "x-tyk-": "Tyk",
    "x-varnish": "Varnish",
    "x-akamai-": "Akamai",
    "x-served-by": "Fastly",
    "fly-": "Fly",
    "x-vercel-": "Vercel",
    "x-railway-": "Railway",
    "x-oneapi-": "One API",
    "x-squid-": "Squid",
    "proxy-status": "a proxy",
    "x-render-": "Render",
}
SERVERS = {
    "cloudflare": "Cloudflare",
    "awselb": "AWS",
    "cloudfront": "AWS",
    "envoy": "Envoy",
    "istio": "Envoy",
    "kong": "Kong",
    "litellm": "LiteLLM",
    "apisix": "APISIX",
    "akamai": "Akamai",
    "varnish": "Varnish",
    "google frontend": "Google",
    "microsoft-azure-application-gateway": "Azure",
}
LITELLM = "LiteLLM"
UPSTREAM = "llm_provider-"  # LiteLLM's prefix for the headers of an upstream that answered, whatever it answered
# How often LiteLLM itself sent again, or elsewhere, in headers and in words.
AGAIN_HEADERS = ("x-litellm-attempted-retries", "x-litellm-attempted-fallbacks")
AGAIN_WORDS = re.compile(r"litellm retried: [1-9]|\balso failed\b|error doing the fallback", re.IGNORECASE)
# "litellm.InternalServerError: InternalServerError: OpenAIException - boom", and what the proxy adds behind that.
QUOTING = re.compile(r"\A(?:litellm\.)?\w+: .{0,80}?(?P<whose>\w+)Exception(?: \w+)? - (?P<quoted>.*)", re.DOTALL)
ADDED = re.compile(r"\n\nLiteLLM:|\. Received Model Group=|\. Handle with `litellm|\n\nDeployment Info:")
# Only OpenAI's client takes the words out of a JSON error; of all other providers LiteLLM quotes the body as it is.
WORDED_BY_OPENAI = ("OpenAI", "Azure")
NO_JSON_ERROR = re.compile(r"\A(?:Error code: \d+\Z|<)")  # what that client says of a body that is none
# Trouble on the way to a server, or with its answer, in the words of gateways and of the clients within them.
TROUBLE = re.compile(
    r"\bupstream\b(?! (?:has )?(?:refused|rejected|denied))"  # it says no, which is an answer
    r"|bad gateway|gateway time-?out|connection (error|reset|aborted|closed|lost)|socket hang up|econnreset"
    r"|server disconnected|broken pipe|\[errno \d+\]|timed out|payload is not completed|incomplete read"
    r"|original response|unable to get json response|(error|fail\w*) (converting|processing|parsing)"
    r"|(empty or )?invalid response|no 'choices'|expecting value: line|unterminated string"
    r"|provider returned error|bad_response|do_request_failed",
    re.IGNORECASE,
)
READ = 20_000  # characters of a server's words that are looked at


def gateway_of(headers: Mapping[str, str]) -> str | None:
    """Name the gateway a reply came through, or None where it bears no mark of one. Names are lower case."""
    server = headers.get("server", "").lower()
    for start, name in SERVERS.items():
        if server.startswith(start):
            return name
    for header in headers:
        for prefix, name in PREFIXES.items():
            if header.startswith(prefix):
                return name
    return "a proxy" if "via" in headers else None


def gateway_behind(headers: Mapping[str, str], words: str) -> str | None:
    """Name the gateway an error came through, by its headers or, where another one took them away, by its words."""
    is_litellm = any(header.startswith((UPSTREAM, "x-litellm-")) for header in headers) or words.startswith("litellm.")
    return LITELLM if is_litellm else gateway_of(headers)


def proves_refusal(headers: Mapping[str, str], words: str) -> bool:
    """Say whether a 500, 503 or 529 with these words is the "no" of the server that would have done the work."""
    words = words[:READ]
    if gateway_behind(headers, words) == LITELLM:
        return not _was_sent_again(headers, words) and _quotes_json_error(headers, words)
    return gateway_of(headers) is None and TROUBLE.search(words) is None


def may_hide_work(headers: Mapping[str, str], words: str) -> bool:
    """Say whether a 4xx may be what a gateway made of work that was done.

    LiteLLM makes a 422 or, by the words in it, even a 429 of an answer that it could not read, and reports the failure
    of the first of several servers it has tried.
    """
    if gateway_behind(headers, words) != LITELLM:
        return False
    words = words[:READ]
    return _was_sent_again(headers, words) or TROUBLE.search(words) is not None


def _was_sent_again(headers: Mapping[str, str], words: str) -> bool:
    return AGAIN_WORDS.search(words) is not None or any(headers.get(name, "0") != "0" for name in AGAIN_HEADERS)


def _quotes_json_error(headers: Mapping[str, str], words: str) -> bool:
    """Say whether LiteLLM's words show a whole JSON error that its provider sent."""
    if not any(header.startswith(UPSTREAM) for header in headers):
        return False
    found = QUOTING.match(words)
    quoted = found["quoted"] if found else words
    quoted = ADDED.split(quoted, maxsplit=1)[0].strip()
    if quoted.startswith(("{", "[")):
        return _is_json_error(quoted)
    is_worded = found["whose"] in WORDED_BY_OPENAI if found else not words.startswith("litellm.")
    is_json = "json" in headers.get(f"{UPSTREAM}content-type", "").lower()
    return bool(quoted) and is_worded and is_json and not (NO_JSON_ERROR.match(quoted) or TROUBLE.search(quoted))


def _is_json_error(text: str) -> bool:
    try:
        return problem_of(json.loads(text)) is not None
    except (ValueError, RecursionError):
        return False
