"""`curl --data-binary @photo.jpg '…/ai/run/@example/thumbnail?size=64'` answers a PNG."""

import io

from PIL import Image

import fornada_sdk

LARGEST = 1024


class Model(fornada_sdk.Model):
    def preprocess(self, request, context):
        return request.image(), wanted_size(request, context)

    def run(self, inputs, context):
        picture, size = inputs
        picture.thumbnail((size, size), Image.Resampling.LANCZOS)
        return picture

    def postprocess(self, outputs, context):
        encoded = io.BytesIO()
        outputs.save(encoded, "PNG")
        return fornada_sdk.Response(encoded.getvalue(), type="image/png")


def wanted_size(request, context):
    """From the query where the body is the picture, from the JSON where the picture is a field of it."""
    given = request.query.get("size")
    if given is None and request.body.type == "application/json":
        given = request.body.json.get("size")
    try:
        size = int(context.settings["size"] if given is None else given)
    except (TypeError, ValueError):
        size = 0
    if not 1 <= size <= LARGEST:
        raise fornada_sdk.BadRequest(f'"size" must be a whole number from 1 to {LARGEST}')
    return size
