"""The list of mutants fits to the code, so that the campaign can run."""

from _mutants import MUTANTS
from mutants import mutated


def test_every_mutant_changes_one_place_of_its_file():
    changed = [mutated(mutant) for mutant in MUTANTS]  # raises where the text is gone, or occurs twice
    assert len(changed) >= 30
