# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render containerd's registry files, and the drop-in of its unit with proxies.

A credential is a header of a registry in ``hosts.toml``. containerd sends it to that registry, and to the token server
that the registry names ("Registry Configuration", containerd).
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import SiteError
from ..reasons import Reason
from .node_files import WantedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REGISTRIES = "/etc/attested/registries"
PROXY = "/etc/systemd/system/containerd.service.d/50-attested-proxy.conf"
_SERVER = re.compile(r"_default|[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[0-9]{1,5})?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_CAPABILITIES = ("pull", "resolve", "push")
_SECRET_KEYS = {"auth", "header", "identitytoken", "password", "token", "username"}
_REGISTRY_KEYS = {"server", "ca", "mirrors"}
_MIRROR_KEYS = {"url", "ca", "capabilities", "override_path"}
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_USER = re.compile(r"[^\x00-\x1f\x7f:]+")
_PASSWORD = re.compile(r"[^\x00-\x1f\x7f]+")
_PROXY_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?/?")
_EXEMPT = re.compile(r"[A-Za-z0-9*.:/_-]+")
_WITH_PORT = re.compile(r"^(?:\[(.+)\]|([^:]+)):[0-9]+$")
_ALWAYS_EXEMPT = ("localhost", "127.0.0.0/8", "::1", ".svc", ".cluster.local")
PRIVATE = 0o600
"""Permission bits of a file with a credential."""


def render_proxy(params: Mapping[str, Any]) -> str:
    """Return the unit drop-in with proxies, empty without a proxy; raises CONFIG_INVALID."""
    proxy = params["proxy"] or {}
    urls = {name: str(proxy[name]) for name in ("http", "https") if proxy.get(name)}
    for name, url in urls.items():
        if not _PROXY_URL.fullmatch(url):
            raise invalid(
                f"attested_proxy: expected {name} as http://HOST[:PORT] without user and password, got something else; "
                "all users of a machine can read the environment of a unit"
            )
    own = (_WITH_PORT.sub(r"\1\2", str(one)) for one in params["own_addresses"])
    exempt = [*_ALWAYS_EXEMPT, *own, *map(str, proxy.get("no_proxy") or [])]
    if wrong := [one for one in exempt if not _EXEMPT.fullmatch(one)]:
        raise invalid(f"attested_proxy: expected names, addresses and networks in no_proxy, got {', '.join(wrong)}")
    if not urls:
        return ""
    values = {
        **{f"{name.upper()}_PROXY": url for name, url in urls.items()},
        "NO_PROXY": ",".join(dict.fromkeys(exempt)),
    }
    lines = "".join(f'Environment="{name}={value}"\n' for name, value in values.items())
    return f"# Written by attested.kubernetes: change attested_proxy instead.\n[Service]\n{lines}"


def registry_files(
    entries: Sequence[Mapping[str, Any]], credentials: Sequence[Mapping[str, Any]] = ()
) -> list[WantedFile]:
    """Return the host and CA files of all registries below `REGISTRIES`; raises CONFIG_INVALID.

    A file with a credential has mode 0600. A registry that is only in ``credentials`` has a file too.
    """
    headers = _headers(credentials)
    servers = {str(entry["server"]) for entry in entries if isinstance(entry, dict) and "server" in entry}
    mirrors = {host for entry in entries for host in _mirror_hosts(entry)}
    more = [{"server": host} for host in headers if host not in servers | mirrors]
    files: dict[str, list[WantedFile]] = {}
    for entry in [*entries, *more]:
        known(entry, _REGISTRY_KEYS, where="attested_registries")
        server = entry.get("server")
        if not isinstance(server, str) or not _SERVER.fullmatch(server):
            raise invalid("attested_registries: expected server as HOST, HOST:PORT or _default, got something else")
        if server in files:
            raise invalid(f"attested_registries: expected each server once, got {server} again")
        files[server] = _files_of(server, entry, headers)
    return [file for server in files for file in files[server]]


def authorization_of(row: Mapping[str, Any]) -> str:
    """Return the Authorization header of a credential; raises CONFIG_INVALID without showing the credential."""
    user, password, token = (row.get(name) or "" for name in ("username", "password", "token"))
    if token and not (user or password) and _TOKEN.fullmatch(token):
        return f"Bearer {token}"
    if not token and _USER.fullmatch(user) and _PASSWORD.fullmatch(password):
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode('ascii')}"
    raise invalid(
        f"attested_registry_credentials, {row.get('host')}: expected username and password, or token, without control "
        "characters, got something else"
    )


