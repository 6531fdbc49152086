# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run named stages of the tests, print each one's time, and close with one summary line.

Usage: python tests/run.py check|test|nightly|STAGE ... [--lanes N]      (`make check`, `make test`, `make nightly`)

Three stages run at once, each line behind its stage's name; one alone, or `--lanes 1`, prints as it is. Nothing fails
because it took long. A pytest stage counts its tests; any other stage counts as one test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ansible_collections.attested.kubernetes.tests.support import importer
from ansible_collections.attested.kubernetes.tests.support import lanes as imported
from ansible_collections.attested.kubernetes.tests.support.broken import broken, broken_task
from ansible_collections.attested.kubernetes.tests.support.lanes import Order, run_in_lanes, run_named, say
from ansible_collections.attested.kubernetes.tests.support.threats import untried
from ansible_collections.attested.kubernetes.tests.support.verdicts import WITHOUT, Sources, Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("ATTESTED_CACHE", Path.home() / ".cache" / "attested-kubernetes"))
PACKAGE = "ansible_collections.attested.kubernetes.plugins"
SANITY_TREE = Path("ansible_collections") / "attested" / "kubernetes"
SCENARIOS = (
    "node_bundle",
    "node_runtime",
    "kubernetes_node",
    "bootstrapper",
    "control_plane",
    "key_service",
    "join_service",
    "worker",
    "boot_source",
    "api_endpoint",
)
"""Of molecule, one a role or a module, in an order in which each stands on those before it."""
SANITY_FILES = {"import": ("plugins/",), "pylint": ("meta/", "playbooks/", "plugins/", "roles/")}
"""Where the files are that these two read: those of the archive. A nightly run has pylint read the tests as well."""
SHOWN_WORDS = 16
GET_PIP = "get_pip_24_2.py"  # the name that ansible-test of core 2.19 to 2.22 looks for, see `_offer_pip`


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of a stage passed, failed and were skipped; where a report says it, which ones failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broken: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """Add up two stages."""
        return Counts(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            broken=(*self.broken, *other.broken),
        )

    def __str__(self) -> str:
        """Return the closing line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def _run(*argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> bool:
    more = len(argv) - SHOWN_WORDS
    print(f"+ {' '.join(argv[:SHOWN_WORDS])}" + (f" and {more} more" if more > 0 else ""), flush=True)
    return subprocess.run(argv, cwd=cwd or ROOT, env={**os.environ, **(env or {})}, check=False).returncode == 0


def _run_beside(*argvs: tuple[str, ...]) -> dict[str, bool]:
    """Run programs side by side, print each one's output as a whole, and return which were good."""

    def one(argv: tuple[str, ...]) -> bool:
        done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        print(f"+ {' '.join(argv)}\n{done.stdout.decode(errors='replace')}", end="", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(map(" ".join, argvs), pool.map(one, argvs), strict=True))


def _tally(outcomes: Mapping[str, bool]) -> Counts:
    """Count what was good, by name."""
    failed = tuple(name for name, good in outcomes.items() if not good)
    return Counts(passed=len(outcomes) - len(failed), failed=len(failed), broken=failed)


def lint() -> Counts:
    """Style, types and YAML of the whole tree; ansible-lint reads it if its verdict could be another."""
    verdicts, keys = Verdicts(CACHE / "lint" / "verdicts", environ=os.environ), {"ansible-lint": _key_of_ansible_lint()}
    left = verdicts.left(keys)
    if not left:
        print("ansible-lint: all it reads is as it was found good", flush=True)
    outcomes = _run_beside(
        reader := ("ansible-lint", "--offline", "-q") if left else ("true",),
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy", "-p", PACKAGE),
        ("mypy", "tests/run.py", *(f"tests/{name}" for name in ("bench", "e2e", "mutation", "support", "system"))),
        ("yamllint", "--strict", "."),
        ("antsibull-changelog", "lint"),
    )
    verdicts.remember(keys.values() if outcomes[" ".join(reader)] else ())
    return _tally(outcomes)


def _key_of_ansible_lint() -> str:
    """Return the hash of its release, of Ansible's, and of all files but those that it does not read."""
    read = [one for one in _listed() if not one.startswith(("docs/", "changelogs/"))]
    read = [one for one in read if not (one.startswith("tests/") and one.endswith(".py"))]
    files = [f"{one} {hashlib.sha256((ROOT / one).read_bytes()).hexdigest()}" for one in read]
    tools = [f"{one} {metadata.version(one)}" for one in ("ansible-core", "ansible-lint", "yamllint")]
    return hashlib.sha256("\n".join([sys.version, *tools, *files]).encode()).hexdigest()


