"""What may stand before an endpoint, and what it may do with a request that nobody asked for."""

from batchrun.endpoint.server import Server
from batchrun.runner.doctor.finding import Notes

PROVES_NOTHING = "an error of its own does not prove that nothing was billed, and becomes a doubt"
# They carry requests on, and send none again once it has reached the server behind them.
CARRIERS = ("Cloudflare", "AWS", "Fastly", "Akamai", "Google", "Fly", "Vercel", "Railway", "Render", "Azure")
RETRIES = {
    "Envoy": "Istio's default is two retries: set `attempts: 0` in its VirtualService; in Envoy leave out retry_policy",
    "Kong": "set `retries: 0` on its service",
    "Portkey": "take `retry` out of its config",
    "Helicone": "send no Helicone-Retry-Enabled header",
    "APISIX": "set `retries: 0` on its upstream",
    "Azure API Management": "take <retry> out of its policy",
}


def note_gateway(notes: Notes, server: Server) -> None:
    """Note what stands before the endpoint. One that may send again by itself breaks the promise without a word."""
    name = server.gateway
    if name is None:
        return
    if name == "LiteLLM":
        said = "LiteLLM. By itself it sends upstream up to three times; every request of ours forbids that"
        said = f"{said}; {PROVES_NOTHING}. Its fallbacks to other models are its own"
        notes.warn("gateway", said, "leave `fallbacks` out of its configuration")
    elif name in CARRIERS:
        notes.ok("gateway", f"{name} stands before it: {PROVES_NOTHING}")
    else:
        said = f"{name} stands before it and may send a request again by itself, which may be billed again"
        notes.warn("gateway", f"{said}; {PROVES_NOTHING}", RETRIES.get(name, "turn its retries of POST off"))
