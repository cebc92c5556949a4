"""Model files: what is saved comes back to the bit, what is broken is told, and nothing is ever half written."""

import errno
import hashlib
import json
import math
import os
import resource
import stat
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
import scipy.special  # noqa: F401  # loaded here, so that the memory of its code does not count as a file's
from golden.make_golden import MODELS, TARGET, make_schema, make_table
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm import _files as _writing
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.schema import Provenance
from splinefm.model.family.parameters import init_params, param_shapes
from splinefm.store import container
from splinefm.store import model_file as kinds
from splinefm.store import model_file as modelfile
from splinefm.store import model_file as restore
from splinefm.train.results import RUNS, SearchEntry
from support import examples, random_params

GOLDEN = Path(__file__).parent / "golden"
TRAINING = sf.Training(epochs=2, batch_size=32, threads=1, l2=1e-4, smoothness=3e-4)
SMALL = sf.Schema([sf.Numerical("x", sf.Quantile(), sf.BSpline(4)), sf.Categorical("c"), sf.MultiValued("t")])
ROWS = {"x": [float(i) for i in range(30)], "c": ["ä", "b", None] * 10, "t": [["u"], [], ["v", "u"]] * 10}


TRIED = SearchEntry("FM(k=4)", "4 segments", 1e-4, None, 3, ("x × c",), 30, 0.5, 0.01, 4, 1.5, is_chosen=True)
DIVERGED = replace(TRIED, l2=None, smoothness=1.0, crosses=(), loss=math.inf, error=math.inf, is_chosen=False)
SEARCH = (TRIED, replace(TRIED, model="ä", is_chosen=False), DIVERGED)


def untrained(encoder, model, loss=None, history=()):
    """Return a model with parameters that no training made, with a history."""
    params = random_params(model, encoder.layout)
    return sf.Fitted(encoder, model, params, loss or sf.Loss(), history, TRAINING)


@pytest.fixture(scope="module")
def encoder():
    return sf.fit_encoder(make_schema(), make_table(), target=TARGET)


@pytest.fixture(scope="module")
def small():
    return untrained(sf.fit_encoder(SMALL, ROWS), sf.FM(k=4))


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.sfm"
    small.save(path)
    return path.read_bytes()


@pytest.fixture
def path(whole, tmp_path):
    path = tmp_path / "model.sfm"
    path.write_bytes(whole)
    return path


def same_bits(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def same_fitted(first, second):
    assert second.encoder == first.encoder
    assert all(map(same_bits, second.encoder.feature_counts, first.encoder.feature_counts))
    assert all(map(same_bits, second.encoder.feature_weights, first.encoder.feature_weights))
    assert list(second.encoder.notes) == list(first.encoder.notes)
    assert (second.model, second.loss, second.training) == (first.model, first.loss, first.training)
    np.testing.assert_array_equal(np.array(second.history), np.array(first.history))
    assert second.params.keys() == first.params.keys()
    assert all(same_bits(second.params[name], values) for name, values in first.params.items())
    return True


# Taking files apart and putting them together again, independently of the code under test.


def unpack(data):
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header.pop("__metadata__")["splinefm"])
    return description, header, data[8 + length :]


def pack(description, header, payload):
    """A file with a valid checksum of its header, whatever that says."""
    text = json.dumps({**description, "sha256": "0" * 64})
    encoded = json.dumps({"__metadata__": {"splinefm": text}, **header}, separators=(",", ":")).encode()
    raw = struct.pack("<Q", len(encoded)) + encoded
    return raw.replace(b"0" * 64, hashlib.sha256(raw).hexdigest().encode(), 1) + payload


def refused(path, data, match, mmap=False):
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(sf.ModelFileError, match=match) as caught:
            sf.load(path, mmap=mmap)
        assert tracemalloc.get_traced_memory()[1] < len(data) * 20 + (4 << 20)
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value) and ";" in str(caught.value), "the file and the way out"


