# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The add-ons of a site: `addons.yml`, its charts, and the copies of custom objects in the backups."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundle.containerd_files import authorization_of
from ..core.documents import load_document, load_json
from ..core.files import read_bytes
from ..errors import SiteError
from ..kubeadm.spec import IPV4, IPV6, parse_networks
from ..policy.fields import Fields, listed
from ..reasons import Reason
from .etcd_archive import surplus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE = "addons.yml"
NETWORK_PLUGINS = ("flannel",)
"""The network plugins whose chart is part of this collection."""
ARCHIVE, DIRECTORY = ".tgz", ".tar"
"""The suffixes of a chart's file on the node: an unchanged archive, or one packed from a directory."""

_MAX_ADDONS = 100
MAX_CHART_BYTES = 64 << 20
_MAX_SECONDS = 7200
_RELEASE = re.compile(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAGS = re.compile(rb"!(vault|unsafe)\b")
_OCI = re.compile(r"oci://[A-Za-z0-9][-A-Za-z0-9.:/_]{1,500}")


class State(Enum):
    """Whether a release is installed or uninstalled."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """One row of the list. ``chart`` is a path below the site, or an oci:// reference, which has a ``digest``.

    An add-on with the state ``absent`` has no chart.
    ``is_network``: it is the network plugin, whose chart is a path of the collection.
    """

    name: str
    namespace: str
    chart: str
    digest: str
    values: dict[str, Any]
    order: int
    timeout_seconds: int
    adopt: bool
    is_network: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether the control plane fetches the chart from a registry."""
        return self.chart.startswith("oci://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The file of a chart that is sent to the node; ``suffix`` is `ARCHIVE` or `DIRECTORY`."""

    data: bytes
    suffix: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.data).hexdigest()


def document_of(data: bytes) -> object:
    """Return the content of addons.yml with vaults and templates unresolved; raises ADDON_INVALID for other YAML.

    Ansible reads the file later, without limits. So it is checked here first: no aliases, limited size and depth, and
    only Ansible's tags.
    """
    try:
        return load_document(_TAGS.sub(b"", data))
    except ValueError as error:
        problem = str(error)
    raise _invalid(f"{FILE}: expected one YAML document, got {problem}")


def network_plugin(name: str, charts: Path, *, image: str, pod_subnet: str) -> Addon:
    """Return the add-on of this collection's network plugin ``name``; raises ADDON_INVALID."""
    networks: dict[int, str] = {}
    with suppress(ValueError):
        networks = {network.version: str(network) for network in parse_networks(pod_subnet)}
    if IPV4 not in networks:
        raise _invalid(
            f"{name}: expected an IPv4 network as the addresses of Pods, or an IPv4 and an IPv6 network, got "
            f"{pod_subnet}"
        )
    return Addon(
        name=name,
        namespace="kube-system",
        chart=str(charts / name),
        digest="",
        values={"image": image, "network": networks[IPV4], "ipv6Network": networks.get(IPV6, "")},
        order=0,
        timeout_seconds=300,
        adopt=False,
        is_network=True,
    )


def parse_addons(document: object, *, before: tuple[Addon, ...] = ()) -> tuple[Addon, ...]:
    """Return the add-ons in the order in which they are applied, after those ``before`` them.

    Raises ADDON_INVALID with all problems. No message quotes values, because they may hold secrets.
    """
    problems: list[str] = []
    fields = Fields(document, place=FILE, problems=problems)
    found = [_addon(one) for one in fields.sequence("addons", limit=_MAX_ADDONS)]
    fields.finish()
    places = [(one.namespace, one.name) for one in (*before, *found)]
    problems += [f"{FILE}: {name} in {namespace} is listed twice" for namespace, name in sorted(_twice(places))]
    if problems:
        raise _invalid(listed(problems))
    return (*before, *sorted(found, key=lambda one: one.order))


def read_chart(site: Path, addon: Addon) -> Chart:
    """Return the chart of an add-on; raises ADDON_INVALID, also if it does not match the add-on's digest.

    A directory is packed into an archive that is the same for the same files, whatever their times and owners are.
    """
    path = (site / addon.chart).resolve()
    if path.is_dir() and (path / "Chart.yaml").is_file():
        chart = Chart(data=_packed(path), suffix=DIRECTORY)
    elif path.is_file():
        chart = Chart(data=read_bytes(path, limit=MAX_CHART_BYTES), suffix=ARCHIVE)
    else:
        raise _invalid(f"{addon.name}: expected a chart (an archive, or a directory with Chart.yaml) at {path}")
    if addon.digest and addon.digest != f"sha256:{chart.digest}":
        raise _invalid(f"{addon.name}: expected the chart {addon.digest}, got sha256:{chart.digest}")
    return chart


def registry_config(addon: Addon, credentials: Iterable[Mapping[str, Any]]) -> str:
    """Return the file with which Helm logs in to the registry of the chart, empty where there is no credential for it.

    Raises CONFIG_INVALID, which shows nothing of a credential.
    """
    host = addon.chart.removeprefix("oci://").partition("/")[0] if addon.is_remote else ""
    for row in credentials:
        if row.get("host") == host:
            kind, _space, value = authorization_of(row).partition(" ")
            return json.dumps({"auths": {host: {"auth" if kind == "Basic" else "registrytoken": value}}})
    return ""


def copy_name(addon: Addon, taken: str) -> str:
    """Return the name of the encrypted copy of the custom objects of an add-on; ``taken``: 20261127T101500Z."""
    return f"addon-{addon.namespace}.{addon.name}-{taken}.age"


def surplus_copies(addon: Addon, names: Iterable[str], *, keep: int) -> tuple[str, ...]:
    """Return the copies of an add-on to remove, so that the ``keep`` newest stay."""
    pattern = re.compile(re.escape(f"addon-{addon.namespace}.{addon.name}-") + r"[0-9]{8}T[0-9]{6}Z\.age")
    return surplus(names, keep=keep, pattern=pattern)


def _addon(fields: Fields) -> Addon:
    absent = fields.has("state") and fields.choice("state", State) is State.ABSENT
    chart = "" if absent else fields.text("chart", limit=512)
    remote = chart.startswith("oci://")
    if remote and not _OCI.fullmatch(chart):
        fields.note("chart: expected oci://REGISTRY/PATH without a tag, the digest says which one")
    if not remote and (Path(chart).is_absolute() or ".." in Path(chart).parts):
        fields.note("chart: expected a path below the site, or oci://REGISTRY/PATH")
    digest = fields.matching("digest", _DIGEST, "sha256:64 hex digits") if remote or fields.has("digest") else ""
    return Addon(
        name=fields.matching("name", _RELEASE, "a name of a Helm release (lower case, digits, -, at most 53)"),
        namespace=fields.matching("namespace", _NAMESPACE, "a namespace"),
        chart=chart,
        digest=digest,
        values=_values(fields),
        order=fields.number("order", below=10_000) if fields.has("order") else 0,
        timeout_seconds=fields.number("timeout_seconds", below=_MAX_SECONDS) if fields.has("timeout_seconds") else 300,
        adopt=fields.flag("adopt"),
    )


def _values(fields: Fields) -> dict[str, Any]:
    value = fields.take("values", default={})
    try:
        if isinstance(value, dict):
            return dict(load_json(json.dumps(value)))
    except (TypeError, ValueError):
        pass
    fields.note("values: expected a mapping of plain values")
    return {}


def _packed(directory: Path) -> bytes:
    out, size = io.BytesIO(), 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            size += path.stat().st_size
            if size > MAX_CHART_BYTES:
                raise _invalid(f"expected at most {MAX_CHART_BYTES} bytes in the chart {directory}")
            data = read_bytes(path, limit=MAX_CHART_BYTES)
            entry = tarfile.TarInfo(f"chart/{path.relative_to(directory)}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _twice(places: list[tuple[str, str]]) -> set[tuple[str, str]]:
    return {place for place in places if places.count(place) > 1}


def _invalid(message: str) -> SiteError:
    return SiteError(message, reason=Reason.ADDON_INVALID)
