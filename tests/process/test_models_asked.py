"""Before its first request a submit says which endpoint does not list the model; that costs no request and no run."""

from collections.abc import Callable

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab


def test_a_model_that_is_not_listed_is_warned_of_and_the_job_goes_on(make_lab: Callable[..., Lab]) -> None:
    lab, other = make_lab("one", models=["mock-1", "mock-2"]), make_lab("other", models=["mock"])
    lab.write_input(4)
    lab.write_spec(endpoints=[{"base_url": lab.base_url}, {"base_url": other.base_url}], base_url=None)
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert f"warn  {lab.base_url} does not list 'mock'. Did you mean 'mock-1'?" in run.err
    assert f"warn  {other.base_url}" not in run.err
    assert lab.arrivals() + other.arrivals() == 4


def test_what_the_lines_ask_for_counts_and_not_the_specs_model(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(models=["mock-2"])
    (lab.folder / "inputs" / "in.jsonl").write_text('{"prompt": "a", "model": "mock-2"}\n')
    lab.write_spec(endpoint="/v1/completions")
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert "warn" not in run.err


def test_an_endpoint_without_a_list_is_warned_of_nothing(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    lab, _ = make_scripted(models=[])
    lab.write_input(2)
    lab.write_spec()
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert "warn" not in run.err