def _headers(credentials: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return Authorization headers by host."""
    found: dict[str, str] = {}
    for row in credentials:
        host = row.get("host")
        if not isinstance(host, str) or not _SERVER.fullmatch(host) or host == "_default":
            raise invalid("attested_registry_credentials: expected host as HOST or HOST:PORT, got something else")
        if host in found:
            raise invalid(f"attested_registry_credentials: expected each host once, got {host} again")
        found[host] = authorization_of(row)
    return found


def _mirror_hosts(entry: Any) -> Iterator[str]:
    """Yield the hosts of the mirrors of an entry, which is not validated yet."""
    mirrors = entry.get("mirrors") if isinstance(entry, dict) else None
    for mirror in mirrors if isinstance(mirrors, list) else []:
        if isinstance(mirror, dict):
            yield _host_of(mirror.get("url"))


def _host_of(url: Any) -> str:
    try:
        return urlsplit(url if isinstance(url, str) else "").netloc
    except ValueError:
        return ""


def _header(host: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {"header": {"Authorization": headers[host]}} if host in headers else {}


def _files_of(server: str, entry: Mapping[str, Any], headers: Mapping[str, str]) -> list[WantedFile]:
    where, directory = f"attested_registries, {server}", f"{REGISTRIES}/{server}"
    files: list[WantedFile] = []
    tables: dict[str, Any] = _authority(entry, f"{directory}/ca.crt", files, where=where)
    hosts: dict[str, Any] = {}
    for number, mirror in enumerate(entry.get("mirrors") or [], start=1):
        known(mirror, _MIRROR_KEYS, where=f"{where}, mirrors")
        url = _url(mirror.get("url"), where=f"{where}, mirrors")
        capabilities = mirror.get("capabilities", ["pull", "resolve"])
        if (
            not isinstance(capabilities, list)
            or not capabilities
            or not set(map(str, capabilities)) <= {*_CAPABILITIES}
        ):
            raise invalid(f"{where}, {url}: expected capabilities of {', '.join(_CAPABILITIES)}, got {capabilities!r}")
        if url in hosts:
            raise invalid(f"{where}: expected each mirror once, got {url} again")
        hosts[url] = {"capabilities": [str(one) for one in capabilities]}
        if mirror.get("override_path"):
            hosts[url]["override_path"] = True
        hosts[url] |= _authority(mirror, f"{directory}/mirror-{number}.crt", files, where=f"{where}, {url}")
        hosts[url] |= _header(_host_of(url), headers)
    tables |= _header(server, headers)
    if hosts:
        tables["host"] = hosts
    mode = PRIVATE if server in headers or headers.keys() & set(map(_host_of, hosts)) else 0o644
    text = "# Written by attested.kubernetes: change attested_registries instead.\n" + to_toml(tables)
    return [*files, WantedFile(path=f"{directory}/hosts.toml", content=text.encode(), mode=mode)]


def _authority(entry: Mapping[str, Any], path: str, files: list[WantedFile], *, where: str) -> dict[str, str]:
    """Add the CA file of ``entry``, if any, to ``files``; return the key with its path."""
    text = entry.get("ca")
    if not text:
        return {}
    if not isinstance(text, str) or "-----BEGIN CERTIFICATE-----" not in text or "PRIVATE KEY" in text:
        raise invalid(f"{where}: expected the text of certificates in PEM as ca, got something else")
    files.append(WantedFile(path=path, content=text.strip().encode() + b"\n", mode=0o644))
    return {"ca": path}


def _url(value: Any, *, where: str) -> str:
    """Return the URL of a mirror; raises CONFIG_INVALID without showing passwords."""
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        host, secret = parts.hostname, "@" in parts.netloc or bool(parts.query or parts.fragment)
    except ValueError:
        host, secret = None, True
    if secret or not host or parts.scheme not in {"https", "http"}:
        raise invalid(f"{where}: expected url as https://HOST[:PORT][/PATH] without user and query, got something else")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise invalid(f"{where}: expected https, got http for {host}; a machine in between could change tags")
    return str(value)


def known(entry: Any, keys: set[str], *, where: str) -> None:
    """Raise CONFIG_INVALID, without values, unless ``entry`` is a mapping of ``keys``."""
    if not isinstance(entry, dict):
        raise invalid(f"{where}: expected a list of mappings, got another value")
    refuse_secrets(entry, where=where)
    if "skip_verify" in entry:
        raise invalid(f"{where}: expected the registry's CA as ca, got skip_verify; certificates are always verified")
    if unknown := sorted(map(str, set(entry) - keys)):
        raise invalid(f"{where}: expected only {', '.join(sorted(keys))}, got {', '.join(unknown)}")


def refuse_secrets(value: Any, *, where: str) -> None:
    """Raise CONFIG_INVALID, without values, for keys of credentials at any depth."""
    if secret := sorted(_SECRET_KEYS & {key.lower() for key in _keys(value)}):
        raise invalid(
            f"{where}: expected no credential, got {', '.join(secret)}; use attested_registry_credentials or "
            "imagePullSecrets of Kubernetes"
        )


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys of all mappings in ``value``."""
    if isinstance(value, dict):
        yield from map(str, value)
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _keys(one)


def to_toml(tables: Mapping[str, Any], before: tuple[str, ...] = ()) -> str:
    """Return the tables as TOML: values first, then each table with its full name; raises CONFIG_INVALID."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in tables.items():
        if isinstance(value, dict):
            path = (*before, str(key))
            own = not value or any(not isinstance(one, dict) for one in value.values())
            text += (f"\n[{'.'.join(map(_key, path))}]\n" if own else "") + to_toml(value, path)
    return text


def _key(key: Any) -> str:
    return str(key) if _BARE.fullmatch(str(key)) else _value(str(key))


def _value(value: Any) -> str:
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
        raise invalid("expected text in Unicode for containerd, got half of a surrogate pair")
    if isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())}}}"
    raise invalid(
        f"expected texts, whole numbers, booleans, lists and tables for containerd, got {type(value).__name__}"
    )


def invalid(message: str) -> SiteError:
    """Return an error with the reason CONFIG_INVALID."""
    return SiteError(message, reason=Reason.CONFIG_INVALID)
