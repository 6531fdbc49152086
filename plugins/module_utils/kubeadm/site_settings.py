# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments, authenticators and the audit webhook that a site adds to the components of its control planes. Pure.

A site may add all arguments except those that protect keys, nodes and admission. Arguments that kubeadm or this
collection sets are refused too, so that an argument that the site drops can be removed without a replacement.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents
from ..errors import SiteError
from ..reasons import Reason
from .certificate_table import API_SERVER
from .render import AUDIT_WEBHOOK_ARGUMENT, authentication_configuration, documents
from .spec import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ETCD, CONTROLLER_MANAGER, SCHEDULER = "etcd", "kube-controller-manager", "kube-scheduler"
ARGUMENTS, AUTHENTICATORS = "attested_control_plane_arguments", "attested_authenticators"
AUDIT_WEBHOOK = "attested_audit_webhook"

_SECTIONS = {
    ETCD: ("etcd", "local"),
    API_SERVER: ("apiServer",),
    CONTROLLER_MANAGER: ("controllerManager",),
    SCHEDULER: ("scheduler",),
}
COMPONENTS = tuple(_SECTIONS)
"""In the order in which they are restarted."""

_ADMISSION, _GATES, _APIS = "enable-admission-plugins", "feature-gates", "runtime-config"
_DEFAULTS = {
    API_SERVER: {
        "audit-log-maxage": "30",
        "audit-log-maxbackup": "10",
        "audit-log-maxsize": "100",
        _ADMISSION: ",".join(PLUGINS),
    },
    CONTROLLER_MANAGER: {"terminated-pod-gc-threshold": "1000"},
}
"""Arguments of this collection that a site may override; for `enable-admission-plugins` the site's are added."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,99}")
_SWITCH = re.compile(r"[A-Za-z0-9./-]{1,100}")
_OURS = "init sets it"
_KEYS = "the cluster's keys and CAs stay as init made them"
_WHO = "who is authenticated and who is authorized stays as init set it"
_HERE = "the programs of a control plane reach each other as init set it"
_GUARDS = "admission guards nodes and secrets"
_SERVING = (
    (r"tls-(cert-file|private-key-file|sni-cert-key)|cert-dir|client-ca-file|requestheader-.*", _KEYS),
    (r"kubeconfig|.*-kubeconfig|authentication-.*|authorization-.*", _WHO),
    (r"bind-address|secure-port|leader-elect", _HERE),
    (r"profiling|contention-profiling|debugging|debug-socket-path", "it shows the memory of the program"),
)
_ETCD_TUNING = (
    r"quota-backend-bytes|auto-compaction-(mode|retention)|heartbeat-interval|election-timeout|log-level"
    r"|max-(request-bytes|txn-ops|snapshots|wals)|backend-batch-(limit|interval)|warning-.*-duration"
    r"|compaction-batch-limit|grpc-keepalive-(min-time|interval|timeout)"
)
_RULED: dict[str, tuple[tuple[str, str], ...]] = {
    API_SERVER: (
        *_SERVING,
        (r"(etcd|storage|kubelet|peer)-.*", _HERE),
        (r"advertise-address|service-cluster-ip-range|endpoint-reconciler-type|egress-selector-config-file", _HERE),
        (r"proxy-client-.*|service-account-(issuer|key-file|lookup|signing-.*)|api-audiences", _KEYS),
        (r"encryption-provider-.*", "rotate_encryption_key changes the keys of Secrets"),
        (r"oidc-.*", f"use {AUTHENTICATORS}"),
        (r"anonymous-auth|token-auth-file|enable-bootstrap-token-auth|permit-.*", _WHO),
        (r"admission-control-.*|disable-admission-plugins", "use attested_pod_security; " + _GUARDS),
        (r"audit-policy-file|audit-log-path|allow-privileged", _OURS),
        (AUDIT_WEBHOOK_ARGUMENT, f"use {AUDIT_WEBHOOK}"),
    ),
    CONTROLLER_MANAGER: (
        *_SERVING,
        (r"cluster-signing-.*|root-ca-file|service-account-private-key-file|use-service-account-credentials", _KEYS),
        (r"controllers|cluster-name|cluster-cidr|service-cluster-ip-range|allocate-node-cidrs", _OURS),
    ),
    SCHEDULER: (*_SERVING, (r"config", "no file of the site is mounted there")),
    # For etcd, only tuning arguments are allowed.
    ETCD: ((rf"(?!({_ETCD_TUNING})$).*", _OURS),),
}
_HELD_GATES = frozenset(
    {
        "AllAlpha",
        "AllBeta",
        "AnonymousAuthConfigurableEndpoints",
        "AuthorizeNodeWithSelectors",
        "AuthorizeWithSelectors",
        "ServiceAccountNodeAudienceRestriction",
        "ServiceAccountTokenNodeBinding",
        "ServiceAccountTokenNodeBindingValidation",
        "StructuredAuthenticationConfiguration",
        "ValidatingAdmissionPolicy",
    }
)
"""Feature gates that a site must not turn off."""

_RESERVED = ("system:", "attested:", "kubeadm:")
_JWT_FIELDS = frozenset({"issuer", "claimValidationRules", "claimMappings", "userValidationRules"})
_MAX_AUTHENTICATORS = 64
_AUDIT = "audit"
_WEBHOOK = re.compile(r"https://[^\s/@?#]+(/[^\s#]*)?")
_PEM = re.compile(r"\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*){1,16}", re.ASCII)


def parse_arguments(given: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the arguments that a site adds, by component and name.

    Raises CONFIG_INVALID with every problem.
    """
    problems: list[str] = []
    found: dict[str, dict[str, str]] = {one: {} for one in COMPONENTS}
    for component, named in given.items():
        if component not in found or not isinstance(named, dict):
            problems.append(f"expected arguments by name for {', '.join(COMPONENTS)}, got {str(component)[:80]!r}")
            continue
        for name, value in named.items():
            problem = _problem(component, str(name), value)
            if problem:
                problems.append(problem)
            else:
                found[component][str(name)] = _text(value)
    if problems:
        raise _invalid(f"{ARGUMENTS}: {'; '.join(problems)}")
    if plugins := found[API_SERVER].get(_ADMISSION):
        found[API_SERVER][_ADMISSION] = ",".join(sorted({*PLUGINS, *(one.strip() for one in plugins.split(","))}))
    return found


