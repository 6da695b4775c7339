"""What loads and levels are called in a report, and which runs are of one load."""

from batchrun.core.measuring.document import Load, Measurement, Run


def level_word(measurement: Measurement) -> str:
    """Say what the levels of the ladder are."""
    return "concurrency" if measurement.setup.arrivals.kind in ("closed", "job") else "requests a second"


def has_groups(measurement: Measurement) -> bool:
    return len(measurement.setup.groups) > 1


def load_name(measurement: Measurement, load: Load | Run) -> str:
    """Name a load among the others of its measurement."""
    words = [load.group] if has_groups(measurement) else []
    words.append(f"{level_word(measurement)} {load.level:g}")
    if len({run.max_tokens for run in measurement.runs}) > 1:
        words.append(f"max_tokens {load.max_tokens}")
    return ", ".join(words)


def runs_of(measurement: Measurement, load: Load) -> list[Run]:
    key = (load.group, load.level, load.max_tokens)
    return [run for run in measurement.runs if (run.group, run.level, run.max_tokens) == key]