def sanity() -> Counts:
    """Ansible's own rules on a staged copy, with no ignore list; the two slow ones where a verdict could be another."""
    return _sanity("import", "pylint")


def sanity_quick() -> Counts:
    """The same without pylint, which takes longer than all others together."""
    return _sanity("import", without=("pylint",))


def galaxy() -> Counts:
    """The built archive: the importer finds every module and has no warning; once installed, it makes its wheel."""
    with tempfile.TemporaryDirectory(prefix="galaxy-") as directory:
        scratch = Path(directory)
        _stage(scratch / "tree")
        _run("ansible-galaxy", "collection", "build", "--output-path", directory, cwd=scratch / "tree")
        archives = list(scratch.glob("*.tar.gz"))
        if len(archives) != 1:
            return Counts(failed=1)
        said = importer.import_collection(importer.interpreter(CACHE / "galaxy"), archives[0], scratch)
        made = _wheels_of_installed(archives[0], scratch / "installed")
    found = importer.complaints(said, sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")))
    print("".join(f"{line}\n" for line in found), end="", flush=True)
    return _tally({"galaxy-importer": not found, "wheels of what is installed": made})


def _wheels_of_installed(archive: Path, place: Path) -> bool:
    """Install the built collection, and make the wheels of the nodes from what is installed; return whether it did."""
    tree = place / SANITY_TREE
    options = {
        "state": "cached",
        "part": "wheels-3.11",
        "cache_dir": str(CACHE),
        "files_dir": str(tree / "roles" / "bundle_builder" / "files"),
        "collection_dir": str(tree),
    }
    install = ("ansible-galaxy", "collection", "install", "--force", str(archive), "-p", str(place))
    module = ("ansible", "localhost", "-m", "attested.kubernetes.component_bundle", "-a", json.dumps(options))
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(place)}
    return all(_run(*argv, cwd=place.parent, env=settings) for argv in (install, module))


def _sanity(*slow: str, without: tuple[str, ...] = ()) -> Counts:
    """Run all tests but ``without``; those of ``slow`` on files of which no verdict is known (`verdicts`)."""
    if list(ROOT.glob("tests/sanity/ignore*")):
        print("tests/sanity/ignore*: expected no list of ignored errors", flush=True)
        return Counts(failed=1)
    home = CACHE / "sanity" / "home"
    _offer_pip(home)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    settings = {"HOME": str(home), "PIP_CACHE_DIR": str(CACHE / "pip"), "ANSIBLE_HOME": str(home / ".ansible")}
    config = Path.home() / ".config" / "pip" / "pip.conf"
    if config.exists():
        settings["PIP_CONFIG_FILE"] = str(config)
    words = ("ansible-test", "sanity", "--local", "--python", python)
    with tempfile.TemporaryDirectory(prefix="tree-", dir=home.parent) as directory:  # two runs may go on at once
        tree = Path(directory) / SANITY_TREE
        _stage(tree)
        skipped = [word for name in (*slow, *without) for word in ("--skip-test", name)]
        outcomes = {"ansible-test": _run(*words, *skipped, cwd=tree, env=settings)}
        sources, ground = Sources(tree), _ground(tree)
        for name in slow:
            every = name == "pylint" and WITHOUT in os.environ
            files = [one for one in sources.names if every or one.startswith(SANITY_FILES[name])]
            keys = {one: sources.key(one, ground=ground) for one in files}
            verdicts = Verdicts(CACHE / "sanity" / "verdicts" / name, environ=os.environ)
            left = verdicts.left(keys)
            print(f"{name}: {len(left)} files of {len(files)}, the others are as they were found good", flush=True)
            outcomes[name] = not left or _run(*words, "--test", name, *left, cwd=tree, env=settings)
            verdicts.remember(keys.values() if outcomes[name] else ())
        return _tally(outcomes)


def _ground(tree: Path) -> str:
    """Return what a verdict of ansible-test hangs on beside Python files: its release, the interpreter, settings."""
    settings = [path.read_text() for name in ("galaxy.yml", "meta/runtime.yml", "tests/config.yml")
                if (path := tree / name).is_file()]  # fmt: skip
    return "\n".join([metadata.version("ansible-core"), sys.version, *settings])


def _stage(tree: Path) -> None:
    """Copy what git would commit to a path that ansible-test accepts (it resolves links and refuses ours)."""
    for name in _listed():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


