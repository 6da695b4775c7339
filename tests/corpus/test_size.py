"""The corpus is as large as it says: what is not made is not tried."""

from tests.corpus import bad_lines, bad_specs


def test_there_are_thousands_of_malformed_things_and_no_two_are_alike() -> None:
    specs = [bad.text for family in bad_specs.FAMILIES for bad in family()]
    lines = [bad.raw for family in bad_lines.FAMILIES for bad in family()]
    assert (len(set(specs)), len(set(lines))) == (len(specs), len(lines))
    assert len(specs) >= 2_000
    assert len(lines) >= 1_400
