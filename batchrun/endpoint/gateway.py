"""What a reply's headers tell about gateways on its way: evidence in ../notes/gateways.md."""

from collections.abc import Mapping

# A gateway that parses and re-sends may turn a broken upstream connection into a clean JSON error of its own.
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
