"""What holds for a job, and where each value came from: its spec, the ledger, the environment, or nobody's word."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.core.prices import usd
from batchrun.core.spec import JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.endpoint.address import normalise_base_url
from batchrun.errors import BadInput, EndpointFault
from batchrun.files.paths import default_error_file
from batchrun.ledger.jobs import Job
from batchrun.runner.specs import Written, named
from batchrun.settings import Origin, Settings

NESTED = ("trial", "price")
IS_SET = "set"  # all that is ever told of a key


@dataclass(frozen=True, slots=True)
class Value:
    """One setting or key of a spec, as it holds."""

    name: str
    value: Any  # as JSON has it; of a key only whether it is set, of an address no password
    source: str  # "flag", "spec", "job" (the ledger's), "environment", "env_file" or "default"
    named: str | None = None  # the flag or the variable


@dataclass(frozen=True, slots=True)
class Around:
    """The settings of this process, and where they came from."""

    settings: Settings
    origins: Mapping[str, Origin]

    def value(self, name: str) -> Value:
        value = getattr(self.settings, name)
        if name == "api_key":
            value = None if value is None else IS_SET
        elif name in ("db", "broker", "base_url"):
            value = None if value is None else without_secret(value)
        return Value(name, str(value) if isinstance(value, Path) else value, *self.origins[name])

    def values(self) -> list[Value]:
        """Return every setting."""
        return [self.value(name) for name in Settings.model_fields]

    def key(self, variable: str | None) -> Value:
        """Say whether there is a key for a spec that names this variable, or none."""
        if variable is None:
            return self.value("api_key")
        return Value("api_key", IS_SET if os.environ.get(variable) else None, "environment", variable)


def values_of_spec(written: Written, around: Around) -> list[Value]:
    """Return every key of a spec, with what this process would put in the place of those that it leaves open.

    Raises:
        BadInput: the spec is faulty. Its input is not looked at.
    """
    spec, faults, raw = check_spec(written.text, where=written.where)
    if spec is None:
        raise BadInput(named(faults, written.where))

    def source(key: str, below: str | None) -> str:
        is_said = key in raw if below is None else below in raw.get(key, {})
        return "spec" if is_said else "default"

    values = spec.model_dump(mode="json")
    values["error_file"] = values["error_file"] or str(default_error_file(Path(spec.output_file)))
    rows = _Rows(values, source, around, owner="spec")
    return rows.all(on_unknown=Value("on_unknown", spec.on_unknown, "spec") if spec.on_unknown else None, stored=None)


def values_of_job(job: Job, around: Around) -> list[Value]:
    """Return every key of a job as the ledger has it now, changes since its submit among them."""
    values: dict[str, Any] = {key: job.spec[key] for key in JobSpec.model_fields if key in job.spec}
    values |= {"concurrency": job.allowed.written, "retry_times": job.retry_times}
    values["max_cost_usd"] = _usd(job.max_cost_pusd)
    defaults = _defaults() | {"error_file": str(default_error_file(Path(values["output_file"])))}

    def source(key: str, below: str | None) -> str:
        if key not in defaults:
            return "job"
        default, value = defaults[key], values[key]
        is_default = value == default if below is None else (default or {}).get(below) == value[below]
        return "default" if is_default else "job"

    is_said = job.spec.get("on_unknown_is_said", True) or (
        around.settings.on_unknown is None and job.on_unknown != "hold"
    )
    on_unknown = Value("on_unknown", job.on_unknown, "job") if is_said else None
    rows = _Rows(values, source, around, owner="job")
    return rows.all(on_unknown=on_unknown, stored=job.spec.get("resolved_base_url"))


def _usd(pusd: int | None) -> str | None:
    return None if pusd is None else usd(pusd)


def _defaults() -> dict[str, Any]:
    """Return the defaults of the keys that have one, as JSON has them."""
    needed: dict[str, Any] = {key: None for key, about in JobSpec.model_fields.items() if about.is_required()}
    return JobSpec.model_construct(**needed).model_dump(mode="json", exclude=set(needed))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The keys of one spec or job on their way to rows."""

    values: Mapping[str, Any]
    source: Callable[[str, str | None], str]  # of a key, or of a key below it
    around: Around
    owner: str

    def all(self, *, on_unknown: Value | None, stored: str | None) -> list[Value]:
        """Return the rows in the order of the spec's keys; what stands open comes from around.

        Args:
            on_unknown: where the spec or the job has its own word on it.
            stored: the address at which the job was submitted.
        """
        rows: list[Value] = []
        for key, value in self.values.items():
            if key == "base_url" and self.values.get("endpoints"):
                rows.append(Value(key, None, "default"))  # whatever the environment names: no request goes there
            elif key == "base_url":
                rows.append(self._address(value, stored))
            elif key == "endpoints":
                shown = [one | {"base_url": _as_used(one["base_url"])} for one in value]
                rows.append(Value(key, shown, self.source(key, None)))
            elif key == "on_unknown":
                open_value = self.around.value("on_unknown")
                rows.append(on_unknown or (open_value if open_value.value else Value(key, "hold", "default")))
            else:
                rows += self._plain(key, value)
            if key == "api_key_env":
                rows.append(self.around.key(value))
        return rows

    def _plain(self, key: str, value: Any) -> Iterator[Value]:
        if key not in NESTED or value is None:
            yield Value(key, value, self.source(key, None))
            return
        for below, inner in value.items():
            yield Value(f"{key}.{below}", inner, self.source(key, below))

    def _address(self, own: str | None, stored: str | None) -> Value:
        around = self.around.value("base_url")
        if own is not None:
            return Value("base_url", _as_used(own), self.owner)
        if self.around.settings.base_url is not None:
            return Value("base_url", _as_used(self.around.settings.base_url), around.source, around.named)
        return Value("base_url", stored, "default" if stored is None else self.owner)


def _as_used(base_url: str) -> str:
    """Return an address as requests go there; one that cannot be understood as it stands, for it is to be mended."""
    try:
        return normalise_base_url(base_url)
    except EndpointFault:
        return without_secret(base_url)


_USER = re.compile(r"(?<=//)([^:/@]*)(:.*)?@")  # a password may hold "/" or "@": it ends at the last "@"
_SECRET = re.compile(r"([?&][^=&]*(?:pass|key|token|secret|sig|auth)[^=&]*=)[^&]*", re.IGNORECASE)


def without_secret(address: str) -> str:
    """Return an address without what must not be shown: a password, a key in its query, a key as the user's name."""
    is_web = address.lower().startswith("http")
    named_user = _USER.sub(lambda found: "***@" if is_web else f"{found[1]}{':***' if found[2] else ''}@", address)
    return _SECRET.sub(r"\1***", named_user)