class TestRoundTrip:
    def test_what_the_fit_tried(self, small, path):
        assert "search" not in unpack(path.read_bytes())[0] and sf.load(path).search == ()
        replace(small, search=SEARCH).save(path)
        loaded = sf.load(path)
        assert loaded.search == SEARCH and same_fitted(small, loaded)
        learner = sf.Learner.load(path)
        learner.update({**ROWS, "y": [0, 1] * 15}, "y")
        assert learner.fitted().search == SEARCH
        replace(small, search=(replace(DIVERGED, error=math.nan),)).save(path)  # inf - inf
        assert sf.load(path).search == (DIVERGED,)

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("mmap", [False, True])
    def test_scores_are_the_same_to_the_bit(self, encoder, tmp_path, name, mmap):
        fitted = untrained(encoder, MODELS[name])
        fitted.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm", mmap=mmap)
        assert same_fitted(fitted, again)
        for table in (make_table(), make_table(200, seed=1)):
            assert same_bits(again.scores(table), fitted.scores(table))
            assert same_bits(again.predict(table), fitted.predict(table))

    def test_all_that_can_be_saved_is_among_the_fields_of_this_test(self, encoder):
        from splinefm.encode.bases import BASES
        from splinefm.encode.transforms.transform import TRANSFORMS

        numerical = [item for item in encoder.fields if isinstance(item, sf.Numerical)]
        assert {type(item.transform) for item in numerical} == set(TRANSFORMS)
        assert {type(item.basis) for item in numerical} == set(BASES)
        assert {type(model) for model in MODELS.values()} == set(kinds.MODELS)

    def test_a_trained_model_comes_back_with_its_history_and_settings(self, tmp_path):
        table = {"x": np.linspace(0, 1, 200), "y": 1e6 + 1e5 * np.linspace(0, 1, 200) ** 2}
        fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=4), training=TRAINING, validation=0.0)
        fitted.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        assert same_fitted(fitted, again)
        assert again.loss.center > 1e6 and np.isnan(again.history[0].validation_loss)
        assert isinstance(again.history[0], sf.Epoch) and isinstance(again.history[0].epoch, int)
        assert str(again.encoder.starvation()) == str(fitted.encoder.starvation())
        assert again.encoder.schema.reasons == fitted.encoder.notes

    def test_learning_goes_on_as_if_nothing_had_happened(self, tmp_path):
        old = {"x": ROWS["x"] * 4, "c": ROWS["c"] * 4, "t": ROWS["t"] * 4, "click": [0, 1, 1] * 40}
        new = {**old, "c": ["new", "b", "newer"] * 40, "t": [["w"], ["u"], None] * 40}
        fitted = sf.fit_model(old, "click", schema=SMALL, model=sf.FM(k=4), training=TRAINING)
        fitted.save(tmp_path / "m.sfm")
        results = []
        for start in (fitted, sf.load(tmp_path / "m.sfm"), sf.load(tmp_path / "m.sfm", mmap=True)):
            learner = sf.Learner(start)
            loss = learner.update(new, "click")
            results.append((loss, replace(learner.fitted(), history=fitted.history)))  # without the time that it took
        assert results[0][1].encoder.layout.n_features > fitted.encoder.layout.n_features
        for loss, learned in results[1:]:
            assert loss == results[0][0] and same_fitted(results[0][1], learned)
        results[2][1].save(tmp_path / "m.sfm")
        assert same_fitted(results[2][1], sf.load(tmp_path / "m.sfm"))

    def test_the_same_model_makes_the_same_bytes(self, encoder, tmp_path):
        first, second = tmp_path / "first.sfm", tmp_path / "second.sfm"
        untrained(encoder, sf.FFM(k=2)).save(first)
        sf.load(first, mmap=True).save(second)
        assert first.read_bytes() == second.read_bytes()
        sf.load(second, mmap=True).save(second)  # onto the very file that it is mapped from
        assert first.read_bytes() == second.read_bytes()

    def test_large_parts_are_arrays_and_not_text(self, encoder, tmp_path):
        untrained(encoder, sf.FM(k=4)).save(tmp_path / "m.sfm")
        description, header, _ = unpack((tmp_path / "m.sfm").read_bytes())
        assert "zürich" not in json.dumps(description, ensure_ascii=False)
        knots = len(encoder.fields[1].transform.x)
        assert (header["fields/1/transform/x"]["dtype"], header["fields/1/transform/x"]["shape"]) == ("F64", [knots])
        assert {"fields/13/vocabulary/text", "fields/18/vocabulary/offsets", "fields/12/basis/cuts"} < header.keys()

    def test_a_slice_of_a_vocabulary_and_an_empty_one(self, tmp_path):
        whole = pa.array(["no", "ä", "b", "", "no"], pa.large_string())
        fields = (
            sf.Categorical("c", vocabulary=Vocabulary(whole.slice(1, 3))),
            sf.Categorical("none", vocabulary=Vocabulary(whole.slice(2, 0)), unseen="neutral", missing="error"),
        )
        encoder = sf.Encoder(fields, 1, {}, (np.zeros(5), np.zeros(1)))
        untrained(encoder, sf.FM(k=4)).save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm").encoder
        assert [item.vocabulary.names.to_pylist() for item in again.fields] == [["ä", "b", ""], []]

    def test_settings_may_be_numpy_numbers_and_settings_by_name(self, small, tmp_path):
        numpy = {"epochs": np.int64(3), "learning_rate": np.float32(0.5), "average": np.bool_(False)}
        training = replace(TRAINING, l2={"x": 0.5, "c": 0.0}, smoothness_order=1, **numpy)
        replace(small, training=training).save(tmp_path / "m.sfm")
        assert sf.load(tmp_path / "m.sfm").training == training


names = st.text(max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
spans = st.tuples(st.floats(-1e300, 0), st.floats(1e-3, 1e300))


@st.composite
def knots(draw):
    x = sorted(draw(st.sets(st.floats(-1e200, 1e200), min_size=2, max_size=40)))
    inner = sorted(draw(st.sets(st.floats(0.001, 0.999), min_size=len(x) - 2, max_size=len(x) - 2)))
    return sf.Quantile(x=tuple(x), u=(0.0, *inner, 1.0))


transforms = st.one_of(
    spans.map(lambda span: sf.MinMax(*span)),
    knots(),
    spans.map(lambda span: sf.ArcsinhSquare(0.9, *span)),
    st.floats(1e-9, 1e9).map(lambda low: sf.Log(0.0, low, 2 * low)),
    st.tuples(numbers.filter(lambda x: abs(x) < 1e300), st.floats(1e-300, 1e300)).map(
        lambda params: sf.BestFitCDF(family="logistic", params=params, scores=(("logistic", 0.1),))
    ),
)
bases = st.one_of(
    st.builds(sf.BSpline, st.integers(1, 30), st.integers(0, 5), periodic=st.booleans()),
    st.builds(sf.MultiResolution, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(0, 5)),
    st.builds(sf.Bins, cuts=st.lists(st.floats(0, 2), max_size=30).map(sorted)),
    st.builds(sf.Polynomial, st.integers(0, 9), st.sampled_from(["bernstein", "chebyshev", "legendre"])),
    st.builds(sf.Fourier, st.integers(1, 9)),
    st.builds(sf.Powers, st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20)),
)
rules = st.one_of(st.floats(allow_nan=False), st.sampled_from(["negative", ">= 999", "< -5.5"]))
some_names = st.lists(names, unique=True, max_size=20)
column_names = st.text(min_size=1, max_size=8)
all_fields = st.one_of(
    st.builds(
        sf.Numerical,
        column_names,
        transforms,
        bases,
        st.lists(rules, max_size=20, unique=True),
        st.sampled_from(["token", "error"]),
        st.sampled_from(["sum", "identity"]),
    ),
    st.builds(
        sf.Categorical,
        column_names,
        unseen=st.sampled_from(["rare", "neutral", "hash", "error"]),
        vocabulary=some_names,
    ),
    st.builds(
        sf.MultiValued,
        column_names,
        st.none() | names.filter(bool),
        st.sampled_from(["sum", "mean", "identity"]),
        st.integers(1, 100),
        vocabulary=some_names,
    ),
)


