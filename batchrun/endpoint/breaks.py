"""What went wrong with a connection: its cause, made a kind and words.

Only the cause tells "not sent" from "unknown". A `NotConnected` is raised before there is a connection, and so before
any byte of the request; whatever else comes may come after.
"""

import errno
import re
import ssl

from batchrun.core.outcome import BreakKind

REFUSED_ERRNO = re.compile(r"\[Errno (\d+)\]")  # where several addresses were tried, the numbers stand in the text only
PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
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


class NotConnected(Exception):
    """There is no connection on which a request could be sent. No byte of it was."""

    def __init__(self, cause: Exception | None = None) -> None:
        super().__init__(cause)
        self.cause = cause


class ConnectTimeout(NotConnected):
    """It took too long."""


class NoAddress(NotConnected):
    """The name does not resolve."""

    def __init__(self, host: str, cause: OSError) -> None:
        super().__init__(cause)
        self.host = host


class NoConnection(NotConnected):
    """The server does not take it."""


class NoTls(NotConnected):
    """There is no TLS session, or none that is trusted."""


class NoProxy(NotConnected):
    """The proxy cannot be reached, or does not answer."""

    def __init__(self, name: str, cause: OSError) -> None:
        super().__init__(cause)
        self.name = name


class ProxyRefuses(NotConnected):
    """The proxy makes no connection to the server."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__()
        self.status, self.words = status, words


class Unasked(NotConnected):
    """The server has spoken, or hung up, before it was asked."""


class Hung(Exception):
    """The connection was closed without an answer."""


class CutOff(Exception):
    """The connection was closed in the middle of an answer."""


class Misplaced(Exception):
    """The answer says that it is that of the request before."""


class TooMuch(Exception):
    """The answer is larger than is read."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.most_bytes = most_bytes


class Unreadable(Exception):
    """What came is not HTTP."""

    def __init__(self, why: str, seen: bytes) -> None:
        super().__init__(why)
        self.why, self.seen = why, seen


def before_sending(
    error: Exception, *, host: str, is_tls: bool, connect_timeout_s: float
) -> tuple[BreakKind, str] | None:
    """Name a failure that proves that no byte of the request left, or return None where the failure does not."""
    match error:
        case ConnectTimeout():
            hint = " with TLS (no answer at all, or the port speaks no TLS)" if is_tls else ""
            return BreakKind.CONNECT_TIMEOUT, f"no connection to {host}{hint} within {connect_timeout_s:g} s"
        case NoAddress(cause=cause):
            return BreakKind.DNS, f"name '{error.host}' does not resolve ({_reason(cause)})"
        case NoTls(cause=ssl.SSLCertVerificationError() as cause):
            return BreakKind.TLS, f"the certificate of {host} is not trusted: {cause.verify_message}"
        case NoTls(cause=ssl.SSLError() as cause):
            return BreakKind.TLS, _no_tls(cause, host)
        case NoTls(cause=OSError() as cause) | NoConnection(cause=OSError() as cause):
            return _no_connection(cause, host, is_tls)
        case NoProxy():
            return BreakKind.CONNECT, f"the proxy {error.name} cannot be reached: {_reason(error.cause)}"
        case ProxyRefuses():
            return BreakKind.CONNECT, f"the proxy refused a connection to {host}: {error.status} {error.words}"
        case Unasked():
            return BreakKind.CONNECT, f"{host} speaks, or hangs up, before it is asked"
        case NotConnected():
            return BreakKind.CONNECT, f"no connection to {host}: {_reason(error.cause)}"
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


def _reason(error: Exception | None) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def after_sending(error: Exception, *, host: str, timeout_s: float, got: str) -> tuple[BreakKind, str]:
    """Name a failure after which nobody can say what became of the request. `got` tells how far the answer had come."""
    match error:
        case TimeoutError():
            what = f"no complete answer ({got})" if got else "no answer"
            return BreakKind.TIMEOUT, f"{what} within {timeout_s:g} s"
        case Unreadable():
            return BreakKind.LOST, f"the answer of {host} is not HTTP that can be read: {_unreadable(error)}"
        case Misplaced():
            return BreakKind.LOST, f"the answer that came from {host} was that to {error}"
        case TooMuch():
            return BreakKind.LOST, f"the answer is larger than {error.most_bytes:,} bytes"
        case Hung():
            return BreakKind.LOST, f"{host} closed the connection without an answer"
        case CutOff():
            return BreakKind.LOST, f"{host} broke the answer off ({got})"
        case OSError():
            how = "reset" if error.errno in (errno.ECONNRESET, errno.EPIPE) else f"lost ({_reason(error)})"
            return (
                BreakKind.LOST,
                f"the connection to {host} was {how}{f' ({got})' if got else ' before an answer came'}",
            )
    return BreakKind.LOST, f"the connection to {host} failed: {type(error).__name__}{f' ({got})' if got else ''}"


def _unreadable(error: Unreadable) -> str:
    """Say what is wrong, and show the bytes as text."""
    why = error.why[:1].lower() + error.why[1:]
    if not error.seen.startswith(b"HTTP/"[: len(error.seen)]):
        why = "its first line is no status line"
    seen = error.seen.decode("utf-8", "replace")
    seen = " ".join("".join(sign if sign.isprintable() else " " for sign in seen).split())
    return f"{why[:150]}: '{seen[:SEEN_CHARS]}'" if seen else why[:200]
