"""Parts of the server by themselves: hashing of keys, the online figure, metrics, admission, tokens, watching files."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from logging.config import dictConfig
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse
from typer.main import get_command

import splinefm as sf
from live import run_coroutine
from splinefm.cli.main import app
from splinefm.serve import Arm, Limits, ServiceSettings
from splinefm.serve.ab import (
    ArmFigures,
    Difference,
    Interval,
    KeySums,
    Report,
    ab_report,
    difference_of_means,
    mean_interval,
    ratio_interval,
)
from splinefm.serve.ab_page import ab_page
from splinefm.serve.admission import WorkQueue
from splinefm.serve.app import ENDPOINTS
from splinefm.serve.feedback import FeedbackLog, read_log
from splinefm.serve.logs import LOG_CONFIG
from splinefm.serve.messages import Later, Request, Response
from splinefm.serve.metrics import Metrics, forget_process
from splinefm.serve.models import load_model
from splinefm.serve.publishing import Snapshots, Watcher
from splinefm.serve.settings import parse_arm
from splinefm.serve.split import ArmSplit, key_name, position_of
from splinefm.serve.tokens import Tokens, parse_tokens
from support import examples

GAUGES = {"splinefm_workers", "splinefm_model_generation"}


class TestSplitOfKeys:
    def test_shares_follow_the_weights(self):
        arms = ArmSplit({"a": 70, "b": 20, "c": 10}).arms_of(range(20_000))
        shares = [arms.count(name) / len(arms) for name in "abc"]
        np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.015)

    @examples(50)
    @given(st.lists(st.floats(0, 100), min_size=2, max_size=5).filter(any), st.lists(st.floats(0, 100), min_size=5))
    def test_only_keys_between_old_and_new_borders_move(self, old, new):
        new = new[: len(old)]
        if len(new) < len(old) or not any(new):
            return
        before, after = ({str(i): weight for i, weight in enumerate(weights)} for weights in (old, new))
        borders = [np.cumsum(weights) / sum(weights) for weights in (old, new)]
        for key in range(50):
            place = position_of(str(key))
            inside = all(
                (b[0] > place) == (b[1] > place) or abs(b[0] - place) < 1e-9 for b in zip(*borders, strict=True)
            )
            if inside and all(np.abs(b - place).min() > 1e-9 for b in borders):
                assert ArmSplit(before).arm_of(key) == ArmSplit(after).arm_of(key)

    def test_one_user_has_one_key_however_it_is_written(self):
        assert key_name(7) == key_name(7.0) == key_name("7") == "7"
        assert position_of("7") == position_of("7") != position_of("8")
        assert ArmSplit({"a": 0, "b": 1}).arms_of(range(9)) == ["b"] * 9

    @pytest.mark.parametrize("weights", [{"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": float("nan")}])
    def test_weights_that_make_no_split(self, weights):
        with pytest.raises(ValueError, match="weights must be"):
            ArmSplit(weights)


class TestOnlineFigure:
    def test_the_ratio_is_that_of_sums_and_later_words_count(self, tmp_path):
        log = FeedbackLog(tmp_path, 0)
        log.scored("r1", ["a", "b", "a"], np.array([0.5, 0.2, 0.1]), ["u", "v", "w"], None)
        log.scored("r1", ["s"], np.array([0.4, 0.4, 0.4]), None, None, shadow=True)
        log.outcome("r1", 0, 0.0)
        log.outcome("r1", 0, 1.0)
        log.close()
        other = FeedbackLog(tmp_path, 1)
        other.outcome("r1", 2, 0.0)
        other.outcome("unknown", 0, 1.0)
        other.close()
        with next(tmp_path.glob("*-1.jsonl")).open("a") as file:
            file.write('{"at": 1, "id": "r1", "outc')  # a worker that was killed
        figures = {(item.arm, item.hour): item for item in ab_report(tmp_path).figures}
        a = figures["a", "all"]
        assert (a.rows, a.outcomes, a.predicted, a.measured.value) == (2, 1.0, 0.3, 0.5)
        np.testing.assert_allclose(a.ratio.value, 0.6 / 1.0 - 1.0)
        assert figures["b", "all"].outcomes == 0 and np.isnan(figures["b", "all"].ratio.value)
        assert figures["s", "all"].shadow and figures["s", "all"].rows == 3
        assert len([hour for arm, hour in figures if arm == "a"]) == 2
        skipped = {item.arm: item for item in ab_report(tmp_path, no_outcome="skip").figures if item.hour == "all"}
        assert skipped["a"].rows == 2 and "b" not in skipped

    def test_feedback_replaces_what_was_said_of_the_row_before(self, tmp_path):
        log = FeedbackLog(tmp_path, 0)
        log.scored("r", ["a"], np.array([0.5, 0.25, 0.25]), ["u", "v", "w"], None)
        for row, outcome in ((0, 1.0), (0, 1.0), (1, 1.0), (1, 0.0), (2, 2.0), (2, 3.0)):
            log.outcome("r", row, outcome)
        log.close()
        for no_outcome in ("zero", "skip"):
            found = ab_report(tmp_path, no_outcome=no_outcome).figures[-1]
            assert (found.rows, found.outcomes, found.ratio.value) == (3, 4.0, 1.0 / 4.0 - 1.0)

    def test_intervals_hold_the_truth_as_often_as_they_say(self):
        """With users of many rows: intervals that took rows for independent would be much too short."""
        rng = np.random.default_rng(0)
        held, naive, n = 0, 0, 300
        for _ in range(n):
            users = rng.beta(1.0, 9.0, 200)  # click rates
            rows = rng.integers(1, 30, 200)
            clicks = rng.binomial(rows, users).astype(float)
            predicted = rows * 0.12  # the truth is 0.1: predicted / measured - 1 = 0.2
            found = ratio_interval(predicted, clicks, 1.96)
            held += found.low <= 0.2 <= found.high
            single = ratio_interval(np.full(rows.sum(), 0.12), np.repeat(clicks / rows, rows).astype(float), 1.96)
            naive += single.low <= 0.2 <= single.high
        assert 0.91 <= held / n <= 0.985 and naive < held
        one = mean_interval(np.array([1.0, 0.0, 2.0]), np.array([1.0, 1.0, 2.0]), 1.96)
        assert one.low < one.value == 0.75 < one.high

    def test_rows_of_a_key_are_one_observation_and_requests_without_keys_are(self, tmp_path):
        """The variance of a mean is n / (n - 1) of the sum of squares of what keys sum up to."""
        outcomes = [1.0, 0.0, 2.0, 1.0]
        for folder, keys in (("keyed", [["u", "v"], ["u", "w"]]), ("plain", [None, None])):
            log = FeedbackLog(tmp_path / folder, 0)
            for r, own in enumerate(keys):
                log.scored(f"r{r}", ["a"], np.array([0.5, 0.5]), own, None)
                for row in (0, 1):
                    log.outcome(f"r{r}", row, outcomes[2 * r + row])
            log.close()
        sums = {"keyed": ([3.0, 0.0, 1.0], [2.0, 1.0, 1.0]), "plain": ([1.0, 3.0], [2.0, 2.0])}
        for folder, (y, n) in sums.items():
            found = ab_report(tmp_path / folder).figures[-1].measured
            residuals = np.array(y) - np.array(n)  # the mean is 1
            deviation = np.sqrt((residuals**2).sum() * len(y) / (len(y) - 1)) / 4.0
            assert found.value == 1.0
            assert found.high - found.value == pytest.approx(1.959964 * deviation, rel=1e-5)

    @pytest.mark.parametrize("has_before", [False, True])
    def test_looks_at_any_time_are_rarely_wrong(self, has_before):
        """30 looks at a difference that is not there, with 5 %; an interval for one look fails far more often."""
        rng = np.random.default_rng(0)
        wrong = naive = 0
        runs = 120
        for _ in range(runs):
            rows, rates = rng.integers(1, 5, (2, 6000)).astype(float), rng.beta(2.0, 8.0, (2, 6000))
            sums = rng.binomial(rows.astype(int), rates).astype(float)
            before = rng.binomial(20, rates) / 20.0 if has_before else np.zeros((2, 6000))
            found = [False, False]
            for n in np.geomspace(100, 6000, 30).astype(int):
                arms = [KeySums(sums[a, :n], rows[a, :n], before[a, :n]) for a in (0, 1)]
                _, at_any_time, explained = difference_of_means(*arms, 0.05)
                assert (explained > 0.05) == has_before or n < 1000
                once = [mean_interval(arm.outcomes, arm.rows, 1.96) for arm in arms]
                half = np.hypot(*(item.high - item.value for item in once))
                found[0] |= not at_any_time.low <= 0.0 <= at_any_time.high
                found[1] |= abs(once[0].value - once[1].value) > half
            wrong, naive = wrong + found[0], naive + found[1]
        assert wrong <= 0.05 * runs and naive > 0.15 * runs

    def test_outcomes_before_the_test_make_the_difference_sharper_and_do_not_move_it(self):
        rng = np.random.default_rng(1)
        users = rng.beta(1.0, 4.0, (2, 4000))
        rows = np.full((2, 4000), 20.0)
        sums = rng.binomial(20, np.clip(users * np.array([[1.1], [1.0]]), 0, 1)).astype(float)
        before = rng.binomial(50, users) / 50.0
        sharp = difference_of_means(*(KeySums(sums[a], rows[a], before[a]) for a in (0, 1)), 0.05)
        plain = difference_of_means(*(KeySums(sums[a], rows[a], 0.0 * before[a]) for a in (0, 1)), 0.05)
        assert sharp[2] > 0.6 and plain[2] == 0.0
        assert sharp[1].high - sharp[1].low < 0.7 * (plain[1].high - plain[1].low)
        for found in (sharp, plain):
            assert found[1].low <= 0.02 <= found[1].high

    def test_arms_of_a_log_are_compared_since_the_start_of_a_test(self, tmp_path, monkeypatch):
        log = FeedbackLog(tmp_path, 0)
        for at, name in ((100.0, "old"), (5000.0, "new")):
            monkeypatch.setattr("splinefm.serve.feedback.time.time", lambda at=at: at)
            arms = ["a", "b"] * 50
            log.scored(name, arms, np.full(100, 0.5), [f"u{i}" for i in range(100)], None)
            for i in range(100):
                log.outcome(name, i, float(i % 4 == 0 or (name == "new" and arms[i] == "b")))
        log.outcome("nothing", 0, 1.0)
        log.close()
        monkeypatch.undo()
        found = ab_report(tmp_path, start=3600.0)
        (item,) = found.differences
        assert (item.arm, item.base, item.keys, found.unmatched) == ("b", "a", 100, 1)
        assert {figures.rows for figures in found.figures} == {50} and found.figures[0].measured.value == 0.5
        assert item.reduction > 0.0 and item.difference.low > 0.0
        assert ab_report(tmp_path).figures[-1].rows == 100
        assert [replace(look, hour="all") for look in found.history] == [item]

    def test_the_history_is_what_one_would_have_seen(self, tmp_path, monkeypatch):
        """The look at the end of an hour is the report on a log that ends there."""
        rng = np.random.default_rng(0)
        for n_hours in (2, 3):
            log = FeedbackLog(tmp_path / str(n_hours), 0)
            rng = np.random.default_rng(0)
            for hour in range(n_hours):
                monkeypatch.setattr("splinefm.serve.feedback.time.time", lambda hour=hour: 3600.0 * hour)
                log.scored(f"r{hour}", ["a", "b"] * 20, np.full(40, 0.5), [f"u{i}" for i in range(40)], None)
                for i in range(40):
                    log.outcome(f"r{hour}", i, float(rng.random() < 0.3))
            log.close()
        monkeypatch.undo()
        short, long = (ab_report(tmp_path / str(n)) for n in (2, 3))
        assert [look.hour for look in long.history] == [f"1970-01-01 0{hour}:00" for hour in range(3)]
        assert long.history[:2] == short.history and replace(long.history[1], hour="all") == short.differences[0]

    def test_a_long_log_has_some_looks_and_the_last(self, tmp_path, monkeypatch):
        log = FeedbackLog(tmp_path, 0)
        for hour in range(251):
            monkeypatch.setattr("splinefm.serve.feedback.time.time", lambda hour=hour: 3600.0 * hour)
            log.scored(f"r{hour}", ["a", "b"], np.array([0.5, 0.5]), [f"u{hour}", f"v{hour}"], None)
            log.outcome(f"r{hour}", hour % 2, 1.0)
        log.close()
        monkeypatch.undo()
        hours = [look.hour for look in ab_report(tmp_path).history]
        assert len(hours) == 84 and hours == sorted(hours) and hours[-1] == "1970-01-11 10:00"

    def test_the_page_draws_whatever_a_log_has(self):
        rng = np.random.default_rng(0)
        for n_hours, scale in ((1, 1.0), (2, 0.0), (40, 1e-9), (40, 1e9)):
            hours = [f"2026-11-{1 + i // 24:02} {i % 24:02}:00" for i in range(n_hours)]
            values = rng.normal(size=(n_hours, 3)) * scale
            looks = [
                Difference("<b>", "a", 5, Interval(*row), 0.5, hour) for hour, row in zip(hours, values, strict=True)
            ]
            looks[0] = replace(looks[0], difference=Interval(0.0, -np.inf, np.inf))
            nothing = Interval(np.nan, np.nan, np.nan)
            figures = [
                ArmFigures(arm, hour, 3, 0.0, 0.1, Interval(0.0, np.nan, np.nan), nothing)
                for arm in ("<b>", "a")
                for hour in [*hours, "all"]
            ]
            page = ab_page(Report(figures, [replace(looks[-1], hour="all")], 2, looks), "log & <settings>")
            assert "<b>" not in page and "&lt;b&gt;" in page and "log &amp; &lt;settings&gt;" in page
            assert "nan" not in page.partition("<details>")[0]
            plots = re.findall(r"<svg.*?</svg>", page)
            assert len(plots) == (1 if n_hours == 1 else 2)
            for plot in plots:
                for item in ElementTree.fromstring(plot).iter():
                    numbers = [float(text) for point in item.get("points", "").split() for text in point.split(",")]
                    assert all(0.0 <= x <= 720.0 for x in numbers[::2]) and all(
                        0.0 <= y <= 230.0 for y in numbers[1::2]
                    )

    def test_a_higher_value_is_drawn_higher(self):
        looks = [
            Difference("b", "a", 5, Interval(y, y - 1.0, y + 1.0), 0.0, f"2026-11-01 0{i}:00")
            for i, y in enumerate([1.0, 3.0, 2.0])
        ]
        page = ab_page(Report([], [replace(looks[-1], hour="all")], 0, looks), "log")
        (points,) = re.findall(r'<polyline[^>]*points="([^"]*)"', page)
        y = [float(point.split(",")[1]) for point in points.split()]
        assert y[1] < y[2] < y[0] and y[0] - y[2] == pytest.approx(y[2] - y[1], abs=0.2)
        assert "b has a higher mean outcome than a" in page and "told apart" not in page

    def test_the_report_is_printed(self, run, tmp_path):
        log = FeedbackLog(tmp_path / "log", 0)
        log.scored("r", ["a"], np.array([0.5, 0.3]), ["u", "v"], None)
        log.outcome("r", 1, 1.0)
        log.close()
        text = run("ab", "report", "log").stdout
        assert "-20.00%" in text and "all" in text and " to " in text
        assert "page.html" in run("ab", "report", "log", "--out", "page.html").stdout
        assert "-0.2" in (tmp_path / "page.html").read_text()
        now = datetime.now(UTC)
        for since, rows in ((now - timedelta(hours=1), 2), (now + timedelta(hours=1), 0)):
            for text in (
                since.strftime("%Y-%m-%dT%H:%M:%S"),
                since.astimezone(timezone(timedelta(hours=5))).isoformat(),
            ):
                arms = json.loads(run("ab", "report", "log", "--start", text, "--json").stdout)["arms"]
                assert (arms[-1]["rows"] if arms else 0) == rows
        assert "no folder" in run("ab", "report", "log", "--out", "none/page.html", code=1).stderr
        found = json.loads(run("ab", "report", "log", "--json").stdout)["arms"][-1]
        assert (found["rows"], found["predicted"], found["measured"]) == (2, 0.4, 0.5)
        assert "splinefm serve --log" in run("ab", "report", "none", code=1).stderr
        assert "confidence" in run("ab", "report", "log", "--confidence", "2", code=1).stderr

    def test_a_line_that_was_cut_off_spoils_no_other(self, tmp_path):
        first = FeedbackLog(tmp_path, 0)
        first.outcome("r", 0, 1.0)
        first.close()
        (path,) = tmp_path.iterdir()
        path.write_text(path.read_text() + '{"at": 17')
        second = FeedbackLog(tmp_path, 0)
        second.outcome("r", 1, 1.0)
        second.close()
        assert [line["row"] for line in read_log(tmp_path)] == [0, 1]


class TestMetrics:
    CODE = """