def _listed() -> list[str]:
    """Return the files that git has or would add."""
    argv = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def _offer_pip(home: Path) -> None:
    """Put Python's own copy of pip where ansible-test would otherwise download one."""
    target = home / ".ansible" / "test" / "cache" / GET_PIP
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests" / "support" / "get_pip.py", target)


def _pytest(*arguments: str, missing: Callable[[ET.Element], list[str]] | None = None) -> Counts:
    """Run pytest; what ``missing`` finds that its report lacks fails as well, one a line."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        good = _run(sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments)
        if not report.exists():
            return Counts(failed=1)
        suite = ET.parse(report).getroot().find("testsuite")
    if suite is None:
        return Counts(failed=1)
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    passed = total - failed - skipped
    counts = Counts(passed=passed, failed=failed or int(not good), skipped=skipped, broken=broken(suite))
    lacking = missing(suite) if missing else []
    print("".join(f"{line}\n" for line in lacking), end="", flush=True)
    return counts + Counts(failed=len(lacking), broken=tuple(lacking))


def unit() -> Counts:
    """Bytes in, object out: no TPM, no network, no root."""
    return _pytest("-n", "auto", "tests/unit")


def component() -> Counts:
    """Real swtpm, sockets and openssl; tpm2-tools as cross-check. Two files run beside each other."""
    return _pytest("-n", "2", "--dist", "loadfile", "tests/component")


def bundle() -> Counts:
    """Kubernetes from source, unless the cache has it: the API bed and the machines run it."""
    inventory = ("-i", "inventory/example/hosts.yml", "-e", f"attested_bundle={CACHE / 'test-bundle'}")
    stages = {"ANSIBLE_STDOUT_CALLBACK": "attested.kubernetes.stages"}
    return _tally({"playbook": _run("ansible-playbook", "attested.kubernetes.bundle", *inventory, env=stages)})


def repeated() -> Counts:
    """Unit and component tests twenty times on a busy machine, in another order each time, or ATTESTED_ROUNDS times."""
    counts, rounds = Counts(), int(os.environ.get("ATTESTED_ROUNDS", "20"))
    for number in range(1, rounds + 1):
        os.environ["ATTESTED_ORDER"] = str(number)  # read by tests/conftest.py
        say(f"=== repeated: round {number} of {rounds}; its order: ATTESTED_ORDER={number}")
        workers = str(2 * (os.cpu_count() or 1))
        counts += _pytest("-n", workers, "--dist", "loadfile", "tests/unit", "tests/component")
    return counts


def api_bed() -> Counts:
    """A real etcd and kube-apiserver: custom resources, RBAC, admission, compare-and-set.

    Two files run beside each other, each half with beds of its own: most of a test is waiting for one.
    """
    return _pytest("-n", "2", "--dist", "loadfile", "tests/api_bed")


def attacks() -> Counts:
    """Every known attack whose target exists, each in the cheapest bed that is real for it; none may be skipped whole.

    The table is in `docs/threat-model.md`.
    """
    return _pytest("tests/attacks", missing=untried)


def model() -> Counts:
    """The join protocol and its weakened copies in Maude; prints states and attacks."""
    return _pytest("-s", "-m", "not slow", "tests/model")


def model_deep() -> Counts:
    """Two runs and two sessions at once, or three of one: a search for each choice of challenges."""
    return _pytest("-s", "-m", "slow", "tests/model")


def fuzz() -> Counts:
    """Every parser of foreign bytes under coverage-guided fuzzing, two seconds each, from the same start each time."""
    return _fuzz(2, "--afresh")


def fuzz_long() -> Counts:
    """The same, two minutes each, and ten thousand mutations of each document; what reaches further is kept."""
    documents = _run(sys.executable, "tests/fuzz/documents.py", "--seed", str(int(time.time())))
    return _fuzz(120) + _tally({"documents": documents})


def _fuzz(seconds: int, *more: str) -> Counts:
    names = [path.stem.removeprefix("fuzz_") for path in sorted((ROOT / "tests" / "fuzz").glob("fuzz_*.py"))]

    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        words = ("--seconds", str(seconds), "--keep", str(CACHE / "fuzz"), "--scratch", scratch)
        argv = (sys.executable, "tests/fuzz/run_target.py", *names, *words, *more)
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
            for line in program.stdout or ():
                text = line.decode(errors="replace")
                print("" if text.startswith("INFO: Instrumenting ") else text, end="", flush=True)
                if told := re.match(r"fuzz (\w+) +(\d+) inputs$", text):
                    found[told[1]] = int(told[2])
    print(f"fuzz: {sum(found.values())} inputs to {len(names)} parsers", flush=True)
    outcomes = {name: name in found for name in names}
    alike = all(outcomes.values()) == (program.returncode == 0)
    return _tally(outcomes if alike else {**outcomes, "exit code": False})


def mutation() -> Counts:
    """Each small lie in the deciding code, and a test that fails for it."""
    return _tally({"survivors": _run(sys.executable, "tests/mutation/run.py")})


def mutation_slice() -> Counts:
    """A few of them in a few of the files, both chosen by the commit."""
    return _tally({"survivors": _run(sys.executable, "tests/mutation/run.py", "--slice", "5", "--files", "12")})


def machines() -> Counts:
    """Machines of a lab: real boots, reboots, guests, and a host that is as before."""
    return _pytest("tests/system/lab_machines")


def control_planes() -> Counts:
    """Three control planes in a lab: joined by ticket, rebooted, lost, reset."""
    return _pytest("tests/system/control_planes")


def check_mode() -> Counts:
    """What check mode names and what the run then changes, for the playbooks of a cluster's life in a lab."""
    return _pytest("tests/system/check_mode")


