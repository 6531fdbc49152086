# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested kit`: show, open and encrypt recovery kits, without a cluster or a site.

No secret is printed or passed as an argument. Passphrases and PINs are typed at the terminal or read from a file (also
/dev/fd/N). The content of a kit is written to a folder of its owner, outside of every site and repository.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..admin.age_file import parse_identities
from ..admin.closing import KitKeys, Lock, close_kit, describe_kit, open_kit
from ..admin.cluster_file import read_cluster_file
from ..admin.kit import MAX_CONTENT_BYTES, Kit
from ..admin.kit_places import read_kit_file, require_free, require_replaceable, write_kit_file, write_opened
from ..admin.token import open_token
from ..core.files import read_bytes
from ..core.host import SystemRandom
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from .prompts import add_passphrase, ask, passphrase_of, print_values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..admin.token import Pkcs11Token

_MAX_KEY_BYTES = 65536
_MAX_PIN_BYTES = 256
_PIN = range(32, 127)


def add_kit(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    kit = commands.add_parser("kit", help="recovery kits of a cluster (docs/recovery-kit.md)")
    actions = kit.add_subparsers(required=True, metavar="COMMAND")
    show = actions.add_parser("show", parents=[common], help="show the public data of a kit without opening it")
    show.add_argument("files", nargs="+", metavar="FILE")
    show.set_defaults(run=_show)
    opened = actions.add_parser("open", parents=[common], help="try a kit, or write its content into a folder")
    opened.add_argument("file", metavar="FILE")
    opened.add_argument("--out", metavar="FOLDER", help="an empty folder outside of every repository; omit to only try")
    opened.add_argument(
        "--cluster-file", metavar="FILE", help="cluster.yml of the site: the kit must be of its cluster"
    )
    add_passphrase(opened, "ask for the passphrase of the kit")
    opened.add_argument("--identity", metavar="FILE", help="identities of age, as age-keygen writes them")
    _add_token(opened, required=False)
    opened.set_defaults(run=_open)
    written = actions.add_parser("write", parents=[common], help="encrypt an opened kit with another key")
    written.add_argument("content", metavar="KIT.JSON", help="the file that attested kit open wrote")
    written.add_argument(
        "--out", required=True, metavar="FILE", help="the kit; an older one of the cluster is replaced"
    )
    add_passphrase(written, "ask for a new passphrase")
    written.add_argument("--recipient", action="append", default=[], metavar="age1…", help="repeatable")
    written.add_argument("--token-key", metavar="FILE", help="RSA public key (PEM) of a PKCS#11 token")
    written.set_defaults(run=_write)
    keys = actions.add_parser("token-keys", parents=[common], help="the keys of a token that a kit can be encrypted to")
    _add_token(keys, required=True)
    keys.set_defaults(run=_token_keys)


def _add_token(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--module", required=required, metavar="FILE", help="the PKCS#11 module (.so) of a token")
    parser.add_argument("--token", default="", metavar="LABEL", help="the token, if the module has several")
    parser.add_argument("--pin-file", metavar="FILE", help="read its PIN from this file instead of the terminal")


def _show(options: argparse.Namespace) -> int:
    rows = [{"file": name, **describe_kit(read_kit_file(name))} for name in options.files]
    print_values({"files": rows}, as_json=options.json)
    return 0


def _open(options: argparse.Namespace) -> int:
    if options.out:
        require_free(options.out)
    data = read_kit_file(options.file)
    describe_kit(data)  # raises for a damaged kit before a passphrase is typed
    expected = read_cluster_file(options.cluster_file).cluster_id if options.cluster_file else b""
    with _keys_of(options) as keys:
        kit = open_kit(data, keys, expected=expected)
    values = _facts(kit)
    if options.out:
        values["written"] = [str(path) for path in write_opened(options.out, kit)]
    print_values(values, as_json=options.json)
    return 0


def _write(options: argparse.Namespace) -> int:
    kit = Kit.from_bytes(read_bytes(options.content, limit=MAX_CONTENT_BYTES))
    place = Path(options.out)
    require_replaceable(place, cluster=kit.cluster_id)
    data = close_kit(kit, _lock_of(options), random=SystemRandom())
    write_kit_file(place, data, cluster=kit.cluster_id)
    print_values({**_facts(kit), **describe_kit(data), "file": str(place)}, as_json=options.json)
    return 0


def _token_keys(options: argparse.Namespace) -> int:
    with _token(options) as token:
        keys = [key.decode("ascii") for key in token.public_keys()]
    if options.json:
        print_values({"keys": keys}, as_json=True)
    else:
        sys.stdout.writelines(keys)
    return 0


def _facts(kit: Kit) -> dict[str, Any]:
    return {
        "cluster id": kit.cluster_id.hex(),
        "measurement salt": kit.measurement_salt.hex(),
        "master secret": kit.master.fingerprint(),
        "policy": f"generation {kit.policy_generation}",
        "made at": kit.written,
        "holds": [name for name, _text in kit.files],
    }


@contextmanager
def _keys_of(options: argparse.Namespace) -> Iterator[KitKeys]:
    if options.module:
        with _token(options) as token:
            yield KitKeys(token=token)
    elif options.identity:
        yield KitKeys(identities=parse_identities(read_bytes(options.identity, limit=_MAX_KEY_BYTES)))
    else:
        yield KitKeys(passphrase=_optional_passphrase(options, new=False))


def _lock_of(options: argparse.Namespace) -> Lock:
    passphrase = _optional_passphrase(options, new=True)
    ways = [passphrase is not None, bool(options.recipient), bool(options.token_key)]
    if ways.count(True) != 1:
        raise KeyServiceError(
            "expected one of --passphrase, --passphrase-file, --recipient and --token-key, got none or several",
            reason=Reason.KIT_KEY_WRONG,
        )
    token_key = read_bytes(options.token_key, limit=_MAX_KEY_BYTES) if options.token_key else b""
    return Lock(passphrase=passphrase, recipients=tuple(options.recipient), token_key=token_key)


def _optional_passphrase(options: argparse.Namespace, *, new: bool) -> SecretBytes | None:
    passphrase = passphrase_of(options, new=new)
    return passphrase if len(passphrase) else None


@contextmanager
def _token(options: argparse.Namespace) -> Iterator[Pkcs11Token]:
    with open_token(options.module, pin=_pin_of(options), token_label=options.token) as token:
        yield token


def _pin_of(options: argparse.Namespace) -> SecretBytes:
    data = read_bytes(options.pin_file, limit=_MAX_PIN_BYTES) if options.pin_file else ask("PIN: ", what="pin")
    pin = data.removesuffix(b"\n").removesuffix(b"\r")
    if not pin or not all(byte in _PIN for byte in pin):
        raise KeyServiceError("expected a PIN of printable ASCII characters", reason=Reason.KIT_TOKEN_UNUSABLE)
    return SecretBytes(pin)
