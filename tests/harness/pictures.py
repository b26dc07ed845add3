"""A classifier whose one label is the digest of the picture that reached it: equal pictures, equal answers."""

from tests.harness.bundles import archive

CODE = """
import hashlib

def handle_request(request, context):
    body = request.body
    picture = body.json["image"] if body.fields else body.bytes
    return [{"label": hashlib.sha256(picture).hexdigest(), "score": 1.0}]
"""


def digest_model(name: str) -> bytes:
    """Its bundle."""
    return archive({"model.toml": f'name = "{name}"\ntask = "image-classification"\n', "model.py": CODE})