def race() -> Counts:
    """Init and join client on a real machine, 20 times: one winner, one lock event, no trace of the loser."""
    return _pytest("tests/system/race")


def matrix() -> Counts:
    """A fault before each step of joins and of an init, then the next try; leaves docs/records/DATE-matrix.json.

    A file is a lab, and two of them run beside each other: most of a case is waiting for a machine.
    """
    return _pytest("-n", "2", "--dist", "loadfile", "tests/system/matrix")


def state_disk() -> Counts:
    """A state disk on a real dm-integrity: its life beside a TPM, and a kill before each of its steps."""
    return _pytest("tests/system/state_disk")


def source_boot() -> Counts:
    """Workers of a lab that boot from the site's signed repository, and from tampered ones."""
    return _pytest("tests/system/source_boot")


def vm_bed() -> Counts:
    """A virtual machine with firmware, TPM and disks alone, as a worker beside a container, and two as a cluster."""
    return _pytest("tests/system/vm_bed")


def e2e() -> Counts:
    """One cluster in the lab from nothing to its end: admissions, refusals, kills, reboots, secrets, traces."""
    return _pytest("tests/e2e")


def molecule() -> Counts:
    """Roles on real nodes: check, converge, idempotence, verify."""
    _molecule("destroy")  # what a run that was killed left
    made = _molecule("create")
    scenarios = SCENARIOS if made.failed == 0 else ()
    outcomes = [_molecule("test", "-s", name, "--destroy=never") for name in scenarios] or [made]
    return sum((*outcomes, _molecule("destroy")), Counts())


def _molecule(*words: str) -> Counts:
    command = ("molecule", "-c", "tests/molecule/config.yml", *words)
    settings = {
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "MOLECULE_GLOB": "tests/molecule/*/molecule.yml",
    }
    print(f"+ {' '.join(command)}", flush=True)
    output = ""
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **settings}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as program:
        for line in program.stdout or ():
            print(line, end="", flush=True)
            output += line
    if program.returncode == 0:
        return Counts(passed=1)
    return Counts(failed=1, broken=(f"{' '.join(words)}: {broken_task(output)}",))


