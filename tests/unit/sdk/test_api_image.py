"""Request.image: any form in, an upright RGB picture out, and nothing else."""

import base64
import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import fornada_sdk
from fornada_sdk import BadRequest, Request
from fornada_sdk.api_image import decode_image
from fornada_sdk.runner.received import Received
from fornada_sdk.wire.messages import encode
from tests.bounds import bound


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


PICTURE = encoded(Image.new("RGB", (3, 2), (10, 20, 30)))
TEXT = base64.b64encode(PICTURE).decode()
FORMS = [
    pytest.param(lambda: Request(bytes=PICTURE, type="image/png"), id="raw"),
    pytest.param(lambda: Request(bytes=PICTURE), id="raw without a type"),
    pytest.param(lambda: Request(json={"image": list(PICTURE)}), id="ints"),
    pytest.param(lambda: Request(json={"image": TEXT}), id="base64"),
    pytest.param(lambda: Request(json={"image": TEXT.rstrip("=")}), id="base64 unpadded"),
    pytest.param(lambda: Request(json={"image": TEXT.replace("+", "-").replace("/", "_")}), id="base64 for urls"),
    pytest.param(lambda: Request(json={"image": "\n".join(TEXT[i : i + 20] for i in range(0, len(TEXT), 20))}), id="base64 in lines"),
    pytest.param(lambda: Request(json={"image": f"data:image/png;base64,{TEXT}"}), id="data URI"),
    pytest.param(lambda: Request(json={"image_b64": TEXT}), id="image_b64"),
    pytest.param(lambda: Request(json={"image_url": {"url": f"data:image/png;base64,{TEXT}"}}), id="image_url"),
    pytest.param(lambda: Request(json={"image": PICTURE}), id="bytes by hand"),
    pytest.param(lambda: Received(encode({"parts": [["", 2], ["image", len(PICTURE)]]}), b"{}" + PICTURE), id="a part beside JSON"),
    pytest.param(lambda: Received(encode({"type": "image/png", "parts": [["image", len(PICTURE)]]}), PICTURE), id="a part alone"),
    pytest.param(
        lambda: Received(encode({"type": "image/png", "parts": [["file", len(PICTURE)]]}), PICTURE), id="one part of another name"
    ),
]


@pytest.mark.parametrize("make", FORMS)
def test_every_form_is_the_same_picture(make):
    image = make().image()
    assert image.mode == "RGB" and image.size == (3, 2) and image.getpixel((0, 0)) == (10, 20, 30)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(json={"image": [256]}), "'image' must hold whole numbers from 0 to 255"),
        (Request(json={"image": ["a"]}), "'image' must hold whole numbers from 0 to 255"),
        (Request(json={"image": "not base64!"}), "'image' is no base64"),
        (Request(json={"image": "https://example.com/a.png"}), "'image' must be a data URI or base64"),
        (Request(json={"image_url": {"url": "http://169.254.169.254/"}}), "'image_url' must be a data URI"),
        (Request(json={"image": "data:text/plain,hello"}), "data URI without base64"),
        (Request(json={"image": 5}), "and is int"),
        (Request(json={"picture": TEXT}), "the input has no 'image'"),
        (Request(json=[1]), "an object with 'image'"),
        (Request(bytes=b"", type="image/png"), "empty"),
        (Request(bytes=b"GIF89a", type="image/gif"), "can't be read"),
        (Request(bytes=PICTURE[:50], type="image/png"), "can't be read"),
        (Request(json={"image": []}), "empty"),
    ],
)
def test_what_is_no_picture_is_the_caller_s_fault(request_, message):
    with pytest.raises(BadRequest, match=message):
        request_.image()


def test_a_picture_is_turned_as_its_exif_says():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    raw = encoded(Image.new("RGB", (4, 2)), "JPEG", exif=exif)
    assert decode_image(raw).size == (2, 4)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16", "F"])
def test_every_mode_becomes_rgb(mode):
    format = "TIFF" if mode in ("CMYK", "F", "I;16") else "PNG"
    assert decode_image(encoded(Image.new(mode, (2, 2)), format)).mode == "RGB"


def test_sixteen_bit_grey_is_scaled():
    image = Image.new("I;16", (1, 1), 32768)
    assert decode_image(encoded(image, "PNG")).getpixel((0, 0)) == (128, 128, 128)


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (2, 2), color) for color in ("red", "blue")]
    raw = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode_image(raw).getpixel((0, 0)) == (255, 0, 0)


def test_a_bomb_is_refused_by_its_own_claim_without_decoding():
    raw = encoded(Image.new("1", (9000, 9000)))
    assert len(raw) < 100_000
    with pytest.raises(BadRequest, match="9000 x 9000 pixels, more than the 64000000 allowed"):
        Request(bytes=raw, type="image/png").image()
    with pytest.raises(BadRequest, match="refused: Image size"):
        decode_image(encoded(Image.new("1", (20_000, 20_000))))
    with pytest.raises(BadRequest, match="more than the 5 allowed"):
        Request(bytes=PICTURE, type="image/png").image(max_pixels=5)


@given(st.data())
def test_broken_pictures_are_never_anything_but_a_bad_request(data):
    raw = bytearray(
        data.draw(st.sampled_from([PICTURE, encoded(Image.new("RGB", (8, 8)), "JPEG"), encoded(Image.new("P", (4, 4)), "GIF")]))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert decode_image(bytes(raw)).mode == "RGB"
    except BadRequest:
        pass


def test_the_field_may_have_another_name():
    assert Request(json={"mask": TEXT}).image("mask").size == (3, 2)


MEMORY = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from PIL import Image
from fornada_sdk.api_image import decode_image
raw = open(sys.argv[2], "rb").read()
Image.init()
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]) * 2**20, resource.RLIM_INFINITY))
try:
    print(decode_image(raw).size)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA bounds memory on Linux alone")
@pytest.mark.parametrize(
    ("mode", "mib", "said"),
    [
        ("RGBA", 250, "(4000, 6000)"),
        ("RGB", 250, "(4000, 6000)"),
        ("RGBA", 100, "BadRequest the picture has 6000 x 4000 pixels, more than"),
    ],
)
def test_decoding_takes_two_copies_at_most_and_a_lack_of_memory_is_no_fault_of_ours(tmp_path, mode, mib, said):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = tmp_path / "picture.png"
    picture.write_bytes(encoded(Image.new(mode, (6000, 4000)), exif=exif))  # 92 MiB a copy in Pillow's memory
    sdk = Path(fornada_sdk.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", MEMORY, sdk, picture, str(mib)], capture_output=True, text=True, timeout=bound(20))
    assert done.stdout.startswith(said), done.stdout + done.stderr
