# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run kubectl, in the version that the cluster pins, to read and write objects."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_json
from ..core.host import SystemClock
from ..errors import KubeadmError
from ..reasons import Reason
from .gateway import last_lines, redact
from .spec import API_PORT, KubernetesPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..core.command import CommandResult, Runner
    from ..core.host import Clock

FIELD_MANAGER = "attested-site"
_OWN_SERVER = f"https://127.0.0.1:{API_PORT}"
_TIMEOUT_SECONDS = 150
_ESTABLISHED_SECONDS = 120  # On a slow machine, an API server that starts needs over a minute for five kinds.
_DIFFERENT = 1

# Just after its start, an API server denies the writes of an admission policy until it has found the kind of the
# policy's parameters, and the parameters. It looks for a missing custom resource again only after 30 seconds; our
# policies need none, but those of a site may.
_NOT_CONFIGURED = b"denied request: failed to configure "

# kubeadm restarts the local API server, also that of an upgrade that was cut off. These commands can be repeated.
_RESTARTS = re.compile(rb"was refused - did you specify|(?:: |unexpected )EOF|connection reset by peer")
_REPEATABLE = ("diff", "apply")
_READY_SECONDS = 120
_LOOK_SECONDS = 0.5

# Kinds that other objects of the same manifest may need, so they are written first.
_NEEDED = re.compile(r"^kind:[ \t]*[\"']?(Namespace|CustomResourceDefinition)[\"']?[ \t]*(#.*)?$", re.MULTILINE)
_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_NOT_THERE = re.compile(rb'no matches for kind|namespaces "[^"]*" not found')


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsOutcome:
    """Whether the cluster differed from the manifests, and the output of ``kubectl diff``."""

    changed: bool
    difference: str


