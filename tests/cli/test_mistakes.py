"""What a user can do wrong is told in a message, never by a traceback; what splinefm does wrong asks to be reported."""

import errno
import io
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import splinefm as sf
from splinefm import _files as _writing
from splinefm import _memory as room
from splinefm.cli import failures, fit, predict, targets
from splinefm.cli import main as cli
from splinefm.cli.failures import BUG
from splinefm.store import model_file as modelfile
from support import THOROUGH

FIT = ("--model", "fm", "--k", "2", "--epochs", "1", "--threads", "1", "-q")
HEAD = "id,price,city,click\n"
ROWS = "".join(f"{i},{i / 7:.3f},{'Rome' if i % 3 else 'Oslo'},{'yes' if i % 2 else 'no'}\n" for i in range(40))
SPLINE = '{"field": [{"kind": "Numerical", "name": "price", "basis": {"kind": "BSpline", "segments": %s}}]}'
BUCKETS = '{"field": [{"kind": "Categorical", "name": "city", "unseen": "hash", "buckets": %s}]}'

TABLES: dict[str, str | bytes] = {
    "good.csv": HEAD + ROWS,
    "empty.csv": "",
    "header.csv": HEAD,
    "binary.csv": bytes(range(256)) * 40,
    "latin.csv": (HEAD + ROWS.replace("Rome", "Münster")).encode("latin-1"),
    "utf16.csv": (HEAD + ROWS).encode("utf-16"),
    "twice.csv": "price,price,city,click\n1,2,Rome,yes\n2,2,Oslo,no\n",
    "lacking.csv": "id,city\n1,Rome\n2,Oslo\n",
    "missing.csv": HEAD + ",,,\n" * 9,
    "one.csv": HEAD + "1,2,Rome,yes\n",
    "text.csv": HEAD + "1,cheap,Rome,yes\n2,dear,Oslo,no\n",
    "ragged.csv": HEAD + ROWS + "1,2\n",
    "text.parquet": "hello",
    "cut.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "false.csv.gz": b"not compressed",
    "flags.csv": "price,city,click\n1,Rome,true\n2,Oslo,false\n",
}
SCHEMAS = {
    "deep.json": "[" * 100_000,
    "deep.toml": "a = " + "[" * 100_000,
    "numbers.json": '{"field": [1]}',
    "digits.json": "1" * 5000,
    "bytes.json": "\x00\x01",
    "digits_of_special.json": '{"field": [{"kind": "Numerical", "name": "price", "special": [%s]}]}' % ("9" * 400),
    "segments.json": SPLINE % 1_000_000_000_000,
    "buckets.json": BUCKETS % 100_000_000_000,
}


