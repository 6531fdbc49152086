# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key goes from one control plane to another: only the judged one opens the box, and the admin's side sees no key."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import parse_keys, render_keys
from ansible_collections.attested.kubernetes.plugins.module_utils.node.authorization import OfferStore
from ansible_collections.attested.kubernetes.plugins.module_utils.node.key_share import (
    ShareOrder,
    open_orders,
    require_authorities,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import AUTHORITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import (
    OneTimeKey,
    open_sealed,
    seal_to_key,
)

NAMES = tuple(one.name for one in AUTHORITIES)
KEY = secrets.token_bytes(32)
SECRET, BINDING = secrets.token_bytes(32), secrets.token_bytes(32)


@pytest.fixture
def offers(tmp_path):
    return OfferStore(tmp_path / "offers", require_memory=lambda directory: None)


@pytest.fixture
def target():
    return OneTimeKey.generate()


@pytest.fixture
def order(target):
    return ShareOrder(names=("key-2",), secret=SECRET, binding=BINDING, recipient=target.public)


def test_the_judged_machine_gets_the_key_and_nothing_on_the_way_holds_it(offers, target, order):
    offered = OneTimeKey.generate()
    handle = offers.put(offered)
    sealed = order.seal(offer=offered.public)
    opened = open_orders({"cp-2": sealed}, handle=handle, offers=offers)["cp-2"]
    assert opened == order
    box = opened.box(render_keys({"key-2": KEY}))
    assert parse_keys(open_sealed(box, secret=SECRET, binding=BINDING, one_time_key=target)) == {"key-2": KEY}
    for carried in (sealed, box, repr(order).encode()):
        assert not any(part in carried for part in (KEY, KEY.hex().encode(), SECRET, SECRET.hex().encode()))


@pytest.mark.parametrize("changed", ["secret", "binding", "key"])
def test_another_machine_state_or_boot_does_not_open_the_box(order, target, changed):
    box = order.box(render_keys({"key-2": KEY}))
    with pytest.raises(AttestedError) as caught:
        open_sealed(
            box,
            secret=bytes(32) if changed == "secret" else SECRET,
            binding=bytes(32) if changed == "binding" else BINDING,
            one_time_key=OneTimeKey.generate() if changed == "key" else target,
        )
    assert caught.value.code == "SEAL_UNOPENABLE"


def test_an_offer_is_used_once(offers, order):
    offered = OneTimeKey.generate()
    handle = offers.put(offered)
    sealed = order.seal(offer=offered.public)
    open_orders({"cp-2": sealed}, handle=handle, offers=offers)
    with pytest.raises(AttestedError) as caught:
        open_orders({"cp-2": sealed}, handle=handle, offers=offers)
    assert caught.value.code == "ANSWER_UNKNOWN"


def test_an_order_to_another_offer_does_not_open(offers, order):
    handle = offers.put(OneTimeKey.generate())
    sealed = order.seal(offer=OneTimeKey.generate().public)
    with pytest.raises(AttestedError) as caught:
        open_orders({"cp-2": sealed}, handle=handle, offers=offers)
    assert caught.value.code == "SEAL_UNOPENABLE"


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"names": ["a"], "secret": "zz", "binding": "", "recipient": ""}'])
def test_what_is_no_order_is_refused(offers, content):
    offered = OneTimeKey.generate()
    handle = offers.put(offered)
    sealed = seal_to_key(content, recipient=offered.public, binding=b"encryption-key-order/" + offered.public)
    with pytest.raises(AttestedError) as caught:
        open_orders({"cp-2": sealed}, handle=handle, offers=offers)
    assert caught.value.code == "OPTION_INVALID"


@pytest.mark.parametrize(
    "names", [(), ("cluster",), (*NAMES, "key-1"), ("key-1",)], ids=["nothing", "one", "more", "a key of Secrets"]
)
def test_an_order_is_of_all_authorities_and_of_nothing_else(names):
    order = ShareOrder(names=names, secret=b"s", binding=b"b", recipient=b"r")
    with pytest.raises(AttestedError) as caught:
        require_authorities(order)
    assert caught.value.code == "OPTION_INVALID"
    require_authorities(replace(order, names=NAMES[::-1]))
