from __future__ import annotations

import io

import pytest
from PIL import Image

from glassloop.core.media_types import corrected, pixels
from glassloop.core.messages import Media


def picture(form: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (321, 123)).save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "comment": b"x" * 5_000}),
        ("GIF", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"xmp": b"<x/>"}),
    ],
)
def test_an_image_tells_its_size(form: str, options: dict[str, object]) -> None:
    data = picture(form, **options)
    assert pixels(data) == (321, 123)
    assert pixels(data[:8]) is None


ENDLESS = b"\xff\xd8" + b"\xff" * 20_000 + b"\xc0\x00\x11\x08\x00\x01\x00\x01"
"""Nobody writes so many marks before the size but to be read for long: each of them takes its time."""


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0" + b"\x00" * 9, b"RIFF\0\0\0\0WEBPVP9 ", b"%PDF-1.7", ENDLESS],
)
def test_what_tells_no_size_has_none(data: bytes) -> None:
    assert pixels(data) is None


@pytest.mark.parametrize(
    ("said", "data", "is_"),
    [
        ("image/png", picture("JPEG"), "image/jpeg"),
        ("image/jpeg", picture("WEBP"), "image/webp"),
        ("image/jpg", picture("JPEG"), "image/jpeg"),
        ("image/jpg", b"cut off", "image/jpeg"),
        ("image/png", b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
        ("image/png", b'\xef\xbb\xbf<?xml version="1.0"?>\n<svg/>', "image/svg+xml"),
        ("image/png", b"\n<!DOCTYPE html><html>404</html>", "text/html"),
        ("image/png", b"%PDF-1.7", "application/pdf"),
        ("application/octet-stream", picture("PNG"), "image/png"),
        ("application/octet-stream", b"\x00\x01", "application/octet-stream"),
        ("image/png", b"png", "image/png"),
        ("image/heic", b"\x00\x00\x00\x18unknown", "image/heic"),
        ("application/pdf", b"<html>", "application/pdf"),
    ],
)
def test_the_bytes_of_an_image_tell_what_it_is(said: str, data: bytes, is_: str) -> None:
    """anthropics/claude-code#55338, BerriAI/litellm#24900: a wrong type is a 400 for every request of a session."""
    assert corrected(said, data) == is_
    assert Media.of(data, said).media_type == is_
