"""Settings from the environment and `.env`: where the ledger is, which endpoint, and waits that tests shorten.

Precedence is flag > job spec > BATCHRUN_* > OPENAI_* > .env > default; flags and spec are applied by whoever has them.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource, EnvSettingsSource, SettingsConfigDict

from batchrun.errors import UsageFault


class Settings(BaseSettings):
    """One process's settings. The key never leaves `api_key`, which does not print itself."""

    model_config = SettingsConfigDict(
        env_prefix="BATCHRUN_", env_file=".env", extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    db: str = Field(default="sqlite:///.batchrun/ledger.db", description="the ledger's address")
    broker: str | None = Field(default=None, description="redis://...; embedded where unset")
    home: Path = Field(default=Path(".batchrun"), description="locks and spools, for a ledger that is no file")
    base_url: str | None = Field(default=None, validation_alias=AliasChoices("BATCHRUN_BASE_URL", "OPENAI_BASE_URL"))
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("BATCHRUN_API_KEY", "OPENAI_API_KEY"))
    on_unknown: Literal["hold", "retry"] | None = Field(default=None)
    worker_name: str | None = Field(default=None, description="a label for this process")

    first_wait_s: float = Field(default=1.0, gt=0, description="backoff after the first try")
    longest_wait_s: float = Field(default=60.0, gt=0, description="longest backoff")
    throttle_budget_s: float = Field(default=3600.0, gt=0, description="waiting that throttling may cost one item")
    drain_timeout_s: float | None = Field(default=None, ge=0, description="default: the job's timeout_s")
    heartbeat_s: float = Field(default=2.0, gt=0)
    dead_after_s: float = Field(default=10.0, gt=0)
    idle_claim_s: float = Field(default=1.0, gt=0, description="an idle slot then claims straight from the ledger")
    never_reached_s: float = Field(default=10.0, gt=0, description="how long to try an endpoint never reached")
    refused_s: float = Field(default=5.0, gt=0, description="how long a full ledger is waited for at a run's end")
    probe_s: float = Field(default=1.0, gt=0, description="between two looks for an endpoint that is away")

    def reveal_key(self) -> str | None:
        """Return the key, for the one place that sends it."""
        return None if self.api_key is None else self.api_key.get_secret_value()


def load_settings(*, env_file: str | None = None, db: str | None = None, broker: str | None = None) -> Settings:
    """Read the settings; a flag given here wins over the environment.

    Raises:
        UsageFault: the file is not there, or a variable has a value that it cannot have. The value is not repeated:
            it may be a secret.
    """
    if env_file is not None and not Path(env_file).is_file():
        raise UsageFault(f"--env-file {env_file!r} is not there", hint="name a file of lines such as NAME=value")
    given = {name: value for name, value in (("db", db), ("broker", broker)) if value is not None}
    try:
        return Settings(_env_file=env_file or ".env", **given)  # type: ignore[arg-type]
    except ValidationError as error:
        faults = [f"{_variable(detail['loc'])}: {detail['msg']}" for detail in error.errors()]
        raise UsageFault(f"a setting cannot be used: {'; '.join(faults)}", hint="correct or unset it") from None


class Origin(NamedTuple):
    """Where a value came from."""

    source: Literal["flag", "environment", "env_file", "default"]
    name: str | None = None  # of the flag or the variable


def origins(*, env_file: str | None = None, db: str | None = None, broker: str | None = None) -> dict[str, Origin]:
    """Say of every setting where `load_settings` with the same arguments takes it from."""
    flags = {"db": db, "broker": broker}
    places: list[tuple[Literal["environment", "env_file"], EnvSettingsSource]] = [
        ("environment", EnvSettingsSource(Settings)),
        ("env_file", DotEnvSettingsSource(Settings, env_file=env_file or ".env")),
    ]
    found: dict[str, Origin] = {}
    for field in Settings.model_fields:
        came = [Origin("flag", f"--{field}")] if flags.get(field) is not None else []
        for source, place in places:
            came += [Origin(source, name) for name in variables_of(field) if place.env_vars.get(name.lower())]
        found[field] = came[0] if came else Origin("default")
    return found


def variables_of(field: str) -> list[str]:
    """Return the names of a setting's variables, the one that wins first."""
    alias = Settings.model_fields[field].validation_alias
    return [str(name) for name in alias.choices] if isinstance(alias, AliasChoices) else [f"BATCHRUN_{field.upper()}"]


def _variable(place: tuple[int | str, ...]) -> str:
    name = str(place[0]) if place else "settings"
    return name if name.isupper() else f"BATCHRUN_{name.upper()}"