@examples(60)
@given(
    fields=st.lists(all_fields, min_size=1, max_size=4, unique_by=lambda item: item.name),
    model=st.sampled_from(list(MODELS.values())),
    loss=st.builds(sf.Loss, st.just("squared"), numbers, st.floats(1e-300, 1e300))
    | st.builds(sf.Loss, st.just("quantile"), numbers, quantile=st.floats(0.01, 0.99))
    | st.builds(sf.Loss, st.just("tweedie"), power=st.floats(1.01, 1.99))
    | st.builds(sf.Loss, st.just("huber"), delta=st.floats(1e-300, 1e300)),
    n_rows=st.integers(1, 2**60),
    provenance=st.dictionaries(
        names,
        st.builds(Provenance, st.sampled_from(["given", "inferred", "searched"]), names, st.none() | st.floats(0, 1)),
        max_size=3,
    ),
    epochs=st.lists(st.tuples(st.integers(1, 99), *[st.floats()] * 5), max_size=3),
)
def test_whatever_fields_there_are_come_back(tmp_path_factory, fields, model, loss, n_rows, provenance, epochs):
    rng = np.random.default_rng(0)
    counts = tuple(rng.integers(0, 2**40, item.layout.n_features).astype(float) for item in fields)
    history = tuple(sf.Epoch(*values) for values in epochs)
    weights = tuple(rng.choice([np.nan, 1.0]) * rng.normal(size=item.layout.n_features) for item in fields)
    fitted = untrained(sf.Encoder(tuple(fields), n_rows, provenance, counts, weights), model, loss, history)
    path = tmp_path_factory.mktemp("model") / "m.sfm"
    fitted.save(path)
    again = sf.load(path)
    assert same_fitted(fitted, again)
    for item, old in zip(again.encoder.fields, fields, strict=True):
        if isinstance(item, sf.Numerical):
            assert repr(item) == repr(old)  # where 0.0 and -0.0, 1 and 1.0 differ
    assert [item.layout for item in again.encoder.fields] == [item.layout for item in fields]


class TestContainer:
    def test_the_file_is_what_the_safetensors_package_writes(self, encoder, tmp_path):
        path = tmp_path / "m.sfm"
        untrained(encoder, sf.FmFM(k=3)).save(path)
        description, header, _ = unpack(path.read_bytes())
        arrays = safetensors.numpy.load_file(path)
        assert arrays.keys() == header.keys() == description["checksums"].keys()
        with safetensors.safe_open(path, "np") as file:
            metadata = file.metadata()
        assert safetensors.numpy.save(arrays, metadata) == path.read_bytes()

    def test_arrays_are_aligned(self, path):
        _, header, payload = unpack(path.read_bytes())
        start = len(path.read_bytes()) - len(payload)
        width = {"I64": 8, "F64": 8, "F32": 4, "U8": 1}
        assert all((start + entry["data_offsets"][0]) % width[entry["dtype"]] == 0 for entry in header.values())

    def test_mapped_arrays_are_read_from_the_file_and_never_written_to_it(self, small, path):
        before = path.read_bytes()
        mapped = sf.load(path, mmap=True)
        assert not mapped.params["factors"].flags.owndata and sf.load(path).params["factors"].flags.owndata
        mapped.params["factors"][:] = 0.0
        assert path.read_bytes() == before
        assert same_fitted(small, sf.load(path, mmap=True))

    def test_a_mapped_model_outlives_its_file(self, small, path):
        mapped = sf.load(path, mmap=True)
        replace(small, params={name: values + 1 for name, values in small.params.items()}).save(path)
        assert same_fitted(small, mapped)
        path.unlink()
        assert same_fitted(small, mapped)

    def test_a_mapped_array_at_an_odd_place_is_read(self, small, path):
        description, header, payload = unpack(path.read_bytes())
        first = "fields/1/vocabulary/text"
        moved, parts, at = {}, [], 0
        for name in [first, *(name for name in header if name != first)]:
            begin, end = header[name]["data_offsets"]
            moved[name] = {**header[name], "data_offsets": [at, at + end - begin]}
            parts.append(payload[begin:end])
            at += end - begin
        owned = []
        for pad in range(4):  # the length of the header decides which of these is aligned
            path.write_bytes(pack({**description, "version": "x" * pad}, moved, b"".join(parts)))
            mapped = sf.load(path, mmap=True)
            assert same_fitted(small, mapped) and mapped.params["factors"].flags.aligned
            owned.append(mapped.params["factors"].flags.owndata)
        assert sorted(owned) == [False, True, True, True]

    def test_the_shapes_are_those_of_fresh_parameters(self, encoder):
        for model in [*MODELS.values(), sf.FmFM(k=tuple(range(1, len(encoder.fields) + 1)))]:
            fresh = init_params(model, encoder.layout, np.random.default_rng(0))
            assert param_shapes(model, encoder.layout) == {name: v.shape for name, v in fresh.items()}


class TestDamage:
    @pytest.mark.thorough
    def test_a_flipped_bit_is_noticed_wherever_it_is(self, path):
        whole = path.read_bytes()
        for at in [*range(150), *range(150, len(whole), 5), *range(len(whole) - 20, len(whole))]:
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            path.write_bytes(data)
            with pytest.raises(sf.ModelFileError):
                sf.load(path)

    def test_a_flipped_bit_outside_of_the_mapped_arrays_is_noticed_when_mapping(self, path):
        whole = path.read_bytes()
        _, header, payload = unpack(whole)
        first = len(whole) - len(payload)
        mapped = [header[name]["data_offsets"] for name in restore.MAPPED]
        for at in range(0, len(whole), 11):
            if any(begin <= at - first < end for begin, end in mapped):
                continue
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            path.write_bytes(data)
            with pytest.raises(sf.ModelFileError):
                sf.load(path, mmap=True)

    @examples(200)
    @given(data=st.data())
    def test_random_damage_is_noticed(self, small, whole, tmp_path_factory, data):
        path = tmp_path_factory.getbasetemp() / "damaged.sfm"
        begin = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.integers(begin, min(len(whole), begin + 50)))
        broken = whole[:begin] + data.draw(st.binary(max_size=50)) + whole[end:]
        path.write_bytes(broken)
        if broken == whole:
            assert same_fitted(small, sf.load(path))
        else:
            with pytest.raises(sf.ModelFileError):
                sf.load(path)

    @pytest.mark.parametrize("mmap", [False, True])
    def test_a_file_cut_short_is_noticed_at_any_length(self, path, mmap):
        whole = path.read_bytes()
        for length in [*range(60), *range(60, len(whole), 23), len(whole) - 1]:
            path.write_bytes(whole[:length])
            with pytest.raises(sf.ModelFileError, match=r"model\.sfm.*(empty|truncated|not a model file|damaged).*;"):
                sf.load(path, mmap=mmap)

    def test_a_cut_is_told_from_a_file_of_another_kind(self, path):
        whole = path.read_bytes()
        refused(path, b"", "is empty; copy it again")
        refused(path, whole[:100], "truncated.*copy it again")
        refused(path, whole[:-5], "truncated: 5 bytes are missing; copy it again")
        refused(path, whole + b"12345", "5 extra bytes; copy it again")

    @pytest.mark.parametrize(
        "data",
        [
            b"a,b\n1,2\n" * 50,
            b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
            b"PK\x03\x04" + bytes(100),
            b"PAR1" + bytes(100),
            bytes(1000),
            b"{}",
            b"\xff" * 100,
            safetensors.numpy.save({"weight": np.zeros(3)}),
            safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "pt"}),
        ],
    )
    def test_a_file_of_another_kind_is_called_so(self, tmp_path, data):
        refused(
            tmp_path / "m.sfm",
            data,
            "is not a model file; Fitted.save and splinefm fit write model files",
        )


