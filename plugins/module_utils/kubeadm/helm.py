# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run Helm 4, in the version that the cluster pins.

An admin can manage the releases with plain `helm` afterwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_document, load_json
from ..errors import KubeadmError
from ..reasons import Reason
from .gateway import last_lines

if TYPE_CHECKING:
    from pathlib import Path

    from ..core.command import CommandResult, Runner

_READ_SECONDS = 120
_PULL_SECONDS = 600
_SECRET_LENGTH = 6
_MARGIN_SECONDS = 60
_NOT_FOUND = b"release: not found"
_KIND_UNKNOWN = re.compile(rb"no matches for kind|resource mapping not found")
_DEPLOYED = ("deployed", "superseded", "uninstalling")
_DOCUMENTS = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LOOKED_FOR = ("CustomResourceDefinition", "Secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The wanted release: a chart (an archive or a directory) with values; ``name`` is "" for no release.

    ``values`` is JSON, which may hold secrets. ``mark`` names chart and values by digest. ``adopt`` lets the release
    take over objects of another release or of no release.
    """

    name: str
    namespace: str
    chart: str
    values: str
    mark: str
    timeout_seconds: int = 300
    adopt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One revision of a release in the cluster, as Helm reports it."""

    number: int
    status: str
    mark: str

    @property
    def is_pending(self) -> bool:
        """Whether Helm works on the release, or was killed during its work."""
        return self.status.startswith("pending-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A rendered chart: its manifest, its definitions, and whether the API server has validated it."""

    manifest: str
    definitions: tuple[str, ...]
    is_checked: bool


class Helm:
    """Runs the pinned helm with one kubeconfig; its caches are in ``scratch``."""

    def __init__(
        self, runner: Runner, *, kubeconfig: Path, scratch: Path, server: str = "", program: str = "helm"
    ) -> None:
        """Store the runner and the options; ``server`` overrides the API server of the kubeconfig."""
        self._runner = runner
        self._words = [program, f"--kubeconfig={kubeconfig}"] + ([f"--kube-apiserver={server}"] if server else [])
        self._env = {f"HELM_{name}_HOME": str(scratch / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}

    def pull(self, reference: str, directory: Path, *, login: Path | None = None) -> str:
        """Fetch a chart by its oci:// reference with digest, and return the file; raises ADDON_FAILED.

        ``login``: a file with the credential for the registry.
        """
        words = ("pull", reference, f"--destination={directory}", *([f"--registry-config={login}"] if login else []))
        result = self._runner.run([*self._words, *words], timeout_seconds=_PULL_SECONDS, env=self._env, check=False)
        _checked("pull", result)
        found = [path for path in directory.iterdir() if path.suffix == ".tgz"]
        if len(found) != 1:
            raise KubeadmError(f"expected helm pull to write one chart, got {len(found)}", reason=Reason.ADDON_FAILED)
        return str(found[0])

    def history(self, release: Release) -> tuple[Revision, ...]:
        """Return the revisions of a release, the newest last, empty if there is none; raises ADDON_FAILED."""
        result = self._run(release, "history", release.name, "--output=json")
        if result.returncode != 0 and _NOT_FOUND in result.stderr:
            return ()
        rows = _json(_checked("history", result))
        try:
            found = [
                Revision(number=int(row["revision"]), status=str(row["status"]), mark=str(row.get("description", "")))
                for row in rows
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable("history") from error
        return tuple(sorted(found, key=lambda one: one.number))

    def current(self, release: Release) -> Rendered:
        """Return the manifest of the newest revision of a release; raises ADDON_FAILED."""
        manifest = _text(_checked("get manifest", self._run(release, "get", "manifest", release.name)))
        return Rendered(manifest=manifest, definitions=definitions_in(manifest), is_checked=True)

    def render(self, release: Release) -> Rendered:
        """Render the chart by a dry run at the API server; raises ADDON_FAILED.

        If the chart brings kinds that the API server does not know yet, Helm renders it without the API server.
        """
        result = self._upgrade(release, "--dry-run=server")
        is_checked = not _KIND_UNKNOWN.search(result.stderr)
        if not is_checked:
            result = self._upgrade(release, "--dry-run=client")
        answer = _json(_checked("upgrade --dry-run", result, hide=release.values))
        manifest = str(answer.get("manifest", "")) if isinstance(answer, dict) else ""
        crds = _text(_checked("show crds", self._run(release, "show", "crds", release.chart)))
        return Rendered(
            manifest=manifest,
            definitions=(*definitions_in(manifest), *definitions_in(crds)),
            is_checked=is_checked,
        )

    def upgrade(self, release: Release) -> None:
        """Install or upgrade a release and wait for it; Helm rolls a failure back. Raises ADDON_FAILED."""
        words = ("--rollback-on-failure", "--create-namespace", f"--description={release.mark}")
        _checked("upgrade", self._upgrade(release, *words), hide=release.values)

    def uninstall(self, release: Release) -> None:
        """Delete a release with its history, including its deletion hooks; raises ADDON_FAILED."""
        words = ("uninstall", release.name, f"--timeout={release.timeout_seconds}s")
        _checked("uninstall", self._run(release, *words, timeout=_seconds(release)))

    def settle(self, release: Release) -> bool:
        """Undo a failed or interrupted operation on a release; return whether there was one.

        Helm rolls back to the last deployed revision, also if Helm had started to uninstall it. Without a deployed
        revision, the release is uninstalled. A failed release may stay failed, because the next upgrade starts from it.
        Raises ADDON_FAILED if a pending release cannot be undone, because Helm would refuse that upgrade.
        """
        history = self.history(release)
        if not history or history[-1].status in ("deployed", "uninstalled"):
            return False
        good = [one.number for one in history if one.status in _DEPLOYED]
        words = ("rollback", release.name, str(good[-1])) if good else ("uninstall", release.name)
        result = self._run(release, *words, "--no-hooks", timeout=_seconds(release))
        if history[-1].is_pending:
            _checked(words[0], result)
        return True

    def _upgrade(self, release: Release, *words: str) -> CommandResult:
        adopt = ("--take-ownership", "--force-conflicts") if release.adopt else ()
        options = ("--install", "--reset-values", "--values=-", f"--timeout={release.timeout_seconds}s", *adopt)
        return self._run(
            release,
            "upgrade",
            release.name,
            release.chart,
            *options,
            "--output=json",
            *words,
            stdin=release.values,
            timeout=2 * _seconds(release),  # A rollback may take the same time again.
        )

    def _run(
        self, release: Release, *words: str, stdin: str | None = None, timeout: float = _READ_SECONDS
    ) -> CommandResult:
        return self._runner.run(
            [*self._words, f"--namespace={release.namespace}", *words],
            stdin=None if stdin is None else stdin.encode(),
            timeout_seconds=timeout,
            env=self._env,
            check=False,
        )


def definitions_in(manifest: str) -> tuple[str, ...]:
    """Return the names of the CustomResourceDefinitions in a manifest as Helm prints it.

    Raises ADDON_FAILED.
    """
    return tuple(
        name
        for part in _DOCUMENTS.split(manifest)
        for kind, name in _objects_in(part)
        if kind == "CustomResourceDefinition"
    )


def without_secrets(manifest: str) -> str:
    """Return a manifest in which names replace the documents with Secrets; raises ADDON_FAILED."""
    parts = []
    for part in _DOCUMENTS.split(manifest):
        names = [name for kind, name in _objects_in(part) if kind == "Secret"]
        parts.append("".join(f"\nkind: Secret  # {name}, not shown\n" for name in names) if names else part)
    return "---".join(parts)


def _objects_in(document: str) -> list[tuple[str, str]]:
    """Return kind and name of the objects of the kinds `_LOOKED_FOR` in one document; raises ADDON_FAILED."""
    if not any(kind in document for kind in _LOOKED_FOR):
        return []
    try:
        found = load_document(document, limit=MAX_ANSWER_BYTES)
        items = found.get("items", [found])
        return [(str(item["kind"]), str(item["metadata"]["name"])) for item in items if item.get("kind") in _LOOKED_FOR]
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise KubeadmError(  # Raised outside of the handler, because a cause would carry the document.
        "expected objects of Kubernetes in the manifest of helm, got something else", reason=Reason.ADDON_FAILED
    )


def _seconds(release: Release) -> float:
    return release.timeout_seconds + _MARGIN_SECONDS


def _checked(words: str, result: CommandResult, *, hide: str = "{}") -> bytes:
    """Return the output; raises ADDON_FAILED with the last lines of helm, without the strings in ``hide`` (JSON)."""
    if result.returncode == 0:
        return result.stdout
    shown = last_lines(result)
    for text in sorted(_texts(load_json(hide)), key=len, reverse=True):
        shown = shown.replace(text, "[value]")
    raise KubeadmError(f"helm {words} ended with {result.returncode}: {shown}", reason=Reason.ADDON_FAILED)


def _texts(value: object) -> set[str]:
    """Return the strings in a value that are long enough to be a secret."""
    if isinstance(value, dict):
        return {text for one in value.values() for text in _texts(one)}
    if isinstance(value, list):
        return {text for one in value for text in _texts(one)}
    return {value} if isinstance(value, str) and len(value) >= _SECRET_LENGTH else set()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)
    except ValueError as error:
        raise _unreadable("output") from error


def _unreadable(what: str) -> KubeadmError:
    return KubeadmError(f"expected JSON as the {what} of helm, got something else", reason=Reason.ADDON_FAILED)