STAGES: dict[str, Callable[[], Counts]] = {
    "api_bed": api_bed,
    "attacks": attacks,
    "bundle": bundle,
    "check_mode": check_mode,
    "component": component,
    "control_planes": control_planes,
    "e2e": e2e,
    "fuzz": fuzz,
    "fuzz_long": fuzz_long,
    "galaxy": galaxy,
    "lint": lint,
    "machines": machines,
    "matrix": matrix,
    "model": model,
    "model_deep": model_deep,
    "molecule": molecule,
    "mutation": mutation,
    "mutation_slice": mutation_slice,
    "race": race,
    "repeated": repeated,
    "sanity": sanity,
    "sanity_quick": sanity_quick,
    "source_boot": source_boot,
    "state_disk": state_disk,
    "unit": unit,
    "vm_bed": vm_bed,
}
TEST = (
    "bundle",
    "lint",
    "e2e",
    "component",
    "unit",
    "molecule",
    "sanity",
    "api_bed",
    "attacks",
    "galaxy",
    "mutation_slice",
    "model",
    "fuzz",
)
"""The two longest stages come first: `make test` would otherwise wait for the last of them alone."""
SUITES: dict[str, tuple[str, ...]] = {
    "check": ("lint", "unit", "sanity_quick"),
    "nightly": (
        *TEST,
        "fuzz_long",
        "model_deep",
        "mutation",
        "repeated",
        "machines",
        "control_planes",
        "check_mode",
        "race",
        "matrix",
        "source_boot",
        "state_disk",
        "vm_bed",
    ),
    "test": TEST,
}
_MACHINES = frozenset(
    {
        "check_mode",
        "control_planes",
        "e2e",
        "machines",
        "matrix",
        "molecule",
        "race",
        "source_boot",
        "vm_bed",
    }
)
_BESIDE = frozenset({"molecule"})
"""It runs beside `e2e`, in a lab of its own: `make test` would otherwise wait for one lab after the other."""
_OF_KUBERNETES = _MACHINES | {"api_bed", "attacks", "component", "mutation", "mutation_slice", "repeated"}
ORDER = Order(
    needs=dict.fromkeys(_OF_KUBERNETES, frozenset({"bundle"})), apart=(_MACHINES - {"e2e"}, _MACHINES - _BESIDE)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a stage counted, and how long it took."""

    name: str
    seconds: float
    counts: Counts

    def __str__(self) -> str:
        """Return the line of the closing table."""
        return f"{self.name:<14} {self.seconds:7.1f} s   {self.counts}"

    def told(self) -> str:
        """Return a line for each test that failed, behind the name of the stage."""
        return "".join(f"{self.name:<14} {line}\n" for line in self.counts.broken)


def here(name: str) -> Ended:
    """Run a stage in this process."""
    say(f"=== {name}: {(STAGES[name].__doc__ or '').splitlines()[0]}")
    began, used = time.monotonic(), _cpu_seconds()
    counts = STAGES[name]()
    ended = Ended(name=name, seconds=time.monotonic() - began, counts=counts)
    say(f"=== {ended}; {_cpu_seconds() - used:.0f} s of CPU without its machines")
    return ended


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of all its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def in_own_process(name: str) -> Ended:
    """Run a stage beside others: its lines bear its name, its counts come by a file."""
    with tempfile.TemporaryDirectory() as scratch:
        report, began = Path(scratch) / "counts.json", time.monotonic()
        run_named(name, (sys.executable, str(Path(__file__).resolve()), name, "--report", str(report)))
        counts = _read(report) if report.exists() else Counts(failed=1)
    return Ended(name=name, seconds=time.monotonic() - began, counts=counts)


def _read(report: Path) -> Counts:
    said = json.loads(report.read_text())
    return Counts(**{**said, "broken": tuple(said["broken"])})


def other_tree(module: str | None = imported.__file__) -> str:
    """Return why the tests would be those of another tree than this, or nothing."""
    found = Path(module or "").resolve()
    if found.is_relative_to(ROOT):
        return ""
    return f"expected to test {ROOT}, but Python imports {found}: unset PYTHONPATH and ANSIBLE_COLLECTIONS_PATH"


def _named(words: list[str]) -> list[str]:
    names: list[str] = []
    for word in words:
        names += [name for name in SUITES.get(word, (word,)) if name not in names]
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=sorted({*STAGES, *SUITES}))
    parser.add_argument("--lanes", type=int, default=3, choices=range(1, 9), help="stages at once (default: 3)")
    parser.add_argument("--report", type=Path, help="write the counts of all as JSON, and no closing table")
    return parser.parse_args()


def main() -> int:
    """Run what the command line names; return 1 if anything failed."""
    arguments = _arguments()
    if reason := other_tree():
        raise SystemExit(reason)
    names = _named(arguments.what)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a run starts some thousand interpreters, which import the same
    if "nightly" in arguments.what:
        os.environ |= {"ATTESTED_RANDOM_EXAMPLES": "1", WITHOUT: "1"}  # read by tests/conftest.py and `verdicts`
    beside = len(names) > 1 and arguments.lanes > 1
    ended = run_in_lanes(names, in_own_process if beside else here, lanes=arguments.lanes, order=ORDER)
    total = sum((one.counts for one in ended.values()), Counts())
    if arguments.report:
        arguments.report.write_text(json.dumps(asdict(total)))
    else:
        print("\n" + "\n".join(map(str, ended.values())))
        print("".join(one.told() for one in ended.values()), end="")
        print(total, flush=True)
    return int(total.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
