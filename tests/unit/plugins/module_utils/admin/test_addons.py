# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""addons.yml: what is read, what is refused, and which file of a chart goes to the node."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.addons import (
    ARCHIVE,
    DIRECTORY,
    copy_name,
    document_of,
    network_plugin,
    parse_addons,
    read_chart,
    surplus_copies,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError

CHARTS = Path(__file__).parents[5] / "roles/bundle_builder/files/charts"
ROW = {"name": "web", "namespace": "web", "chart": "charts/web"}
DIGEST = f"sha256:{'a' * 64}"


def parsed(**options):
    (found,) = parse_addons({"addons": [{**ROW, **options}]})
    return found


def test_a_row_has_sane_defaults():
    found = parsed()

    assert (found.digest, found.values, found.order, found.timeout_seconds, found.adopt) == ("", {}, 0, 300, False)
    assert not found.is_remote


def test_what_is_uninstalled_needs_no_chart():
    (found,) = parse_addons({"addons": [{"name": "web", "namespace": "web", "state": "absent"}]})

    assert (found.chart, found.digest, found.is_remote) == ("", "", False)


def test_rows_are_in_the_order_that_they_ask_for():
    rows = [{**ROW, "name": name, "order": order} for name, order in (("c", 20), ("a", 10), ("b", 10))]

    assert [one.name for one in parse_addons({"addons": rows})] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "Web"}, "name: expected a name of a Helm release"),
        ({"name": "a" * 54}, "name: expected a name of a Helm release"),
        ({"namespace": "-"}, "namespace: expected a namespace"),
        ({"chart": "/srv/web"}, "chart: expected a path below the site"),
        ({"chart": "charts/../../web"}, "chart: expected a path below the site"),
        ({"chart": "oci://example.com/web"}, "digest: expected sha256:"),
        ({"chart": "oci://example.com/web@sha256:1", "digest": DIGEST}, "chart: expected oci://REGISTRY/PATH"),
        ({"digest": "sha256:abc"}, "digest: expected sha256:"),
        ({"values": [1]}, "values: expected a mapping"),
        ({"values": {"a": {1, 2}}}, "values: expected a mapping"),
        ({"order": -1}, "order: expected a number"),
        ({"timeout_seconds": 7200}, "timeout_seconds: expected a number"),
        ({"adopt": "yes"}, "adopt: expected true or false"),
        ({"state": "gone"}, "state: expected one of present, absent"),
        ({"state": "absent"}, "'chart': unknown field"),
        ({"state": "present", "chart": None}, "chart: expected a text"),
        ({"version": "1.0"}, "'version': unknown field"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(SiteError, match=said) as caught:
        parsed(**options)

    assert caught.value.code == "ADDON_INVALID"


@pytest.mark.parametrize("document", [None, [], {"addons": "web"}, {"addon": []}, {"addons": [ROW, ROW]}])
def test_a_list_that_is_none_is_refused(document):
    with pytest.raises(SiteError) as caught:
        parse_addons(document)

    assert caught.value.code == "ADDON_INVALID"


def flannel(**options):
    chosen = {"image": "localhost/attested-flannel:0.28.10", "pod_subnet": "10.244.0.0/16", **options}
    return network_plugin("flannel", CHARTS, **chosen)


def test_the_network_plugin_goes_before_the_add_ons_of_the_site():
    found = parse_addons({"addons": [{**ROW, "order": 0}]}, before=(flannel(),))

    assert [(one.name, one.namespace, one.is_network) for one in found] == [
        ("flannel", "kube-system", True),
        ("web", "web", False),
    ]
    values = {"image": "localhost/attested-flannel:0.28.10", "network": "10.244.0.0/16", "ipv6Network": ""}
    assert found[0].values == values
    assert read_chart(CHARTS / "elsewhere", found[0]).suffix == DIRECTORY


def test_the_network_plugin_is_not_listed_once_more():
    row = {**ROW, "name": "flannel", "namespace": "kube-system"}
    with pytest.raises(SiteError, match="flannel in kube-system is listed twice") as caught:
        parse_addons({"addons": [row]}, before=(flannel(),))

    assert caught.value.code == "ADDON_INVALID"
    assert len(parse_addons({"addons": [{**row, "namespace": "web"}]}, before=(flannel(),))) == 2


@pytest.mark.parametrize("subnet", ["10.244.0.0/16,fd00:10::/48", "fd00:10::/48,10.244.0.0/16"])
def test_flannel_has_the_networks_of_both_families(subnet):
    values = flannel(pod_subnet=subnet).values
    assert (values["network"], values["ipv6Network"]) == ("10.244.0.0/16", "fd00:10::/48")


@pytest.mark.parametrize(
    "subnet",
    ["fd00::/48", "10.244.0.1/16", "10.244.0.0/33", "", "10.244.0.0/16,10.245.0.0/16", "10.244.0.0/16, fd00::/48"],
)
def test_flannel_needs_an_ipv4_network(subnet):
    with pytest.raises(SiteError, match="flannel: expected an IPv4 network") as caught:
        flannel(pod_subnet=subnet)

    assert caught.value.code == "ADDON_INVALID"


def test_a_value_is_never_quoted():
    with pytest.raises(SiteError) as caught:
        parsed(values={"password": {"canary-5521"}}, order="x")

    assert "canary-5521" not in str(caught.value)


def test_a_directory_has_one_digest_whatever_its_times_are(tmp_path):
    (tmp_path / "charts/web/templates").mkdir(parents=True)
    (tmp_path / "charts/web/Chart.yaml").write_text("name: web\n")
    (tmp_path / "charts/web/templates/a.yaml").write_text("kind: A\n")
    first = read_chart(tmp_path, parsed())
    os.utime(tmp_path / "charts/web/Chart.yaml", (0, 0))
    (tmp_path / "charts/web/Chart.yaml").chmod(0o600)
    second = read_chart(tmp_path, parsed(digest=f"sha256:{first.digest}"))

    assert (first.suffix, first.data) == (DIRECTORY, second.data)
    with tarfile.open(fileobj=io.BytesIO(first.data)) as packed:
        assert packed.getnames() == ["chart/Chart.yaml", "chart/templates/a.yaml"]


def test_an_archive_goes_as_it_is(tmp_path):
    (tmp_path / "web.tgz").write_bytes(b"an archive")

    found = read_chart(tmp_path, parsed(chart="web.tgz"))
    assert (found.suffix, found.data) == (ARCHIVE, b"an archive")


@pytest.mark.parametrize("options", [{}, {"chart": "empty"}, {"chart": "web.tgz", "digest": DIGEST}])
def test_a_chart_that_is_not_there_or_another_is_refused(options, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "web.tgz").write_bytes(b"an archive")
    with pytest.raises(SiteError) as caught:
        read_chart(tmp_path, parsed(**options))

    assert caught.value.code == "ADDON_INVALID"


def test_copies_of_one_add_on_are_counted_apart():
    web, other = parsed(), parsed(name="web-2")
    days = [f"2026010{day}T000000Z" for day in (1, 2, 3)]
    names = [copy_name(one, day) for one in (web, other) for day in days]

    assert surplus_copies(web, [*names, "etcd-20200101T000000Z.age"], keep=2) == (copy_name(web, days[0]),)


def test_tags_of_ansible_are_left_to_it():
    text = b"addons:\n- name: web\n  values:\n    a: !vault |\n      $ANSIBLE_VAULT\n    b: !unsafe '{{ x }}'\n"

    assert document_of(text) == {"addons": [{"name": "web", "values": {"a": "$ANSIBLE_VAULT\n", "b": "{{ x }}"}}]}


@pytest.mark.parametrize(
    "text", [b"a: &x 1\nb: *x\n", b"a: !!python/name:os.system ''\n", b"[" * 100, b"a: 1\n---\nb: 2\n", b"\xff"]
)
def test_what_is_no_plain_yaml_is_refused_before_ansible_reads_it(text):
    with pytest.raises(SiteError) as caught:
        document_of(text)

    assert caught.value.code == "ADDON_INVALID"