LIES = "the header entry of the array 'params/linear' is damaged"


def entry(**changes):
    return lambda header: {**header, "params/linear": {**header["params/linear"], **changes}}


class TestHostileHeaders:
    """The checksum of the header is right in all of these: a checksum does not stop an attacker."""

    @pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 17 << 20])
    def test_a_huge_length_is_not_believed(self, path, length):
        refused(path, struct.pack("<Q", length) + path.read_bytes()[8:], "the length of its header is wrong")

    def test_a_huge_header_is_not_read(self, path):
        data = struct.pack("<Q", 17 << 20) + b'{"__metadata__":{"splinefm":' + b" " * (17 << 20)
        refused(path, data, "the length of its header is wrong")

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (entry(data_offsets=[-8, 92]), LIES),
            (entry(data_offsets=[0, 2**63]), LIES),
            (entry(data_offsets=[0]), LIES),
            (entry(data_offsets=[0.0, 100.0]), LIES),
            (entry(data_offsets="01"), LIES),
            (entry(data_offsets=[True, 101]), LIES),
            (entry(shape=[-1]), LIES),
            (entry(shape=[-2, -8]), LIES),
            (entry(shape=[2**62, 4]), LIES),
            (entry(shape=[0, 2**62]), LIES),
            (entry(shape="x"), LIES),
            (entry(shape=[[1]]), LIES),
            (entry(shape=[1] * 10_000), LIES),
            (entry(dtype="F16"), LIES),
            (entry(dtype="F64"), LIES),
            (entry(dtype=["F32"]), LIES),
            (entry(code="import os"), LIES),
            (lambda header: {**header, "params/linear": 3}, LIES),
            (lambda header: {**header, "params/linear": header["params/factors"]}, "overlaps|gap"),
            (lambda header: {**header, "more": header["params/linear"]}, "'(more|params/linear)' overlaps"),
            (lambda header: {name: header[name] for name in header if name != "params/linear"}, "gap"),
            (lambda header: {}, "extra bytes"),
            (
                lambda header: {**header, "more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}},
                "checksums and arrays do not match",
            ),
        ],
    )
    @pytest.mark.parametrize("mmap", [False, True])
    def test_entries_that_lie_are_refused(self, path, change, match, mmap):
        description, header, payload = unpack(path.read_bytes())
        refused(path, pack(description, change(header), payload), match, mmap)

    def test_the_package_refuses_or_reads_the_same(self, path, small):
        """No header is understood here and elsewhere in two ways."""
        description, header, payload = unpack(path.read_bytes())
        shuffled = dict(sorted(header.items(), reverse=True))
        path.write_bytes(pack(description, shuffled, payload))
        assert same_fitted(small, sf.load(path))
        np.testing.assert_array_equal(safetensors.numpy.load_file(path)["params/linear"], small.params["linear"])

    def test_a_name_that_stands_twice_is_refused(self, path):
        description, header, payload = unpack(path.read_bytes())
        about = {"splinefm": json.dumps({**description, "sha256": "0" * 64})}
        text = json.dumps({"__metadata__": about, **header}, separators=(",", ":"))
        again = f',"params/bias":{json.dumps(header["params/bias"])}}}'
        for raw, twice in ((text, False), (text[:-1] + again, True)):
            data = struct.pack("<Q", len(raw)) + raw.encode()
            data = data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1) + payload
            if twice:
                refused(path, data, "its header is damaged")
            else:
                path.write_bytes(data)
                sf.load(path)

    @pytest.mark.parametrize("bomb", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
    def test_deep_nesting_is_refused(self, path, bomb):
        data = path.read_bytes()
        raw = bomb.encode()
        refused(path, struct.pack("<Q", len(raw)) + raw + data, "not a model file")
        raw = b'{"__metadata__":{"splinefm":' + raw
        refused(path, struct.pack("<Q", len(raw)) + raw + data, "its header is damaged")
        raw = json.dumps({"__metadata__": {"splinefm": bomb}}, separators=(",", ":")).encode()
        refused(path, struct.pack("<Q", len(raw)) + raw + data, "its header is damaged")

    @pytest.mark.parametrize(
        "raw",
        [
            b'{"__metadata__":{"splinefm":"{}","splinefm":"{}"}}',
            b'{"__metadata__":{"splinefm":"[]"}}',
            b'{"__metadata__":{"splinefm":"3"}}',
            b'{"__metadata__":{"splinefm":3}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":1,\\"format\\":2}"}}',
            b'{"__metadata__":{"splinefm":"\xff\xfe"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":NaN}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":' + b"9" * 5000 + b'}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":true}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":0}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":1}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":1,\\"sha256\\":[]}"}}',
            b'{"__metadata__":{"splinefm":"{\\"format\\":1,\\"sha256\\":\\"' + b"0" * 64 + b'\\"}"}}',
        ],
    )
    def test_a_strange_description_is_refused(self, path, raw):
        refused(path, struct.pack("<Q", len(raw)) + raw, "header|description|format")


def without(key, *inside):
    def change(description):
        part = description
        for step in inside:
            part = part[step]
        del part[key]

    return change


def setting(value, *where):
    def change(description):
        part = description
        for step in where[:-1]:
            part = part[step]
        part[where[-1]] = value

    return change


TRANSFORM = ("encoder", "fields", 0, "transform")
BUCKETS = ("encoder", "fields", 1, "unseen")


class TestHostileDescriptions:
    """Headers, checksums and arrays are right in all of these, but the description is not."""

    def rewrite(self, path, change):
        description, header, payload = unpack(path.read_bytes())
        change(description)
        return pack(description, header, payload)

    def test_a_newer_format_asks_for_an_upgrade(self, path):
        def change(description):
            description.update(format=4, version="7.0", loss={"kind": "Quantum"})

        message = "format 4 and was written by splinefm 7.0; this version reads formats up to 3; upgrade splinefm"
        refused(path, self.rewrite(path, change), message)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (without("model"), "it must hold encoder, history, loss, model, training"),
            (without("checksums"), "checksums and arrays"),
            (without("format"), "its format is 'None'"),
            (setting(1, "more"), "it must hold"),
            (without("notes", "encoder"), "its encoder is incomplete"),
            (without("name", "encoder", "fields", 0), "missing 1 required positional argument: 'name'"),
            (without("vocabulary", "encoder", "fields", 1), "'c' is not fitted"),
            (without("kind", "encoder", "fields", 1), "fields/1 has a part without a kind"),
            (setting("os.system", "model", "kind"), "model has the unknown type 'os.system'; upgrade"),
            (setting(["FM"], "model", "kind"), "unknown type"),
            (setting("CustomBasis", "encoder", "fields", 0, "basis", "kind"), "unknown type 'CustomBasis'"),
            (setting(1, "model", "future"), "FM has no setting 'future' in this version of splinefm; upgrade splinefm"),
            (setting(1, "training", "future"), "Training has no setting 'future'"),
            (setting(-1, "training", "epochs"), "epochs must be an integer of at least 1"),
            (setting("30", "training", "epochs"), "epochs of Training is 30"),
            (setting("x", "loss", "name"), "name of Loss is x"),
            (setting(0.0, "loss", "scale"), "its loss is"),
            (setting({"float": "inf"}, "loss", "center"), "its loss is"),
            (setting(5e-324, "loss", "center"), "its logistic loss has units"),
            (setting({"float": "nan"}, "loss", "center"), "damaged"),
            (setting(5, "model", "k"), r"factors has the shape \(.*4\) instead of"),
            (setting({"kind": "FwFM", "k": 4}, "model"), "'params/field_weights' is missing"),
            (setting({"kind": "Loss"}, "model"), "its model is invalid"),
            (setting({"kind": "HigherOrderFM", "k": 4, "order": 2**40}, "model"), "order must be at most 64"),
            (setting({"kind": "FmFM", "k": 2**40}, "model"), "factors has the shape"),
            (setting(2**30, "encoder", "fields", 0, "basis", "segments"), "basis functions, but there are"),
            (setting(10**30, "encoder", "fields", 0, "basis", "segments"), "a number that is too large"),
            (setting({"kind": "Fourier", "order": 2**16}, "encoder", "fields", 0, "basis"), "basis functions, but"),
            (
                setting({"kind": "Fourier", "order": 2**40}, "encoder", "fields", 0, "basis"),
                "order must be from 1 to 65,536",
            ),
            (setting({"kind": "Bins", "count": 2**40}, "encoder", "fields", 0, "basis"), "is not fitted"),
            (setting({"kind": "Bins", "cuts": [0.5, 0.1]}, "encoder", "fields", 0, "basis"), "out of order"),
            (setting({"kind": "MinMax"}, "encoder", "fields", 0, "transform"), "MinMax is not fitted"),
            (setting("auto", "encoder", "fields", 0, "transform"), "has no fitted transform"),
            (
                setting({"kind": "BestFitCDF", "family": "gamma", "params": [0.0, 1.0, -1.0]}, *TRANSFORM),
                "the transform of 'x' runs from nan",
            ),
            (setting({"kind": "BestFitCDF", "family": "gamma", "params": [0.0, 1.0]}, *TRANSFORM), "damaged"),
            (setting(float("inf"), "training", "learning_rate"), "a number that is not finite"),
            (setting(float("nan"), "loss", "center"), "a number that is not finite"),
            (setting(2**40, "encoder", "fields", 2, "max_length"), "max_length of 't' is"),
            (setting(2**40, "encoder", "fields", 1, "buckets"), "buckets"),
            (setting(True, "encoder", "n_rows"), "n_rows is True"),
            (setting(0, "encoder", "n_rows"), "n_rows is 0"),
            (setting({"x": 3}, "encoder", "notes"), "its notes are not text"),
            (setting([], "encoder", "fields"), "at least one field"),
            (setting("x", "encoder", "fields", 1, "name"), "names a field twice: 'x'"),
            (setting({"tensor": "row_counts"}, "encoder", "fields", 0, "transform", "x"), "is missing"),
            (setting({"tensor": "params/linear"}, "encoder", "fields", 0, "transform", "x"), "type float32 instead"),
            (setting({"strings": "fields/2/vocabulary"}, "encoder", "fields", 1, "vocabulary"), "is missing"),
            (setting(["u", "v"], "encoder", "fields", 1, "vocabulary"), "vocabulary of Categorical is"),
            (setting({"exec": "1"}, "encoder", "fields", 1, "vocabulary"), "unknown part 'exec'"),
            (setting([1.0, 2.0], "encoder", "fields", 0, "transform", "x"), "x and u must have the same length"),
            (setting(["epoch"], "history"), "wrong number of columns"),
            (setting(["loss"] * 6, "history"), "unknown columns"),
        ],
    )
    def test_nonsense_is_refused(self, path, change, match):
        if "buckets" in match:
            data = self.rewrite(path, lambda description: (change(description), setting("hash", *BUCKETS)(description)))
            return refused(path, data, "features")
        refused(path, self.rewrite(path, change), match)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (setting({}, "search"), "its search is invalid"),
            (setting(None, "search"), "its search is invalid"),
            (setting([1.0], "search"), "its search is invalid"),
            (setting([{"kind": "FM", "k": 4}], "search"), "its search is invalid"),
            (without("loss", "search", 0), "missing 1 required positional argument: 'loss'"),
            (setting(1, "search", 0, "future"), "SearchEntry has no setting 'future'"),
            (setting(5, "search", 0, "model"), "model of SearchEntry is 5"),
            (setting(["a", 3], "search", 0, "crosses"), "crosses of SearchEntry is"),
            (setting("x", "search", 0, "loss"), "loss of SearchEntry is x"),
            (setting(float("nan"), "search", 0, "loss"), "a number that is not finite"),
            (setting({"float": "-inf"}, "search", 0, "loss"), "its search has the loss -inf"),
            (setting(-0.1, "search", 0, "error"), "its search has the loss 0.5 ± -0.1"),
            (setting(-1, "search", 0, "folds"), "its search has the counts"),
            (setting(1.5, "search", 0, "epochs"), "its search has the counts"),
            (setting({"float": "inf"}, "search", 0, "seconds"), "a setting of inf seconds"),
            (setting("yes", "search", 1, "is_chosen"), "is_chosen of SearchEntry is yes"),
        ],
    )
    def test_a_search_that_cannot_be_is_refused(self, small, change, match, tmp_path):
        replace(small, search=SEARCH).save(tmp_path / "model.sfm")
        refused(tmp_path / "model.sfm", self.rewrite(tmp_path / "model.sfm", change), match)

    NASTY = (
        None,
        -1,
        2**62,
        1e308,
        "x",
        [],
        {},
        {"float": []},
        {"tensor": "fields/0/transform/x"},
        {"strings": "fields/1/vocabulary"},
        {"kind": "Bins", "cuts": [0.5]},
    )

    @pytest.mark.thorough
    def test_anything_anywhere_loads_or_is_refused(self, path):
        """Every place of the description gets every nasty value: no other exception, and nothing that hangs."""
        data = path.read_bytes()
        loaded = 0
        for where in list(places(unpack(data)[0])):
            for value in self.NASTY:
                description, header, payload = unpack(data)
                setting(value, *where)(description)
                path.write_bytes(pack(description, header, payload))
                try:
                    fitted = sf.load(path)
                except sf.ModelFileError:
                    continue
                loaded += 1
                assert fitted.encoder.layout.n_features == len(fitted.params["linear"])
        assert 50 < loaded < 1000  # such as another version number, or other settings of the training

    @pytest.mark.parametrize("where", [("encoder", "fields", 1, "name"), ("encoder", "notes"), ("version",)], ids=str)
    def test_halves_of_surrogate_pairs_are_no_text(self, path, where):
        change = setting({"x": "a\ud800"} if where[-1] == "notes" else "a\ud800", *where)
        refused(path, self.rewrite(path, change), r"its header is damaged \(UnicodeEncodeError\)")

    def test_settings_that_an_older_version_did_not_write_get_their_defaults(self, small, path):
        def change(description):
            for key in ("smoothness", "warmup", "patience"):
                del description["training"][key]
            del description["encoder"]["fields"][0]["basis"]["periodic"]
            description["history"].remove("seconds")

        description, header, payload = unpack(path.read_bytes())
        change(description)
        fewer = {**header, "history": {**header["history"], "shape": [0, 6]}}
        path.write_bytes(pack(description, fewer, payload))
        again = sf.load(path)
        assert again.training == replace(TRAINING, smoothness=None) and again.encoder == small.encoder

    @pytest.mark.parametrize(
        ("name", "values", "match"),
        [
            ("fields/1/vocabulary/offsets", [0, 9, 3], "Negative offsets|damaged"),
            ("fields/1/vocabulary/offsets", [0, 3, 9], "does not fit its text"),
            ("fields/1/vocabulary/offsets", [1, 2, 3], "does not fit its text"),
            ("fields/1/vocabulary/offsets", [0, -(2**62), 3], "damaged"),
            ("fields/1/vocabulary/offsets", [], "does not fit its text"),
            ("fields/1/vocabulary/offsets", [0, 1, 2, 2, 3], "its fields need|damaged"),
            ("fields/1/vocabulary/text", [255, 254, 253], "damaged"),
            ("fields/0/transform/x", None, "contains NaN or infinity"),
            ("row_counts", None, "row_counts must be finite"),
            ("row_weights", None, "row_weights must be finite, or NaN for a whole field"),
            ("row_weights", [1.0] * 11 + [np.nan], "row_weights must be finite, or NaN for a whole field"),
            ("row_weights", [1.0] * 11, "need 12 row_weights, there are 11"),
            ("row_weights", [1.0] * 16, "need 12 row_weights, there are 16"),
            ("params/factors", None, "parameters contain NaN or infinity, in factors"),
            ("params/bias", None, "parameters contain NaN or infinity, in bias"),
        ],
    )
    def test_arrays_out_of_range_are_refused(self, path, name, values, match):
        description = unpack(path.read_bytes())[0]
        arrays = dict(safetensors.numpy.load_file(path))
        old = arrays[name]
        arrays[name] = np.full_like(old, np.inf) if values is None else np.array(values, old.dtype)
        with path.open("wb") as file:
            parts = {key: description[key] for key in ("encoder", "model", "loss", "training", "history")}
            container.write_container(file, modelfile.FORMAT, "x", parts, arrays)
        refused(path, path.read_bytes(), match)


