# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API in memory with the production gateway's protocol: revisions, compare-and-set, watches."""

from __future__ import annotations

import copy
import queue
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    ATTEMPTS,
    IDENTITIES,
    POLICIES,
    PROFILES,
    RELEASES,
    revision_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import RELEASE_NAME
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PLURALS = {
    "AttestationPolicy": POLICIES,
    "NodeIdentity": IDENTITIES,
    "MeasurementProfile": PROFILES,
    "JoinAttempt": ATTEMPTS,
    "ClusterRelease": RELEASES,
}


def release_of(version: str) -> dict[str, Any]:
    """Return the object with the Kubernetes version of the cluster."""
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "ClusterRelease",
        "metadata": {"name": RELEASE_NAME},
        "spec": {"kubernetesVersion": version},
    }


class FakeGateway:
    """Objects by kind and name. ``down`` makes every call fail; ``before_write`` runs before each write."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.down = False
        self.before_write: Callable[[], None] | None = None
        self.nodes: list[str] = []
        self.watched_seconds: list[int] = []
        self.writes = 0
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._revision = 100
        self._objects: dict[str, dict[str, dict[str, Any]]] = {plural: {} for plural in _PLURALS.values()}
        self.leases: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.recorded: dict[str, dict[str, Any]] = {}
        for document in documents:
            self.apply(document)

    def apply(self, document: dict[str, Any]) -> None:
        """Write a spec like the site; the status is unchanged."""
        kind = self._objects[_PLURALS[document["kind"]]]
        name = document["metadata"]["name"]
        kind[name] = {**copy.deepcopy(document), "status": kind.get(name, {}).get("status", {})}
        self._touch(kind[name])

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of an identity."""
        return dict(self._objects[IDENTITIES][name]["status"])

    def forget_tpm(self, name: str) -> None:
        """Remove the TPM counters from a status, like an admin with kubectl."""
        found = self._objects[IDENTITIES][name]
        del found["status"]["tpm"]
        self._touch(found)

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return objects of a kind, without apiVersion and kind, as in a list."""
        self._require_up()
        left_out = {"apiVersion", "kind"}
        wanted = [(*path.split("."), value) for path, value in (where or {}).items()]
        items = [
            copy.deepcopy(item)
            for item in self._objects[plural].values()
            if all(item.get(part, {}).get(field) == value for part, field, value in wanted)
        ]
        return tuple({name: value for name, value in item.items() if name not in left_out} for item in items)

    def object(self, plural: str, name: str) -> Mapping[str, Any] | None:
        """Return one object, or None."""
        self._require_up()
        return copy.deepcopy(self._objects[plural].get(name))

    def revision(self, plural: str, name: str) -> str:
        """Return the revision of one object, or an empty string."""
        self._require_up()
        found = self._objects[plural].get(name)
        return "" if found is None else revision_of(found)

    def listing(self, plural: str) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return all objects of a kind and the present revision."""
        return self.objects(plural), str(self._revision)

    def changes(self, plural: str, *, revision: str, seconds: int) -> Iterator[Mapping[str, Any]]:
        """Yield the contents of ``events`` of any kind, then raise API_UNAVAILABLE."""
        del plural, revision, seconds
        while (event := self.events.get()) is not None:
            yield event
        raise ApiError("the watch broke", reason=Reason.API_UNAVAILABLE)

    def told(self, plural: str, name: str, kind: str = "MODIFIED") -> None:
        """Deliver an object by `changes` as it is now."""
        self.events.put({"type": kind, "object": copy.deepcopy(self._objects[plural][name])})

    def patch_status(self, plural: str, name: str, *, status: Mapping[str, Any], revision: str) -> str:
        """Merge a status and return the new revision, or raise API_CONFLICT."""
        self.merge(plural, name, {"status": status}, revision=revision)
        return str(self._objects[plural][name]["metadata"]["resourceVersion"])

    def create(self, plural: str, document: Mapping[str, Any]) -> str:
        """Create an object, or raise API_CONFLICT."""
        self._prepare_write()
        name = document["metadata"]["name"]
        if name in self._objects[plural]:
            raise ApiError("expected no such object", reason=Reason.API_CONFLICT)
        self._objects[plural][name] = {"status": {}, **copy.deepcopy(dict(document))}
        self.writes += 1
        self._touch(self._objects[plural][name])
        return f"uid-{name}"

    def merge(self, plural: str, name: str, document: Mapping[str, Any], *, revision: str) -> None:
        """Merge into an object, or raise API_CONFLICT."""
        self._prepare_write()
        found = self._objects[plural][name]
        if found["metadata"]["resourceVersion"] != revision:
            raise ApiError("expected another revision", reason=Reason.API_CONFLICT)
        found.update(_merged(found, dict(document)))
        self.writes += 1
        self._touch(found)

    def delete(self, plural: str, name: str) -> None:
        """Remove an object."""
        self._require_up()
        self._objects[plural].pop(name, None)

    def record_event(self, event: Mapping[str, Any]) -> None:
        """Record the last event of each name."""
        self._require_up()
        self.recorded[event["metadata"]["name"]] = dict(event)

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return a Node with labels."""
        self._require_up()
        return {"metadata": {"name": name, "labels": self.labels[name]}} if name in self.labels else None

    def config_map(self, name: str) -> Mapping[str, Any] | None:
        """Return a ConfigMap, or None."""
        self._require_up()
        return copy.deepcopy(self.config_maps.get(name))

    def merge_config_map(
        self, name: str, data: Mapping[str, str | None], *, annotations: Mapping[str, str], revision: str
    ) -> None:
        """Merge into a ConfigMap, or raise API_CONFLICT."""
        self._prepare_write()
        found = self.config_maps[name]
        if found["metadata"]["resourceVersion"] != revision:
            raise ApiError("expected another revision", reason=Reason.API_CONFLICT)
        kept = {**found.get("data", {}), **data}
        found["data"] = {key: value for key, value in kept.items() if value is not None}
        found["metadata"]["annotations"] = dict(annotations)
        self.writes += 1
        self._touch(found)

    def lease(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a Lease, or None; all are of one namespace."""
        self._require_up()
        assert namespace == "kube-system"
        return copy.deepcopy(self.leases.get(name))

    def create_lease(self, document: Mapping[str, Any]) -> None:
        """Create a Lease, or raise API_CONFLICT."""
        self._prepare_write()
        if document["metadata"]["name"] in self.leases:
            raise ApiError("expected no such lease", reason=Reason.API_CONFLICT)
        self._keep(document)

    def replace_lease(self, document: Mapping[str, Any]) -> None:
        """Replace a Lease, or raise API_CONFLICT."""
        self._prepare_write()
        known = self.leases[document["metadata"]["name"]]
        if known["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            raise ApiError("expected another revision", reason=Reason.API_CONFLICT)
        self._keep(document)

    def _keep(self, document: Mapping[str, Any]) -> None:
        kept = copy.deepcopy(dict(document))
        self._touch(kept)
        self.leases[kept["metadata"]["name"]] = kept

    def node_arrivals(self, seconds: int) -> Iterator[frozenset[str]]:
        """Yield the present Nodes, then nothing."""
        self._require_up()
        self.watched_seconds.append(seconds)
        yield frozenset(self.nodes)

    def _touch(self, document: dict[str, Any]) -> None:
        self._revision += 1
        document["metadata"].setdefault("uid", f"uid-{document['metadata']['name']}")
        document["metadata"]["resourceVersion"] = str(self._revision)

    def _prepare_write(self) -> None:
        self._require_up()
        if self.before_write is not None:
            change, self.before_write = self.before_write, None
            change()

    def _require_up(self) -> None:
        if self.down:
            raise ApiError("could not read: connection refused", reason=Reason.API_UNAVAILABLE)


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for name, value in new.items():
        inner = result.get(name)
        if value is None:  # as in a merge patch
            result.pop(name, None)
            continue
        result[name] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return result
