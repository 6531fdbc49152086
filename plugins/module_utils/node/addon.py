# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module `addon_release`: change one Helm release without losing custom objects.

Before a change, the chart's CustomResourceDefinitions and all their objects are written to a journal next to etcd's
data, which holds the same objects in clear. If the change loses objects, this run or the next one restores them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..admin.addons import DIRECTORY, MAX_CHART_BYTES
from ..admin.age_file import close_to
from ..bundle.releases import Releases
from ..core.command import SystemRunner
from ..core.documents import MAX_ANSWER_BYTES, load_json
from ..core.files import make_directory, read_bytes, remove, require_tmpfs, write_atomic
from ..core.host import SystemClock
from ..errors import AttestedError, KubeadmError
from ..kubeadm.custom_objects import CustomObjects, PutBack, from_list, to_list
from ..kubeadm.helm import Helm, Release, Rendered, without_secrets
from ..kubeadm.kubectl import Kubectl, local_server
from ..reasons import Reason
from ..result import Diff, Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..core.command import Runner
    from ..core.host import Clock
    from ..kubeadm.custom_objects import Definition
    from ..kubeadm.helm import Revision

_MARK = "attested.kubernetes addons sha256:"
_WORLD_READABLE = 0o644
_MEMORY = Path("/dev/shm")  # noqa: S108  # a directory of a random name for root alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a change would do: the manifests before and after it, and the custom objects to save first."""

    is_current: bool
    before: Rendered
    after: Rendered
    saved: tuple[Definition, ...]

    @property
    def objects(self) -> int:
        """The number of saved objects."""
        return sum(len(one.objects) for one in self.saved)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The definitions that have objects and that the new chart no longer contains."""
        kept = set(self.after.definitions)
        had = set(self.before.definitions) - kept
        return tuple(one.name for one in self.saved if one.name in had and one.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """One release on this control plane; the file ``journal`` exists while a change of the release runs."""

    release: Release
    helm: Helm
    objects: CustomObjects
    journal: Path

    @classmethod
    def here(cls, params: Mapping[str, Any], chart: str, scratch: Path, runner: Runner, clock: Clock) -> Addon:
        """Return the release that the module options describe."""
        helm = Helm(
            runner,
            kubeconfig=Path(params["kubeconfig"]),
            scratch=scratch,
            server=local_server(params["kubeconfig"]),
            program=_program(),
        )
        release = Release(
            name=params["name"],
            namespace=params["namespace"],
            chart=_pulled(helm, chart, scratch, params["registry_config"]) if chart.startswith("oci://") else chart,
            values=_values_of(params),
            mark=_mark(params),
            timeout_seconds=params["timeout_seconds"],
            adopt=params["adopt"],
        )
        return cls(
            release=release,
            helm=helm,
            objects=CustomObjects(Kubectl.of_a_module(params["kubeconfig"], runner), clock=clock),
            journal=Path(params["journal_directory"]) / f"attested-addon-{release.namespace}.{release.name}.json",
        )

    def plan(self) -> Plan:
        """Return the plan without executing it; raises ADDON_BUSY, ADDON_FAILED, KUBECTL_FAILED.

        If an earlier change was interrupted, the plan holds the objects that the earlier change saved.
        """
        nothing = Rendered(manifest="", definitions=(), is_checked=True)
        if self.journal.exists():
            saved = from_list(read_bytes(self.journal, limit=MAX_ANSWER_BYTES))
            return Plan(is_current=False, before=nothing, after=nothing, saved=saved)
        history = self.helm.history(self.release)
        if history and history[-1].is_pending:
            raise KubeadmError(
                f"expected no other change of {self.release.name}, Helm reports {history[-1].status}",
                reason=Reason.ADDON_BUSY,
            )
        if self._is_current(history[-1] if history else None):
            return Plan(is_current=True, before=nothing, after=nothing, saved=())
        before = self.helm.current(self.release) if history else nothing
        after = self.helm.render(self.release) if self.release.chart else nothing
        names = {*before.definitions, *after.definitions}
        saved = self.objects.save(names, release=self.release.name, namespace=self.release.namespace)
        return Plan(is_current=False, before=before, after=after, saved=saved)

    def apply(self, plan: Plan) -> PutBack:
        """Change or uninstall the release and return the objects that had to be restored.

        1. An interrupted earlier run is finished. 2. The objects are saved. 3. Helm changes or uninstalls the release.
        4. Lost objects are restored. Raises ADDON_BUSY, ADDON_FAILED (also after step 4), ADDON_OBJECTS_LOST,
        KUBECTL_FAILED.
        """
        earlier = PutBack()
        if self.journal.exists():
            earlier = self._finish()  # 1
            plan = self.plan()
            if plan.is_current:
                return earlier
        write_atomic(self.journal, to_list(plan.saved))  # 2
        try:
            change = self.helm.upgrade if self.release.chart else self.helm.uninstall
            change(self.release)  # 3
        except AttestedError as error:
            done = self._finish()  # 4
            raise KubeadmError(
                f"{error.message}; {done or 'no custom object was lost'}", reason=Reason.ADDON_FAILED
            ) from error
        back = self.objects.put_back(plan.saved, failed=False)  # 4
        remove(self.journal)
        return PutBack(definitions=(*earlier.definitions, *back.definitions), objects=(*earlier.objects, *back.objects))

    def _is_current(self, newest: Revision | None) -> bool:
        """Return whether the newest revision is the requested one."""
        if not self.release.chart:
            return newest is None or newest.status == "uninstalled"
        return newest is not None and (newest.status, newest.mark) == ("deployed", self.release.mark)

    def _finish(self) -> PutBack:
        """Restore the state from before a change that failed or was interrupted."""
        saved = from_list(read_bytes(self.journal, limit=MAX_ANSWER_BYTES))
        first = self.objects.put_back(saved, failed=True)
        settled = self.helm.settle(self.release)
        again = self.objects.put_back(saved, failed=True) if settled else PutBack()
        remove(self.journal)
        return PutBack(
            definitions=tuple(sorted({*first.definitions, *again.definitions})),
            objects=tuple(sorted({*first.objects, *again.objects})),
        )


def run(params: Mapping[str, Any], check_mode: bool, *, runner: Runner | None = None) -> Result:
    """Plan a change of a release, save its custom objects, or make the change; raises as `Addon.apply`."""
    with _chart_here(params) as (chart, scratch):
        addon = Addon.here(params, chart, scratch, runner or SystemRunner(), SystemClock())
        return _act(addon, params, check_mode)


def _act(addon: Addon, params: Mapping[str, Any], check_mode: bool) -> Result:
    """Handle one release as the option ``state`` requests."""
    if params["state"] == "applied" and not check_mode:
        plan = addon.plan()
        if plan.is_current:
            return Result(values=_values(plan))
        back = addon.apply(plan)
        warnings = (f"{addon.release.name}: {back}",) if back else ()
        return Result(changed=True, values=_values(plan, back), diff=_diff(plan), warnings=warnings)
    plan = addon.plan()
    if params["state"] == "saved" and not check_mode:
        target = Path(params["path"])
        sealed = close_to(to_list(plan.saved), params["recipients"])
        write_atomic(target, sealed, mode=_WORLD_READABLE)
        return Result(changed=True, values={**_values(plan), "file_sha256": hashlib.sha256(sealed).hexdigest()})
    return Result(changed=not plan.is_current, values=_values(plan), diff=_diff(plan), warnings=_warnings(addon, plan))


def _values(plan: Plan, back: PutBack | None = None) -> dict[str, Any]:
    back = back or PutBack()
    return {
        "definitions": [one.name for one in plan.saved],
        "objects": plan.objects,
        "put_back": {"definitions": list(back.definitions), "objects": list(back.objects)},
    }


def _warnings(addon: Addon, plan: Plan) -> tuple[str, ...]:
    found = []
    if plan.dropped:
        found.append(
            f"{addon.release.name}: Helm deletes {', '.join(plan.dropped)}, which the release does not have any more, "
            "with their objects; both are put back"
        )
    if not plan.after.is_checked:
        found.append(f"{addon.release.name}: the API server does not know all kinds yet, so it did not check the chart")
    return tuple(found)


def _diff(plan: Plan) -> Diff:
    return Diff(before=without_secrets(plan.before.manifest), after=without_secrets(plan.after.manifest))


def _program() -> str:
    """Return the path of Helm in the running release: an upgrade installs its programs only after the add-ons."""
    releases = Releases()
    path = releases.program(releases.serving() or "none", "/usr/local/bin/helm")
    return str(path) if path.is_file() else "helm"


def _values_of(params: Mapping[str, Any]) -> str:
    try:
        values = load_json(base64.b64decode(params["values"], validate=True))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise KubeadmError("expected values as base64 of a JSON object", reason=Reason.ADDON_INVALID)
    return json.dumps(values, sort_keys=True)


def _mark(params: Mapping[str, Any]) -> str:
    """Return the mark of a revision: the digest of chart and values."""
    content = f"{params['chart_digest']} {_values_of(params)}"
    return _MARK + hashlib.sha256(content.encode()).hexdigest()


def _placed(data: bytes, scratch: Path, *, is_directory: bool) -> Path:
    """Write the chart where Helm reads it. A directory is unpacked, so that Helm reads its .helmignore.

    Raises ADDON_INVALID for members that `admin.addons` never packs. The check is written out because Python 3.11.2 of
    Debian 12 has no extraction filters in tarfile.
    """
    if not is_directory:
        write_atomic(scratch / "chart.tgz", data)
        return scratch / "chart.tgz"
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content, path = archive.extractfile(member), PurePosixPath(member.name)
            if not member.isfile() or content is None or path.parts[:1] != ("chart",) or ".." in path.parts:
                raise KubeadmError(
                    f"expected files below chart/ in the chart, got {member.name!r}", reason=Reason.ADDON_INVALID
                )
            make_directory((scratch / path).parent)
            write_atomic(scratch / path, content.read())
    return scratch / "chart"


def _pulled(helm: Helm, reference: str, scratch: Path, login: str) -> str:
    """Fetch a chart; the credential for its registry is in memory, for root alone, as long as that takes."""
    if not login:
        return helm.pull(reference, scratch)
    directory = Path(tempfile.mkdtemp(prefix="attested-addon-", dir=require_tmpfs(_MEMORY)))
    try:
        write_atomic(directory / "login.json", login.encode(), mode=0o600)
        return helm.pull(reference, scratch, login=directory / "login.json")
    finally:
        shutil.rmtree(directory)


@contextmanager
def _chart_here(params: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the chart for Helm and the directory for its caches; only root can read them.

    A file is read once and compared with its digest in memory, because another user may change it meanwhile.
    """
    scratch = Path(tempfile.mkdtemp(prefix="attested-addon-"))
    try:
        chart = str(params["chart"])
        if chart and not chart.startswith("oci://"):
            data = read_bytes(chart, limit=MAX_CHART_BYTES)
            digest = hashlib.sha256(data).hexdigest()
            if digest != params["chart_digest"]:
                raise KubeadmError(
                    f"expected a chart with SHA-256 {params['chart_digest']}, got {digest}", reason=Reason.ADDON_INVALID
                )
            chart = str(_placed(data, scratch, is_directory=chart.endswith(DIRECTORY)))
        yield chart, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