def _problem(component: str, name: str, value: Any) -> str:
    where = f"of {component}"
    if not _NAME.fullmatch(name):
        return f"expected a name without leading dashes {where}, got {name[:80]!r}"
    for pattern, why in _RULED[component]:
        if re.fullmatch(pattern, name):
            return f"expected no {name} {where}: {why}"
    if name in (_GATES, _APIS):
        return _switches_problem(name, value, where)
    if isinstance(value, (dict, list)) or value is None or "\n" in _text(value):
        return f"expected one line of text, a number or true or false as {name} {where}, got {type(value).__name__}"
    return ""


def _switches_problem(argument: str, value: Any, where: str) -> str:
    """Return the problem of feature gates (some must stay on) or of APIs (all must stay on), "" if there is none."""
    named = value.items() if isinstance(value, dict) else [(None, None)]
    if not all(_SWITCH.fullmatch(str(name)) and isinstance(one, bool) for name, one in named):
        return f"expected {argument} {where} as names with true or false"
    off = sorted(str(name) for name, is_on in value.items() if not is_on and (argument == _APIS or name in _HELD_GATES))
    return f"expected no {', '.join(off)} turned off in {argument} {where}: {_GUARDS}" if off else ""


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={_text(one)}" for name, one in sorted(value.items()))
    return str(value).lower() if isinstance(value, bool) else str(value)