import os, sys
from splinefm.serve.metrics import process_metrics
metrics = process_metrics()
metrics.feedback.inc(float(sys.argv[1]))
metrics.workers.set(1)
metrics.generation.labels("a").set(float(sys.argv[1]))
metrics.arm_predictions.labels("a").inc(-1.5)
for seconds in (0.0001, 0.02, 99.0):
    metrics.arm_seconds.labels("a").observe(seconds)
print(os.getpid())
"""

    def test_counters_of_processes_are_put_together_and_never_go_back(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))

        def run(amount):
            return int(subprocess.check_output([sys.executable, "-c", self.CODE, str(amount)]))

        def found():
            text = "from splinefm.serve.metrics import process_metrics as p; print(p().text().decode())"
            families = parse(subprocess.check_output([sys.executable, "-c", text]).decode())
            return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}

        first, _ = run(3), run(4)
        before = found()
        assert before["splinefm_feedback_total",] == 7 and before["splinefm_workers",] == 2
        assert before["splinefm_model_generation", "a"] == 3
        assert before["splinefm_arm_seconds_count", "a"] == 6
        assert before["splinefm_arm_seconds_bucket", "a", "0.0001"] == 2
        assert before["splinefm_arm_seconds_bucket", "a", "0.025"] == 4
        forget_process(first)  # it died: its gauges go, and what it counted stays
        after = found()
        assert after["splinefm_workers",] == 1 and after["splinefm_model_generation", "a"] == 4
        kept = {key: value for key, value in after.items() if key[0] not in GAUGES}
        assert kept == {key: value for key, value in before.items() if key[0] not in GAUGES}
        run(1)  # the successor
        assert found()["splinefm_feedback_total",] == 8
        assert found()["splinefm_arm_predictions_total", "a"] == -4.5


class TestAdmission:
    """The queue by itself, with an event loop and requests that take as long as they are told."""

    def run(self, limits, requests, answer):
        refused, found = [], []

        async def work():
            queue = WorkQueue(asyncio.get_running_loop(), limits, answer, refused.append)
            done = asyncio.Event()

            def respond(response):
                found.append(response)
                if len(found) == len(requests):
                    done.set()

            for seconds in requests:
                request = Request("POST", "/", "", {}, time.perf_counter())
                request.deadline = time.perf_counter() + seconds
                queue.submit(request, respond)
            await asyncio.wait_for(done.wait(), 30)
            queue.close()

        run_coroutine(work())
        return refused, [response.status for response in found], found

    def test_what_does_not_fit_is_told_to_come_back(self):
        refused, statuses, found = self.run(Limits(queue=5), [9.0] * 12, lambda request: Response(200, b""))
        assert (statuses.count(200), statuses.count(503)) == (5, 7) and refused == ["queue"] * 7
        assert statuses[0] == 503, "refusals do not wait"
        assert dict(found[0].headers)[b"retry-after"] == b"1"

    def test_what_would_wait_too_long_is_refused_once_that_is_known(self):
        def slow(request):
            time.sleep(0.005)
            return Response(200, b"")

        async def work():
            refused = []
            queue = WorkQueue(asyncio.get_running_loop(), Limits(queue=1000, wait=0.02), slow, refused.append)
            for _ in range(60):  # the queue learns how long they take
                queue.submit(new_request(), lambda response: None)
                await asyncio.sleep(0)
            while len(queue):
                await asyncio.sleep(0)
            refused.clear()
            for _ in range(50):
                queue.submit(new_request(), lambda response: None)
            queue.close()
            return len(refused)

        def new_request():
            request = Request("POST", "/", "", {}, time.perf_counter())
            request.deadline = time.perf_counter() + 60.0
            return request

        assert run_coroutine(work()) >= 40, "about four of them make up 0.02 s"

    def test_late_requests_are_not_worked_on(self):
        worked = []
        refused, statuses, _ = self.run(Limits(), [9.0, -1.0], lambda request: worked.append(1) or Response(200, b""))
        assert sorted(statuses) == [200, 503] and refused == ["deadline"] and len(worked) == 1

    def test_long_requests_have_a_thread_and_a_bound(self):
        def long(request):
            return Later(lambda: time.sleep(0.01) or Response(200, b"long"))

        refused, statuses, _ = self.run(Limits(), [9.0] * 12, long)
        assert (statuses.count(200), statuses.count(503)) == (8, 4) and refused == ["queue"] * 4


class TestSettings:
    def test_arms_are_written_on_the_command_line(self):
        assert parse_arm("a=C:/m.sfm:2.5") == Arm("a", "C:/m.sfm", 2.5)
        assert parse_arm("s=m.sfm", shadow=True) == Arm("s", "m.sfm", 0.0, shadow=True)
        for text in ("a", "a=", "=m:1", "a=m", "a=m:x", "a=m:nan", "a b=m:1", "a=m:-1"):
            with pytest.raises(ValueError, match="arm"):
                parse_arm(text)
        with pytest.raises(ValueError, match="limit 'rows'"):
            Limits(rows=0)
        two = ServiceSettings((Arm("a", "a.sfm"), Arm("b", "b.sfm")))
        assert [arm.index for arm in two.with_index(["b=i.sfi"]).arms] == [None, "i.sfi"]
        with pytest.raises(ValueError, match="NAME=PATH"):
            two.with_index(["i.sfi"])

    def test_tokens_are_read_again_when_they_change(self, tmp_path, capsys):
        dictConfig(LOG_CONFIG)
        path = tmp_path / "tokens"
        path.write_text("a" * 20)
        tokens = Tokens(str(path))
        assert tokens.role(b"Bearer " + b"a" * 20) == "user" and tokens.role(b"bearer " + b"a" * 20) == "user"
        path.write_text("admin " + "b" * 20 + "\n")
        tokens.refresh()
        assert tokens.role(b"Bearer " + b"b" * 20) == "admin" and tokens.role(b"Bearer " + b"a" * 20) is None
        assert capsys.readouterr().err == ""
        path.write_text("short")
        for _ in range(3):
            tokens.refresh()  # a file that is being written changes nothing
        path.unlink()
        for _ in range(3):
            tokens.refresh()
        assert tokens.role(b"Bearer " + b"b" * 20) == "admin" and tokens.role(None) is None
        events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [(event["level"], event["event"]) for event in events] == [("warning", "tokens not read")] * 2
        assert "line 1" in events[0]["reason"] and "No such file" in events[1]["reason"]
        path.write_text("c" * 20)
        tokens.refresh()
        assert tokens.role(b"Bearer " + b"c" * 20) == "user"
        path.unlink()
        tokens.refresh()
        assert "tokens not read" in capsys.readouterr().err
        for text in ("short", "", "two words here", "admin " + "c" * 20 + " more"):
            with pytest.raises(ValueError, match="token"):
                parse_tokens(text, "f")

    def test_files_count_as_changed_once_they_stay_the_same(self, tmp_path):
        path = tmp_path / "m"
        path.write_text("1")
        watcher = Watcher({"a": [str(path), None]})
        assert watcher.changed() == []
        for i in range(3):  # being written
            path.write_text("2" * (i + 2))
            assert watcher.changed() == []
        assert watcher.changed() == ["a"] and watcher.changed() == []
        path.unlink()
        assert watcher.changed() == watcher.changed() == []
        path.write_text("3")
        os.utime(path, ns=(1, 1))
        assert watcher.changed() == [] and watcher.changed() == ["a"]


def test_a_model_and_an_index_may_have_names_with_the_same_ending(visits, index, tmp_path):
    (tmp_path / "own").mkdir()
    visits.save(tmp_path / "model.bin")
    index.save(tmp_path / "items.bin")
    arm = Arm("a", str(tmp_path / "model.bin"), index=str(tmp_path / "items.bin"))
    published = Snapshots(tmp_path / "own").publish(arm)
    assert load_model(published).index.ids.tolist() == index.ids.tolist()


class TestChecksums:
    """Files are refused by their checksums: one bit of a parameter loads, and gives other scores."""

    def flip(self, path, load):
        """Flip a bit of an array that is not verified where a file is mapped."""
        content = path.read_bytes()
        for at in range(len(content) - 1, 0, -16):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            try:
                load(path)
            except ValueError:
                continue
            return
        raise AssertionError("every bit is verified")

    @pytest.mark.parametrize("harmed", ["model", "index"])
    def test_a_flipped_bit_is_refused_and_leaves_no_copy(self, visits, index, tmp_path, harmed):
        paths = {"model": tmp_path / "m.sfm", "index": tmp_path / "i.sfi"}
        (tmp_path / "own").mkdir()
        snapshots = Snapshots(tmp_path / "own")
        arm = Arm("a", str(paths["model"]), index=str(paths["index"]))
        visits.save(paths["model"])
        index.save(paths["index"])
        published = snapshots.publish(arm)
        snapshots.accept(published)
        mapped = {
            "model": lambda path: sf.load(path, mmap=True),
            "index": lambda path: sf.ItemIndex.load(path, visits, mmap=True),
        }
        self.flip(paths[harmed], mapped[harmed])
        with pytest.raises(ValueError, match=f"{paths[harmed].name}.*is damaged"):
            snapshots.publish(arm)
        assert snapshots.current["a"] is published
        kept = sorted(map(str, (tmp_path / "own").iterdir()))
        assert kept == sorted([published.model, published.index])

    def test_a_model_that_may_move_a_score_too_far_is_refused(self, visits, tmp_path):
        (tmp_path / "own").mkdir()
        arm = Arm("a", str(tmp_path / "m.sfm"))
        visits.save(arm.model)
        snapshots = Snapshots(tmp_path / "own", max_change=0.5)
        snapshots.accept(snapshots.publish(arm))
        for by, refused in ((0.4, False), (1.1, True), (0.8, False)):
            moved = {**visits.params, "bias": visits.params["bias"] + np.float32(by)}
            replace(visits, params=moved).save(arm.model)
            if refused:
                with pytest.raises(ValueError, match=r"m.sfm' is not served: the score .* allowed: 0.5"):
                    snapshots.publish(arm)
            else:
                snapshots.accept(snapshots.publish(arm))

    def test_files_that_are_served_already_are_told_by_their_checksums(self, visits, index, tmp_path):
        (tmp_path / "own").mkdir()
        snapshots = Snapshots(tmp_path / "own")
        visits.save(tmp_path / "m.sfm")
        index.save(tmp_path / "i.sfi")
        arm = Arm("a", str(tmp_path / "m.sfm"), index=str(tmp_path / "i.sfi"))
        snapshots.accept(snapshots.publish(arm))
        assert snapshots.publish(arm) is None
        other = sf.ItemIndex.load(tmp_path / "i.sfi", visits)  # not the index that tests share
        other.remove([10])
        other.save(tmp_path / "i.sfi")
        again = snapshots.publish(arm)
        assert again.generation == 2 and again.sha256 == snapshots.current["a"].sha256
        assert again.index_sha256 != snapshots.current["a"].index_sha256


def names_of(metric):
    (family,) = metric.describe()
    return [family.name, f"{family.name}_total"] if family.type == "counter" else [family.name]


class TestExamples:
    """The files of examples/serve, which cannot be run here: they can be read, and name what exists."""

    FOLDER = Path(__file__).parents[2] / "examples" / "serve"

    def test_the_dashboard_names_metrics_that_exist(self):
        dashboard = json.loads((self.FOLDER / "grafana" / "dashboard.json").read_text())
        metrics = vars(Metrics(CollectorRegistry())).values()
        known = {name: each for each in metrics if hasattr(each, "describe") for name in names_of(each)}
        used = set()
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                names = re.findall(r"splinefm_\w+", target["expr"])
                assert names, panel["title"]
                used |= {name.removesuffix("_bucket") for name in names}
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    assert any(label in known[name.removesuffix("_bucket")]._labelnames for name in names), label
        assert used <= set(known) and len(used) >= 15

    def test_the_other_files_can_be_read_and_name_options_that_exist(self):
        yaml = pytest.importorskip("yaml")
        compose = yaml.safe_load((self.FOLDER / "compose.yaml").read_text())
        server = compose["services"]["splinefm"]
        assert server["read_only"] and server["cap_drop"] == ["ALL"]
        for name in ("prometheus.yml", "grafana/datasource.yml", "grafana/dashboards.yml"):
            assert yaml.safe_load((self.FOLDER / name).read_text())
        image = (self.FOLDER / "Dockerfile").read_text()
        assert "USER 10001" in image
        deployment, service, _ = yaml.safe_load_all((self.FOLDER / "kubernetes.yaml").read_text())
        pod = deployment["spec"]["template"]
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        image += json.dumps(container["args"])
        # The delay and the drain of a server fit into the time that it has to end.
        delay = float(container["args"][container["args"].index("--drain-delay") + 1])
        assert pod["spec"]["terminationGracePeriodSeconds"] > delay + Limits().drain
        predictor = yaml.safe_load((self.FOLDER / "kserve.yaml").read_text())["spec"]["predictor"]
        (other,) = predictor["containers"]
        image += json.dumps(other["args"])
        assert predictor["terminationGracePeriodSeconds"] == pod["spec"]["terminationGracePeriodSeconds"]
        assert ("GET", other["readinessProbe"]["httpGet"]["path"]) in ENDPOINTS
        paths = {container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe", "startupProbe")}
        assert paths == {"/readyz", "/healthz"}
        options = {parameter for command in get_command(app).commands["serve"].params for parameter in command.opts}
        assert set(re.findall(r'"(--[a-z-]+)"', image)) <= options
