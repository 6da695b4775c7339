"""What a reply's headers tell about gateways on its way.

A real LiteLLM proxy (1.108) answers a clean JSON 500 when its provider did the work, billed it, and the connection then
broke; only `llm_provider-*` headers show that the provider itself had answered.
"""

from collections.abc import Mapping

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
UPSTREAM = "llm_provider-"  # LiteLLM's prefix for the headers of an upstream that did answer


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


def upstream_answered(headers: Mapping[str, str]) -> bool:
    """Say whether the headers show that the server behind the gateway answered by itself."""
    return any(header.startswith(UPSTREAM) for header in headers)
