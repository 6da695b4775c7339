"""What went wrong with a connection: the transport's exception, made a kind and words.

Only the cause tells "not sent" from "unknown". aiohttp raises `ClientConnectorError` and `ConnectionTimeoutError`
before it has a connection, and so before any byte of the request; whatever else it raises may come after.
"""

import errno
import re
import ssl

import aiohttp

from batchrun.core.outcome import BreakKind

REFUSED_ERRNO = re.compile(r"\[Errno (\d+)\]")  # where several addresses were tried, the numbers stand in the text only
PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
# aiohttp shows the bytes in question as Python writes them, cut at some length.
BYTES_LITERAL = re.compile(r"""\bb(?:'((?:[^'\\]|\\.)*)|"((?:[^"\\]|\\.)*))""")
SEEN_CHARS = 80
UNREACHABLE = {
    errno.EHOSTUNREACH: "no route to {host}",
    errno.ENETUNREACH: "the network of {host} is unreachable",
    errno.EMFILE: "no connection to {host}: this process has too many open files (`ulimit -n`)",
    errno.ENFILE: "no connection to {host}: this machine has too many open files",
    errno.EADDRNOTAVAIL: "no connection to {host}: no local port is left",
    errno.EACCES: "a connection to {host} is not allowed on this machine",
    errno.EPERM: "a connection to {host} is not allowed on this machine",
}


class StaleConnection(aiohttp.ClientConnectionError):
    """A pooled connection turned out to be unusable just before the request would have gone out. No byte was sent."""


def before_sending(
    error: Exception, *, host: str, is_tls: bool, connect_timeout_s: float
) -> tuple[BreakKind, str] | None:
    """Name a failure that proves that no byte of the request left, or return None where the failure does not."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            hint = " with TLS (no answer at all, or the port speaks no TLS)" if is_tls else ""
            return BreakKind.CONNECT_TIMEOUT, f"no connection to {host}{hint} within {connect_timeout_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            return BreakKind.DNS, f"name '{error.host}' does not resolve ({_reason(error.os_error)})"
        case aiohttp.ClientConnectorCertificateError():
            return BreakKind.TLS, f"the certificate of {host} is not trusted: {_certificate(error.certificate_error)}"
        case aiohttp.ClientConnectorSSLError():
            return BreakKind.TLS, _no_tls(error.os_error, host)
        case aiohttp.ClientProxyConnectionError():
            return (
                BreakKind.CONNECT,
                f"the proxy {error.host}:{error.port} cannot be reached: {_reason(error.os_error)}",
            )
        case aiohttp.ClientHttpProxyError():
            return BreakKind.CONNECT, f"the proxy refused a connection to {host}: {error.status} {error.message}"
        case aiohttp.ClientConnectorError():
            return _no_connection(error.os_error, host, is_tls)
        case StaleConnection():
            return BreakKind.CONNECT, f"{host} talks on connections before it is asked"
    return None


def _no_connection(error: OSError, host: str, is_tls: bool) -> tuple[BreakKind, str]:
    number = error.errno
    if number is None and (found := REFUSED_ERRNO.search(str(error))):
        number = int(found[1])
    if number == errno.ECONNREFUSED:
        return BreakKind.CONNECT, f"connection refused by {host}"
    if number in UNREACHABLE:
        return BreakKind.CONNECT, UNREACHABLE[number].format(host=host)
    if is_tls and isinstance(error, ConnectionError):
        return BreakKind.TLS, f"no TLS: {host} broke off the handshake (does the port speak plain HTTP?)"
    return BreakKind.CONNECT, f"no connection to {host}: {_reason(error)}"


def _no_tls(error: OSError, host: str) -> str:
    reason = str(getattr(error, "reason", "") or "")
    if reason in PLAIN_HTTP:
        return f"no TLS: the port speaks plain HTTP ({host})"
    return f"no TLS session with {host}: {reason.replace('_', ' ').lower() or _reason(error)}"


def _certificate(error: Exception) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def after_sending(error: Exception, *, host: str, timeout_s: float, got: str) -> tuple[BreakKind, str]:
    """Name a failure after which nobody can say what became of the request. `got` tells how far the answer had come."""
    match error:
        case TimeoutError():
            what = f"no complete answer ({got})" if got else "no answer"
            return BreakKind.TIMEOUT, f"{what} within {timeout_s:g} s"
        case aiohttp.ClientResponseError():
            return BreakKind.LOST, f"the answer of {host} is not HTTP that can be read: {_unreadable(error.message)}"
        case aiohttp.ServerDisconnectedError():
            return BreakKind.LOST, f"{host} closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return BreakKind.LOST, f"{host} broke the answer off ({got})"
        case OSError():
            how = "reset" if error.errno in (errno.ECONNRESET, errno.EPIPE) else f"lost ({_reason(error)})"
            return (
                BreakKind.LOST,
                f"the connection to {host} was {how}{f' ({got})' if got else ' before an answer came'}",
            )
    return BreakKind.LOST, f"the connection to {host} failed: {type(error).__name__}{f' ({got})' if got else ''}"


def _unreadable(message: str) -> str:
    """Put aiohttp's words on an answer that is no HTTP into ours: what is wrong, and the bytes that show it as text."""
    literal = BYTES_LITERAL.search(message)
    reason = (message[: literal.start()] if literal else message).split("\n")[0].strip(" :")
    reason = (
        "its first line is no status line" if reason.startswith("Bad status line") else reason[:1].lower() + reason[1:]
    )
    seen = (literal[1] or literal[2] or "").encode().decode("unicode_escape", "replace") if literal else ""
    seen = " ".join("".join(sign if sign.isprintable() else " " for sign in seen).split())
    return f"{reason[:150]}: '{seen[:SEEN_CHARS]}'" if seen else reason[:200]