@pytest.fixture
def place(model, fitted, tmp_path, monkeypatch):
    """A folder with files of all kinds; the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, content in {**TABLES, **SCHEMAS}.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    Path("folder.csv").mkdir()
    Path("loop").symlink_to("loop")
    n = 20
    columns = {"price": np.arange(n, dtype=float), "city": ["Rome", "Oslo"] * 10, "click": ["yes", "no"] * 10}
    odd = {"list": [["a"]] * n, "struct": [{"a": 1}] * n, "bytes": [b"\xff"] * n, "null": [None] * n}
    for name in ("price", "city", "click"):
        for kind, values in odd.items():
            pq.write_table(pa.table({**columns, name: pa.array(values)}), f"{name}_{kind}.parquet")
    return tmp_path


def bad_lines():
    """Command lines that cannot succeed, or that can: what matters is how they fail."""
    tables = [
        *TABLES,
        "folder.csv",
        "nothing.csv",
        "no*.csv",
        "",
        "/",
        ".",
        "~nobody/x.csv",
        "loop",
        "model.sfm",
        "[",
        "**",
    ]
    tables += [
        f"{name}_{kind}.parquet" for name in ("price", "city", "click") for kind in ("list", "struct", "bytes", "null")
    ]
    for number, data in enumerate(tables):
        yield ["schema", data, "--target", "click"]
        yield ["predict", "model.sfm", data, "--id", "id", "--out", "p.csv"]
        others = [
            ["evaluate", "model.sfm", data, "--target", "click", "--by", "city"],
            ["rank", "model.sfm", data, "--context", "{}"],
            ["rank", "model.sfm", data, "--context", '{"city": "Rome"}', "--ids", "price"],
            ["view", "model.sfm", "--along", "price", "--data", data],
            ["explain", "model.sfm", data, "--json"],
            ["explore", "model.sfm", data, "--out", "page.html"],
            ["discretize", "model.sfm", "--bins", "4", "--spacing", "quantile", "--data", data, "--out", "b.sfm"],
            ["export", "model.sfm", "--to", "libffm", "--out", "m.ffm", "--rows", data, "--rows-out", "r.ffm"],
            ["fit", data, "--target", "click", "--out", "n.sfm", *FIT],
            ["info", data],
        ]
        yield from others[number % 3 :: 3]  # all ways of reading a table are in each third
    for schema in [*SCHEMAS, "good.csv", "nothing.json", "folder.csv"]:
        yield ["fit", "good.csv", "--target", "click", "--out", "n.sfm", "--schema", schema, *FIT]
        yield ["rank", "model.sfm", "good.csv", "--context", schema]
    for context in ("[" * 100_000, "{", "[]", "1", '{"city": {}}', '{"city": [1]}', '{"price": "a"}', '{"x": 1}'):
        yield ["rank", "model.sfm", "lacking.csv", "--context", context]
    for option, value in (
        ("--k", "100000000"),
        ("--k", "9" * 400),
        ("--learning-rate", "nan"),
        ("--learning-rate", "inf"),
        ("--l2", "inf"),
        ("--weight", "city"),
        ("--weight", "nothing"),
        ("--ignore", "nothing"),
        ("--validation", "nothing.csv"),
        ("--target", "city "),
        ("--out", "good.csv/m.sfm"),
        ("--out", "loop"),
        ("--out", "folder.csv"),
        ("--out", "m" * 300),
    ):
        yield ["fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT, option, value]
    for value in ("", "nothing", "price=a", "city=Paris", "=", "city=\x1b[31m"):
        yield ["view", "model.sfm", "--along", "price", "--segment", value]
        yield ["view", "model.sfm", "--along", value]
        yield ["view", "model.sfm", "--along", "price", "--each", value]
        yield ["view", "model.sfm", "--along", "price", "--out", value]
        yield ["discretize", "model.sfm", "--bins", value, "--out", "b.sfm"]
        yield ["discretize", "model.sfm", "--max-error", "1", "--field", value, "--out", "b.sfm"]
        yield ["predict", "model.sfm", "good.csv", "--id", value, "--out", "p.csv"]
        yield ["schema", "good.csv", "--out", value]
    yield ["discretize", "model.sfm", "--bins", "99999999999999999999", "--out", "b.sfm"]
    yield ["discretize", "model.sfm", "--max-error", "nan", "--out", "b.sfm"]
    for to in ("onnx", "libffm", "tables"):
        yield ["export", "model.sfm", "--to", to, "--out", "good.csv/x"]
    yield ["demo", "--out", "good.csv/x"]
    yield ["explain", "model.sfm", "good.csv", "--out", "good.csv/x"]
    yield ["explore", "model.sfm", "good.csv", "--out", "good.csv/x"]


def test_no_command_line_ends_in_a_traceback(place):
    lines = list(bad_lines())
    for line in lines if THOROUGH else lines[::3]:
        result = CliRunner().invoke(cli.app, line)
        shown = [argument[:60] for argument in line]
        assert result.exception is None or isinstance(result.exception, SystemExit), shown
        assert result.exit_code in (0, 1, 2) and "Traceback" not in result.output, (shown, result.output)
        assert "\x1b" not in result.output, shown
        assert result.exit_code == 0 or result.output.strip(), shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT, "--k", "100000000"],
            "of memory, ",
        ),
        (
            ["fit", "good.csv", "--target", "click", "--out", "n.sfm", "--schema", "segments.json", *FIT],
            "segments must be",
        ),
        (
            ["fit", "good.csv", "--target", "click", "--out", "n.sfm", "--schema", "buckets.json", *FIT],
            "fewer basis funct",
        ),
        (
            ["fit", "good.csv", "--target", "click", "--out", "n.sfm", "--schema", "deep.json", *FIT],
            "is not a valid JSON",
        ),
        (
            ["fit", "good.csv", "--target", "click", "--out", "n.sfm", "--schema", "deep.toml", *FIT],
            "is not a valid TOML",
        ),
        (["rank", "model.sfm", "good.csv", "--context", "deep.json"], "'deep.json' is not JSON"),
        (["schema", "~nobody/x.csv"], "no file or folder '~nobody/x.csv'"),
    ],
)
def test_messages_name_what_is_wrong(place, run, line, message):
    assert message in run(*line, code=1).stderr


def test_rows_of_a_text_file_are_counted_where_items_have_no_ids(place, run, fitted):
    told = json.loads(run("rank", "model.sfm", "good.csv", "--context", "{}", "--k", "5", "--json", "-q").stdout)
    scores = fitted.scores("good.csv")
    assert [item["id"] for item in told["contexts"][0]] == np.argsort(-scores, kind="stable")[:5].tolist()


def test_a_model_that_does_not_fit_in_memory_is_told_before_training(place, run, monkeypatch):
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 1000)
    message = run("fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT, code=1).stderr
    assert "of memory, 1.0 kB are free" in message and not Path("n.sfm").exists()


def test_an_interrupted_command_says_that_there_is_no_result(place, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(targets, "choose_loss", interrupt)
    done = CliRunner().invoke(cli.app, ["fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT])
    assert done.exit_code == 130 and "interrupted before there was a result" in done.stderr
    assert not Path("n.sfm").exists()


def test_an_interrupted_command_names_what_it_has_written(place, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "summarize", interrupt)
    done = CliRunner().invoke(cli.app, ["fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT])
    assert done.exit_code == 130 and done.stderr.endswith("before the command was done, but written: 'n.sfm'\n")
    assert Path("n.sfm").exists()


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 7.28 TiB"), pa.ArrowTypeError("odd"), pa.ArrowNotImplementedError("odd")]
)
def test_errors_of_memory_and_of_arrow_are_messages(place, run, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(targets, "choose_loss", fail)
    message = run("fit", "good.csv", "--target", "click", "--out", "n.sfm", code=1).stderr
    assert message.startswith("splinefm: ") and str(error) in message


def test_a_package_that_is_not_installed_is_a_message(place, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in ("splinefm.export.onnx.graph", "splinefm.export.onnx.fields", "splinefm.export.onnx.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    message = run("export", "model.sfm", "--to", "onnx", "--out", "m.onnx", code=1).stderr
    assert message.startswith("splinefm: ") and "pip install" in message


def test_a_bug_shows_its_traceback_and_asks_for_a_report(place, run, monkeypatch):
    def fail(*_):
        raise AttributeError("oops")

    monkeypatch.setattr(targets, "choose_loss", fail)
    told = run("fit", "good.csv", "--target", "click", "--out", "n.sfm", code=BUG).stderr
    assert "Traceback" in told and "AttributeError: oops" in told
    last = told.strip().splitlines()[-1]
    assert last.startswith(f"splinefm: this is a bug in splinefm {sf.__version__}") and "report it" in last


def test_warnings_are_lines_and_come_once(place, run, monkeypatch):
    class Drifted(UserWarning):
        pass

    original = targets.choose_loss

    def warn(*arguments):
        for text in ("one\x1b[31m", "two", "two"):
            warnings.warn(text, Drifted, stacklevel=1)
        return original(*arguments)

    monkeypatch.setattr(targets, "choose_loss", warn)
    told = run("fit", "good.csv", "--target", "click", "--out", "n.sfm", *FIT).stderr
    assert told == "splinefm: warning: one\\x1b[31m\nsplinefm: warning: two\n"


# The language of the reader


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["export", "model.sfm", "--to", "tables", "--out", "t"], "splinefm discretize MODEL --bins 'price=200'"),
        (["predict", "model.sfm", "text.csv"], "kind = \"Categorical\" for 'price' (see splinefm schema --out)"),
        (
            ["fit", "one.csv", "--target", "price", "--out", "n.sfm", *FIT, "--learning-rate", "inf"],
            "--learning-rate must",
        ),
        (["discretize", "model.sfm", "--max-error", "0", "--out", "b.sfm"], "--max-error must be"),
    ],
)
def test_advice_on_the_command_line_names_commands_and_options(place, run, line, message):
    told = run(*line, code=1).stderr
    assert message in told and "sf." not in told


def test_advice_of_the_library_names_functions(fitted, tmp_path):
    with pytest.raises(ValueError, match=r"use sf\.discretize\(fitted, \{'price': 200\}\)"):
        sf.export_tables(fitted, tmp_path / "t")


# Where results go


LONG = {
    "fit": ["fit", "good.csv", "--target", "click", *FIT, "--out"],
    "discretize": ["discretize", "model.sfm", "--bins", "4", "--out"],
    "view": ["view", "model.sfm", "--along", "price", "--out"],
    "schema": ["schema", "good.csv", "--out"],
    "tune": ["tune", "good.csv", "--target", "click", *FIT, "--trials", "1", "--out"],
    "explain": ["explain", "model.sfm", "good.csv", "--out"],
    "demo": ["demo", "--out"],
}
ENDINGS = {"view": ".csv", "schema": ".toml", "explain": "", "demo": ""}


@pytest.fixture
def no_work(monkeypatch):
    """Fail where a command begins to work."""

    def work(*_, **__):
        pytest.fail("worked before it looked where to write")

    for name in (
        "cli.targets.choose_loss",
        "cli.view.make_view",
        "cli.click_data.click_data",
        "encode.inference.infer_schema",
        "export.discretize.discretize",
        "explore.report.explain_table",
    ):
        monkeypatch.setattr(f"splinefm.{name}", work)


@pytest.mark.parametrize("command", LONG)
def test_a_folder_that_cannot_be_written_is_found_before_the_work(place, run, no_work, monkeypatch, command):
    ending = ENDINGS.get(command, ".sfm")
    # Below a file there is no folder, for any user. Folders do not refuse root: a read-only disk is played.
    run(*LONG[command], f"good.csv/result{ending}", code=1)

    class Refusing(_writing._File):
        def __init__(self, path, target):
            if path.parent.name == "disk":
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            super().__init__(path, target)

    Path("disk").mkdir()
    monkeypatch.setattr(_writing, "_File", Refusing)
    out = "disk" if command == "demo" else f"disk/result{ending}"
    told = run(*LONG[command], out, code=1).stderr
    assert "is not writable (Read-only file system)" in told and not list(Path("disk").iterdir())


def test_looking_leaves_nothing_behind(tmp_path):
    (tmp_path / "old.sfm").write_text("old")
    assert _writing.check_writable(tmp_path / "new.sfm") == tmp_path / "new.sfm"
    _writing.check_writable(tmp_path / "old.sfm")
    assert [path.name for path in tmp_path.iterdir()] == ["old.sfm"] and (tmp_path / "old.sfm").read_text() == "old"


@pytest.fixture
def full_disk(place, monkeypatch):
    """A folder that takes files but not their content, and a temporary folder."""
    (place / "full").mkdir()
    (place / "temporary").mkdir()
    monkeypatch.setattr(failures.tempfile, "tempdir", str(place / "temporary"))
    original = modelfile.write_container

    def write(file, *arguments):
        if Path(file.name).parent.name == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(file, *arguments)

    monkeypatch.setattr(modelfile, "write_container", write)
    return place


@pytest.mark.parametrize("command", ["fit", "discretize"])
def test_a_model_that_finds_its_disk_full_is_saved_elsewhere(full_disk, run, command):
    told = run(*LONG[command], "full/m.sfm", code=1).stderr
    (saved,) = (full_disk / "temporary").rglob("m.sfm")
    assert f"cannot write 'full/m.sfm' (No space left on device); saved the model to '{saved}' instead" in told
    assert sf.load(saved).encoder.n_rows and not list((full_disk / "full").iterdir())


def test_where_nothing_can_be_written_both_reasons_are_told(full_disk, run, monkeypatch):
    monkeypatch.setattr(failures.tempfile, "tempdir", str(full_disk / "gone"))
    told = run(*LONG["fit"], "full/m.sfm", code=1).stderr
    assert "No space left" in told and "No such file" in told and "the model is lost" in told


# What data say to a terminal


@pytest.fixture
def hostile(place):
    """A model and a table whose column and categories hold escape codes."""
    name, values = "ci\x1b[2Jty\u202e", ["\x1b[31mRome\x07", "Os\x9blo"]
    table = pa.table({name: values * 30, "x": np.arange(60.0), "y": ["n\x1b[5m", "y\x1b[6m"] * 30})
    pq.write_table(table, "hostile.parquet")
    schema = sf.Schema([sf.Categorical(name), sf.Numerical("x", basis=sf.BSpline(2))])
    training = sf.Training(epochs=1, threads=1)
    sf.fit_model(table, "y", schema=schema, model=sf.FM(k=2), training=training).save("hostile.sfm")
    return name


@pytest.mark.usefixtures("empty_plots")
def test_no_command_prints_control_characters_of_the_data(hostile, run):
    model, data = "hostile.sfm", "hostile.parquet"
    for line in (
        ["schema", data],
        ["info", model],
        ["evaluate", model, data, "--target", "y", "--by", hostile],
        ["evaluate", model, data],
        ["view", model, "--along", "x", "--each", hostile],
        ["view", model, "--along", hostile],
        ["view", model, "--along", hostile, "--along", "x"],
        ["view", model, "--along", "x", "--along", hostile],
        ["explain", model, data, "--target", "y", "--out", "page"],
        ["explore", model, data, "--target", "y", "--out", "page.html"],
        ["rank", model, data, "--context", "{}", "--ids", "y"],
        ["rank", model, data, "--context", "{}", "--ids", "nothing"],
        ["discretize", model, "--bins", "x=4", "--out", "b.sfm"],
        ["fit", data, "--target", "y", "--out", "n.sfm", *FIT[:-1]],
        ["fit", data, "--target", "z", "--out", "n.sfm", *FIT],
    ):
        result = CliRunner().invoke(cli.app, line)
        assert result.exit_code in (0, 1), result.output
        assert not set(result.output) & set("\x1b\x07\x9b\u202e"), line


def test_predictions_on_a_terminal_are_text(hostile, run, monkeypatch):
    class Screen(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(predict.sys, "stdout", Screen(io.BytesIO(), "utf-8"))
    predict.predict_file(Path("hostile.sfm"), "hostile.parquet", "-", [hostile])
    predict.sys.stdout.flush()
    shown = predict.sys.stdout.buffer.getvalue().decode()
    assert len(shown.splitlines()) == 61 and "\\x1b[31mRome\\x07" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_the_help_of_view_knows_the_limit_of_each():
    from splinefm.cli.segments import MAX_EACH
    from splinefm.cli.view import Each

    assert MAX_EACH == 12 and "12 most frequent" in Each.__metadata__[0].help


def test_a_view_that_cannot_be_drawn_is_found_before_the_work(place, run, monkeypatch):
    monkeypatch.setattr("splinefm.plots.files.import_plots", lambda: (_ for _ in ()).throw(ValueError("no matplotlib")))
    assert "no matplotlib" in run("view", "model.sfm", "--along", "price", "--out", "x.png", code=1).stderr
