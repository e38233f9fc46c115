"""Addresses: what they name, and what people and manifests see of them."""

from __future__ import annotations

import pytest

from gptcli.dataset.place import name_of_text
from gptcli.dataset.remote.addresses import HubPlace, hub_place, is_text_address, shown, web_address
from gptcli.errors import UsageError


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("hf://datasets/owner/name", HubPlace("dataset", "owner/name", None, "")),
        ("hf://datasets/owner/name/", HubPlace("dataset", "owner/name", None, "")),
        ("hf://datasets/owner/name@main/data/*.parquet", HubPlace("dataset", "owner/name", "main", "data/*.parquet")),
        (
            "hf://datasets/owner/name@refs/convert/parquet/x",
            HubPlace("dataset", "owner/name", "refs/convert/parquet", "x"),
        ),
        ("hf://datasets/owner/name@refs/pr/3", HubPlace("dataset", "owner/name", "refs/pr/3", "")),
        ("hf://spaces/owner/name/a b.txt", HubPlace("space", "owner/name", None, "a b.txt")),
        ("hf://owner/name/README.md", HubPlace("model", "owner/name", None, "README.md")),
        ("hf://models/owner/name/README.md", HubPlace("model", "owner/name", None, "README.md")),
    ],
)
def test_places_on_the_hub(address: str, place: HubPlace) -> None:
    assert hub_place(address) == place
    assert is_text_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "hf://",
        "hf://name",
        "hf://datasets/name",
        "hf://datasets/a/b@",
        "hf://datasets/a/b/../c",
        "hf://datasets/a/b//c",
    ],
)
def test_addresses_of_nothing(address: str) -> None:
    with pytest.raises(UsageError, match="not an address of files") as caught:
        hub_place(address)
    assert "hf://datasets/owner/name" in caught.value.hint


@pytest.mark.parametrize("address", ["hf://owner/name", "hf://owner/name@v1", "hf://models/owner/name/"])
def test_models_are_no_text(address: str) -> None:
    assert not is_text_address(address)
    with pytest.raises(UsageError, match="a model, not of text") as caught:
        hub_place(address)
    assert "train.init_from" in caught.value.hint


def test_what_is_shown_of_an_address() -> None:
    assert shown("https://me:word@example.com:8/a%20b/c.txt?key=1#part") == "https://example.com:8/a%20b/c.txt"
    assert web_address("HTTPS://me@example.com/a?key=1#part") == "https://me@example.com/a?key=1"
    for bad in ("https://", "https:///a", "https://exa mple.com/", "https://[::1/a", "https://example.com/\n"):
        with pytest.raises(UsageError, match="web address"):
            web_address(bad)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://example.com/books/A%20book.jsonl.gz?key=1", "A-book"),
        ("https://example.com/", "example.com"),
        ("https://me:word@example.com?x", "example.com"),
        ("https://example.com/" + "a" * 300, "a" * 60),
        ("hf://datasets/owner/some.name@main/**/*.parquet", "some.name"),
    ],
)
def test_the_names_of_datasets(address: str, name: str) -> None:
    assert name_of_text(address) == name
