"""The differential campaign: a few of its cases, and that it sees a score that is not the same."""

import _paths
import numpy as np
from _campaign import Campaign
from differential import run

IN_PROCESS = [name for name in (*_paths.SAME_BITS, "libffm") if name != "C"]


def tried(count, *only, seed=0):
    campaign = Campaign("differential", "short", count, seed, None, only)
    run(campaign)
    return campaign


def test_a_few_cases():
    campaign = tried(3, *IN_PROCESS)
    assert not campaign.findings
    assert campaign.counts["rows: agree"] == campaign.counts["HTTP rows: agree"] == 3


def test_one_bit_is_seen_and_its_seed_is_named(monkeypatch):
    def score(case, folder):
        at, scores = _paths.score_rows(case, folder)
        return _paths.Scored(at, np.nextafter(scores, np.float32(np.inf), dtype=np.float32))

    monkeypatch.setitem(_paths.SAME_BITS, "rows", score)
    findings = tried(1, "rows", "row", seed=7).findings
    assert len(findings) == 1 and findings[0].startswith("--seed 7 --count 1, rows: ")