class Kubectl:
    """Runs the pinned kubectl with one kubeconfig."""

    def __init__(self, runner: Runner, *, kubeconfig: Path, clock: Clock | None = None, server: str = "") -> None:
        """Store the runner and the options; ``server`` overrides the API server of the kubeconfig."""
        self._runner = runner
        self._clock = clock or SystemClock()
        self._kubeconfig = kubeconfig
        self._server = [f"--server={server}"] if server else []

    @classmethod
    def of_a_module(cls, kubeconfig: str, runner: Runner | None = None) -> Kubectl:
        """Return the kubectl of a module.

        With this control plane's admin kubeconfig it uses the local API server, because the endpoint's name may lead to
        a control plane that is lost or does not answer.
        """
        return cls(runner or SystemRunner(), kubeconfig=Path(kubeconfig), server=local_server(kubeconfig))

    def apply(
        self, manifests: Sequence[str], *, field_manager: str = FIELD_MANAGER, check_mode: bool = False
    ) -> ObjectsOutcome:
        """Apply ``manifests`` (YAML) in this order if the cluster differs from them; raises KUBECTL_FAILED.

        One process of kubectl compares all manifests, and one applies them, because a process costs more than its
        work. If a kind or namespace does not exist yet, another manifest may bring it. Then the manifests are compared
        and applied one after the other, Namespaces and CRDs first.

        In check mode, an object whose kind or namespace stays unknown counts as different. Without a kubeconfig, every
        object counts as different, because an earlier task of the same run makes the cluster.
        """
        if check_mode and not self._kubeconfig.exists():
            return ObjectsOutcome(
                changed=True, difference=f"{self._kubeconfig} does not exist yet: all objects are new\n"
            )
        together = "\n---\n".join(manifests)
        found, known = self._difference(together, field_manager)
        if not known:
            parts = (part for one in manifests for part in _in_order(one))
            turns = [self._in_turn(part, field_manager, check_mode=check_mode) for part in parts]
            found = "".join(turns)
        elif found and not check_mode:
            self._apply(together, field_manager)
        return ObjectsOutcome(changed=bool(found), difference=redact(found))

    def definitions_in(self, manifests: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the CRDs in ``manifests`` (YAML) that the cluster has; raises KUBECTL_FAILED."""
        words = ("get", "-f", "-", "--ignore-not-found", "--output=name")
        names = self._checked(*words, stdin="\n---\n".join(manifests)).stdout.decode("utf-8", "replace").split()
        found = (name.partition("/") for name in names)
        return tuple(name for kind, _slash, name in found if kind.startswith("customresourcedefinition"))

    def read(self, kinds: Iterable[str], *options: str) -> list[dict[str, Any]]:
        """Return all objects of ``kinds``; raises KUBECTL_FAILED."""
        result = self._checked("get", ",".join(kinds), "--output=json", *options)
        try:
            items: list[dict[str, Any]] = _answer(result.stdout)["items"]
        except (KeyError, TypeError) as error:
            raise _unreadable() from error
        return items

    def patch(self, kind: str, name: str, document: Mapping[str, Any], *options: str) -> None:
        """Merge ``document`` into an object; raises KUBECTL_FAILED, also if an admission policy denies it."""
        self._checked("patch", kind, name, *options, "--type=merge", f"--patch={json.dumps(document)}")

    def read_one(self, kind: str, name: str, namespace: str) -> tuple[dict[str, Any], ...]:
        """Return one object as a tuple, empty if it does not exist; raises KUBECTL_FAILED."""
        found = self._checked("get", kind, name, f"--namespace={namespace}", "--ignore-not-found", "--output=json")
        return (_answer(found.stdout),) if found.stdout.strip() else ()

    def raw(self, path: str, *, server: str) -> str:
        """Return the response of the API server at URL ``server`` for ``path``; raises KUBECTL_FAILED."""
        return self._checked(f"--server={server}", "get", f"--raw={path}").stdout.decode("utf-8", "replace")

    def create(self, document: Mapping[str, Any]) -> None:
        """Create an object; raises KUBECTL_FAILED, also if it exists."""
        self._checked("create", "-f", "-", stdin=json.dumps(document))

    def write_all(self, documents: Sequence[Mapping[str, Any]], *words: str) -> str:
        """Create objects, or run the verb in ``words`` on them.

        Returns the last lines of kubectl if any failed.
        """
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        options = ("--validate=ignore", f"--field-manager={FIELD_MANAGER}", "--output=name", "-f", "-")
        result = self._run(*(words or ("create",)), *options, stdin=content)
        return "" if result.returncode == 0 else last_lines(result)

    def replace(self, document: Mapping[str, Any]) -> None:
        """Replace an object.

        Raises KUBECTL_FAILED, also if it changed since the resource version in ``document``.
        """
        self._checked("replace", "-f", "-", stdin=json.dumps(document))

    def write_again(self, kind: str, names: Sequence[str], *, namespace: str) -> str:
        """Make the API server write objects again without a change.

        Returns the last lines of kubectl if any failed.
        """
        words = (kind, *names, f"--namespace={namespace}", "--type=merge", "--patch={}", "--output=name")
        result = self._run("patch", *words)
        return "" if result.returncode == 0 else last_lines(result)

    def delete(self, *words: str) -> bool:
        """Delete the objects that ``words`` name; return whether any existed."""
        result = self._checked("delete", "--ignore-not-found", "--wait=false", *words)
        return bool(result.stdout.strip())

    def _in_turn(self, manifest: str, field_manager: str, *, check_mode: bool) -> str:
        found, known = self._difference(manifest, field_manager)
        if not known and not check_mode:
            raise KubeadmError(f"kubectl diff ended with {found.strip()}", reason=Reason.KUBECTL_FAILED)
        if found and not check_mode:
            self._apply(manifest, field_manager)
        return found

    def _difference(self, manifest: str, field_manager: str) -> tuple[str, bool]:
        """Return the difference and True, or the last lines of kubectl and False if a kind or namespace is missing."""
        result = self._run(
            "diff", "--server-side", "--force-conflicts", f"--field-manager={field_manager}", "-f", "-", stdin=manifest
        )
        difference = result.stdout.decode("utf-8", "replace")
        if _NOT_THERE.search(result.stderr):
            return f"{last_lines(result)}\n", False
        if result.returncode == 0:
            return "", True
        if result.returncode == _DIFFERENT and difference:
            return difference, True
        raise _failed("diff", result)

    def _apply(self, manifest: str, field_manager: str) -> None:
        words = ("apply", "--server-side", "--force-conflicts", f"--field-manager={field_manager}", "-f", "-")
        result = self._run(*words, "--output=name", stdin=manifest)
        if result.returncode != 0:
            raise _failed("apply", result)
        names = result.stdout.decode("utf-8", "replace").split()
        definitions = [name for name in names if name.startswith("customresourcedefinition")]
        if definitions:
            self._checked("wait", "--for=condition=Established", f"--timeout={_ESTABLISHED_SECONDS}s", *definitions)

    def _checked(self, *words: str, stdin: str | None = None) -> CommandResult:
        result = self._run(*words, stdin=stdin)
        if result.returncode != 0:
            verb = next(word for word in words if not word.startswith("--"))
            raise _failed(verb, result)
        return result

    def _run(self, *words: str, stdin: str | None = None) -> CommandResult:
        """Run kubectl; retry for a while if the API server has just started or the local one restarts."""
        deadline = self._clock.monotonic() + _READY_SECONDS
        while True:
            result = self._once(*words, stdin=stdin)
            away = self._server and words[0] in _REPEATABLE and _RESTARTS.search(result.stderr)
            if not (away or _NOT_CONFIGURED in result.stderr) or self._clock.monotonic() >= deadline:
                return result
            self._clock.sleep(_LOOK_SECONDS)

    def _once(self, *words: str, stdin: str | None) -> CommandResult:
        return self._runner.run(
            ["kubectl", f"--kubeconfig={self._kubeconfig}", *self._server, "--request-timeout=30s", *words],
            stdin=None if stdin is None else stdin.encode(),
            timeout_seconds=_TIMEOUT_SECONDS,
            check=False,
        )


def local_server(kubeconfig: str) -> str:
    """Return the URL of the local API server, or "" if ``kubeconfig`` is not the local admin kubeconfig."""
    return _OWN_SERVER if Path(kubeconfig) == KubernetesPaths().admin_config else ""


def _in_order(manifest: str) -> list[str]:
    """Split a manifest into its Namespaces and CRDs, and the rest that may need them."""
    documents = [one for one in _SEPARATOR.split(manifest) if one.strip()]
    needed = [one for one in documents if _NEEDED.search(one)]
    rest = [one for one in documents if not _NEEDED.search(one)]
    return ["---\n".join(part) for part in (needed, rest)] if needed and rest else [manifest]


def _answer(data: bytes) -> Any:
    try:
        return load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)
    except ValueError as error:
        raise _unreadable() from error


def _unreadable() -> KubeadmError:
    return KubeadmError("expected objects in JSON from kubectl, got something else", reason=Reason.KUBECTL_FAILED)


def _failed(verb: str, result: CommandResult) -> KubeadmError:
    return KubeadmError(
        f"kubectl {verb} ended with {result.returncode}: {last_lines(result)}", reason=Reason.KUBECTL_FAILED
    )