def changes_of(
    component: str, present: Mapping[str, str], wanted: Mapping[str, str], *, before: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the arguments to set, by name, and those to remove.

    ``before`` are names that the site gave earlier.
    """
    kept = {**_DEFAULTS.get(component, {}), **wanted}
    placed = {name: value for name, value in kept.items() if present.get(name) != value}
    return placed, tuple(sorted(name for name in before if name in present and name not in kept))


def site_names(component: str, present: Iterable[str]) -> frozenset[str]:
    """Return the present arguments that the site set: allowed arguments without a default here."""
    defaults = _DEFAULTS.get(component, {})
    return frozenset(one for one in present if one not in defaults and not _is_ruled(component, one))


def _is_ruled(component: str, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern, _why in _RULED[component])


def arrange_configuration(configuration: dict[str, Any], wanted: Mapping[str, Mapping[str, str]]) -> bool:
    """Set ``wanted`` in kubeadm's ClusterConfiguration (v1beta4); return whether it changed."""
    changed = False
    for component, keys in _SECTIONS.items():
        section = configuration
        for key in keys:
            section = section.setdefault(key, {})
        named = section.get("extraArgs") or []
        present = {one["name"]: one["value"] for one in named}
        placed, gone = changes_of(component, present, wanted.get(component, {}), before=site_names(component, present))
        if placed or gone:
            kept = [one for one in named if one["name"] not in {*placed, *gone}]
            section["extraArgs"] = kept + [{"name": name, "value": value} for name, value in placed.items()]
            changed = True
    return changed


def authentication_file(authenticators: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the API server's authentication with a site's ``authenticators`` (entries of ``jwt``).

    Added rules refuse tokens for users and groups of the cluster itself. Kubernetes validates the rest when it reads
    the file. Raises CONFIG_INVALID. Source: AuthenticationConfiguration, apiserver.config.k8s.io/v1.
    """
    given = list(authenticators)
    if len(given) > _MAX_AUTHENTICATORS:
        raise _invalid(f"expected at most {_MAX_AUTHENTICATORS} entries in {AUTHENTICATORS}, got {len(given)}")
    for number, one in enumerate(given, start=1):
        issuer = one.get("issuer") if isinstance(one, dict) else None
        url = issuer.get("url") if isinstance(issuer, dict) else None
        if not isinstance(url, str) or not url.startswith("https://"):
            raise _invalid(
                f"expected an issuer with a url that begins with https:// in entry {number} of {AUTHENTICATORS}"
            )
        if unknown := sorted(set(map(str, one)) - _JWT_FIELDS):
            raise _invalid(
                f"expected {', '.join(sorted(_JWT_FIELDS))} in entry {number} of {AUTHENTICATORS}, "
                f"got {', '.join(unknown)[:200]}"
            )
    return documents(authentication_configuration([_with_rules(one) for one in given]))


def is_authentication_file(content: bytes) -> bool:
    """Return whether `authentication_file` made ``content``."""
    try:
        (document,) = load_documents(content)
        return authentication_file([_without_rules(one) for one in document.get("jwt", ())]) == content
    except (ValueError, AttributeError, TypeError, SiteError):
        return False


def audit_webhook_file(given: Mapping[str, Any]) -> bytes:
    """Return the kubeconfig by which the API server sends audit events to a site's webhook; empty without a webhook.

    ``given``: ``url``, and ``certificate_authority`` (PEM) unless the system's CAs signed the webhook's certificate.
    Raises CONFIG_INVALID. Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#webhook-backend
    """
    if not given:
        return b""
    url, authority = given.get("url"), given.get("certificate_authority", "")
    if unknown := sorted(set(map(str, given)) - {"url", "certificate_authority"}):
        raise _invalid(f"expected url and certificate_authority in {AUDIT_WEBHOOK}, got {', '.join(unknown)[:200]}")
    if not isinstance(url, str) or not _WEBHOOK.fullmatch(url):
        raise _invalid(f"expected a url that begins with https:// and has no user in {AUDIT_WEBHOOK}")
    if authority and (not isinstance(authority, str) or not _PEM.fullmatch(authority)):
        raise _invalid(f"expected the text of certificates in PEM as certificate_authority in {AUDIT_WEBHOOK}")
    trusted = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    return documents(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _AUDIT, "cluster": {"server": url, **trusted}}],
            "users": [{"name": _AUDIT, "user": {}}],
            "contexts": [{"name": _AUDIT, "context": {"cluster": _AUDIT, "user": _AUDIT}}],
            "current-context": _AUDIT,
        }
    )


def is_audit_webhook_file(content: bytes) -> bool:
    """Return whether `audit_webhook_file` made ``content`` for a webhook."""
    try:
        (document,) = load_documents(content)
        cluster = document["clusters"][0]["cluster"]
        data = cluster.get("certificate-authority-data")
        authority = {"certificate_authority": base64.b64decode(data).decode()} if data else {}
        return audit_webhook_file({"url": cluster["server"], **authority}) == content
    except (ValueError, AttributeError, TypeError, LookupError, SiteError):
        return False


def _with_rules(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "userValidationRules": [*(one.get("userValidationRules") or ()), *_rules()]}


def _without_rules(one: Mapping[str, Any]) -> dict[str, Any]:
    rules = [rule for rule in one.get("userValidationRules", ()) if rule not in _rules()]
    return {**one, "userValidationRules": rules}


def _rules() -> list[dict[str, str]]:
    return [
        {
            "expression": f"!user.username.startsWith('{prefix}') && "
            f"user.groups.all(group, !group.startsWith('{prefix}'))",
            "message": f"users and groups that begin with {prefix} are the cluster's own",
        }
        for prefix in _RESERVED
    ]


def _invalid(message: str) -> SiteError:
    return SiteError(message, reason=Reason.CONFIG_INVALID)
