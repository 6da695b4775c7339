"""The endpoint's address: what people paste, made into one base URL, and what follows from it."""

import ipaddress
import re
import urllib.request
from urllib.parse import SplitResult, urlsplit

from batchrun.errors import EndpointFault

HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?\Z")
# A pasted request path: what stands before it is the base.
ROUTE = re.compile(r"/(chat/completions|completions|embeddings|responses|models|chat)\Z", re.IGNORECASE)
AROUND = " \t\r\n\v\f\u00a0\u200b\ufeff\"'`<>\u2018\u2019\u201c\u201d"
LOCAL_SUFFIXES = (".local", ".localhost", ".internal", ".lan", ".home.arpa", ".svc", ".svc.cluster.local")
SHARED_SPACE = ipaddress.ip_network("100.64.0.0/10")  # carrier-grade NAT; private networks such as Tailscale's use it
EXAMPLE = "such as http://127.0.0.1:8000/v1"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def normalise_base_url(text: str) -> str:
    """Make the base URL of what was typed or pasted; doing it twice changes nothing.

    White space and quotes around it, trailing slashes and a pasted route (".../chat/completions") go. Without a path,
    /v1 is added; any other path is taken as the whole prefix. Without a scheme, a loopback or private address or a
    bare host name gets http and any other host https, so that a key never goes out in the clear unasked.

    Raises:
        EndpointFault: it is no address, or holds credentials, a query or a fragment.
    """
    cleaned = text.strip(AROUND)
    if not cleaned:
        raise EndpointFault("the base URL is empty", hint=f"set OPENAI_BASE_URL to the endpoint's address, {EXAMPLE}")
    if re.search(r"\s", cleaned):
        raise EndpointFault("the base URL has white space or a line break inside", hint="write it on one line, without")
    parts = _split(cleaned)
    return f"{parts.scheme}://{_authority(parts)}{_prefix(parts.path)}"


def _split(text: str) -> SplitResult:
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    scheme = found[1].lower() if found else None
    if scheme not in (None, "http", "https"):
        raise EndpointFault(f"the base URL begins with '{scheme}://'", hint="write http:// or https://")
    if found is None and re.match(r"https?(:|/)", text, re.IGNORECASE):
        raise EndpointFault("the base URL's scheme is misspelt", hint="write http:// or https://, with two slashes")
    try:
        parts = urlsplit(text if scheme else f"https://{text}")
        _ = parts.port
    except ValueError as error:
        raise EndpointFault(f"the base URL is no address: {_reason(error)}", hint=EXAMPLE) from None
    _refuse_what_no_base_has(parts)
    if scheme is None and _is_local_name(parts.hostname or ""):
        parts = parts._replace(scheme="http")
    return parts


def _reason(error: ValueError) -> str:
    """Name the fault without the value: a password may stand where the port should."""
    return "its port is not a number from 0 to 65535" if "ort" in str(error) else "it cannot be taken apart"


def _refuse_what_no_base_has(parts: SplitResult) -> None:
    if "@" in parts.netloc:
        hint = "take out what stands before the @; the key goes into OPENAI_API_KEY"
        raise EndpointFault("the base URL holds credentials; addresses are stored, keys never are", hint=hint)
    if parts.query or parts.fragment:
        part = "query" if parts.query else "fragment"
        mark = "?" if parts.query else "#"
        raise EndpointFault(f"the base URL has a {part}", hint=f"take out the '{mark}' and what follows it")


def _authority(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if ":" in host:
        if _address(host) is None:
            raise EndpointFault(f"the base URL's host '{host}' is no IPv6 address", hint=EXAMPLE)
        host = f"[{host}]"
    else:
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            host = ""
        if not HOST_NAME.match(host):
            raise EndpointFault("the base URL names no valid host", hint=EXAMPLE)
    standard = {"http": 80, "https": 443}[parts.scheme]
    return host if parts.port in (None, standard) else f"{host}:{parts.port}"


def _prefix(path: str) -> str:
    path = ROUTE.sub("", re.sub(r"//+", "/", path).rstrip("/")).rstrip("/")
    while path.endswith("/v1/v1"):
        path = path.removesuffix("/v1")
    return path or "/v1"


def request_url(base_url: str, path: str) -> str:
    """Join a normalised base URL and an OpenAI path such as "/v1/chat/completions"; the base stands for its "/v1"."""
    return base_url + "/" + path.removeprefix("/v1/").lstrip("/")


def host_port(base_url: str) -> str:
    """Name the host and port that are connected to, such as "127.0.0.1:8000"."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return f"[{host}]:{_port(parts)}" if ":" in host else f"{host}:{_port(parts)}"


def is_local(base_url: str) -> bool:
    """Say whether the host is loopback, a private address, or a name no public DNS knows (`vllm`, `gpu.internal`)."""
    return _is_local_name(urlsplit(base_url).hostname or "")


def is_loopback(base_url: str) -> bool:
    """Say whether the host is this machine; 0.0.0.0 counts, as that is where a connection to it goes."""
    return _is_loopback_name(urlsplit(base_url).hostname or "")


def proxy_for(base_url: str) -> str | None:
    """Name the proxy the environment asks for, or None. Loopback never goes through one.

    HTTP_PROXY or HTTPS_PROXY by the scheme, else ALL_PROXY, in either case of letters; NO_PROXY may hold names,
    domain suffixes, addresses and networks ("10.0.0.0/8").

    Raises:
        EndpointFault: the proxy is of a kind that cannot be used (SOCKS).
    """
    if is_loopback(base_url):
        return None
    proxies = urllib.request.getproxies_environment()
    parts = urlsplit(base_url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_exempt(parts, proxies):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        scheme = proxy.split("://", 1)[0]
        hint = f"set HTTPS_PROXY to an http:// proxy, or NO_PROXY={parts.hostname} to connect directly"
        raise EndpointFault(f"the environment asks for a '{scheme}' proxy, which is not supported", hint=hint)
    try:
        found = urlsplit(proxy)
        is_address = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        hint = f"such as HTTPS_PROXY=http://proxy.example:3128, or NO_PROXY={parts.hostname} to connect directly"
        raise EndpointFault("the environment asks for a proxy whose address is none", hint=hint)
    return proxy


def _is_exempt(parts: SplitResult, proxies: dict[str, str]) -> bool:
    host = parts.hostname or ""
    if urllib.request.proxy_bypass_environment(f"{host}:{_port(parts)}", proxies):  # type: ignore[attr-defined]
        return True
    address = _address(host)
    return address is not None and any(_holds(entry.strip(), address) for entry in proxies.get("no", "").split(","))


def _holds(network: str, address: Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _port(parts: SplitResult) -> int:
    return parts.port or {"http": 80}.get(parts.scheme, 443)


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_loopback_name(host: str) -> bool:
    host = host.rstrip(".").lower()
    if (address := _address(host)) is not None:
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")


def _is_local_name(host: str) -> bool:
    host = host.rstrip(".").lower()
    if _is_loopback_name(host):
        return True
    if (address := _address(host)) is not None:
        shared = isinstance(address, ipaddress.IPv4Address) and address in SHARED_SPACE
        return address.is_private or address.is_link_local or shared
    return bool(host) and ("." not in host or host.endswith(LOCAL_SUFFIXES) or host == "host.docker.internal")
