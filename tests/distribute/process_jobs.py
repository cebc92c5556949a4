"""What the processes of tests/distribute/test_processes.py run: `python process_jobs.py FOLDER`.

Results go to NAME.json in the folder, as {check: value}. Importing TorchRec takes seconds. So one process imports it
and forks the processes of all jobs, one job after the other, and each job does several checks. The job with a process
that is killed has the agent of torchrun above it, and runs beside the others.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
import uuid
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import splinefm as sf
from splinefm.cli import worker as command_line
from splinefm.distribute import checkpoints as checkpoints_module
from splinefm.distribute import fit as fit_module
from splinefm.distribute import processes as processes_module
from splinefm.distribute import tables
from splinefm.distribute import update as update_module
from splinefm.distribute import update_state as state_module
from splinefm.distribute.batches import Feed, LocalBatch, StepRequest
from splinefm.distribute.fit import DistributedFit, JobSettings, fit_on_processes
from splinefm.distribute.model import Averages, ParallelModel, adapt_penalties, first_penalties
from splinefm.distribute.processes import PeerFailed, run_together
from splinefm.distribute.results import set_tables
from splinefm.distribute.rows import Position
from splinefm.distribute.training import Job
from splinefm.distribute.update import DistributedUpdate, update_on_processes
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.optimizers import Group, Optimizer
from splinefm.model.scores import predict_scores
from splinefm.train.offsets import Offset
from splinefm.train.penalties import AdaptivePenalties
from splinefm.train.rows import Chunk
from splinefm.update.files import DEFAULT_GUARD, update_lock
from support import THOROUGH, one_of_each, random_params

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")  # without arguments where pytest looks for examples
RESULTS = {}
# A spline, long and short categories, lists of both reductions: small tables and large ones.
LAYOUT = SlotLayout(
    (
        FieldLayout("spline", 12, (4,), (0,)),
        FieldLayout("category", 1300, (1,), (0,)),
        FieldLayout("list", 1200, (1, 1, 1), (0, 1, 2)),
        FieldLayout("short", 5, (1,), (0,)),
        FieldLayout("sum", 1100, (1, 1), (0, 0)),
    )
)
SMOOTH = [
    [Group(2, 1e-3, 1e-4), Group(10, 2e-3, 1e-4, 0.01)],
    *([Group(field.n_features, 1e-3, 1e-4)] for field in LAYOUT.fields[1:]),
]
# More threads than cores that are free would wait for each other.
TRAINING = sf.Training(epochs=3, batch_size=128, learning_rate=0.03, seed=3, threads=1)


def draw_slots(n, rng):
    sizes = [9, 1300, 1200, 1200, 1200, 5, 1100, 1100]
    field = [0, 1, 2, 2, 2, 3, 4, 4]
    start = np.stack(
        [LAYOUT.feature_ptr[f] + rng.integers(0, size, n) for f, size in zip(field, sizes, strict=True)], 1
    )
    weight = np.ones((n, LAYOUT.n_weights), np.float32)
    weight[:, :4] = rng.dirichlet(np.ones(4), n)
    weight[rng.random(n) < 0.3, -1] = 0.0
    return Slots(start.astype(np.int32), weight, LAYOUT)


def draw_chunk(n, rng):
    return Chunk(draw_slots(n, rng), rng.integers(0, 2, n).astype(float), rng.uniform(0.5, 2.0, n))


def parallel_model(processes, model, params, groups, loss=None, **options):
    made = ParallelModel(model, LAYOUT, loss or sf.Loss(), groups, processes, 16, **options)
    params = params if params["bias"].ndim == 2 else {name: values[None] for name, values in params.items()}

    def read(f, begin, end):
        rows = slice(LAYOUT.feature_ptr[f] + begin, LAYOUT.feature_ptr[f] + end)
        return params["factors"][:, rows], params["linear"][:, rows]

    set_tables(made, read)
    made.set_between({name: values for name, values in params.items() if name not in ("factors", "linear")})
    first_penalties(made)
    return made


def gathered(model):
    """All parameters, as in `Params`."""
    outputs, width = model.shape.outputs, model.shape.width
    factors, linear = np.zeros((outputs, LAYOUT.n_features, width)), np.zeros((outputs, LAYOUT.n_features))
    for f, begin, end, vectors in model.local_rows():
        rows = slice(LAYOUT.feature_ptr[f] + begin, LAYOUT.feature_ptr[f] + end)
        factors[:, rows], linear[:, rows] = (part.numpy() for part in model.shape.split(vectors))
    factors, linear = model.processes.sums(factors), model.processes.sums(linear)
    found = {"factors": factors.astype(np.float32), "linear": linear.astype(np.float32)}
    return {**model.between(), **(found if outputs > 1 else {name: values[0] for name, values in found.items()})}


def batch_of(model, chunk, rate=1e-9):
    """The rows of this process; every feature is as rare as if it were in one row of a batch."""
    maker = model.batch_maker(tuple(np.full(field.n_features, rate) for field in LAYOUT.fields), 1)
    own = np.array_split(np.arange(len(chunk.y)), model.processes.count)[model.processes.index]
    batch = maker(chunk, own, model.rows_per_process)
    batch.total[:] = chunk.sample_weight.sum()
    return batch


def check_scores(processes):
    """Sharded scores against the formula and the CPU engine."""
    worst = {}
    softmax = sf.Loss("softmax", classes=("a", "b", "c"))
    for i, model in enumerate([*one_of_each(5), sf.FwFM(k=4)]):
        loss = softmax if i == 7 else sf.Loss()
        parts = [random_params(model, LAYOUT, seed) for seed in range(loss.n_outputs)]
        params = parts[0] if i < 7 else {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        made = parallel_model(processes, model, params, SMOOTH, loss)
        slots = draw_slots(40, np.random.default_rng(processes.index))
        if i % 2 and loss.n_outputs == 1:
            slots = replace(slots, offset=np.linspace(-1.0, 1.0, 40, dtype=np.float32))
        found = made.scores(slots)
        formula = np.abs(found - formula_scores(model, params, slots)).max()
        engine = np.abs(found - predict_scores(model, params, slots, 1)).max()
        size = np.abs(found).max()
        worst[f"{loss.name} {model}"] = processes.maxima([formula / size, engine / size]).tolist()
    RESULTS["scores"] = worst
    RESULTS["plan"] = made.describe()


def steps_on_both(processes, groups, name, rate, n_steps, adapt=False):
    """The largest difference to the CPU engine after some steps, and how far the engine came."""
    model = sf.FwFM(k=3, third=2)
    params, rng = random_params(model, LAYOUT), np.random.default_rng(1)
    made = parallel_model(processes, model, params, groups)
    engine = CpuEngine(model, LAYOUT, params, "logistic", Optimizer(name, rate), groups, 16, 1)
    for step in range(n_steps):
        chunk = draw_chunk(13, rng)
        engine.step(*chunk)
        made.set_rate(rate, rate)
        made.step(batch_of(made, chunk))
        if adapt and step == 1:
            AdaptivePenalties(engine).adapt(engine.values["factors"], 0.7)
            adapt_penalties(made, 0.7)
    found, wanted = gathered(made), engine.params()
    differences = {name: np.abs(found[name] - wanted[name]) for name in wanted}
    if not adapt:  # the first step of Adagrad has the sign of the gradient, which rounding decides where it is zero
        differences = {name: np.quantile(values, 0.9999) for name, values in differences.items()}
    return {n: [float(np.max(differences[n])), float(np.abs(wanted[n] - params[n]).max())] for n in wanted}


def check_steps(processes):
    """Small tables as in the CPU engine with all penalties; large ones with L2 on vectors that are features."""
    tables.SMALL_ROWS, before = 10**6, tables.SMALL_ROWS
    RESULTS["small"] = steps_on_both(processes, SMOOTH, "adamw", 0.01, 4, adapt=True)
    tables.SMALL_ROWS = tables.SMOOTH_BYTES = 0
    factor = [0.0, 1.0, 1.0, 1.0, 0.0]  # sums of several features have a penalty of their own
    plain = [[Group(field.n_features, 0.3 * on, 0.1 * on)] for on, field in zip(factor, LAYOUT.fields, strict=True)]
    large = steps_on_both(processes, plain, "adagrad", 0.1, 1)
    RESULTS["large"] = {name: large[name] for name in ("factors", "linear")}
    tables.SMALL_ROWS, tables.SMOOTH_BYTES = before, 1 << 24


def check_averages(processes):
    """Averages of all tables against their formula, every second step; the tables come back afterwards."""
    model, rng = sf.FwFM(k=3), np.random.default_rng(2)
    made = parallel_model(processes, model, random_params(model, LAYOUT), SMOOTH)
    averages, wanted = Averages(made, 32), gathered(made)
    for step in range(1, 6):
        made.set_rate(0.1, 0.1)
        made.step(batch_of(made, draw_chunk(13, rng)))
        averages.after_step(step)
        if step in (2, 4, 5):
            share = 1.0 - np.exp(-2.0 / 32 * (2 if step < 5 else 1))
            now = gathered(made)
            wanted = {name: wanted[name] + share * (now[name] - wanted[name]) for name in ("factors", "linear")}
    with averages.in_place(5):
        found = gathered(made)
    back = gathered(made)
    RESULTS["averages"] = {
        name: [float(np.abs(values[name] - other[name]).max()) for values, other in ((found, wanted), (found, now))]
        for name in wanted
    }
    RESULTS["back"] = all((back[name] == now[name]).all() for name in now)


class GivenRows(Feed):
    """A feed of the batches of a chunk, instead of files."""

    def batches(self, share):
        chunk = self.encode(None)
        for first in range(0, len(chunk.y), self.size):
            rows = np.arange(first, min(first + self.size, len(chunk.y)))
            yield LocalBatch(self.maker(chunk, rows, self.size), len(rows), 0.0, lambda: share.position)


def check_weights(processes):
    """Steps and losses are divided by the weights of all processes; weights and rows of processes differ."""
    model = sf.FwFM(k=3)
    made, rng = (
        parallel_model(processes, model, random_params(model, LAYOUT), SMOOTH),
        np.random.default_rng(processes.index),
    )
    chunk = draw_chunk(13 + 7 * processes.index, rng)
    chunk = chunk._replace(sample_weight=(5.0 + processes.index) * chunk.sample_weight)
    maker = made.batch_maker(tuple(np.ones(field.n_features) for field in LAYOUT.fields), 1)
    feed = GivenRows([], lambda _: chunk, None, maker, made.rows_per_process, lambda y, weight: 0.0)
    share = SimpleNamespace(position=Position("", 0, 0))
    totals = [float(step.batch.total[0]) for step in feed.steps(share, processes, lambda: StepRequest(False))]
    sums = [chunk.sample_weight[at : at + feed.size].sum() for at in range(0, feed.size * len(totals), feed.size)]
    RESULTS["totals"] = [totals, processes.sums(np.array(sums)).tolist()]
    scores = formula_scores(model, random_params(model, LAYOUT), chunk.slots)
    losses = np.logaddexp(0.0, scores) - chunk.y * scores
    weighted = processes.sums(np.array([losses @ chunk.sample_weight, chunk.sample_weight.sum()]))
    job = Job(made, None, feed, TRAINING, 0, chunk, None, 0.0, None)
    RESULTS["validation loss"] = [job._validation_loss(), float(weighted[0] / weighted[1])]


def check_refusals():
    """What is for one machine."""
    found = RESULTS["refused"] = []
    for options in ({"members": 2}, {"crosses": 2}, {"optimizer": "adagrad"}):
        try:
            replace(request(), training=replace(TRAINING, **options)).check()
        except ValueError as error:
            found.append(str(error))


def outcome(processes, job):
    """What a process reports about a job that fails: its message, or that it leaves it to others."""
    try:
        job()
        mine = "done"
    except PeerFailed:
        mine = "silent"
    except (ValueError, OSError) as error:
        mine = f"{type(error).__name__}: {error}"
    return [json.loads(data) for data in processes.gather(json.dumps(mine).encode())]


def request(**options):
    schema = sf.Schema(
        [sf.Numerical("x"), sf.Categorical("c"), sf.Categorical("d", min_count=1), sf.MultiValued("tags")]
    )
    return DistributedFit(str(FOLDER / "rows"), "click", schema, sf.FwFM(k=4), sf.Loss(), training=TRAINING, **options)


class Interrupted(ValueError):
    """Stands for anything that ends a run."""


def interrupted_after(step):
    def after(number):
        if number == step:
            raise Interrupted(f"step {step}")

    return after


def fit(processes, name, training=TRAINING, **options):
    fitted = fit_on_processes(replace(request(), training=training), JobSettings(FOLDER / name, **options), processes)
    RESULTS[name] = [epoch._asdict() for epoch in fitted.history]


def interrupt(processes, step, **options):
    """Begin or continue the run whose checkpoints are in "moves", and stop it after a step."""
    settings = JobSettings(FOLDER / "moved.sfm", checkpoints=FOLDER / "moves", minutes=0.0, resume=True, **options)
    settings = replace(settings, after_step=interrupted_after(step))
    RESULTS[f"stopped {processes.count}"] = outcome(processes, lambda: fit_on_processes(request(), settings, processes))


def two(processes):
    tables.SMALL_ROWS = 1024
    check_scores(processes)
    check_steps(processes)
    check_averages(processes)
    check_weights(processes)
    check_refusals()
    tables.SMALL_ROWS = 20
    weighted = request(sample_weight="w", validation=str(FOLDER / "weighted validation"))
    training = replace(TRAINING, epochs=1, learning_rate=1e-7)  # the model hardly moves
    weighted = replace(weighted, data=str(FOLDER / "weighted"), training=training)
    found = fit_on_processes(weighted, JobSettings(FOLDER / "weighted.sfm"), processes)
    RESULTS["weighted"] = [found.history[0].train_loss, found.history[0].validation_loss]
    exposed = replace(weighted, loss=sf.Loss("poisson"), sample_weight=None, offset=Offset("w", "exposure"))
    found = fit_on_processes(exposed, JobSettings(FOLDER / "exposed.sfm"), processes)
    RESULTS["exposed"] = [found.history[0].train_loss, found.history[0].validation_loss]
    guard = replace(DEFAULT_GUARD, validation=str(FOLDER / "weighted validation"), max_calibration_error=9.0)
    more = DistributedUpdate(FOLDER / "exposed.sfm", str(FOLDER / "weighted"), "click", guard=guard, training=training)
    report = update_on_processes(more, JobSettings(FOLDER / "exposed again.sfm"), processes)
    RESULTS["exposed update"] = [report.verdict.new.loss, report.verdict.before.loss, report.verdict.after.loss]
    fit(processes, "two.sfm")
    fit(processes, "row-wise.sfm", replace(TRAINING, epochs=2), optimizer="rowwise-adagrad")
    if THOROUGH:
        fit(processes, "piped.sfm", pipelined=True)
    check_interactions(processes)
    interrupt(processes, 20)


def check_interactions(processes):
    """Fit with columns that must not interact: a weight per pair of fields, and parts of vectors."""
    for model in (sf.FwFM(k=4), sf.FFM(k=3)):
        schema = request().schema.with_interactions([{"x", "d"}, {"c", "tags"}])
        constrained = replace(request(), schema=schema, model=model, training=replace(TRAINING, epochs=1))
        settings = JobSettings(FOLDER / f"apart {model.kind}.sfm", checkpoints=FOLDER / f"apart {model.kind}")
        fit_on_processes(constrained, settings, processes)


def four(processes):
    tables.SMALL_ROWS = 20
    interrupt(processes, 30)


def three(processes):
    tables.SMALL_ROWS = 20
    fit(processes, "three", sharded=True)
    RESULTS["update"] = update(processes, "three", "new", "updated.sfm")
    RESULTS["zeros"] = outcome(processes, lambda: update(processes, "updated.sfm", "zeros", "updated.sfm"))
    settings = JobSettings(FOLDER / "sharded", sharded=True)
    RESULTS["sharded"] = update(processes, "three", "new", "sharded", settings, sf.Guard(str(FOLDER / "rows")))


def update(processes, model, data, out, settings=None, guard=DEFAULT_GUARD):
    """Update a model, and keep sums of the moments of its optimizers as they were written."""

    def write(*arguments):
        RESULTS[f"moments of {arguments[0].name}"] = sums_of_moments(arguments[3])
        state_module.write_with_state(*arguments)

    update_module.write_with_state = write
    request = DistributedUpdate(FOLDER / model, str(FOLDER / data), "click", guard=guard)
    return update_on_processes(request, settings or JobSettings(FOLDER / out), processes).to_dict()


def sums_of_moments(model):
    """The sum of absolute values of every moment, over all processes."""
    own = {}
    for name, parts in state_module._moments(model, on_every_process=False):
        own[name] = own.get(name, 0.0) + sum(float(part.values.double().abs().sum()) for part in parts)
    totals = {}
    for theirs in map(json.loads, model.processes.gather(json.dumps(own).encode())):
        for name, value in theirs.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def again(processes):
    """The next hour, with another number of processes."""
    tables.SMALL_ROWS = 20
    restore = state_module.OptimizerState.restore

    def restored(state, model):
        restore(state, model)
        RESULTS["restored moments"] = sums_of_moments(model)

    state_module.OptimizerState.restore = restored
    RESULTS["again"] = update(processes, "updated.sfm", "rows", "again.sfm")
    state_module.OptimizerState.restore = restore
    RESULTS["sharded again"] = update(processes, "sharded", "rows", "sharded", JobSettings(FOLDER / "sharded", True))
    with update_lock(FOLDER / "again.sfm") if processes.first else nullcontext():
        processes.barrier()
        RESULTS["locked"] = outcome(processes, lambda: update(processes, "updated.sfm", "new", "again.sfm"))
    RESULTS["no guard"] = update(processes, "updated.sfm", "zeros", "learned.sfm", guard=None)


def one(processes):
    tables.SMALL_ROWS = 20
    fit(processes, "one.sfm")
    fit(processes, "moved.sfm", checkpoints=FOLDER / "moves", resume=True)
    other = replace(request(), training=replace(TRAINING, learning_rate=0.1))
    settings = JobSettings(FOLDER / "other.sfm", checkpoints=FOLDER / "moves", resume=True)
    RESULTS["other settings"] = outcome(processes, lambda: fit_on_processes(other, settings, processes))
    settings = replace(settings, resume=False)
    RESULTS["not resumed"] = outcome(processes, lambda: fit_on_processes(request(), settings, processes))
    RESULTS["torch threads"] = [threads_for(threads, processes) for threads in (None, 2)]


def threads_for(threads, processes):
    """The threads of torch on the only process of a machine with several cores."""
    fit_module.count_threads, before = lambda given: 8 if given is None else given, fit_module.count_threads
    encoding = fit_module.settings_for_process(replace(TRAINING, threads=threads), processes).threads
    fit_module.count_threads, found = before, torch.get_num_threads()
    torch.set_num_threads(1)
    return [encoding, found]


def killed(processes):
    """Process 1 is killed in the middle of the second epoch, once."""
    tables.SMALL_ROWS = 20
    again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

    def after(step):
        if processes.index == 1 and step == 35 and not again:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = JobSettings(FOLDER / "killed.sfm", minutes=0.002, resume=again > 0, after_step=after)
    fitted = fit_on_processes(request(), settings, processes)
    RESULTS["history"], RESULTS["restarts"] = [epoch._asdict() for epoch in fitted.history], again


JOBS = {job.__name__: job for job in (two, four, three, again, one, killed)}


def be_a_process(name):
    torch.set_num_threads(1)
    seen = SimpleNamespace(first=False)

    def job(processes):
        seen.first = processes.first
        JOBS[name](processes)

    run_together(job, 120.0)
    if seen.first:
        (FOLDER / f"{name}.json").write_text(json.dumps(RESULTS))


# Faults, as a user meets them: what happens to one process before it runs the command.


def other_version():
    versions = processes_module.versions()
    processes_module.versions = lambda: versions | {"torch": "2.0"}


def full_disk():
    def full(self, *arguments):
        raise OSError(28, "No space left on device")

    checkpoints_module.dcp.FileSystemWriter.write_data = full


def little_memory():
    tables.free_memory = lambda: 1000


def hang():
    fit_module.open_rows = lambda data: signal.pause()


def nothing():
    pass


# By name: what happens to process 1, its data if they are others, and options.
COMMANDS = {
    "fine": (nothing, "rows", ["--json", "--balanced", f"--validation={FOLDER / 'new'}"]),
    "versions": (other_version, "rows", []),
    "missing file": (nothing, "nowhere", []),
    "other file": (nothing, "other", []),
    "other contents": (nothing, "flipped", []),
    "target": (nothing, "rows", ["--target=clik"]),
    "too few rows": (nothing, "few", []),
    "memory": (little_memory, "rows", []),
    "full disk": (full_disk, "rows", ["--checkpoint-minutes=0"]),
    "hanging": (hang, "rows", ["--timeout=5"]),
    "device": (nothing, "rows", ["--device=gpu"]),
    "members": (nothing, "rows", ["--members=2"]),
    "effort": (nothing, "rows", ["--effort", "best"]),
    "time limit": (nothing, "rows", ["--time-limit", "60"]),
    "other validation": (nothing, "rows", [f"--validation={FOLDER / 'plain'}"]),
}
UPDATES = {"bad hour": ["zeros", "--json"], "good hour": ["new", "--json"], "separator": ["new", "--sep=;"]}


def be_a_command(name, process):
    """Run `python -m splinefm.distribute fit`; what it prints goes to files."""
    before, data, options = COMMANDS[name]
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(FOLDER / f"{name}.{process}.{kind}", os.O_WRONLY | os.O_CREAT), number)
    if process == 1:
        before()
    data = FOLDER / (data if process == 1 or data == "few" else "rows")
    common = ["--target=click", f"--out={FOLDER / name}.sfm", "--model=fwfm", "--k=2", "--epochs=1", "--threads=1"]
    sys.argv = ["splinefm.distribute", "fit", str(data), *common, *options]
    command_line.main()


def be_an_update(name, process):
    """Run `python -m splinefm.distribute update`; what it prints goes to files."""
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(FOLDER / f"{name}.{process}.{kind}", os.O_WRONLY | os.O_CREAT), number)
    data, *options = UPDATES[name]
    sys.argv = [
        "splinefm.distribute",
        "update",
        str(FOLDER / "hourly.sfm"),
        str(FOLDER / data),
        *options,
        "--threads=1",
    ]
    command_line.main()


def fork(n, be):
    """Call `be(process)` in n processes and return their exit codes; all end soon after one fails, as with torchrun."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    children, codes = {}, [0] * n
    for process in range(n):
        child = os.fork()
        if not child:
            world = {"RANK": process, "WORLD_SIZE": n, "LOCAL_RANK": process, "LOCAL_WORLD_SIZE": n}
            world |= {"MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
            os.environ.update({key: str(value) for key, value in world.items()}, MASTER_ADDR="127.0.0.1")
            leave(be, process)
        children[child] = process
    while children:
        time.sleep(0.02)
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
        if any(codes) and children:
            time.sleep(0.1)
            for child in children:
                os.kill(child, signal.SIGTERM)
    return codes


def leave(be, *arguments):
    """Call a function in a forked process, and end it."""
    code = 1
    try:
        be(*arguments)
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def be_torchrun(name):
    """What `torchrun --standalone --nproc-per-node 2 --max-restarts 1` does; its processes are forked."""
    config = LaunchConfig(
        1, 1, 2, run_id=uuid.uuid4().hex, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=1,
        monitor_interval=0.1, start_method="fork",
    )  # fmt: skip
    elastic_launch(config, be_a_process)(name)


def main():
    beside = os.fork()
    if not beside:
        leave(be_torchrun, "killed")
    for name, n in (("two", 2), ("four", 4), ("one", 1), ("three", 3), ("again", 2)):
        fork(n, lambda process, name=name: be_a_process(name))
    sizes = {name: 3 if data == "few" else 2 for name, (_, data, _) in COMMANDS.items()}  # two rows are too few
    codes = {name: fork(n, lambda process, name=name: be_a_command(name, process)) for name, n in sizes.items()}
    shutil.copy(FOLDER / "two.sfm", FOLDER / "hourly.sfm")
    codes |= {name: fork(2, lambda process, name=name: be_an_update(name, process)) for name in UPDATES}
    codes["killed"] = os.waitstatus_to_exitcode(os.waitpid(beside, 0)[1])
    (FOLDER / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