def places(value, where=()):
    """Every place in nested dicts and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if key != "checksums" and key != "sha256":
            yield (*where, key)
            yield from places(inner, (*where, key))


class TestWhatCannotBeSaved:
    def save(self, small, tmp_path, match, item=None, **changes):
        if item is not None:
            layout = item.layout.n_features
            encoder = sf.Encoder((item,), 1, {}, (np.zeros(layout),))
            fitted = untrained(encoder, sf.FM(k=4))
        else:
            fitted = replace(small, **changes)
        path = tmp_path / "m.sfm"
        path.write_text("old")
        with pytest.raises(sf.ModelFileError, match=match) as caught:
            fitted.save(path)
        assert str(path) in str(caught.value)
        assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

    def test_code_of_the_user(self, small, tmp_path):
        way_out = (
            "but a model file contains no code; use one of MinMax, .*, or apply your function to the column before"
        )
        custom = sf.CustomTransform(np.sqrt, np.square)
        self.save(small, tmp_path, f"field 'x' has a CustomTransform, {way_out}", sf.Numerical("x", custom))
        custom = sf.CustomBasis([np.ones_like])
        self.save(
            small, tmp_path, f"field 'x' has a CustomBasis, {way_out}", sf.Numerical("x", sf.MinMax(0, 1), custom)
        )

    def test_a_class_of_the_same_name(self, small, tmp_path):
        class BSpline(sf.BSpline):
            pass

        item = sf.Numerical("x", sf.MinMax(0, 1), BSpline(3))
        self.save(small, tmp_path, "field 'x' has a BSpline, but a model file contains no code", item)

    def test_models_that_are_not_sound(self, small, tmp_path):
        params = small.params
        bad = {**params, "factors": np.full_like(params["factors"], np.nan)}
        self.save(small, tmp_path, "parameters contain NaN or infinity, in factors; .* refit it", params=bad)
        self.save(small, tmp_path, "type float64", params={**params, "linear": params["linear"].astype(float)})
        self.save(small, tmp_path, "linear has the shape", params={**params, "linear": params["linear"][1:]})
        self.save(small, tmp_path, "'params/bias' is missing", params={"factors": params["factors"]})
        self.save(
            small, tmp_path, "nothing refers to the array 'params/more'", params={**params, "more": params["bias"]}
        )
        self.save(small, tmp_path, "its loss is", loss=sf.Loss("squared", 0.0, float("inf")))
        bad = replace(small.encoder)
        object.__setattr__(bad, "feature_counts", (*small.encoder.feature_counts, np.zeros(3)))
        self.save(small, tmp_path, "have 16 features, row_counts has 19", encoder=bad)

    def test_something_else(self, tmp_path):
        with pytest.raises(sf.ModelFileError, match=r"only a sf\.Fitted can be saved, got dict"):
            modelfile.save({}, tmp_path / "m.sfm")

    def test_not_contiguous_arrays_can(self, small, tmp_path):
        params = {name: np.asfortranarray(values) for name, values in small.params.items()}
        replace(small, params=params).save(tmp_path / "m.sfm")
        assert same_fitted(small, sf.load(tmp_path / "m.sfm"))


class TestPaths:
    def test_loading(self, tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"no file '.*m\.sfm'; Fitted\.save and splinefm fit write model files"
        ):
            sf.load(tmp_path / "m.sfm")
        with pytest.raises(IsADirectoryError, match="is a folder; pass a model file in it"):
            sf.load(tmp_path)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(sf.ModelFileError, match="not a regular file"):
            sf.load(tmp_path / "pipe")
        with pytest.raises(TypeError):
            sf.load(None)

    def test_saving(self, small, tmp_path):
        with pytest.raises(IsADirectoryError, match=r"is a folder; add a file name, such as '.*model\.sfm'"):
            small.save(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"there is no folder '.*none'; create it first"):
            small.save(tmp_path / "none" / "m.sfm")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(PermissionError, match="pipe' cannot be overwritten; choose another name"):
            small.save(tmp_path / "pipe")
        assert [item.name for item in tmp_path.iterdir()] == ["pipe"]

    def test_a_folder_that_is_not_writable(self, small, tmp_path, monkeypatch):
        def refuse(self, path, target):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(_writing._File, "__init__", refuse)  # permissions do not bind everybody who runs tests
        with pytest.raises(PermissionError, match=r"the folder '.*' is not writable \(Permission denied\)"):
            small.save(tmp_path / "m.sfm")

    def test_a_file_that_is_not_writable(self, small, path, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        before = path.read_bytes()
        with pytest.raises(PermissionError, match="cannot be overwritten"):
            small.save(path)
        assert path.read_bytes() == before

    def test_names_of_any_kind(self, small, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for name in ("m.sfm", "modell größe 數.sfm", "x" * 255, "no-ending"):
            small.save(name)
            assert same_fitted(small, sf.load(Path(name)))

    def test_a_link_stays_a_link(self, small, tmp_path):
        (tmp_path / "latest.sfm").symlink_to(tmp_path / "real.sfm")
        small.save(tmp_path / "latest.sfm")
        assert (tmp_path / "latest.sfm").is_symlink() and same_fitted(small, sf.load(tmp_path / "real.sfm"))

    def test_permissions_are_those_of_the_old_file_or_the_usual_ones(self, small, tmp_path):
        plain = tmp_path / "plain"
        plain.write_text("")
        small.save(tmp_path / "new.sfm")
        mode = lambda path: stat.S_IMODE(path.stat().st_mode)  # noqa: E731
        assert mode(tmp_path / "new.sfm") == mode(plain)
        plain.chmod(0o640)
        small.save(plain)
        assert mode(plain) == 0o640 and same_fitted(small, sf.load(plain))


class TestOneStep:
    @pytest.mark.parametrize("step", ["replace", "fsync"])
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
    def test_an_error_leaves_the_old_file_and_nothing_else(self, small, path, monkeypatch, step, error):
        before = path.read_bytes()

        def fail(*args, **kwargs):
            raise error

        monkeypatch.setattr(os, step, fail)
        with pytest.raises(type(error)):
            replace(small, model=sf.FM(k=4), history=(sf.Epoch(1, 0, 0, 0, 0, 0),)).save(path)
        assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]

    def test_a_full_disk_leaves_the_old_file_and_nothing_else(self, small, path):
        before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # a write beyond it is an error, as on a full disk
        try:
            with pytest.raises(OSError, match="too large"):
                small.save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]

    def test_everything_is_on_the_disk_before_the_name_is(self, small, path, monkeypatch):
        events = []
        fsync, rename = os.fsync, os.replace

        def note_fsync(descriptor):
            events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.fstat(descriptor).st_size)
            fsync(descriptor)

        def note_replace(source, target):
            events.append("replace")
            assert Path(source).parent == Path(target).parent
            rename(source, target)

        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(os, "replace", note_replace)
        small.save(path)
        assert events == [path.stat().st_size, "replace", "folder"]

    @pytest.mark.parametrize("moment", ["in the middle of the arrays", "before the name is given"])
    def test_a_killed_process_leaves_the_old_file(self, small, path, moment):
        code = f"""
            import os, signal, sys
            import splinefm as sf
            from dataclasses import replace
            from splinefm.store import container
            fitted = sf.load({str(path)!r})
            def die(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            if {moment!r} == "before the name is given":
                os.replace = die
            else:
                read, calls = container.as_bytes, []
                def read_some(values):
                    calls.append(values)
                    return read(values) if len(calls) < 15 else die()
                container.as_bytes = read_some
            replace(fitted, params={{name: values + 1 for name, values in fitted.params.items()}}).save({str(path)!r})
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
        assert done.returncode == -9, done.stderr
        left = [item for item in path.parent.iterdir() if item != path]
        assert len(left) == 1 and left[0].name.startswith(".model.sfm.") and left[0].suffix == ".part"
        assert same_fitted(small, sf.load(path))
        if moment != "before the name is given":
            with pytest.raises(sf.ModelFileError):
                sf.load(left[0])


class TestGolden:
    """Files of every format that was ever released must load and score for ever."""

    @pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sfm")), ids=lambda path: path.stem)
    @pytest.mark.parametrize("mmap", [False, True])
    def test_it_loads_and_scores_as_then(self, path, mmap):
        number, name = path.stem.split("-")
        expected = json.loads((GOLDEN / f"{number}.json").read_text(encoding="utf-8"))
        fitted = sf.load(path, mmap=mmap)
        scores = fitted.scores(expected["rows"])
        # To the bit on one machine; compilers for other processors fuse and reorder float32 sums.
        np.testing.assert_allclose(scores, expected["scores"][name], rtol=1e-6, atol=1e-6)
        assert fitted.model == MODELS[name] and len(fitted.history) == 2 and fitted.training.batch_size == 64

    def test_files_of_format_1_do_not_know_means_and_later_ones_do(self):
        known = {"steps": 3.0, "ids": ["1", "2"]}  # fields with several vectors have no mean
        for name in MODELS:
            old, new = (sf.load(GOLDEN / f"format{number}-{name}.sfm") for number in (1, 2))
            with pytest.raises(
                ValueError, match=r"mean of 'ranks', .* is not kept with this model; .*background=train"
            ):
                old.segment(known, along="even", rest="mean")
            z = np.linspace(0.0, 1.0, 9)
            expected = new.segment(known, along="even", rest="mean", background=make_table())(z)
            np.testing.assert_allclose(new.segment(known, along="even", rest="mean")(z), expected, atol=1e-9)
            np.testing.assert_array_equal(old.encoder.feature_means[13], new.encoder.feature_means[13])  # of a category

    def test_a_file_of_format_1_can_be_saved_again(self, tmp_path):
        old = sf.load(GOLDEN / "format1-fm.sfm")
        old.save(tmp_path / "m.sfm")
        assert same_fitted(old, sf.load(tmp_path / "m.sfm"))

    def test_settings_that_have_a_new_name_by_now_are_read(self, tmp_path):
        description, header, payload = unpack((GOLDEN / "format2-fm.sfm").read_bytes())
        assert description["training"]["refit"] and "refit_on_all" not in description["training"]
        description["training"] |= {"refit": False, "refine": False}
        (tmp_path / "m.sfm").write_bytes(pack(description, header, payload))
        training = sf.load(tmp_path / "m.sfm").training
        assert (training.refit_on_all, training.effort, training.members) == (False, "fast", 1)
        description["training"]["refit_on_all"] = True
        (tmp_path / "m.sfm").write_bytes(pack(description, header, payload))
        with pytest.raises(sf.ModelFileError, match="refit_on_all twice"):
            sf.load(tmp_path / "m.sfm")

    def test_files_from_before_the_search_say_what_was_searched(self, tmp_path):
        description, header, payload = unpack((GOLDEN / "format3-fm.sfm").read_bytes())
        own = {name: value for name, value in description["training"].items() if name not in ("effort", "time_limit")}
        own.pop("select_resolutions", None)

        def load(**settings):
            description["training"] = own | settings
            (tmp_path / "m.sfm").write_bytes(pack(description, header, payload))
            return sf.load(tmp_path / "m.sfm")

        for select, crosses in ((True, None), (False, "auto"), (True, 2)):
            assert load(select_resolutions=select, crosses=crosses).training.effort == "default"
        training = load(select_resolutions=False, crosses=None).training
        assert (training.effort, training.time_limit, training.members) == ("fast", None, 1)
        assert load(select_resolutions=True, crosses=None, effort="fast").training.effort == "fast"
        for wrong in ({"select_resolutions": "yes"}, {"select_resolutions": [1]}):
            with pytest.raises(sf.ModelFileError, match="select_resolutions of Training is"):
                load(**wrong)
        with pytest.raises(sf.ModelFileError, match="select_resolutions twice"):
            load(select_resolutions=True, refine=True)

    def test_runs_that_are_gone_keep_their_names(self, small, tmp_path):
        assert set(RUNS) <= set(kinds.RUN_NAMES)
        runs = ("first", "by column", "all rows", "update", "half", "crosses")  # the order of their numbers in files
        assert kinds.RUN_NAMES[: len(runs)] == runs
        history = tuple(sf.Epoch(i, 0.5, 0.5, 0.01, 1e3, 0.1, run) for i, run in enumerate(kinds.RUN_NAMES, 1))
        replace(small, history=history).save(tmp_path / "m.sfm")
        assert sf.load(tmp_path / "m.sfm").history == history

    def test_there_is_one_of_every_model_for_every_format(self):
        found = {path.stem for path in GOLDEN.glob("*.sfm")}
        assert found == {f"format{number}-{name}" for number in range(1, modelfile.FORMAT + 1) for name in MODELS}
        assert sum(path.stat().st_size for path in GOLDEN.glob("*.sfm")) < 250_000 * modelfile.FORMAT

    def test_the_settings_that_are_saved_are_those_of_this_version(self, encoder, tmp_path):
        """A golden file of this format has every setting, so that no default of another version can change it."""
        untrained(encoder, sf.FM(k=4)).save(tmp_path / "m.sfm")
        description = unpack((tmp_path / "m.sfm").read_bytes())[0]
        assert set(description["training"]) - {"kind"} == set(sf.Training.__dataclass_fields__) - {"engine", "device"}
        assert set(description["encoder"]["fields"][0]["basis"]) == {"kind", "segments", "degree", "knots", "periodic"}
