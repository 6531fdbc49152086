# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recovery kit of a site: write it only if its content changed, and restore a site from it.

An encrypted file cannot be compared with its wanted content. So a mark is stored with the secrets: a MAC, under a key
of the master secret, over the file's digest, its content without the time, and its lock. The mark reveals nothing
without the master secret. If the mark matches, the kit is not written again.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._deps.crypto import hashes, hkdf
from ..core.files import read_bytes, write_atomic
from ..errors import AttestedError, SiteError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from . import secrets
from .envelope import close_kit
from .kit import Kit
from .places import read_kit_file, require_replaceable, write_kit_file
from .site_directory import parse, read_cluster_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from ..core.host import Random
    from .envelope import Lock
    from .secrets import Vault
    from .site_directory import Site

_MARK_BYTES = 32
_PUBLIC_FILE = "cluster.yml"
_PLAIN_FILES = ("hosts.yml", "group_vars/nodes/cluster.yml")
_POLICY = "policy/"


@dataclass(frozen=True, slots=True, kw_only=True)
class KitOrder:
    """The path of the kit, its lock, and the directory of the site's profiles (None: policy/ of the site)."""

    path: Path
    lock: Lock = field(repr=False)
    policy_directory: str | Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KitPlan:
    """The wanted content of the kit; ``current`` says that the existing file has it."""

    kit: Kit
    order: KitOrder
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The files (paths as in the kit) to write, and those that the site keeps although they differ."""

    kit: Kit
    secrets: tuple[str, ...]
    files: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def written(self) -> tuple[str, ...]:
        """All files that are written, the public facts last."""
        return (*self.secrets, *self.files)


def gather(site: Site, vault: Vault, *, now: datetime, policy_directory: str | Path | None = None) -> Kit:
    """Return the kit of ``site``; raises as `secrets.load` does, and as `Kit.require_whole`."""
    bundle = secrets.load(site, vault)
    kit = Kit(
        written=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        cluster_id=bundle.cluster_id,
        measurement_salt=bundle.measurement_salt,
        join_ca=bundle.join_ca_certificate,
        policy_generation=read_cluster_file(site.cluster_file).policy.generation,
        master=bundle.master,
        version=bundle.ring.lead.number,
        others=bundle.ring.versions[1:],
        measurement_secret=bundle.ring.carried.measurement_secret,
        emergency_ssh_seed=bundle.ring.carried.emergency_ssh_seed,
        join_ca_key=bundle.join_ca_key,
        policy_key=SecretBytes(vault.decrypt(read_bytes(site.policy_key))),
        files=tuple(_files(site, site.policy_directory(policy_directory))),
    )
    kit.require_whole()
    if kit.policy_public_key() != bundle.policy_key:
        raise SiteError(
            "expected the policy key of cluster.yml in .secrets, found another", reason=Reason.POLICY_KEY_UNUSABLE
        )
    return kit


def plan_kit(site: Site, vault: Vault, order: KitOrder, *, now: datetime) -> KitPlan:
    """Decide whether the kit has to be written; raises PLACE_TAKEN if another file exists at its path."""
    kit = gather(site, vault, now=now, policy_directory=order.policy_directory)
    require_replaceable(order.path, cluster=kit.cluster_id)
    if not (order.path.exists() and site.kit_mark.exists()):
        return KitPlan(kit=kit, order=order, current=False)
    mark = _mark(kit, order.lock, read_kit_file(order.path))
    return KitPlan(kit=kit, order=order, current=hmac.compare_digest(mark, read_bytes(site.kit_mark, limit=4096)))


def apply_kit(site: Site, plan: KitPlan, *, random: Random) -> None:
    """Write the kit, then the mark; after an interruption the next run writes both again."""
    if plan.current:
        return
    data = close_kit(plan.kit, plan.order.lock, random=random)
    write_kit_file(plan.order.path, data, cluster=plan.kit.cluster_id)
    write_atomic(site.kit_mark, _mark(plan.kit, plan.order.lock, data))


def plan_restoration(site: Site, kit: Kit, vault: Vault, *, policy_directory: str | Path | None = None) -> Restoration:
    """Decide which files of ``kit`` are written to ``site``: only those that are missing there.

    1. If the site has public facts, they are of the kit's cluster, join CA and policy key. 2. The secrets that the
    site has are those of the kit. Raises KIT_OTHER_CLUSTER.
    """
    _require_same_facts(site, kit)  # 1
    _require_same_secrets(site, kit, vault)  # 2
    names = sorted(name for name, _text in kit.files if name != _PUBLIC_FILE)
    places = {name: _place(site, name, policy_directory) for name in (*names, _PUBLIC_FILE)}
    texts = dict(kit.files)
    return Restoration(
        kit=kit,
        secrets=tuple(name for name in _secrets(kit) if not (site.secrets / name).exists()),
        files=tuple(name for name, place in places.items() if not place.exists()),
        kept=tuple(name for name, place in places.items() if place.exists() and _differs(place, texts[name])),
    )


def restore(site: Site, plan: Restoration, vault: Vault, *, policy_directory: str | Path | None = None) -> None:
    """Write the files of ``plan``, each one atomically; after an interruption the next run writes the rest."""
    contents = _secrets(plan.kit)
    texts = dict(plan.kit.files)
    _make_folder(site.secrets, mode=0o700)
    for name in plan.secrets:
        write_atomic(site.secrets / name, vault.encrypt(contents[name].reveal()))
    for name in plan.files:
        place = _place(site, name, policy_directory)
        _make_folder(place.parent, mode=0o755)
        write_atomic(place, texts[name], mode=0o644)


def _make_folder(folder: Path, *, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SiteError(f"cannot make {folder}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _files(site: Site, policy: Path) -> Iterator[tuple[str, bytes]]:
    for name in (_PUBLIC_FILE, *_PLAIN_FILES):
        if (site.root / name).is_file():
            yield name, _text(site.root / name)
    for path in sorted(site.root.glob("host_vars/*/identity.yml")):
        yield str(path.relative_to(site.root)), _text(path)
    for path in sorted(policy.glob("*.yml")):
        if not path.name.startswith("."):
            yield f"{_POLICY}{path.name}", _text(path)


def _text(path: Path) -> bytes:
    data = read_bytes(path, limit=4 << 20)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SiteError(f"expected text in UTF-8 in {path}", reason=Reason.FILE_UNUSABLE) from error
    return data


def _place(site: Site, name: str, policy_directory: str | Path | None) -> Path:
    if name.startswith(_POLICY):
        return site.policy_directory(policy_directory) / name.removeprefix(_POLICY)
    return site.root / name


def _secrets(kit: Kit) -> dict[str, SecretBytes]:
    return {
        "master-secret.json": SecretBytes(kit.ring.to_json()),
        "join-ca-key.pem": kit.join_ca_key,
        "policy-key.pem": kit.policy_key,
    }


def _require_same_facts(site: Site, kit: Kit) -> None:
    inside = parse(dict(kit.files)[_PUBLIC_FILE])
    wanted = (kit.cluster_id, kit.join_ca, kit.policy_public_key())
    if (inside.cluster_id, inside.join_ca, inside.policy_key) != wanted:
        raise _other("the cluster.yml in the kit is not that of its keys")
    if not site.cluster_file.exists():
        return
    found = read_cluster_file(site.cluster_file)
    if (found.cluster_id, found.join_ca, found.policy_key) != wanted:
        raise _other(f"the site is that of {found.cluster_id.hex()}, or has another join CA or policy key")


def _require_same_secrets(site: Site, kit: Kit, vault: Vault) -> None:
    for name, secret in _secrets(kit).items():
        path = site.secrets / name
        if path.exists() and SecretBytes(vault.decrypt(read_bytes(path))) != secret:
            raise _other(f"the site has another {name}")


def _differs(place: Path, text: bytes) -> bool:
    try:
        return read_bytes(place, limit=4 << 20) != text
    except AttestedError:
        return True


def _other(got: str) -> SiteError:
    return SiteError(f"expected the recovery kit of this site, {got}", reason=Reason.KIT_OTHER_CLUSTER)


def _mark(kit: Kit, lock: Lock, data: bytes) -> bytes:
    info = length_prefixed(label("recovery-kit-mark"), kit.cluster_id)
    derivation = hkdf.HKDF(algorithm=hashes.SHA256(), length=_MARK_BYTES, salt=kit.master.salt.reveal(), info=info)
    content = kit.undated().to_bytes()
    text = length_prefixed(hashlib.sha256(data).digest(), content, lock.binding().reveal())
    mac = hmac.new(derivation.derive(kit.master.key.reveal()), text, hashlib.sha256)
    return mac.hexdigest().encode("ascii") + b"\n"
