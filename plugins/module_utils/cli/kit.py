# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested kit` and `attested secret`: recovery kits, and shares of a master secret, without a cluster or a site.

No secret is printed or passed as an argument. Passphrases and PINs are typed at the terminal or read from a file (also
/dev/fd/N). The content of a kit is written to a folder of its owner, outside of every site and repository.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..admin.age_file import parse_identities, require_passphrase
from ..admin.envelope import KitKeys, Lock, close_kit, describe_kit, open_kit, open_token
from ..admin.kit import MAX_CONTENT_BYTES, Kit
from ..admin.places import (
    MAX_SHARES_BYTES,
    read_kit_file,
    read_shares,
    require_empty,
    require_free,
    require_outside,
    require_replaceable,
    write_kit_file,
    write_opened,
    write_secret,
    write_shares,
)
from ..admin.shares import ShareOrder, combine_shares, shares_of, split_master
from ..admin.site_directory import read_cluster_file
from ..core.files import read_bytes
from ..core.host import SystemRandom
from ..errors import KeyServiceError, SiteError, SystemFault, visible
from ..keyservice.master import SecretBytes, import_master_secret
from ..reasons import Reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ..admin.envelope import Pkcs11Token
    from ..admin.shares import Share, SplitFacts
    from ..keyservice.master import MasterSecret


# Shared functions of the commands `attested kit` and `attested secret`: read a passphrase, print public values.

_MAX_PASSPHRASE_BYTES = 512
_WIDTH = 18


