"""The JSON Schema of the job spec: what an editor needs to complete and check a job.json while it is written."""

import re
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from batchrun.core.client_options import CLIENT_OPTIONS
from batchrun.core.prices import AMOUNTS
from batchrun.core.spec import (
    ENDPOINT_PATHS,
    ENV_NAME,
    KEY_HEADER,
    NEVER_IN_PARAMS,
    OF_ONE_ENDPOINT,
    PRICE_BOOK,
    SYSTEM_PATHS,
    TASK_ID,
    JobSpec,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Amounts that are written as strings: a schema cannot compare those, so the pattern holds the bounds.
_PRICE = r"^0*([0-9]{1,4}(\.[0-9]+)?|10000(\.0+)?)$"
_LIMIT = r"^(?=.*[1-9])0*([0-9]{1,6}(\.[0-9]+)?|1000000(\.0+)?)$"
# What one key says of another: as `core.spec_check` has it.
_LIMIT_NEEDS_PRICE = {
    "if": {"required": ["max_cost_usd"], "properties": {"max_cost_usd": {"not": {"type": "null"}}}},
    "then": {
        "anyOf": [
            {"required": ["price"], "properties": {"price": {"type": "object"}}},
            {"required": ["price_from"], "properties": {"price_from": {"type": "string"}}},
            {
                "required": ["endpoints"],
                "properties": {
                    "endpoints": {
                        "minItems": 1,
                        "items": {"required": ["price"], "properties": {"price": {"type": "object"}}},
                    }
                },
            },
        ]
    },
}
_ONE_OR_SEVERAL = {
    "if": {"required": ["endpoints"], "properties": {"endpoints": {"minItems": 1}}},
    "then": {"properties": {key: {"type": "null"} for key in OF_ONE_ENDPOINT}},
}
_SYSTEM_IS_OF_MESSAGES = {
    "if": {"required": ["system"], "properties": {"system": {"not": {"type": "null"}}}},
    "then": {"properties": {"endpoint": {"enum": list(SYSTEM_PATHS)}}},
}


def spec_schema() -> dict[str, Any]:
    """Return the schema, whole in itself.

    What it accepts, `check_spec` accepts, but for what no schema can say: 8.0 is an integer to JSON Schema, and two
    lists that must share nothing, or the two ends of a range, cannot be compared.
    """
    schema = JobSpec.model_json_schema(schema_generator=_Plain)
    properties = schema["properties"]
    _branch(properties["task_id"], "string")["pattern"] = _pattern(TASK_ID)
    endpoint = schema["$defs"]["EndpointSpec"]["properties"]
    for keys in (properties, endpoint):
        _branch(keys["api_key_env"], "string")["pattern"] = _pattern(ENV_NAME)
    _branch(properties["idempotency_header"], "string")["pattern"] = _pattern(KEY_HEADER)
    _branch(properties["endpoint"], "string")["enum"] = list(ENDPOINT_PATHS)
    _branch(properties["params"], "object")["propertyNames"] = {"not": {"$ref": "#/$defs/NotInParams"}}
    _branch(properties["max_cost_usd"], "string")["pattern"] = _LIMIT
    _branch(properties["price_from"], "string")["pattern"] = _pattern(PRICE_BOOK)
    for amount in AMOUNTS:
        _branch(schema["$defs"]["Price"]["properties"][amount], "string")["pattern"] = _PRICE
    refused = {"description": "never in a request's body", "enum": [*NEVER_IN_PARAMS, *sorted(CLIENT_OPTIONS)]}
    return {
        "$schema": DIALECT,
        "$id": "urn:batchrun:job-spec",
        "title": "batchrun job spec",
        "description": "the job spec: what stands in a job.json",
        "type": "object",
        "additionalProperties": False,
        "required": schema["required"],
        "properties": {"$schema": {"description": "for editors; not looked at"}, **properties},
        "allOf": [_LIMIT_NEEDS_PRICE, _ONE_OR_SEVERAL, _SYSTEM_IS_OF_MESSAGES],
        "$defs": {**schema["$defs"], "NotInParams": refused},
    }


class _Plain(GenerateJsonSchema):
    """Without a title made of each key's name: editors show the key itself."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _branch(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of a property's schema that speaks of values of this type."""
    found: dict[str, Any] = next(part for part in (schema, *schema.get("anyOf", ())) if part.get("type") == kind)
    return found


def _pattern(compiled: re.Pattern[str]) -> str:
    r"""Write a pattern that is matched from the begin to `\Z` as JSON Schema has it."""
    return f"^{compiled.pattern.removesuffix(chr(92) + 'Z')}$"
