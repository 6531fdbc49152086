# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Save CustomResourceDefinitions and their objects before a change, and put them back after a loss.

Deleting a definition deletes all its objects. Fields that the API server owns are not saved: resource versions,
generations, creation times, managed fields. An object that is put back gets a new uid, and owner references to it are
updated.

After its storage version changed, a definition names both versions in `status.storedVersions` until its objects are
written again ("Versions in CustomResourceDefinitions", Kubernetes). Only then may the older version be removed.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..core.documents import MAX_ANSWER_BYTES, MAX_ANSWER_LEVELS, load_json
from ..errors import KubeadmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..core.host import Clock
    from .kubectl import Kubectl

    Place = tuple[str, str]  # namespace (empty where the definition has none) and name
    Key = tuple[str, Place]  # name of the definition, place of the object

_KIND = "customresourcedefinitions"
_OF_THE_SERVER = (
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "generation",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_HELM = "helm"
"""Helm's field manager. Helm refuses to change fields of another field manager."""
_BATCH = 500
_GONE_SECONDS = 60
_BACK_SECONDS = 120
_LOOK_SECONDS = 1.0
_SHOWN = 10
_ROUNDS = 5
_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A saved definition and its objects."""

    document: Mapping[str, Any]
    objects: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """The name of the definition, such as widgets.example.com."""
        return str(self.document["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """The names of the definitions and objects (DEFINITION NAMESPACE/NAME) that were put back."""

    definitions: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything was put back."""
        return bool(self.definitions or self.objects)

    def __str__(self) -> str:
        """Return the counts and names as one sentence."""
        return f"put back {_counted(self.definitions, 'definition')} and {_counted(self.objects, 'object')}"


def to_list(saved: Sequence[Definition]) -> bytes:
    """Return a Kubernetes List in JSON for ``kubectl create -f``, definitions first."""
    items = [*(one.document for one in saved), *(item for one in saved for item in one.objects)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, sort_keys=True).encode()


def from_list(data: bytes) -> tuple[Definition, ...]:
    """Return what `to_list` wrote; raises FILE_UNUSABLE."""
    try:
        items = load_json(data, limit=MAX_ANSWER_BYTES, levels=MAX_ANSWER_LEVELS)["items"]
        documents = [item for item in items if item["kind"] == "CustomResourceDefinition"]
        return tuple(
            Definition(document=one, objects=tuple(item for item in items if _is_of(item, one))) for one in documents
        )
    except (ValueError, KeyError, TypeError) as error:
        raise KubeadmError(
            "expected a List of definitions and objects, got something else", reason=Reason.FILE_UNUSABLE
        ) from error


class CustomObjects:
    """The definitions of a cluster and their objects."""

    def __init__(self, kubectl: Kubectl, *, clock: Clock) -> None:
        """Store the client and the clock."""
        self._kubectl = kubectl
        self._clock = clock

    def save(self, names: Iterable[str], *, release: str, namespace: str) -> tuple[Definition, ...]:
        """Return the definitions with these names and those that the Helm release owns.

        Raises KUBECTL_FAILED. Definitions and objects that are being deleted are left out.
        """
        wanted = set(names)
        found = [
            one
            for one in self._kubectl.read([_KIND])
            if (one["metadata"]["name"] in wanted or owner_of(one) == (namespace, release)) and not _is_going(one)
        ]
        return tuple(self._saved(one) for one in sorted(found, key=lambda one: str(one["metadata"]["name"])))

    def put_back(self, saved: Sequence[Definition], *, failed: bool) -> PutBack:
        """Create the saved definitions and objects that no longer exist, and return them.

        If the change ``failed``, everything is put back. Otherwise only objects are put back whose definition was
        deleted, even if it exists again. Objects of a Helm release are left out then, because their chart decides
        about them. Raises ADDON_OBJECTS_LOST if something cannot be put back, and KUBECTL_FAILED.
        """
        live = {str(one["metadata"]["name"]): one for one in self._kubectl.read([_KIND])}
        lost = [one for one in saved if self._is_lost(one, live, failed=failed)]
        gone = [one for one in lost if one.name not in live or _is_going(live[one.name])]
        for one in gone:
            self._wait_deleted(one)
            self._kubectl.apply([json.dumps(_without(one.document, "uid"))], field_manager=_HELM)
        back = self._objects_back(lost, failed=failed)
        return PutBack(definitions=tuple(one.name for one in gone), objects=back)

    def store_anew(self, names: Iterable[str], *, check_mode: bool) -> tuple[str, ...]:
        """Have etcd hold the objects of these definitions in the storage version alone; return what changes, as lines.

        The API server does it, by a patch that changes nothing: it writes an object that etcd has in another version.
        A run that was cut off is continued by the next. Raises KUBECTL_FAILED.
        """
        wanted = set(names)
        mixed = [one for one in self._kubectl.read([_KIND]) if one["metadata"]["name"] in wanted and _is_mixed(one)]
        if not check_mode:
            for one in mixed:
                self._store_anew(str(one["metadata"]["name"]))
        return tuple(
            f"{one['metadata']['name']}: stored as {', '.join(_stored_as(one))} -> {_storage_version(one)}"
            for one in mixed
        )

    def _store_anew(self, name: str) -> None:
        """Write all objects again, then the definition's note of their versions, unless it was changed meanwhile."""
        said = ""
        for _round in range(_ROUNDS):
            (definition,) = self._kubectl.read_one(_KIND, name, "")
            said = self._write_again(_resource(definition))
            if said:
                continue
            revision = {"resourceVersion": definition["metadata"]["resourceVersion"]}
            status = {"storedVersions": [_storage_version(definition)]}
            try:
                self._kubectl.patch(_KIND, name, {"metadata": revision, "status": status}, "--subresource=status")
            except KubeadmError as error:
                said = error.message
            else:
                return
        raise KubeadmError(
            f"expected all objects of {name} to be written again, {_ROUNDS} tries failed: {said}",
            reason=Reason.KUBECTL_FAILED,
        )

    def _write_again(self, resource: str) -> str:
        """Write all objects again as they are; return what was refused, an object that was deleted meanwhile too."""
        places = sorted(_place(item) for item in self._kubectl.read([resource], "--all-namespaces"))
        said = [
            self._kubectl.write_again(resource, names[start : start + _NAMES_A_CALL], namespace=namespace)
            for namespace, found in groupby(places, key=lambda place: place[0])
            for names in [[name for _namespace, name in found]]
            for start in range(0, len(names), _NAMES_A_CALL)
        ]
        return " ".join(filter(None, said))

    def _saved(self, definition: Mapping[str, Any]) -> Definition:
        objects = self._kubectl.read([_resource(definition)], "--all-namespaces")
        return Definition(
            document={name: value for name, value in _cleaned(definition).items() if name != "status"},
            objects=tuple(_cleaned(item) for item in objects if not _is_going(item)),
        )

    def _is_lost(self, one: Definition, live: Mapping[str, Mapping[str, Any]], *, failed: bool) -> bool:
        """Return whether a definition or some of its objects may have to be put back."""
        now = live.get(one.name)
        is_deleted = now is None or _is_going(now)
        if failed:
            return is_deleted or bool(one.objects)
        is_another = now is not None and now["metadata"]["uid"] != one.document["metadata"]["uid"]
        return (is_deleted or is_another) and any(_is_wanted(item, failed=False) for item in one.objects)

    def _wait_deleted(self, one: Definition) -> None:
        """Wait until a definition that is being deleted is gone.

        The finalizers of its objects are removed, because they would block the deletion and the objects are saved.
        """
        deadline = self._clock.monotonic() + _GONE_SECONDS
        while found := self._kubectl.read_one(_KIND, one.name, ""):
            if self._clock.monotonic() >= deadline:
                raise KubeadmError(
                    f"expected the definition {one.name} to be deleted within {_GONE_SECONDS} s, it still exists",
                    reason=Reason.ADDON_OBJECTS_LOST,
                )
            with contextlib.suppress(KubeadmError):  # The definition may be deleted in the meantime.
                held = [
                    _without(item, "finalizers", "resourceVersion")
                    for item in self._kubectl.read([_resource(found[0])], "--all-namespaces")
                    if item["metadata"].get("finalizers")
                ]
                for part in _parts(held):
                    self._kubectl.write_all(part, "replace")
            self._clock.sleep(_LOOK_SECONDS)

    def _objects_back(self, lost: Sequence[Definition], *, failed: bool) -> tuple[str, ...]:
        """Create the absent objects, owners first, until all exist. Then write their status.

        The API server may take a moment before it serves the objects of a new definition.
        """
        deadline = self._clock.monotonic() + _BACK_SECONDS
        created: dict[Key, Mapping[str, Any]] = {}
        while True:
            try:
                is_done, refusals = self._round(lost, created, failed=failed)
            except KubeadmError as error:
                is_done, refusals = False, error.message
            if is_done:
                return tuple(_shown(key) for key in sorted(created))
            if self._clock.monotonic() >= deadline:
                names = tuple(one.name for one in lost)
                raise KubeadmError(
                    f"expected all saved objects of {', '.join(names)} to be put back within {_BACK_SECONDS} s: "
                    f"{refusals}",
                    reason=Reason.ADDON_OBJECTS_LOST,
                )
            if refusals:
                self._clock.sleep(_LOOK_SECONDS)

    def _round(
        self, lost: Sequence[Definition], created: dict[Key, Mapping[str, Any]], *, failed: bool
    ) -> tuple[bool, str]:
        """Create absent objects and add them to ``created``; return whether all objects exist, and the refusals."""
        live = {one.name: self._live(one.name) for one in lost}
        absent = {
            (one.name, _place(item)): item
            for one in lost
            for item in one.objects
            if _is_wanted(item, failed=failed) and _place(item) not in live[one.name].items
        }
        created |= absent
        if absent:
            return False, self._create(absent, lost, live)
        refusals = self._status_back(created, live)
        return not refusals, refusals

    def _live(self, name: str) -> _Live:
        (definition,) = self._kubectl.read_one(_KIND, name, "")
        items = self._kubectl.read([_resource(definition)], "--all-namespaces")
        return _Live(definition=definition, items={_place(item): item for item in items})

    def _create(
        self, absent: Mapping[Key, Mapping[str, Any]], lost: Sequence[Definition], live: Mapping[str, _Live]
    ) -> str:
        """Create the absent objects whose owners exist, or all if there are none; return the refusals."""
        fresh = {
            str(item["metadata"]["uid"]): live[one.name].items[_place(item)]["metadata"]["uid"]
            for one in lost
            for item in one.objects
            if _place(item) in live[one.name].items
        }
        waiting = {str(item["metadata"]["uid"]) for item in absent.values()}
        ready = {key: item for key, item in absent.items() if not waiting & set(_owners(item))} or absent
        self._namespaces_back({place[0] for _name, place in ready} - {""})
        documents = [live[key[0]].fitting(_with_owners(item, fresh)) for key, item in ready.items()]
        return " ".join(filter(None, (self._kubectl.write_all(part) for part in _parts(documents))))

    def _namespaces_back(self, names: set[str]) -> None:
        existing = {str(one["metadata"]["name"]) for one in self._kubectl.read(["namespaces"])}
        for name in sorted(names - existing):
            self._kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _status_back(self, created: Mapping[Key, Mapping[str, Any]], live: Mapping[str, _Live]) -> str:
        """Write the saved status of the created objects; return the refusals."""
        documents = [
            {**live[name].items[place], "status": item["status"]}
            for (name, place), item in created.items()
            if "status" in item and live[name].items[place].get("status") != item["status"]
        ]
        refusals = [self._kubectl.write_all(part, "replace", "--subresource=status") for part in _parts(documents)]
        return " ".join(filter(None, refusals))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """The current definition and its objects."""

    definition: Mapping[str, Any]
    items: Mapping[Place, Mapping[str, Any]]

    def fitting(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return a saved object in the form to create: without its uid, and in a served version."""
        group = self.definition["spec"]["group"]
        served = {f"{group}/{one['name']}" for one in self.definition["spec"]["versions"] if one.get("served")}
        version = item["apiVersion"] if item["apiVersion"] in served else f"{group}/{_version(self.definition)}"
        return {**_without(item, "uid"), "apiVersion": version}


def owner_of(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return namespace and name of the Helm release that owns an object, or None."""
    notes = document["metadata"].get("annotations") or {}
    name = notes.get("meta.helm.sh/release-name")
    return (str(notes.get("meta.helm.sh/release-namespace", "")), str(name)) if name else None


def _is_wanted(item: Mapping[str, Any], *, failed: bool) -> bool:
    return failed or owner_of(item) is None


def _is_going(document: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in document["metadata"]


def _is_of(item: Mapping[str, Any], definition: Mapping[str, Any]) -> bool:
    spec = definition["spec"]
    return bool(item["kind"] == spec["names"]["kind"] and item["apiVersion"].partition("/")[0] == spec["group"])


def _version(definition: Mapping[str, Any]) -> str:
    """Return the storage version if it is served, else the first served version."""
    served = [one for one in definition["spec"]["versions"] if one.get("served")]
    return next((str(one["name"]) for one in served if one.get("storage")), str(served[0]["name"]) if served else "")


def _storage_version(definition: Mapping[str, Any]) -> str:
    """Return the version that the API server writes."""
    return next(str(one["name"]) for one in definition["spec"]["versions"] if one.get("storage"))


def _stored_as(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the versions that etcd may hold objects in."""
    return tuple(definition.get("status", {}).get("storedVersions") or ())


def _is_mixed(definition: Mapping[str, Any]) -> bool:
    return any(one != _storage_version(definition) for one in _stored_as(definition))


def _resource(definition: Mapping[str, Any]) -> str:
    """Return the resource name of a definition for kubectl: PLURAL.VERSION.GROUP."""
    spec = definition["spec"]
    return f"{spec['names']['plural']}.{_version(definition)}.{spec['group']}"


def _without(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return an object without some fields of its metadata."""
    return {**document, "metadata": {name: value for name, value in document["metadata"].items() if name not in names}}


def _cleaned(document: Mapping[str, Any]) -> dict[str, Any]:
    return _without(document, *_OF_THE_SERVER)


def _owners(item: Mapping[str, Any]) -> list[str]:
    return [str(one.get("uid")) for one in item["metadata"].get("ownerReferences", [])]


def _with_owners(item: Mapping[str, Any], fresh: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set the owners' new uids in the owner references; otherwise the garbage collector deletes the object."""
    references = item["metadata"].get("ownerReferences")
    if not references:
        return item
    moved = [{**one, "uid": fresh.get(str(one.get("uid")), one.get("uid"))} for one in references]
    return {**item, "metadata": {**item["metadata"], "ownerReferences": moved}}


def _place(item: Mapping[str, Any]) -> Place:
    return str(item["metadata"].get("namespace", "")), str(item["metadata"]["name"])


def _parts(documents: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    return (documents[start : start + _BATCH] for start in range(0, len(documents), _BATCH))


def _shown(key: Key) -> str:
    definition, (namespace, name) = key
    return f"{definition} {namespace}/{name}" if namespace else f"{definition} {name}"


def _counted(names: Sequence[str], what: str) -> str:
    """Return the number of names and the first names."""
    number = f"{len(names)} {what}{'' if len(names) == 1 else 's'}"
    rest = len(names) - _SHOWN
    return f"{number} ({', '.join(names[:_SHOWN])}{f' and {rest} more' if rest > 0 else ''})" if names else number