def add_passphrase(parser: argparse.ArgumentParser, text: str) -> None:
    """Add --passphrase, with the help ``text``, and --passphrase-file."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--passphrase", action="store_true", help=text)
    given.add_argument("--passphrase-file", metavar="FILE", help="read it from this file, for example /dev/fd/3")


def passphrase_of(options: argparse.Namespace, *, new: bool) -> SecretBytes:
    """Return the passphrase (a ``new`` one is typed twice), b"" if no option asks for it.

    Raises PASSPHRASE_UNUSABLE.
    """
    if options.passphrase_file:
        return require_passphrase(read_bytes(options.passphrase_file, limit=_MAX_PASSPHRASE_BYTES))
    if not options.passphrase:
        return SecretBytes(b"")
    first = _typed("Passphrase: ")
    if new and _typed("The same again: ") != first:
        raise SiteError("expected the same passphrase twice, got two", reason=Reason.PASSPHRASE_UNUSABLE)
    return first


def _typed(prompt: str) -> SecretBytes:
    return require_passphrase(ask(prompt, what="passphrase"))


def ask(prompt: str, *, what: str) -> bytes:
    """Return the input from the terminal, without echo; raises PASSPHRASE_UNUSABLE without a terminal."""
    if not _has_terminal():
        raise SiteError(
            f"expected a terminal to ask for the {what}, there is none",
            reason=Reason.PASSPHRASE_UNUSABLE,
            hint=f"Use --{what}-file instead.",
        )
    return getpass.getpass(prompt).encode("utf-8")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def print_values(values: dict[str, Any], *, as_json: bool) -> None:
    """Print rows of names and values, or JSON for programs."""
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
        return
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            rows = one if isinstance(one, dict) else {name: one}
            sys.stdout.writelines(
                f"{visible(str(label)):<{_WIDTH}}{visible(str(text))}\n" for label, text in rows.items()
            )
            sys.stdout.write("\n" if isinstance(one, dict) else "")


_MAX_KEY_BYTES = 65536
_MAX_PIN_BYTES = 256
_PIN = range(32, 127)


def add_kit(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    kit = commands.add_parser("kit", help="recovery kits of a cluster (docs/recovery-kit.md)")
    actions = kit.add_subparsers(required=True, metavar="COMMAND")
    show = actions.add_parser("show", parents=[common], help="show the public data of a kit without opening it")
    show.add_argument("files", nargs="+", metavar="FILE")
    show.set_defaults(run=_show_kit)
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


def _show_kit(options: argparse.Namespace) -> int:
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


# `attested secret`: make, show and combine shares of a master secret, without a cluster.
#
# No secret is printed. Passphrases are typed at the terminal or read from a file (also /dev/fd/N). A master secret is
# read from a file or standard input, and is written to a file of its owner or to a pipe.

_MAX_SECRET_BYTES = 4096
_STREAM = "-"


def add_secret(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    secret = commands.add_parser("secret", help="shares of a cluster's master secret (docs/recovery-kit.md)")
    actions = secret.add_subparsers(required=True, metavar="COMMAND")
    show = actions.add_parser("show", parents=[common], help="show what a file contains, without its secret")
    show.add_argument("files", nargs="+", metavar="FILE", help="shares, folders of them, or a master secret")
    show.set_defaults(run=_show_secret)
    split = actions.add_parser("split", parents=[common], help="make n shares, of which any k rebuild the secret")
    split.add_argument(
        "--master-secret", required=True, metavar="FILE", help="the master secret's JSON, or - for standard input"
    )
    split.add_argument("-k", type=int, required=True, dest="threshold", help="how many rebuild it, at least 2")
    split.add_argument("-n", type=int, required=True, dest="count", help="how many are made, at most 16")
    split.add_argument("--out", required=True, metavar="FOLDER", help="an empty folder outside of every repository")
    split.add_argument(
        "--cluster-file", metavar="FILE", help="cluster.yml of the site: the shares then name the cluster"
    )
    add_passphrase(split, "also ask for a new passphrase that the shares need")
    split.set_defaults(run=_split)
    combine = actions.add_parser("combine", parents=[common], help="rebuild the master secret, or only try it")
    combine.add_argument("files", nargs="+", metavar="FILE", help="shares, folders of them, or - for standard input")
    combine.add_argument("--out", metavar="FILE", help="write the secret to this file; - for a pipe; omit to only try")
    add_passphrase(combine, "ask for the passphrase of the shares")
    combine.set_defaults(run=_combine)


def _show_secret(options: argparse.Namespace) -> int:
    rows = [row for name in options.files for row in _rows_of(name)]
    print_values({"files": rows}, as_json=options.json)
    return 0


def _rows_of(name: str) -> list[dict[str, str]]:
    if not Path(name).is_dir() and read_bytes(name, limit=MAX_SHARES_BYTES).lstrip().startswith(b"{"):
        master = import_master_secret(read_bytes(name, limit=_MAX_SECRET_BYTES))
        return [{"file": name, "is": "a master secret in clear", "master secret": master.fingerprint()}]
    shares = read_shares([name])
    if not shares:
        raise SystemFault(f"expected shares in {name}, found none", reason=Reason.SHARE_MALFORMED)
    return [{"file": share.phrase.name, **_about(share), **_named(share.facts)} for share in shares]


def _about(share: Share) -> dict[str, str]:
    phrase = share.phrase
    return {
        "is": f"share {phrase.place}, {phrase.threshold} are needed",
        "split": f"{phrase.split:05x}",
        "words": "whole",
    }


def _named(facts: SplitFacts) -> dict[str, str]:
    rows = {
        "cluster id": facts.cluster_id,
        "measurement salt": facts.measurement_salt,
        "master secret": facts.fingerprint,
    }
    return {name: value for name, value in rows.items() if value}


def _split(options: argparse.Namespace) -> int:
    require_empty(options.out)
    master = _master_of(options.master_secret)
    salt = b""
    if options.cluster_file:
        salt = _salt_of(options.cluster_file, master)
    passphrase = passphrase_of(options, new=True)
    order = ShareOrder(threshold=options.threshold, count=options.count, passphrase=passphrase)
    texts = split_master(master, salt=salt, order=order, random=SystemRandom())
    paths = write_shares(options.out, texts)
    print_values({"master secret": master.fingerprint(), "files": [str(path) for path in paths]}, as_json=options.json)
    return 0


def _combine(options: argparse.Namespace) -> int:
    to_pipe = options.out == _STREAM
    if to_pipe and sys.stdout.isatty():
        raise SystemFault("expected a pipe behind --out -, got a terminal", reason=Reason.SHARES_EXPOSED)
    if options.out and not to_pipe:
        require_outside(options.out)
    rebuilt = combine_shares(_shares_of(options.files), passphrase_of(options, new=False))
    values = {"shares": "they rebuild it", **_named(rebuilt.facts)}
    if to_pipe:
        sys.stdout.write(rebuilt.master.to_json().decode("ascii"))
        return 0
    if options.out:
        values["written"] = str(write_secret(options.out, rebuilt.master.to_json()))
    print_values(values, as_json=options.json)
    return 0


def _shares_of(files: Sequence[str]) -> tuple[Share, ...]:
    if list(files) != [_STREAM]:
        return read_shares(files)
    if sys.stdin.isatty():
        sys.stderr.write("Type or paste the shares, an empty line after each; end with Ctrl-D.\n")
    data = sys.stdin.buffer.read(MAX_SHARES_BYTES + 1)
    if len(data) > MAX_SHARES_BYTES:
        raise SystemFault(
            f"expected at most {MAX_SHARES_BYTES} bytes on standard input, found more", reason=Reason.FILE_UNUSABLE
        )
    return shares_of("standard input", data)


def _salt_of(path: str, master: MasterSecret) -> bytes:
    facts = read_cluster_file(path)
    facts.require_master(master)
    return facts.measurement_salt


def _master_of(name: str) -> MasterSecret:
    data = (
        sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1) if name == _STREAM else read_bytes(name, limit=_MAX_SECRET_BYTES)
    )
    return import_master_secret(data)
