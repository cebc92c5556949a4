"""The Helm chart of examples/serve: with its default values, it is the Kubernetes manifest beside it."""

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

from splinefm.cli.main import app

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "examples" / "serve"
CHART = FOLDER / "chart"
ACTION = re.compile(r"\{\{-? *(.*?) *-?\}\}")
ORDER = ["Deployment", "Service", "PodDisruptionBudget"]
CHANGED = {
    "replicas": 3,
    "index": "items.sfi",
    "drainDelay": 20,
    "options": ["--ignore-extra", "--log-requests"],
    "resources": {"requests": {"cpu": "1"}},
}


def evaluate(action, values, item=None):
    """The value of an action, as far as the chart uses the language of Helm."""
    action, _, function = action.partition(" | ")
    name, *arguments = action.split()
    if name == "add":
        value = sum(int(evaluate(part, values)) for part in arguments)
    elif name == "printf":
        value = json.loads(arguments[0]) % evaluate(arguments[1], values)
    elif name == "toYaml":
        return " " + json.dumps(evaluate(arguments[0], values))  # JSON is YAML
    elif name.isdigit():
        value = int(name)
    elif name == ".":
        value = item
    elif name == ".Release.Name":
        value = "splinefm"
    else:
        assert re.fullmatch(r"\.Values\.\w+", name), name
        value = values[name.removeprefix(".Values.")]
    assert function in ("", "quote"), function
    return json.dumps(str(value)) if function else value


def render(text, values):
    """A template with blocks on lines of their own: enough to read it where Helm is not installed."""
    out, block = [], None
    for line in text.splitlines():
        found = ACTION.fullmatch(line.strip())
        word, _, rest = found[1].partition(" ") if found else ("", "", "")
        if word in ("if", "range"):
            assert block is None, "a block in a block"
            given = evaluate(rest, values)
            block = given if word == "range" else [given] if given else []
        elif word == "end":
            block = None
        else:
            for item in [None] if block is None else block:
                out.append(ACTION.sub(lambda part, item=item: str(evaluate(part[1], values, item)), line))
    assert block is None
    return yaml.safe_load("\n".join(out))


def render_all(values):
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() <= given.keys()
    found = [render(path.read_text(), given | values) for path in (CHART / "templates").iterdir()]
    return sorted(found, key=lambda document: ORDER.index(document["kind"]))


def render_by_helm(values):
    options = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    command = ["helm", "template", "splinefm", str(CHART), *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [document for document in yaml.safe_load_all(text) if document]
    return sorted(found, key=lambda document: ORDER.index(document["kind"]))


def arguments_of(deployment):
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container["args"]


def check(rendered):
    """What is rendered with default values, and with others."""
    documents = [*yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())]
    assert rendered({}) == documents
    deployment, *others = rendered(CHANGED)
    assert others == documents[1:]
    assert deployment["spec"]["replicas"] == 3
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 60 and pod["containers"][0]["resources"] == CHANGED["resources"]
    arguments = arguments_of(deployment)
    assert arguments[arguments.index("--drain-delay") + 1] == "20"
    assert arguments[-4:] == ["--index", "/models/items.sfi", "--ignore-extra", "--log-requests"]
    assert all(isinstance(argument, str) for argument in arguments)
    options = {parameter for command in get_command(app).commands["serve"].params for parameter in command.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options


def test_the_templates_can_be_read_and_are_the_manifest():
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["apiVersion"] == "v2" and {"name", "version"} <= about.keys()
    check(render_all)


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm to render the chart")
def test_helm_renders_the_manifest():
    subprocess.run(["helm", "lint", str(CHART)], check=True, capture_output=True)
    check(render_by_helm)


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="needs kubernetes-validate, which has the schemas")
@pytest.mark.parametrize("values", [{}, CHANGED], ids=["default", "changed"])
def test_the_manifest_is_valid(values):
    import kubernetes_validate

    for version in ("1.31", "1.34"):
        for document in render_all(values):
            kubernetes_validate.validate(document, version, strict=True)
