"""A picture may come in any of the forms that clients send; the model sees the same bytes."""

import base64
import hashlib
import io
import json
import random

import pytest
from PIL import Image

from tests.harness.node import Node, run_path
from tests.harness.pictures import digest_model


@pytest.fixture(scope="module")
def picture() -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (32, 24), random.Random(2).randbytes(32 * 24 * 3)).save(file, "JPEG")
    return file.getvalue()


def forms(picture: bytes) -> dict[str, tuple[bytes, dict[str, str]]]:
    encoded = base64.b64encode(picture).decode()
    boundary = "----form"
    part = f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    multipart = part.encode() + picture + f"\r\n--{boundary}--\r\n".encode()
    as_json = {
        "numbers": {"image": list(picture)},
        "base64": {"image": encoded},
        "data URI": {"image": f"data:image/jpeg;base64,{encoded}"},
        "image_b64": {"image_b64": encoded},
        "numbers and nulls beside them": {"image": list(picture), "prompt": None},
    }
    found = {name: (json.dumps(body).encode(), {"content-type": "application/json"}) for name, body in as_json.items()}
    found["numbers as text/plain"] = (found["numbers"][0], {"content-type": "text/plain;charset=UTF-8"})
    found["numbers without a type"] = (found["numbers"][0], {})
    found["numbers after a newline"] = (b"\n  " + found["numbers"][0], {"content-type": "application/x-www-form-urlencoded"})
    for kind in ("application/x-www-form-urlencoded", "image/jpeg", "application/octet-stream", ""):
        found[f"raw as {kind or 'nothing'}"] = (picture, {"content-type": kind} if kind else {})
    found["multipart"] = (multipart, {"content-type": f"multipart/form-data; boundary={boundary}"})
    return found


FORMS = list(forms(b"x"))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_answer(node: Node, digester: str, picture: bytes, form: str, chunked: bool):
    body, headers = forms(picture)[form]
    answer = node.fetch("POST", run_path(digester), body, headers=headers, chunked=chunked)
    assert answer.result == [{"label": hashlib.sha256(picture).hexdigest(), "score": 1.0}]


NO_PICTURES: list = [None, 5, [256], [-1], [1.5], ["a"], "no base64!", {}, "data:image/png;base64,!!"]


@pytest.mark.parametrize("body", [{}, *({"image": value} for value in NO_PICTURES)], ids=str)
def test_what_is_no_picture_is_refused_by_the_name_of_the_field(node: Node, digester: str, body: dict):
    answer = node.run(digester, body)
    assert (answer.status, answer.code) == (400, 5006), answer.body
    assert "image" in answer.message


@pytest.fixture
def digester(node: Node, fresh_name) -> str:
    name = str(fresh_name())
    node.deploy(name, digest_model(name))
    return name
